"""What all batches have in common: rows of tokens, and labels that lie flat."""

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor


class Rows:
    """B rows, as a dataclass of tensors. Each has B as its first axis, but for labels and places."""

    labels: Tensor  # (N) what is to be predicted; the loss is a mean over them
    places: Tensor | None = None  # (N) of which positions in `read` laid flat; None: so many of each row, in order

    @property
    def read(self) -> Tensor:
        """(B, T) the tokens that labels belong to."""
        raise NotImplementedError

    @property
    def tokens(self) -> int:
        """How much work it is, for tokens/s."""
        return len(self.labels)

    def split(self, parts: int) -> list[Self]:
        """Batches of about as many rows each; their losses add up to the loss of this one."""
        cuts = [len(self.read) * i // parts for i in range(parts + 1)]
        return [self._rows(a, b) for a, b in pairwise(cuts) if b > a]

    def _rows(self, a: int, b: int) -> Self:
        rows, width = self.read.shape
        names = [field.name for field in fields(self) if field.name not in ("labels", "places")]  # type: ignore[arg-type]
        changes: dict[str, Any] = {name: getattr(self, name)[a:b] for name in names}
        if self.places is None:
            each = len(self.labels) // rows
            changes["labels"] = self.labels[a * each : b * each]
        else:
            first, last = torch.searchsorted(self.places, torch.tensor([a * width, b * width])).tolist()
            changes |= {"labels": self.labels[first:last], "places": self.places[first:last] - a * width}
        return replace(self, **changes)  # type: ignore[type-var]
