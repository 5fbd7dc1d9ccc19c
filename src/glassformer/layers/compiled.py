"""What compiled.c computes, where it was compiled when this package was installed. No torch is needed for it."""

import ctypes
from ctypes import POINTER, byref, c_float, c_int32, c_int64, c_void_p, sizeof
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 2  # of what is compiled: as in compiled.c
PANEL = 64  # columns: as there


class Linear(ctypes.Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("inputs", c_int64), ("outputs", c_int64))


class Norm(ctypes.Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("epsilon", c_float), ("centred", c_int32))


class Block(ctypes.Structure):
    _fields_ = (("norms", Norm * 3), *((name, Linear) for name in ("joined", "o", "q", "cross_o", "w1", "w2", "w3")))


class Stack(ctypes.Structure):
    _fields_ = (
        ("blocks", POINTER(Block)),
        *((name, c_int64) for name in ("depth", "width", "heads", "kv_heads", "d_k", "d_v", "inner")),
        *((name, c_int32) for name in ("post", "activation")),
        *((name, c_void_p) for name in ("tokens", "positions", "cos", "sin")),
        *((name, c_int64) for name in ("vocabulary", "places")),
        ("scale", c_float),
        ("last", Norm),
    )


class Source(ctypes.Structure):
    _fields_ = (("both", c_void_p), ("steps", c_int64 * 3))


class Known(ctypes.Structure):
    _fields_ = (
        *((name, c_int64) for name in ("rows", "length")),
        ("own", c_void_p),
        *((name, c_int64) for name in ("slots", "room")),
        *((name, c_void_p) for name in ("trails", "sources", "looked_at", "bias")),
        ("source_length", c_int64),
    )


class Rules(ctypes.Structure):
    _fields_ = (("never", c_void_p), ("count", c_int64), ("eos", c_int64), ("ends", c_void_p))


CHOSEN = np.dtype([("total", np.float32), ("log_prob", np.float32), ("place", np.int64)])
Best = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # totals, log p and places among K · V (B, count), best first
STRUCTURES: dict[Any, int] = {each: sizeof(each) for each in (Stack, Block, Known, Source, Rules)} | {CHOSEN: CHOSEN.itemsize}


@cache
def library() -> ctypes.CDLL | None:
    """None where nothing was compiled, or something else than stands here."""
    spec = find_spec("glassformer.layers._compiled")
    try:
        found = ctypes.CDLL(spec.origin) if spec and spec.origin else None
        if found is None or found.compiled_version() != VERSION:
            return None
    except (OSError, AttributeError):
        return None
    sizes = (c_int64 * len(STRUCTURES))()
    found.compiled_sizes(sizes)
    if list(sizes) != list(STRUCTURES.values()):
        return None
    found.compiled_pass.argtypes = (c_void_p,) * 4
    found.compiled_panels.argtypes = (c_void_p, c_void_p, c_int64, c_void_p)
    found.compiled_panels.restype = None
    found.compiled_best.argtypes = (c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p, c_void_p)
    found.compiled_best.restype = None
    return found


def best(
    logits: NDArray[np.float32],
    before: list[list[float]],
    count: int,
    never: NDArray[np.int64],
    eos: int,
    ends: NDArray[np.bool_] | None,
) -> Best | None:
    """The `count` best of what may follow each of B inputs, by log p + before, of logits (B · K, V) and before (B, K). What is
    `never` written cannot follow, and where an input `ends` (B) nothing but `eos` can. None where nothing was compiled."""
    found = library()
    if found is None:
        return None
    logits, known = np.ascontiguousarray(logits, np.float32), np.array(before, np.float32)
    assert len(logits) == known.size and count > 0
    if not 0 <= eos < logits.shape[1]:
        raise IndexError(f"end mark {eos} of a vocabulary of {logits.shape[1]}")
    chosen = np.empty((len(known), count), CHOSEN)
    rules = Rules(address(never), len(never), eos, None if ends is None else address(ends))
    sizes = *known.shape, logits.shape[1], count
    found.compiled_best(address(logits), address(known), *sizes, byref(rules), address(chosen))
    return chosen["total"], chosen["log_prob"], chosen["place"]


class Panels:
    """x W + b of a few rows, by a W (inputs, outputs) that is large: cut into panels, so that it is read from end to end."""

    def __init__(self, weight: NDArray[np.float32], bias: NDArray[np.float32] | None) -> None:
        inputs, self.outputs = weight.shape
        self.kept = np.empty(weight.size, np.float32), bias
        for i in range(0, self.outputs, PANEL):
            panel = weight[:, i : i + PANEL]
            self.kept[0][i * inputs :][: panel.size].reshape(panel.shape)[:] = panel
        self.told = Linear(address(self.kept[0]), None if bias is None else address(bias), inputs, self.outputs)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        found, y = library(), np.empty((len(x), self.outputs), np.float32)
        assert found is not None and x.flags.c_contiguous and x.shape[1] == self.told.inputs
        found.compiled_panels(byref(self.told), address(x), len(x), address(y))
        return y


def address(x: NDArray[Any]) -> int:
    """Where its numbers stand: as x.ctypes.data, in a third of the time."""
    found: int = x.__array_interface__["data"][0]
    return found
