"""How the C library keeps memory: freed tensors stay with the process, so the next step does not fault in fresh pages."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def keep_memory() -> bool:
    """Asks glibc not to return freed memory to the system; False where there is no glibc. Worth a tenth of the time of
    training, and of searching in batches."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30) and libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))
    except (OSError, AttributeError):
        return False
