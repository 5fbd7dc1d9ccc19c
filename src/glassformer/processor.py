"""What kind of processor this is, where that decides who multiplies fastest. Neither NumPy nor PyTorch is needed for it."""

import os
import platform
import re
import sys
from functools import cache
from pathlib import Path

_ZEN4 = re.compile(r"^cpu family\s*: 25$(?s:.*)^flags\s*:.*\bavx512f\b", re.MULTILINE)  # Zen 3 is of family 25 too, without


@cache
def mkl_behind() -> bool:
    """Whether others multiply faster than MKL, which PyTorch takes: it is at home on Intel's processors, and behind on AMD's."""
    return "AuthenticAMD" in described()


def training_environment() -> dict[str, str]:
    """What NumPy's products read from the environment when they are first loaded, for a process that trains.

    Zen 4 computes AVX-512 in two halves: there the kernels of AVX2 are a few per cent ahead in large products. In the small ones
    of decoding they are behind, so this is for training alone.
    """
    return {"OPENBLAS_CORETYPE": "Haswell"} if _ZEN4.search(described()) else {}


def prepare_training() -> None:
    """Sets that for this process and those it starts, unless NumPy has been loaded already; what a person has set stays."""
    if "numpy" not in sys.modules:
        for name, value in training_environment().items():
            os.environ.setdefault(name, value)


@cache
def described() -> str:
    """The first core, in the system's words."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return platform.processor()
