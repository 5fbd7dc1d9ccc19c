"""Reading GGUF, the format of llama.cpp: settings, vocabulary and tensors in one file, the tensors often quantised.

The header is read by a cursor that checks every count, length and offset against the file's size before it believes it, so a
damaged or hostile file costs no more memory than its own size.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.interop.tensors import Found

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # by type number
TEXT, LIST = 8, 9
PLAIN = {0: (torch.float32, 4), 1: (torch.float16, 2), 30: (torch.bfloat16, 2)}  # by the tensor's type: numbers as they are
DEEPEST = 4  # dimensions of a tensor


@dataclass(frozen=True)
class Place:
    """Where a tensor lies, and how its numbers are packed."""

    shape: tuple[int, ...]
    type: int
    start: int
    size: int


class Cursor:
    """Walks through the header, never past its end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def wrong(self, what: str) -> UserError:
        return UserError(
            f"{self.path} is not a whole GGUF file: {what} (at byte {self.at:,} of {len(self.data):,}). Copy it again."
        )

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise self.wrong(f"{size:,} bytes are announced, and {len(self.data) - self.at:,} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def count(self, what: str, least: int) -> int:
        """A number of things to come, each of at least so many bytes."""
        count: int = self.number("Q")
        if count > (len(self.data) - self.at) // least:
            raise self.wrong(f"{count:,} {what} are announced, more than the file has room for")
        return count

    def text(self) -> str:
        try:
            return self.take(self.number("Q")).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("a text is not UTF-8") from None

    def value(self, type: int) -> Any:
        if type in SCALARS:
            return self.number(SCALARS[type])
        if type == TEXT:
            return self.text()
        if type != LIST:
            raise self.wrong(f"a value has the type {type}, which is unknown")
        inner = self.number("I")
        if inner == TEXT:
            return [self.text() for _ in range(self.count("texts", 8))]
        if inner not in SCALARS:
            raise self.wrong(f"a list has items of type {inner}; they can be numbers or texts")
        width = struct.calcsize(SCALARS[inner])
        return np.frombuffer(self.take(width * self.count("numbers", width)), "<" + SCALARS[inner])


@dataclass(frozen=True)
class Metadata:
    """What the file says of itself."""

    path: Path
    values: dict[str, Any]

    def get(self, key: str, *kinds: type, default: Any = None) -> Any:
        """A value, of one of these types."""
        value = self.values.get(key, default)
        if value is not default and type(value) not in kinds:
            names = " or ".join(
                {list: "a list of texts", np.ndarray: "a list of numbers"}.get(kind, kind.__name__) for kind in kinds
            )
            raise UserError(f"{self.path}: {key} must be {names}; found {str(value)[:60]!r} ({type(value).__name__}).")
        return value


def read_header(path: Path) -> tuple[Metadata, Found]:
    """What it says, and the tensors by their GGUF names."""
    if path.stat().st_size < 24:
        raise UserError(f"{path} is not a whole GGUF file: it has {path.stat().st_size} bytes. Copy it again.")
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = Cursor(data, path)
    if cursor.take(4) != b"GGUF":
        raise UserError(f"{path} is not a GGUF file: it does not begin with GGUF.")
    if (version := cursor.number("I")) not in (2, 3):
        kind = "big-endian" if version >> 16 else f"of version {version}"
        raise UserError(f"{path} is a GGUF file {kind}; supported: little-endian, version 2 or 3.")
    tensors = cursor.count("tensors", 8 + 4 + 8 + 4 + 8)
    settings: dict[str, Any] = {}
    for _ in range(cursor.count("settings", 8 + 4 + 1)):
        key = cursor.text()
        if key in settings:
            raise cursor.wrong(f"the setting {key[:60]!r} stands twice")
        settings[key] = cursor.value(cursor.number("I"))
    places: dict[str, Place] = {}
    for _ in range(tensors):
        name = cursor.text()
        if name in places:
            raise cursor.wrong(f"the tensor {name[:60]!r} stands twice")
        places[name] = _place(cursor)
    start = _aligned(cursor, settings)
    for name, place in places.items():
        if start + place.start + place.size > len(data):
            raise cursor.wrong(f"the tensor {name} would end at byte {start + place.start + place.size:,}")
    shapes = {name: place.shape for name, place in places.items()}
    return Metadata(path, settings), Found(str(path), shapes, lambda name: _read(data, start, places[name]))


def _aligned(cursor: Cursor, settings: dict[str, Any]) -> int:
    step = settings.get("general.alignment", 32)
    if not isinstance(step, int) or not 0 < step <= 1 << 20:
        raise cursor.wrong(f"general.alignment is {step!r}")
    return -(-cursor.at // step) * step


def _place(cursor: Cursor) -> Place:
    depth = cursor.number("I")
    if not 0 < depth <= DEEPEST:
        raise cursor.wrong(f"a tensor has {depth} dimensions; at most {DEEPEST} are allowed")
    shape = tuple(reversed([cursor.number("Q") for _ in range(depth)]))  # GGUF counts from the innermost
    type, start = cursor.number("I"), cursor.number("Q")
    block, size = (1, PLAIN[type][1]) if type in PLAIN else _packing(type, cursor)
    if 0 in shape or shape[-1] % block:
        raise cursor.wrong(f"a tensor has the shape {shape}, whose rows do not divide into blocks of {block}")
    return Place(shape, type, start, prod(shape) // block * size)


def _packing(type: int, cursor: Cursor) -> tuple[int, int]:
    """Numbers in a block of a quantised tensor, and its bytes."""
    constants = _package().constants
    try:
        block, size = constants.GGML_QUANT_SIZES[constants.GGMLQuantizationType(type)]
    except (ValueError, KeyError):
        raise cursor.wrong(f"a tensor is of type {type}, which is unknown") from None
    return int(block), int(size)


def _read(data: mmap.mmap, start: int, place: Place) -> Tensor:
    raw = np.frombuffer(data, np.uint8, place.size, start + place.start)
    if place.type in PLAIN:
        return torch.from_numpy(raw.copy()).view(PLAIN[place.type][0]).view(place.shape)
    package = _package()
    kind = package.constants.GGMLQuantizationType(place.type)
    try:
        numbers = package.quants.dequantize(raw.reshape(*place.shape[:-1], -1), kind)
    except NotImplementedError:
        raise UserError(
            f"A tensor is quantised as {kind.name}, which the package gguf cannot unpack. Look for another file of the model."
        ) from None
    return torch.from_numpy(np.ascontiguousarray(numbers, np.float32)).view(place.shape)


def _package() -> Any:
    try:
        import gguf
        import gguf.constants
        import gguf.quants
    except ImportError:
        raise UserError(
            "This GGUF file is quantised, and unpacking it needs the package gguf: pip install 'glassformer[import]'"
        ) from None
    return gguf
