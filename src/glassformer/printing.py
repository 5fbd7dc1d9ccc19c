"""Tensors of a trace as tables of numbers, for a terminal or a notebook."""

import math
import unicodedata
from typing import TYPE_CHECKING

from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.trace import Trace


class Table(str):
    """Text that also looks like a table where Python shows a value."""

    def __repr__(self) -> str:
        return str(self)


def table(trace: "Trace", name: str, head: int | None = None, rows: int = 24, columns: int = 12) -> Table:
    """A tensor's numbers with its name, equation, shape and labels; what is left out is said."""
    from glassformer.notation import describe

    if min(rows, columns) < 1:
        raise UserError(f"A table has at least one row and one column, not rows={rows}, columns={columns}.")
    x, axes, labels = trace[name], trace.axes(name), trace.labels(name)
    note = describe(name)
    title = f"{name}  {note.english}: {note.equation}  ({' × '.join(f'{a}={n}' for a, n in zip(axes, x.shape, strict=True))})"
    if head is not None:
        if x.dim() < 3:
            raise UserError(f"{name} has no heads: its axes are {' '.join(axes)}.")
        if not 0 <= head < x.size(0):
            raise UserError(f"{name} has the heads 0 to {x.size(0) - 1}; there is no head {head}.")
    lines = [title]
    if x.dim() < 3:
        return Table("\n".join(lines + _grid(x.reshape(-1, x.size(-1)).tolist(), labels[:-1], labels[-1], rows, columns)))
    for each in range(x.size(0)) if head is None else (head,):
        lines += [f"head {each}", *_grid(x[each].tolist(), labels[1:2], labels[2], rows, columns)]
    return Table("\n".join(lines))


def _grid(values: list[list[float]], beside: list[list[str]], above: list[str], most_rows: int, most_columns: int) -> list[str]:
    names = [_printable(text) for text in (beside[0] if beside else [""])][:most_rows]
    heads = [_printable(text) for text in above][:most_columns]
    cells = [[_number(value) for value in row[:most_columns]] for row in values[:most_rows]]
    widths = [max(_width(head), *(len(row[i]) for row in cells)) + 2 for i, head in enumerate(heads)]
    margin = max(map(_width, names))
    lines = [" " * margin + "".join(_right(head, width) for head, width in zip(heads, widths, strict=True))]
    for name, row in zip(names, cells, strict=True):
        lines.append(_right(name, margin) + "".join(_right(cell, width) for cell, width in zip(row, widths, strict=True)))
    left_out = [
        f"{total - most} more {what}"
        for what, total, most in (("rows", len(values), most_rows), ("columns", len(above), most_columns))
        if total > most
    ]
    return lines + ([f"… {' and '.join(left_out)}"] if left_out else [])


def _number(value: float) -> str:
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3e}"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def _right(text: str, width: int) -> str:
    return " " * (width - _width(text)) + text


def _printable(text: str) -> str:
    """Blanks and control characters as visible signs, so that a table keeps its lines."""
    return "".join("␣" if c.isspace() else "␡" if unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in text) or "·"
