"""What the C library is asked for, in processes of their own."""

import subprocess
import sys

import pytest

CODE = """
import ctypes
from glassformer.memory import keep_memory
libc = ctypes.CDLL("libc.so.6")
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "chunks", "fast", "maps", "hblkhd", *"abcde")]
libc.mallinfo2.restype, libc.malloc.restype = Info, ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
def mapped_apart(megabytes):
    before = libc.mallinfo2().hblkhd
    assert libc.malloc(megabytes << 20)
    return libc.mallinfo2().hblkhd > before
"""


def said(code: str) -> str:
    try:
        import ctypes

        ctypes.CDLL("libc.so.6").mallinfo2  # noqa: B018
    except (OSError, AttributeError):
        pytest.skip("no glibc that says what it has mapped")
    return subprocess.run([sys.executable, "-c", CODE + code], capture_output=True, text=True, check=True).stdout.strip()


def test_small_is_kept_and_large_given_back() -> None:
    found = said("print(mapped_apart(8), keep_memory(), mapped_apart(8), mapped_apart(40))")
    assert found == "True True False True"


def test_a_search_leaves_a_training_its_store() -> None:
    found = said("print(keep_memory(one_store=True), mapped_apart(40), keep_memory(), mapped_apart(40))")
    assert found == "True False True False"
