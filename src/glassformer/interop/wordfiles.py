"""Files of word vectors: word2vec's text and binary formats, and those of GloVe and fastText, which are text.

They are read row by row. A count that a header announces is checked against the size of the file before it is believed.
"""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer import config
from glassformer.errors import UserError
from glassformer.files import aside, write_text
from glassformer.interop.folders import check_free, folder_aside
from glassformer.interop.tensors import refuse_pickle
from glassformer.options import Recipe, TokenizerOptions, Word2VecOptions, WordData, usual_training
from glassformer.tasks.space import space_words
from glassformer.tasks.task import Task
from glassformer.text.corpus import GZIP_MAGIC
from glassformer.text.tokenizer import Tokenizer
from glassformer.weights import write_tensors

FILES = ("recipe.toml", "tokenizer.json", "model.safetensors", "card.md")
FORMATS = ("word2vec", "word2vec-binary", "glove")
WIDEST = 1 << 16  # numbers of a vector
LONGEST_WORD = 10_000  # bytes
PACKED = 1032  # how much shorter gzip can make a file at most
ROWS = 4096  # read or written together
DIGITS = frozenset(b"0123456789+-.eE \r")

Row = tuple[str, NDArray[np.float32]]
Report = Callable[[str], None]


@dataclass(frozen=True)
class WordVectors:
    words: list[str]
    vectors: Tensor  # (V, D)
    twice: int = 0  # rows left out, since their word had been read before


def read_vectors(path: Path, limit: int = 0) -> WordVectors:
    """The words and vectors of a file, by what it is, not by what it is called; `limit`: no more than the first so many."""
    with _opened(path) as (file, size):
        head = file.readline(WIDEST * 32).removeprefix(codecs.BOM_UTF8)
        if header := re.fullmatch(rb"(\d{1,18}) (\d{1,18})\s*", head):
            count, width = int(header[1]), int(header[2])
            binary = _is_binary(file.peek(LONGEST_WORD))
            _check_header(path, count, width, size, binary)
            rows = _binary_rows(file, count, width, path) if binary else _text_rows(file, b"", width, path, 2)
            return _gathered(rows, min(count, limit or count), count if not limit else 0, width, path)
        width = len(head.rstrip(b" \r\n").split(b" ")) - 1
        if not 1 <= width <= WIDEST:
            raise UserError(
                f"{path}:1: not a file of word vectors. Its first line is a header of two numbers (words, width), or a word with "
                f"its numbers, with spaces between them; found {head[:40]!r}."
            )
        return _gathered(_text_rows(file, head, width, path, 1), limit, 0, width, path)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, int]]:
    """The file, unpacked if it is gzip, and how many bytes it can hold at most."""
    refuse_pickle(path)
    try:
        with open(path, "rb") as file:
            packed = file.peek(2).startswith(GZIP_MAGIC)
            size = path.stat().st_size * (PACKED if packed else 1)
            yield (io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file), size
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: the gzip data is broken or cut off: {error}. Get the file again.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None


def _is_binary(ahead: bytes) -> bool:
    """Whether the numbers after the first word are raw: then other bytes than digits come before a line end, and among them
    some that no text has. A text with something else than numbers there is not binary, but wrong."""
    numbers = ahead.partition(b" ")[2].partition(b"\n")[0]
    return not (numbers and DIGITS.issuperset(numbers)) and not _is_text(ahead)


def _is_text(ahead: bytes) -> bool:
    """UTF-8 without control characters; the last character may be cut."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(ahead)
    except UnicodeDecodeError:
        return False
    return all(character >= " " or character in "\t\n\r" for character in text)


def _check_header(path: Path, count: int, width: int, size: int, binary: bool) -> None:
    least = 2 + 4 * width if binary else 1 + 2 * width  # bytes of a row, at least
    said = f"{path}: its header says {_many(count, 'word')} of width {width:,}"
    if not 1 <= width <= WIDEST or count < 1:
        raise UserError(f"{said}; allowed are widths of 1 to {WIDEST:,}.")
    if count * least > size:
        raise UserError(
            f"{said}, for which it needs at least {count * least:,} bytes; "
            f"the file has {size:,} at most. It is cut short, or the header is wrong."
        )


def _text_rows(file: IO[bytes], first: bytes, width: int, path: Path, number: int) -> Iterator[Row]:
    """The rows of a text; `first` is a line that was read before, `number` that of the first row."""
    longest = LONGEST_WORD + 40 * width
    empty = 0  # the first line of those without anything that may end the file
    for line, raw in enumerate(_lines(file, first, longest), start=number):
        place = f"{path}:{line}"
        if not raw.strip():
            empty = empty or line
            continue
        if empty:
            raise UserError(f"{path}:{empty}: the line is empty, and more rows follow.")
        if len(raw) > longest:
            raise UserError(f"{place}: the line is longer than a word with {_many(width, 'number')} can be.")
        word, *numbers = _decoded(raw.rstrip(b" \r\n"), place).rsplit(" ", width)
        if len(numbers) != width:
            raise UserError(f"{place}: found {_many(len(numbers), 'number')} after the word; the other rows have {width}.")
        if " " in word and _is_number(word.rpartition(" ")[2]):
            raise UserError(f"{place}: found more than {_many(width, 'number')} after the word; the other rows have {width}.")
        try:
            with np.errstate(over="ignore"):  # too large is not finite, which is told below
                vector = np.array(numbers, np.float32)
        except ValueError as error:
            raise UserError(f"{place}: not a row of numbers: {error}.") from None
        _check_row(word, vector, place)
        yield word, vector


def _lines(file: IO[bytes], first: bytes, longest: int) -> Iterator[bytes]:
    if first:
        yield first
    yield from iter(lambda: file.readline(longest + 1), b"")


def _binary_rows(file: IO[bytes], count: int, width: int, path: Path) -> Iterator[Row]:
    """Word, space, numbers of four bytes, little end first; some programs put a line end behind them."""
    for number in range(1, count + 1):
        place = f"{path}, word {number:,}"
        word = bytearray()
        while (letter := file.read(1)) != b" ":
            if not letter:
                raise UserError(f"{place}: the file ends here; its header says {_many(count, 'word')}.")
            if letter != b"\n" or word:
                word += letter
            if len(word) > LONGEST_WORD:
                raise UserError(f"{place}: the word is longer than {LONGEST_WORD:,} bytes. The file is damaged.")
        raw = file.read(4 * width)
        if len(raw) < 4 * width:
            found = _many(len(raw) // 4, "number")
            raise UserError(f"{place}: its vector has {found} instead of {width}; the file is cut short.")
        vector = np.frombuffer(raw, "<f4").astype(np.float32)
        text = _decoded(bytes(word), place)
        _check_row(text, vector, place)
        yield text, vector
    if left := sum(len(part) for part in iter(lambda: file.read(1 << 20), b"") if part.strip()):
        raise UserError(
            f"{path}: its header says {_many(count, 'word')} of width {width:,}, but after the last of them "
            f"{_many(left, 'byte')} more {'follows' if left == 1 else 'follow'}. The header is wrong, or the file is damaged."
        )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _decoded(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{place}: the word is not valid UTF-8: {raw[:40]!r}.") from None


def _check_row(word: str, vector: NDArray[np.float32], place: str) -> None:
    if not word:
        raise UserError(f"{place}: the word is empty.")
    if not np.isfinite(vector).all():
        raise UserError(f"{place}: the vector of {word!r} has a number that is not finite, or too large for 32 bits.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _gathered(rows: Iterator[Row], limit: int, announced: int, width: int, path: Path) -> WordVectors:
    """All rows, or the first `limit`; there must be as many as a header announced."""
    words: dict[str, None] = {}
    chunks: list[NDArray[np.float32]] = []
    chunk = np.empty((ROWS, width), np.float32)
    filled = read = 0
    for word, vector in rows:
        read += 1
        if announced and read > announced:
            raise UserError(f"{path}: its header says {_many(announced, 'word')}, but there are more.")
        if word in words:
            continue
        words[word] = None
        chunk[filled] = vector
        filled += 1
        if filled == ROWS:
            chunks.append(chunk)
            chunk, filled = np.empty((ROWS, width), np.float32), 0
        if limit and not announced and len(words) == limit:
            break
    if read < announced:
        raise UserError(f"{path}: its header says {_many(announced, 'word')}, but it has {read:,}. It is cut short.")
    if not words:
        raise UserError(f"{path} has no word vector.")
    whole = np.concatenate([*chunks, chunk[:filled]])
    return WordVectors(list(words), torch.from_numpy(whole), read - len(words))


def import_vectors(source: Path, out: Path, *, limit: int = 0, force: bool = False, report: Report = lambda line: None) -> None:
    """A file of word vectors → a model folder, whole or not at all."""
    check_free(out, FILES, force)
    if source.is_dir():
        raise UserError(
            f"{source} is a folder; word vectors are imported from a file: word2vec (text or binary), GloVe, fastText. "
            f"A folder with a model is imported with: glassformer import {source} --out {out}"
        )
    if not source.is_file():
        raise UserError(
            f"There is no file {source}. What can be imported are word vectors: word2vec (text or binary), GloVe, fastText."
        )
    report(f"Reading {source}")
    found = read_vectors(source, limit)
    recipe = recipe_of(*found.vectors.shape)
    with folder_aside(out) as part:
        write_text(part / "recipe.toml", config.to_toml(recipe))
        Tokenizer.of_words(found.words, recipe.tokenizer).save(part / "tokenizer.json")
        write_tensors(part / "model.safetensors", {"input.weight": found.vectors})
        write_text(part / "card.md", _card(out.name, source, found))
    if found.twice:
        one = found.twice == 1
        rest = "was left out: its word" if one else "were left out: their words"
        report(f"{_many(found.twice, 'row')} {rest} had been read before.")
    report(f"{out}: {_many(len(found.words), 'word')}, width {found.vectors.size(1)}")


def recipe_of(words: int, width: int) -> Recipe:
    """That of vectors that were trained elsewhere: the first matrix alone, and words as they are."""
    return Recipe(
        task="vectors",
        data=WordData(split="spaces"),
        tokenizer=TokenizerOptions(kind="word", vocabulary=min(max(words, 16), 1_000_000), pad="", bos="", eos="", unk=""),
        model=Word2VecOptions(width=width, output=False, subsample=0.0),
        training=usual_training("vectors"),
    )


def _card(name: str, source: Path, found: WordVectors) -> str:
    lines = (
        f"# {name}: word vectors, imported",
        "",
        f"- Imported from {source.name}: {_many(len(found.words), 'word')}, width {found.vectors.size(1)}.",
        "- The licence and the text they were learned from are those of their source.",
    )
    return "\n".join(lines) + "\n"


def export_vectors(task: Task, to: str, out: Path, *, force: bool = False, report: Report = lambda line: None) -> None:
    """The vectors of a model's words, or of the pieces it reads, as a file that other programs read; whole or not at all."""
    if to not in FORMATS:
        raise UserError(f"Word vectors cannot be written as {to!r}; there are {', '.join(FORMATS)}.")
    if out.is_dir() or (out.exists() and not force):
        raise UserError(f"{out} is a folder; --out names a file." if out.is_dir() else f"{out} exists; --force replaces it.")
    if not out.parent.is_dir():
        raise UserError(f"{out} cannot be written: there is no folder {out.parent}.")
    words, vectors = space_words(task)
    kept = [row for row, word in enumerate(words) if not re.search(r"[ \t\r\n]", word)]
    try:
        with aside(out) as part, open(part, "wb") as file:
            write_vectors(file, [words[row] for row in kept], vectors[kept], to)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}.") from None
    if left := len(words) - len(kept):
        rest = "in it was left out" if left == 1 else "in them were left out"
        report(f"{_many(left, 'word')} with a space or a line end {rest}: these formats have no way to write that.")
    report(f"{out}: {_many(len(kept), 'word')}, width {vectors.size(1)}")


def write_vectors(file: IO[bytes], words: list[str], vectors: Tensor, to: str) -> None:
    """Numbers are written with nine digits, which is enough to read the same float32 again."""
    if to != "glove":
        file.write(f"{len(words)} {vectors.size(1)}\n".encode())
    form = " %.9g" * vectors.size(1)
    for first in range(0, len(words), ROWS):
        rows = vectors[first : first + ROWS].numpy().astype("<f4")
        for word, row in zip(words[first : first + ROWS], rows, strict=True):
            if to == "word2vec-binary":
                file.write(word.encode() + b" " + row.tobytes() + b"\n")
            else:
                file.write((word + form % tuple(row.tolist()) + "\n").encode())
