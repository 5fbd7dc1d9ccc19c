"""Sentence pairs from files, one at a time: memory does not grow with a corpus."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from glassformer.errors import UserError
from glassformer.options import PairData
from glassformer.text import synthetic

ALLOWED = "pairs.tsv, pairs.jsonl (each also .gz), two aligned files such as train.{en,de}.gz, or synthetic:NAME"

GZIP_MAGIC = b"\x1f\x8b"
LONGEST_LINE = 200_000_000  # bytes; a line is held whole, and one without an end would fill the memory

Find = Callable[[str], Path]  # turns a name into an existing file or raises UserError
Row = TypeVar("Row")


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    place: str  # "file:line", for error messages; of two aligned files, the source's


def read_pairs(specs: Sequence[str], data: PairData, find: Find) -> Iterator[Pair]:
    """The pairs of every corpus, in order.

    Texts are kept as they are: a TSV knows no quotes and no escapes, and spaces at the ends stay.
    """
    return read_each(specs, lambda spec: _read(spec, data, find), "pair", ALLOWED)


def read_each(specs: Sequence[str], read: Callable[[str], Iterator[Row]], what: str, allowed: str) -> Iterator[Row]:
    """What `read` gives for each corpus, one corpus after the other; none may be empty."""
    if not specs:
        raise UserError(f"No corpus was named. Name at least one: {allowed}.")
    for spec in specs:
        empty = True
        for row in read(spec):
            empty = False
            yield row
        if empty:
            raise UserError(f"The corpus {spec} is empty: it needs at least one {what}.")


def read_lines(path: Path, *, ends: bool = False) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or gzip, without a byte order mark, and without their ends (`\n` or `\r\n`) unless
    `ends` keeps them."""
    number = 0
    try:
        with open(path, "rb") as file:
            # The first bytes decide, not the name: files are renamed, and some programs unpack a .gz on the way.
            packed = file.peek(2).startswith(GZIP_MAGIC)
            lines = io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file
            # Bytes are split on \n alone, where str.splitlines knows ten ends.
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), start=1):
                if len(line) > LONGEST_LINE:
                    raise UserError(f"{path}:{number}: the line is longer than {LONGEST_LINE:,} bytes. Cut the text into lines.")
                if not ends and line.endswith(b"\n"):
                    line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}:{number}: not valid UTF-8: byte 0x{error.object[error.start]:02x} at byte {error.start + 1} of the line. "
            "Save the file as UTF-8, for example with: iconv -f ENCODING -t UTF-8"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: the gzip data is broken or cut off after line {number}: {error}. Get the file again.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}. A corpus is a readable file.") from None


def _read(spec: str, data: PairData, find: Find) -> Iterator[Pair]:
    if spec.startswith("synthetic:"):
        return _read_synthetic(spec)
    if braces := re.fullmatch(r"(.*)\{([^{}]*,[^{}]*)\}(.*)", spec, flags=re.DOTALL):
        before, names, after = braces.groups()
        sides = [side.strip() for side in names.split(",")]
        if len(sides) != 2 or not all(sides):
            raise UserError(f"The corpus {spec} needs two names in braces, source and target, such as train.{{en,de}}.gz.")
        return _read_aligned(*(find(before + side + after) for side in sides))
    name = spec.removesuffix(".gz")
    if name.endswith(".tsv"):
        return _read_tsv(find(spec), data.columns)
    if name.endswith(".jsonl"):
        return _read_jsonl(find(spec), data)
    raise UserError(f"The kind of the corpus {spec!r} is not known from its name; allowed: {ALLOWED}.")


def _read_synthetic(spec: str) -> Iterator[Pair]:
    form = re.fullmatch(r"synthetic:([^:]*)(?::(\d{1,18}))?(?::(\d{1,18}))?", spec)
    if not form:
        raise UserError(f"The corpus {spec!r} is not of the form synthetic:NAME or synthetic:NAME:COUNT:SEED, in whole numbers.")
    name, count, seed = form[1], int(form[2] or synthetic.COUNT), int(form[3] or synthetic.SEED)
    for number, (source, target) in enumerate(synthetic.pairs(name, count, seed), start=1):
        yield Pair(source, target, f"{spec} pair {number}")


def _read_tsv(path: Path, columns: Sequence[int]) -> Iterator[Pair]:
    needed = max(columns)
    usual = 0
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}:{number}"
        cells = line.split("\t")
        usual = usual or len(cells)
        if len(cells) < needed and line.strip():
            raise UserError(
                f"{place}: found {len(cells)} of the {needed} columns that data.columns {list(columns)} needs. "
                "One tab stands between two columns."
            )
        if len(cells) > usual:  # a stray tab inside a text would cut it short
            raise UserError(f"{place}: found {len(cells)} columns where the lines before have {usual}. Remove the stray tab.")
        source, target = (cells[column - 1] if column <= len(cells) else "" for column in columns)
        yield _pair(source, target, place, place)


def _read_jsonl(path: Path, data: PairData) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}:{number}"
        if not line.strip():
            raise _empty("source and the target", place)
        row = parse_json(line, place, "Each line is one object with two texts.")
        if not isinstance(row, dict):
            raise UserError(f'{place}: expected an object {{"{data.source}": …, "{data.target}": …}}, found {kind_of(row)}.')
        yield _pair(_text(row, data.source, "source", place), _text(row, data.target, "target", place), place, place)


def _text(row: dict[str, Any], key: str, fallback: str, place: str) -> str:
    if key not in row and fallback not in row:
        wanted = " and ".join(f"no key {name!r}" for name in dict.fromkeys((key, fallback)))
        raise UserError(f"{place}: there is {wanted}; found {', '.join(map(repr, row)) or 'no keys'}.")
    key = key if key in row else fallback
    text = row[key]
    if not isinstance(text, str):
        raise UserError(
            f"{place}: the value of {key!r} must be a text, found {kind_of(text)}; keys: {', '.join(map(repr, row))}."
        )
    return check_halves(text, key, place)


def _read_aligned(source_path: Path, target_path: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source_path), read_lines(target_path)
    number = 0
    while True:
        source, target = next(sources, None), next(targets, None)
        if source is None or target is None:
            break
        number += 1
        yield _pair(source, target, f"{source_path}:{number}", f"{target_path}:{number}")
    source_count = number + (source is not None) + sum(1 for _ in sources)
    target_count = number + (target is not None) + sum(1 for _ in targets)
    if source_count != target_count:
        raise UserError(
            f"Aligned files need equally many lines: {source_path} has {source_count}, {target_path} has {target_count}. "
            "Line N of one is the translation of line N of the other."
        )


def _pair(source: str, target: str, place: str, target_place: str) -> Pair:
    """A pair, neither side of which is empty."""
    if not source.strip():
        raise _empty("source" if target.strip() else "source and the target", place)
    if not target.strip():
        raise _empty("target", target_place)
    return Pair(source, target, place)


def _empty(side: str, place: str) -> UserError:
    return UserError(f"{place}: the {side} is empty. Every pair needs a text on both sides: fill it in or remove the pair.")


def parse_json(text: str, place: str, wanted: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise UserError(f"{place}: not valid JSON: {error}. {wanted}") from None


def check_halves(text: str, key: str | int, place: str) -> str:
    """The text, which no UTF-8 file could hold if JSON gave it half of a character."""
    if re.search("[\ud800-\udfff]", text):
        raise UserError(
            f"{place}: the value of {key!r} has half a character, such as \\ud83d without its second half. Write it as UTF-8."
        )
    return text


def kind_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")
