"""How much the last state of a text still depends on each token before it: the norm of a gradient against its distance.

A plain recurrent cell multiplies by the same matrix at every step, so what a token contributes fades, or explodes, with its
distance; an LSTM's cell state is added to instead, and attention reaches any token in one step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glassformer import config
from glassformer.models.gpt import GPT
from glassformer.models.rnn import RecurrentLanguage
from glassformer.options import GPTOptions, RnnOptions
from glassformer.trace import recording

SHAPE = {"gpt": {"layers": 2, "heads": 4}, "rnn": {"layers": 1}}


def gradient_norms(model: Any, ids: Tensor, target: Tensor | None = None) -> list[float]:
    """‖∂ (v · last state) / ∂ embedding of the token d before the last‖ for d = 0, 1, …, v a random direction; the mean over the
    rows of ids (B, T).

    The last state is that of the last token, or of a translator's decoder when it has read the source and `target` (B, 1).
    """
    embeddings: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        embeddings.append(x.detach().requires_grad_())
        return embeddings[0]

    stack = "encoder" if hasattr(model, "encoder") else "decoder"
    with torch.enable_grad(), recording(model, {f"{stack}.embed.sum": keep}):
        last = (model(ids) if target is None else model(ids, target))[:, -1]
    direction = torch.randn(last.shape, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad((last * direction).sum(), embeddings)
    return gradient.norm(dim=-1).mean(0).flip(0).tolist()


def norms_by_distance(
    models: Mapping[str, Mapping[str, Any]],
    *,
    length: int = 100,
    width: int = 128,
    rows: int = 16,
    seeds: Sequence[int] = (1, 2, 3),
) -> dict[str, list[float]]:
    """The norms of fresh models, by their options: the mean over some seeds, of random texts."""
    found = {}
    for name, changes in models.items():
        total = [0.0] * length
        for seed in seeds:
            torch.manual_seed(seed)
            ids = torch.randint(0, 100, (rows, length))
            norms = gradient_norms(_fresh(dict(changes), length, width), ids)
            total = [a + b / len(seeds) for a, b in zip(total, norms, strict=True)]
        found[name] = total
    return found


def _fresh(changes: dict[str, Any], length: int, width: int) -> GPT | RecurrentLanguage:
    sizes = {"width": width, "dropout": 0.0, "max_length": length, **SHAPE[changes["kind"]]}
    if changes["kind"] == "gpt":
        sizes["inner"] = 4 * width
    options = config.from_dict({"task": "language", "model": {**sizes, **changes}}).model
    if isinstance(options, RnnOptions):
        return RecurrentLanguage(options, 100).eval()
    assert isinstance(options, GPTOptions)
    return GPT(options, 100).eval()
