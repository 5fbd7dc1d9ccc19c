"""Rows of tables: TSV, CSV, JSONL and JSON, one at a time; only a .json is held whole."""

import csv
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.text.corpus import Find, check_halves, kind_of, parse_json, read_lines

ALLOWED = "table.tsv, table.csv, rows.jsonl, rows.json#KEY (each also .gz)"
LARGEST_JSON = 200_000_000  # characters

Columns = Sequence[int | str]  # numbers counted from 1, or names: of JSON keys, else of the table's first line
Cells = tuple[list[Any], str]  # the chosen cells of a row, and its place: "file:line", or of a .json "file#KEY:row"


def read_table(spec: str, columns: Columns, find: Find, *, txt: bool = False) -> Iterator[Cells]:
    """The cells of `columns` in every row; `txt`: whether a .txt may be a TSV. A TSV knows no quotes and no escapes."""
    if any(isinstance(column, int) and column < 1 for column in columns):
        raise UserError(f"data.columns counts from 1; found {list(columns)}.")
    if named := re.fullmatch(r"(.+?\.json(?:\.gz)?)(?:#(.*))?", spec):
        return _read_json(find(named[1]), named[2], columns)
    name = spec.removesuffix(".gz")
    if name.endswith(".jsonl"):
        return _read_jsonl(find(spec), columns)
    if name.endswith(".csv"):
        path = find(spec)
        return _chosen(_split_csv(path), path, columns)
    if name.endswith(".tsv") or (txt and name.endswith(".txt")):
        path = find(spec)
        return _chosen(_split_tsv(path), path, columns)
    raise UserError(f"The kind of the corpus {spec!r} is not known from its name; allowed: {ALLOWED}, or .txt.")


def text_in(cell: Any, column: int | str, place: str) -> str:
    """A cell that must be a text and not empty."""
    if not isinstance(cell, str):
        raise UserError(f"{place}: the value of {column!r} must be a text, found {kind_of(cell)}.")
    if not cell.strip():
        raise UserError(f"{place}: the column {column!r} is empty. Fill it in or remove the row.")
    return check_halves(cell, column, place)


def _split_tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        yield number, line.split("\t")


def _split_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of RFC 4180, each with the number of its first line."""
    reader = csv.reader(read_lines(path, ends=True), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{path}:{number}: not valid CSV: {error}. A cell with a comma, a quote or a line end stands in double quotes, "
                f"a quote inside it is doubled, and a cell of more than {csv.field_size_limit():,} characters needs JSONL."
            ) from None
        if cells is None:
            return
        yield number, cells


def _chosen(rows: Iterator[tuple[int, list[str]]], path: Path, columns: Columns) -> Iterator[Cells]:
    """The cells of `columns`; where one of these is a name, the first row has the names."""
    indices: list[int] = []
    width = 0
    for number, cells in rows:
        place = f"{path}:{number}"
        if not indices:
            width = len(cells)
            indices = [_index(column, cells, place) for column in columns]
            if any(isinstance(column, str) for column in columns):
                continue
        needed = max(indices) + 1
        if len(cells) < needed and any(cell.strip() for cell in cells):
            raise UserError(f"{place}: found {len(cells)} of the {needed} columns that data.columns {list(columns)} needs.")
        if len(cells) > width:  # a stray tab or comma inside a text would cut it short
            raise UserError(f"{place}: found {len(cells)} columns where the first line has {width}. Remove the stray separator.")
        yield [cells[index] if index < len(cells) else "" for index in indices], place


def _index(column: int | str, names: Sequence[str], place: str) -> int:
    if isinstance(column, int):
        return column - 1
    if column not in names:
        raise UserError(
            f"{place}: there is no column {column!r}; the first line names {_listed(names)}.{_guess(column, names)} "
            "Of a table without names, data.columns takes numbers, counted from 1."
        )
    return names.index(column)


def _read_jsonl(path: Path, columns: Columns) -> Iterator[Cells]:
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}:{number}"
        yield _fields(parse_json(line, place, "Each line is one object, or one list."), columns, place), place


def _read_json(path: Path, keys: str | None, columns: Columns) -> Iterator[Cells]:
    """The rows of a list, or of those lists in an object that `keys` names, with commas between them."""
    lines, size = [], 0
    for line in read_lines(path, ends=True):
        size += len(line)
        if size > LARGEST_JSON:
            raise UserError(
                f"{path}: longer than {LARGEST_JSON:,} characters; a .json is held whole. Use JSONL: a row on each line."
            )
        lines.append(line)
    tree = parse_json("".join(lines), str(path), "A .json is a list of rows, or an object of such lists.")
    lists = {str(path): tree}
    if keys is not None:
        names = [key.strip() for key in keys.split(",")]
        if not isinstance(tree, dict):
            raise UserError(f"{path}: #{keys} names a key of an object; found {kind_of(tree)}. Leave out #{keys}.")
        for key in names:
            if key not in tree:
                raise UserError(f"{path}: there is no key {key!r}; found {_listed(tree)}.{_guess(key, tree)}")
        lists = {f"{path}#{key}": tree[key] for key in names}
    for name, rows in lists.items():
        if not isinstance(rows, list):
            found = (
                f"{kind_of(rows)} of {_listed(rows)}: name a key, as in .json#KEY" if isinstance(rows, dict) else kind_of(rows)
            )
            raise UserError(f"{name}: expected a list of rows, found {found}.")
        for number, row in enumerate(rows, start=1):
            yield _fields(row, columns, f"{name}:{number}"), f"{name}:{number}"


def _fields(row: Any, columns: Columns, place: str) -> list[Any]:
    """Of an object the values of keys, of a list the items of numbers."""
    if isinstance(row, dict):
        for column in columns:
            if column not in row:
                raise UserError(f"{place}: there is no key {column!r}; found {_listed(row)}.{_guess(str(column), row)}")
        return [row[column] for column in columns]
    if isinstance(row, list):
        indices = [column - 1 for column in columns if isinstance(column, int) and column <= len(row)]
        if len(indices) < len(columns):
            raise UserError(f"{place}: the row is a list: data.columns takes numbers up to {len(row)}, not {list(columns)}.")
        return [row[index] for index in indices]
    raise UserError(f"{place}: expected an object or a list, found {kind_of(row)}.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _guess(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
