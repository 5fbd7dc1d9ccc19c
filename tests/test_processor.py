"""What is set for a kind of processor, and when."""

import os
import subprocess
import sys

import pytest

from glassformer import processor
from glassformer.layers import blas

ZEN4 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: fpu avx2 avx512f avx512dq"
ZEN3 = ZEN4.replace("avx512f avx512dq", "bmi2")
ZEN5 = ZEN4.replace(": 25", ": 26")
INTEL = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu avx2 avx512f"


@pytest.mark.parametrize(
    "words, behind, asks", [(ZEN4, True, True), (ZEN3, True, False), (ZEN5, True, False), (INTEL, False, False)]
)
def test_what_a_processor_asks_for(words: str, behind: bool, asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "described", lambda: words)
    assert processor.mkl_behind.__wrapped__() == behind
    assert bool(processor.training_environment()) == asks


def test_what_a_person_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "described", lambda: ZEN4)
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")
    processor.prepare_training()
    assert os.environ["OPENBLAS_CORETYPE"] == "Zen"


def test_nothing_is_set_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy is there and has chosen; the processes started from here are to be like this one."""
    monkeypatch.setattr(processor, "described", lambda: ZEN4)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    processor.prepare_training()
    assert "OPENBLAS_CORETYPE" not in os.environ


@pytest.mark.skipif(not blas.there(), reason="this NumPy does not multiply with OpenBLAS")
@pytest.mark.skipif("avx2" not in processor.described(), reason="a processor without AVX2 has no such kernels")
def test_it_is_set_in_time() -> None:
    """The command line has not loaded NumPy when it begins to train, and NumPy then has the kernels that were asked for."""
    code = """
import sys
import glassformer.cli
assert "numpy" not in sys.modules
from glassformer import processor
processor.described = lambda: %r
processor.prepare_training()
from glassformer.layers.threads import libraries
print(libraries()[0].architecture)
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    done = subprocess.run([sys.executable, "-c", code % ZEN4], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "Haswell"
