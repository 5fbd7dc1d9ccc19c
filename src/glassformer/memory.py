"""How the C library keeps memory: freed tensors stay with the process, so the next step does not fault in fresh pages."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h


def keep_memory(*, one_store: bool = False) -> bool:
    """Asks glibc not to return freed memory to the system. Threads have stores of their own, of which each that is empty is given
    back after all; `one_store` makes it one for all threads that begin after this. That is worth a tenth of the time of training,
    whose tensors are alike from update to update; those of a search grow, and leave gaps that nothing fits in. False where there
    is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    wishes = {_M_TRIM_THRESHOLD: (1 << 31) - 1, _M_MMAP_THRESHOLD: 1 << (30 if one_store else 25)}
    if one_store:
        wishes[_M_ARENA_MAX] = 1
    try:
        libc = ctypes.CDLL("libc.so.6")
        return all([libc.mallopt(what, value) for what, value in wishes.items()])
    except (OSError, AttributeError):
        return False
