"""How the C library keeps memory: freed tensors stay with the process, so the next step does not fault in fresh pages."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h


def keep_memory() -> bool:
    """Asks glibc not to return freed memory to the system, and to have one store of it for all threads that begin after this: a
    thread's own is given back whenever it is empty. False where there is no glibc. Worth a tenth of the time of training, and of
    searching in batches."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        wishes = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_ARENA_MAX: 1}
        return all([libc.mallopt(what, value) for what, value in wishes.items()])
    except (OSError, AttributeError):
        return False
