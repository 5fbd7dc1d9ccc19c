"""Recurrent layers: a cell reads a text token by token, and what it has read is in its state.

plain  h_t = tanh(W_x x_t + b_x + W_h h_{t−1} + b_h)
LSTM   f, i, o = σ(W_x x_t + b_x + W_h h_{t−1} + b_h)   g = tanh(likewise)
       c_t = f ⊙ c_{t−1} + i ⊙ g                        h_t = o ⊙ tanh(c_t)
GRU    r, z = σ(W_x x_t + b_x + W_h h_{t−1} + b_h)      n = tanh(W_x x_t + b_x + r ⊙ (W_h h_{t−1} + b_h))
       h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}

The matrices of a cell's gates lie one below another in PyTorch's order, so that its fused kernels run while nobody looks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from glassformer.layers.attention import Attention, KeyValues
from glassformer.trace import tap, tap_row, traced


@dataclass(frozen=True)
class Hidden:
    """What a layer remembers of all it has read: h (B, U), and of an LSTM also the cell state c (B, U)."""

    h: Tensor
    c: Tensor | None = None

    def reorder(self, index: Tensor) -> "Hidden":
        return Hidden(self.h.index_select(0, index), None if self.c is None else self.c.index_select(0, index))


Name = Callable[[str, Tensor], Tensor]  # gives a row of a tensor its name


def plain(x: Tensor, h: Tensor, before: Hidden, name: Name) -> Hidden:
    return Hidden(name("hidden", torch.tanh(x + h)))


def lstm(x: Tensor, h: Tensor, before: Hidden, name: Name) -> Hidden:
    assert before.c is not None
    i, f, g, o = (x + h).chunk(4, dim=-1)
    f = name("gate_f", f.sigmoid())
    i = name("gate_i", i.sigmoid())
    g = name("candidate", g.tanh())
    c = name("cell", f * before.c + i * g)
    o = name("gate_o", o.sigmoid())
    return Hidden(name("hidden", o * c.tanh()), c)


def gru(x: Tensor, h: Tensor, before: Hidden, name: Name) -> Hidden:
    (r_x, z_x, n_x), (r_h, z_h, n_h) = x.chunk(3, dim=-1), h.chunk(3, dim=-1)
    r = name("gate_r", torch.sigmoid(r_x + r_h))
    z = name("gate_z", torch.sigmoid(z_x + z_h))
    n = name("candidate", torch.tanh(n_x + r * n_h))
    return Hidden(name("hidden", (1 - z) * n + z * before.h))


@dataclass(frozen=True)
class Cell:
    """`equations` of one step: W_x x_t + b_x and W_h h_{t−1} + b_h (B, G·U), the state before → the state after."""

    parts: tuple[str, ...]  # whose matrices lie one below another
    equations: Callable[[Tensor, Tensor, Hidden, Name], Hidden]
    fused: Callable[..., Any]


CELLS = {
    "plain": Cell(("hidden",), plain, torch.rnn_tanh),
    "lstm": Cell(("gate_i", "gate_f", "candidate", "gate_o"), lstm, torch.lstm),
    "gru": Cell(("gate_r", "gate_z", "candidate"), gru, torch.gru),
}


class Recurrent(nn.Module):
    """One cell over a text, from left to right, or from right to left if `backwards`."""

    def __init__(self, cell: str, inputs: int, units: int, *, backwards: bool = False) -> None:
        super().__init__()
        self.cell, self.units, self.backwards = CELLS[cell], units, backwards
        self.keeps_cell = cell == "lstm"
        size = len(self.cell.parts) * units
        self.w_x = nn.Parameter(torch.empty(size, inputs))
        self.w_h = nn.Parameter(torch.empty(size, units))
        self.b_x = nn.Parameter(torch.zeros(size))
        self.b_h = nn.Parameter(torch.zeros(size))
        self._initialise()

    def _initialise(self) -> None:
        for of_x, of_h, part, bias in zip(
            self.w_x.chunk(len(self.cell.parts)),
            self.w_h.chunk(len(self.cell.parts)),
            self.cell.parts,
            self.b_x.data.chunk(len(self.cell.parts)),
            strict=True,
        ):
            nn.init.xavier_uniform_(of_x)
            nn.init.orthogonal_(of_h)
            if part == "gate_f":
                bias.fill_(1.0)  # remember, until something is learned that speaks against it

    @property
    def weights(self) -> list[Tensor]:
        return [self.w_x, self.w_h, self.b_x, self.b_h]

    def begin(self, x: Tensor) -> Hidden:
        """Nothing read yet."""
        zero = x.new_zeros(x.size(0), self.units)
        return Hidden(zero, zero if self.keeps_cell else None)

    def forward(self, x: Tensor, real: Tensor | None = None, state: Hidden | None = None) -> tuple[Tensor, Hidden]:
        """x (B, T, D), real (B, T) False for padding at the ends, and the state before → h of every token (B, T, U), 0 for
        padding, and the state after the last real one."""
        if traced():
            return self.unrolled(x, real, state)
        assert not self.backwards  # PyTorch reads backwards only beside reading forwards
        before = state or self.begin(x)
        hidden, h, c = fused(self.cell, x, real, before.h.unsqueeze(0), _one(before.c), self.weights)
        return hidden, Hidden(h[0], None if c is None else c[0])

    def unrolled(self, x: Tensor, real: Tensor | None, state: Hidden | None = None) -> tuple[Tensor, Hidden]:
        """The same by the equations, step by step."""
        known = state or self.begin(x)
        if state:
            known = Hidden(tap(self, "start_h", state.h), None if state.c is None else tap(self, "start_c", state.c))
        of_x = F.linear(x, self.w_x, self.b_x)  # (B, T, G·U)
        length = x.size(1)
        rows = [known.h] * length
        for t in reversed(range(length)) if self.backwards else range(length):
            name = partial(tap_row, self, row=t, rows=length)
            new = self.cell.equations(of_x[:, t], F.linear(known.h, self.w_h, self.b_h), known, name)
            rows[t] = new.h
            known = new if real is None else _where(real[:, t], new, known)
        hidden = torch.stack(rows, dim=1)
        return hidden if real is None else hidden * real.unsqueeze(2), known


class Bidirectional(nn.Module):
    """Two cells over one text, side by side: h_t = [h→_t; h←_t], so that every token knows what is before it and behind it."""

    def __init__(self, cell: str, inputs: int, width: int) -> None:
        super().__init__()
        self.ahead = Recurrent(cell, inputs, width // 2)
        self.back = Recurrent(cell, inputs, width // 2, backwards=True)

    def forward(self, x: Tensor, real: Tensor | None = None) -> tuple[Tensor, Hidden]:
        """x (B, T, D), real (B, T) → (B, T, D), and what each direction ended in, side by side."""
        if traced():
            (a, end), (b, begin) = self.ahead.unrolled(x, real), self.back.unrolled(x, real)
            hidden = tap(self, "joined", torch.cat((a, b), dim=-1))
            h, c = [end.h, begin.h], [each for each in (end.c, begin.c) if each is not None]
        else:
            start = x.new_zeros(2, x.size(0), self.ahead.units)
            weights = [*self.ahead.weights, *self.back.weights]
            hidden, last, cells = fused(self.ahead.cell, x, real, start, start if self.ahead.keeps_cell else None, weights)
            h, c = list(last), list(cells) if cells is not None else []
        return hidden, Hidden(torch.cat(h, dim=-1), torch.cat(c, dim=-1) if c else None)


class Attending(Recurrent):
    """A layer that also looks at a memory: h̃_t = tanh(W h_t + b + Attention(h_t, memory)).

    That is Luong's tanh(W_c [context; h_t]), in which the context's half of W_c is the attention's W_O. The query is the state
    that has read the last token, for dot products (Luong et al. 2015) and for additive scores (Bahdanau et al. 2015, who ask
    with the state before it), so that all target positions are computed at once.
    """

    def __init__(self, cell: str, inputs: int, width: int, cross: Attention) -> None:
        super().__init__(cell, inputs, width)
        self.cross = cross
        self.combine = Combine(width)

    def look(
        self, hidden: Tensor, memory: Tensor, mask: Tensor | None, known: KeyValues | None = None
    ) -> tuple[Tensor, KeyValues]:
        """h (B, T, D), memory (B, S, D), mask (B, 1, 1, S) → h̃ (B, T, D), and the keys and values for the next step."""
        context, known = self.cross(hidden, memory, mask=mask, state=known)
        return self.combine(hidden, context), known


class Combine(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.w = nn.Linear(width, width)

    def forward(self, hidden: Tensor, context: Tensor) -> Tensor:
        return tap(self, "out", torch.tanh(self.w(hidden) + context))


def fused(
    cell: Cell, x: Tensor, real: Tensor | None, h: Tensor, c: Tensor | None, weights: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """PyTorch's kernel for the directions that `weights` has (four each): x (B, T, D), h and c (directions, B, U).

    Padding is left out by packing: at each step the kernel sees the rows that still have a token.
    """
    both = len(weights) == 8
    if real is None:
        state = h if c is None else (h, c)
        hidden, *last = cell.fused(x, state, weights, True, 1, 0.0, torch.is_grad_enabled(), both, True)
    else:
        packed = pack_padded_sequence(x, real.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        assert packed.sorted_indices is not None and packed.unsorted_indices is not None
        h = h.index_select(1, packed.sorted_indices)
        state = h if c is None else (h, c.index_select(1, packed.sorted_indices))
        found, *last = cell.fused(packed.data, packed.batch_sizes, state, weights, True, 1, 0.0, torch.is_grad_enabled(), both)
        again = PackedSequence(found, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        hidden, _ = pad_packed_sequence(again, batch_first=True, total_length=x.size(1))
        last = [each.index_select(1, packed.unsorted_indices) for each in last]
    return hidden, last[0], last[1] if len(last) > 1 else None


def _one(c: Tensor | None) -> Tensor | None:
    return None if c is None else c.unsqueeze(0)


def _where(real: Tensor, new: Hidden, old: Hidden) -> Hidden:
    """A padded row stays as it was."""
    keep = real.unsqueeze(1)
    c = None if new.c is None or old.c is None else torch.where(keep, new.c, old.c)
    return Hidden(torch.where(keep, new.h, old.h), c)
