"""How the C library keeps memory: freed tensors stay with the process, so the next step does not fault in fresh pages."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h
_MOST_OF_OLD = 1 << 25  # bytes that may be in a thread's store, and the greatest threshold that older versions take

_one_store = False


def keep_memory(*, one_store: bool = False) -> bool:
    """Asks glibc not to return freed memory to the system. Threads have stores of their own, of which each that is empty is given
    back after all; `one_store` makes it one for all threads that begin after this. That is worth a tenth of the time of training,
    whose tensors are alike from update to update; those of a search grow, and leave gaps that nothing fits in. False where there
    is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    global _one_store
    _one_store |= one_store  # a training translates now and then, and goes on
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    if not _one_store:
        return bool(kept and mallopt(_M_MMAP_THRESHOLD, _MOST_OF_OLD))
    mapped_apart = mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, _MOST_OF_OLD)
    return bool(kept and mapped_apart and mallopt(_M_ARENA_MAX, 1))
