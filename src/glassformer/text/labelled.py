"""Plain texts, labelled texts and labelled words from files, one at a time: only a .json is held whole."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.errors import UserError
from glassformer.options import LabelData, TagData, TextData, WordData
from glassformer.text import tables
from glassformer.text.corpus import Find, read_each, read_lines

COLUMN_FILES = (".conll", ".iob2", ".bio", ".tsv", ".txt")
LONGEST_SENTENCE = 100_000  # lines; a file without empty lines would be one sentence

TREE_TOKEN = re.compile(r"[()]|[^\s()]+")
TREE_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
CONLLU_COLUMNS = 10
SPAN_LABEL = re.compile(r"([BIMES])(-.+)?")  # with a type, or bare
LETTERS = {"bio": "BI", "bmes": "BIMES", "auto": "BIMES"}
UNSPACED = re.compile(  # Chinese and Japanese, their punctuation and full-width forms
    "[\u2e80-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Example:
    """A text, or two to compare, with a label."""

    texts: tuple[str, ...]
    label: str
    place: str  # "file:line", or of a .json "file#KEY:row"


@dataclass(frozen=True)
class Sentence:
    """Words with a label each.

    Words and spaces put together are the sentence as it was written: exactly so of CoNLL-U; other columns do not tell, so there
    is a space between two words unless a Chinese or Japanese character is on either side of it.
    """

    words: tuple[str, ...]
    labels: tuple[str, ...]
    spaces: tuple[bool, ...]  # whether a space follows the word; never after the last
    place: str  # "file:line" of the first word


def read_texts(specs: Sequence[str], data: TextData | WordData, find: Find) -> Iterator[str]:
    """The documents of every corpus, as they are: files, or lines that are not empty; of a table its rows, columns joined by a
    line end."""
    return read_each(specs, lambda spec: _documents(spec, data, find), "text", f"text.txt (also .gz), {tables.ALLOWED}")


def read_examples(specs: Sequence[str], data: LabelData, find: Find, *, training: bool = False) -> Iterator[Example]:
    """The labelled texts of every corpus; of trees in training with `data.phrases` every phrase, a part before its whole."""
    rules = _relabel_rules(data.relabel)

    def read(spec: str) -> Iterator[Example]:
        kept = left_out = 0
        for example in _examples(spec, data, find, phrases=data.phrases and training):
            label = rules.get(example.label, example.label)
            if label:
                kept += 1
                yield replace(example, label=label)
            else:
                left_out += 1
        if left_out and not kept:
            raise UserError(f"data.relabel {list(data.relabel)} leaves out every example of the corpus {spec}. Keep one label.")

    return read_each(specs, read, "example", f"{tables.ALLOWED}, or trees.txt")


def read_sentences(specs: Sequence[str], data: TagData, find: Find) -> Iterator[Sentence]:
    """The sentences of every corpus, each word with its label."""
    check = _LabelCheck(data.scheme)
    allowed = f"sentences.conllu, or words and labels in columns: {', '.join(COLUMN_FILES)} (each also .gz)"
    if any(column < 1 for column in data.columns):
        raise UserError(f"data.columns counts from 1; found {list(data.columns)}.")

    def read(spec: str) -> Iterator[Sentence]:
        name = spec.removesuffix(".gz")
        if name.endswith(".conllu"):
            return _read_conllu(find(spec), data.columns or (2, 4), check)
        if name.endswith(COLUMN_FILES):
            return _read_columns(find(spec), data.columns, check)
        raise UserError(f"The kind of the corpus {spec!r} is not known from its name; allowed: {allowed}.")

    return read_each(specs, read, "sentence", allowed)


def _documents(spec: str, data: TextData | WordData, find: Find) -> Iterator[str]:
    if spec.removesuffix(".gz").endswith(".txt"):
        path = find(spec)
        if data.documents == "line":
            yield from (line for line in read_lines(path) if line.strip())
        elif (text := "".join(read_lines(path, ends=True))).strip():
            yield text
        return
    rows = (_joined(cells, data.columns, place) for cells, place in tables.read_table(spec, data.columns, find))
    if data.documents == "line":
        yield from rows
    elif text := "\n".join(rows):
        yield text


def _joined(cells: Sequence[Any], columns: tables.Columns, place: str) -> str:
    """The texts of a row, but for empty ones: a poem may have no title. Not all may be empty."""
    pairs = list(zip(cells, columns, strict=True))
    filled = [(cell, column) for cell, column in pairs if not isinstance(cell, str) or cell.strip()]
    return "\n".join(tables.text_in(cell, column, place) for cell, column in filled or pairs)


def _examples(spec: str, data: LabelData, find: Find, *, phrases: bool) -> Iterator[Example]:
    if spec.removesuffix(".gz").endswith(".txt"):
        path = find(spec)
        first = next((line for line in read_lines(path) if line.strip()), "")
        if first.lstrip().startswith("("):
            yield from _read_trees(path, phrases=phrases)
            return
    *text_columns, label_column = data.columns
    for cells, place in tables.read_table(spec, data.columns, find, txt=True):
        *texts, label = cells
        if type(label) in (int, float):  # as JSON has them: a class by number, or a score
            label = str(label)
        yield Example(
            tuple(tables.text_in(text, column, place) for text, column in zip(texts, text_columns, strict=True)),
            tables.text_in(label, label_column, place).strip(),
            place,
        )


def _relabel_rules(relabel: Sequence[str]) -> dict[str, str]:
    rules: dict[str, str] = {}
    for rule in relabel:
        old, equals, new = (part.strip() for part in rule.partition("="))
        if not equals or not old:
            raise UserError(f'data.relabel takes rules such as "0=negative", or "2=" to leave label 2 out; found {rule!r}.')
        if rules.setdefault(old, new) != new:
            raise UserError(f"data.relabel gives the label {old!r} two names, {rules[old]!r} and {new!r}. Keep one.")
    return rules


def _read_trees(path: Path, *, phrases: bool) -> Iterator[Example]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        words, parts = _parse_tree(line, place)
        for label, start, end in parts if phrases else parts[-1:]:
            yield Example((" ".join(words[start:end]),), label, place)


def _parse_tree(line: str, place: str) -> tuple[list[str], list[tuple[str, int, int]]]:
    """The words of a tree such as (3 (2 It) (4 works)), and label, start and end of every part, the whole last.

    A list holds what is open, so that a deep tree needs no deep stack.
    """
    words: list[str] = []
    parts: list[tuple[str, int, int]] = []
    unclosed: list[tuple[str, int]] = []
    wrong = ""
    before = ""
    for token in TREE_TOKEN.findall(line):
        if parts and not unclosed:
            wrong = f"{token!r} follows the end of the tree"
        elif before == "(" and token in "()":
            wrong = f"{token!r} stands where a label is due"
        elif before == "(":
            unclosed.append((token, len(words)))
        elif token == ")" and unclosed:
            label, start = unclosed.pop()
            parts.append((label, start, len(words)))
            wrong = f"there is no word under the label {label!r}" if start == len(words) else ""
        elif token != "(" and not unclosed:
            wrong = f"{token!r} stands outside of the brackets"
        elif token != "(":
            words.append(TREE_ESCAPES.get(token, token.replace("\\/", "/").replace("\\*", "*")))
        if wrong:
            break
        before = token
    else:
        unclosed_count = len(unclosed) + (before == "(")
        wrong = f"brackets not closed: {unclosed_count}" if unclosed_count else ""
    if wrong:
        raise UserError(f"{place}: not a tree: {wrong}. A tree is one line such as (3 (2 It) (4 works)); name a table .tsv.")
    return words, parts


class _LabelCheck:
    """Refuses a label that does not fit the scheme; if the labels are to tell it, one that does not go with those before."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.known = {"O"}
        self.forms: dict[str, str] = {}  # each with the first label of that form, and its place

    def __call__(self, label: str, place: str) -> None:
        if label in self.known or self.scheme == "none":
            return
        self.known.add(label)
        letters = LETTERS[self.scheme]
        rule = f'Allowed are O, and {", ".join(letters)} each with -TYPE; any label with data.scheme = "none".'
        marked = SPAN_LABEL.fullmatch(label)
        if self.scheme != "auto" and (not marked or marked[1] not in letters):
            raise UserError(f"{place}: the label {label!r} is not one of data.scheme = {self.scheme!r}. {rule}")
        form = "plain" if not marked else "typed" if marked[2] else "bare"
        self.forms.setdefault(form, f"{label!r} at {place}")
        if "typed" in self.forms and len(self.forms) > 1:
            other = next(first for known, first in self.forms.items() if known != form)
            raise UserError(f"{place}: the label {label!r} does not go with {other}. {rule}")


def _blocks(path: Path) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines between empty lines."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            block.append((number, line))
            if len(block) > LONGEST_SENTENCE:
                raise UserError(
                    f"{path}:{block[0][0]}: the sentence has more than {LONGEST_SENTENCE:,} lines. Empty lines part sentences."
                )
        elif block:
            yield block
            block = []
    if block:
        yield block


def _read_conllu(path: Path, columns: Sequence[int], check: _LabelCheck) -> Iterator[Sentence]:
    """The words of CoNLL-U; a multiword token such as don't is its words, without a space between them."""
    for block in _blocks(path):
        rows: list[tuple[int, str, str, bool]] = []
        last_joined, space_after = 0, True
        for number, line in block:
            if line.startswith("#"):
                continue
            cells = line.split("\t")
            counted = re.fullmatch(r"([0-9]{1,9})(-[0-9]{1,9}|\.[0-9]{1,9})?", cells[0])
            if len(cells) != CONLLU_COLUMNS or not counted:
                raise UserError(
                    f"{path}:{number}: found {len(cells)} columns, the first {cells[0]!r}; "
                    f"a line of CoNLL-U has {CONLLU_COLUMNS} with tabs between them, the first of which counts the words."
                )
            spaced = "SpaceAfter=No" not in cells[9].split("|")
            index, more = int(counted[1]), counted[2] or ""
            if more.startswith("-"):
                last_joined, space_after = int(more[1:]), spaced
            elif not more:
                if index <= last_joined:
                    spaced = index == last_joined and space_after
                rows.append((number, *_word_and_label(cells, columns, f"{path}:{number}"), spaced))
        if rows:
            yield _sentence(rows, path, check)


def _read_columns(path: Path, columns: Sequence[int], check: _LabelCheck) -> Iterator[Sentence]:
    """Words and labels in columns, with tabs between them or spaces.

    A line that begins with "# " is a comment, unless it has as many columns as the words before it: then # is a word.
    """
    width = 0
    for block in _blocks(path):
        found: list[tuple[int, str, str]] = []
        for number, line in block:
            cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
            if line.startswith("-DOCSTART-") or (line.startswith("# ") and not (found and len(cells) == width)):
                continue
            width = width or len(cells)
            if not columns and len(cells) != max(width, 2):
                raise UserError(
                    f"{path}:{number}: found {len(cells)} columns, expected {max(width, 2)}: the word in the first, its label in "
                    "the last, with a tab or spaces between two. Other columns are named in data.columns."
                )
            found.append((number, *_word_and_label(cells, columns or (1, width), f"{path}:{number}")))
        if found:
            words = [word for _, word, _ in found]
            gaps = zip(words, [*words[1:], " "], strict=True)
            spaces = [not UNSPACED.match(left[-1]) and not UNSPACED.match(right[0]) for left, right in gaps]
            yield _sentence([(*row, space) for row, space in zip(found, spaces, strict=True)], path, check)


def _word_and_label(cells: Sequence[str], columns: Sequence[int], place: str) -> tuple[str, str]:
    if len(cells) < max(columns):
        raise UserError(f"{place}: found {len(cells)} of the {max(columns)} columns that data.columns {list(columns)} needs.")
    word, label = (cells[column - 1].strip() for column in columns)
    for name, cell, column in zip(("word", "label"), (word, label), columns, strict=True):
        if not cell:
            raise UserError(f"{place}: the {name} in column {column} is empty. Fill it in or remove the line.")
    return word, label


def _sentence(rows: Sequence[tuple[int, str, str, bool]], path: Path, check: _LabelCheck) -> Sentence:
    for number, _, label, _ in rows:
        check(label, f"{path}:{number}")
    _, words, labels, spaces = zip(*rows, strict=True)
    return Sentence(words, labels, (*spaces[:-1], False), f"{path}:{rows[0][0]}")


def scheme_of(labels: Iterable[str]) -> str:
    """How labels make up spans: "bio" (B-X, I-X, O), "bmes" (B-X, M-X or I-X, E-X, S-X, O), or "none".

    Labels without a type, such as the B, M, E, S of Chinese word segmentation, must have a B, and an E if M or S are among them:
    a tag set may well have an M or S of its own.
    """
    marks = [SPAN_LABEL.fullmatch(label) for label in set(labels) - {"O"}]
    letters = {mark[1] for mark in marks if mark}
    typed = {mark[2] is not None for mark in marks if mark}
    if None in marks or len(typed) != 1:
        return "none"
    scheme = "bio" if letters <= {"B", "I"} else "bmes"
    needed = set() if True in typed else {"B"} if scheme == "bio" else {"B", "E"}
    return scheme if letters >= needed else "none"


def spans(labels: Sequence[str], scheme: str) -> list[tuple[str, int, int]]:
    """Type, start and end (the first word after it) of every span that labels of `scheme` make up; of "none" there are none.

    Every sequence has spans, as conlleval and seqeval (not strict) have it: B and S begin one, E and S end one, O is outside; and
    M, I or E also begins one after O, E or S, or after another type. A span that no E ends goes up to the next one or O.
    """
    found: list[tuple[str, int, int]] = []
    if scheme == "none":
        return found
    start: int | None = None
    before, kind_before = "O", ""
    for index, label in enumerate([*labels, "O"]):
        letter, _, kind = label.partition("-")
        begins = letter != "O" and (letter in {"B", "S"} or before in {"O", "E", "S"} or kind != kind_before)
        if start is not None and (begins or letter == "O"):
            found.append((kind_before, start, index))
            start = None
        if begins:
            start = index
        before, kind_before = letter, kind
    return found
