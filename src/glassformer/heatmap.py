"""Matrices as coloured heat maps in the terminal."""

import unicodedata
from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from rich.text import Text
from torch import Tensor

from glassformer.tasks.translate import Translate
from glassformer.tasks.translator import Translation

_LOW, _HIGH = (18, 22, 48), (255, 214, 90)  # dark blue to warm yellow, also told apart in grey


def show_translation(console: Console, translator: Translate, answer: Translation) -> None:
    """The tokens on both sides, and which source tokens each written token looked at."""
    if not answer.source.strip():
        return
    trace = translator.trace(answer.source, answer.to, target=answer.ids)
    written = [*trace.target[1:], "<eos>"]
    console.print(f"source  {' | '.join(map(_printable, trace.source))}", markup=False)
    console.print(f"target  {' | '.join(map(_printable, written))}", markup=False)
    looked = translator.alignment(trace)
    if looked is None:
        console.print("This model has no attention: all it knows of the source is the state it began with.", soft_wrap=True)
        return
    heads = ", mean of its heads" if any(x.size(0) > 1 for name, x in trace.items() if name.endswith(".cross.pattern")) else ""
    console.print(f"What each written token looked at, in % (cross-attention of the last layer{heads}):", soft_wrap=True)
    show(console, looked, written, trace.source)


def show(console: Console, matrix: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """matrix (rows, columns) of weights in [0, 1]. The number in a cell is its weight in per cent.

    Columns that do not fit beside each other continue in a further table.
    """
    if len(columns) == 0 or len(rows) == 0:
        return
    names = [_printable(name) for name in columns]
    heads = [_printable(name) for name in rows]
    margin = max(map(_width, heads)) + 1
    sizes = [max(4, _width(name) + 1) for name in names]
    begin = 0
    while begin < len(names):
        end, used = begin, margin
        while end < len(names) and (end == begin or used + sizes[end] <= console.width):
            used += sizes[end]
            end += 1
        line = Text(" " * margin)
        for name, size in zip(names[begin:end], sizes[begin:end], strict=True):
            line.append(_centre(name, size), Style(bold=True))
        console.print(line, soft_wrap=True)
        for head, values in zip(heads, matrix.tolist(), strict=True):
            line = Text(head.rjust(margin - 1 - _width(head) + len(head)) + " ")
            for value, size in zip(values[begin:end], sizes[begin:end], strict=True):
                line.append(_centre(f"{value * 100:.0f}" if value >= 0.005 else "·", size), _colour(value))
            console.print(line, soft_wrap=True)
        begin = end


def _colour(value: float) -> Style:
    share = max(0.0, min(1.0, value)) ** 0.5  # the root lets small weights be seen
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(_LOW, _HIGH, strict=True))
    return Style(bgcolor=f"rgb({red},{green},{blue})", color="black" if share > 0.5 else "white")


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def _centre(text: str, size: int) -> str:
    left = (size - _width(text)) // 2
    return " " * left + text + " " * (size - _width(text) - left)


def _printable(text: str) -> str:
    """Control characters and blanks as visible signs, so that a table keeps its lines."""
    shown = "".join(
        chr(0x2400 + ord(c))
        if ord(c) < 32
        else "␣"
        if c.isspace()
        else "␡"
        if unicodedata.category(c) in ("Cc", "Cf", "Cs")
        else c
        for c in text
    )
    return shown or "·"
