"""Weights on disk: safetensors, checked name by name, written whole or not at all."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassformer.errors import UserError
from glassformer.files import aside


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor a model keeps, once, under its first name (a tied matrix has several); sharing the model's memory."""
    first: dict[int, str] = {}
    tensors = model.state_dict()
    for name, x in tensors.items():
        first.setdefault(x.data_ptr(), name)
    return {name: tensors[name] for name in first.values()}


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None, about: dict[str, str] | None = None
) -> None:
    """Writes a safetensors file, whole or not at all; `about` are words in its header."""
    try:
        with aside(path) as part:
            save_file({name: x.contiguous().to(dtype) if dtype else x.contiguous() for name, x in tensors.items()}, part, about)
            part.chmod(0o644)  # it is made readable for its owner alone
    except (OSError, SafetensorError) as error:
        if "No space left" in str(error) or getattr(error, "errno", None) == errno.ENOSPC:
            raise UserError(
                f"The disk is full: {path} could not be written. Nothing earlier was touched; make room and go on."
            ) from None
        raise UserError(f"{path} could not be written: {error}") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise UserError(f"There is no weights file {path}.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a whole safetensors file ({error}). It may be cut short: copy or train it again."
        ) from None


class Unfilled(TorchFunctionMode):
    """While a model is made whose weights are read anyway, none are drawn: that would take longer than reading them."""

    DRAWN = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "xavier_uniform_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.DRAWN:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def finite(x: Tensor) -> bool:
    """As isfinite(x).all(), without a mask as large as x: NaN passes on to both ends."""
    return x.numel() == 0 or all(bool(end.isfinite()) for end in torch.aminmax(x))


def load_weights(model: nn.Module, path: Path) -> None:
    """Fills the model; whatever is missing, unexpected or of another shape is listed by name, all at once."""
    found, wanted = read_tensors(path), named_weights(model)
    problems = [f"missing: {name}" for name in wanted if name not in found]
    problems += [f"unexpected: {name}" for name in found if name not in wanted]
    problems += [
        f"shape of {name}: {tuple(found[name].shape)}, where the recipe says {tuple(x.shape)}"
        for name, x in wanted.items()
        if name in found and found[name].shape != x.shape
    ]
    problems += [f"not all finite: {name}" for name, x in found.items() if not finite(x)]
    if problems:
        shown = "\n  ".join(problems[:20]) + (f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise UserError(f"{path} does not fit this model:\n  {shown}\nIt belongs to another recipe, or is damaged.")
    with torch.no_grad():
        for name, x in wanted.items():
            x.copy_(found[name])


def load_part(model: nn.Module, path: Path, *, same: bool) -> tuple[int, list[str]]:
    """Fills a model from another whose head may differ: how many tensors were taken, and which parts stay fresh.

    `same` says the heads mean the same, so that theirs is taken too.
    """
    found, wanted = read_tensors(path), named_weights(model)
    head = {name for name in wanted if name.startswith("head.") and not same}
    problems = [f"missing: {name}" for name in wanted if name not in found and name not in head]
    problems += [
        f"shape of {name}: {tuple(found[name].shape)}, where the recipe says {tuple(x.shape)}"
        for name, x in wanted.items()
        if name in found and name not in head and found[name].shape != x.shape
    ]
    if problems:
        shown = "\n  ".join(problems[:20]) + (f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise UserError(f"{path} is no model to start this one from:\n  {shown}")
    with torch.no_grad():
        for name, x in wanted.items():
            if name not in head:
                x.copy_(found[name])
    return len(wanted) - len(head), sorted({".".join(name.split(".")[:2]) for name in head})
