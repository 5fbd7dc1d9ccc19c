"""The logit lens: what a model would predict if it stopped after each layer.

The residual stream after a layer is read as the last one is: through the final normalisation, if there is one, and the output
matrix. Pre-norm stacks end in a normalisation of their own; a post-norm block ends in its own, so the stream is read as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer import answers
from glassformer.errors import UserError
from glassformer.models.stack import Stack
from glassformer.trace import Trace


@dataclass(frozen=True)
class Reading:
    """The stream at one height, read as if it were the last."""

    tensor: str  # decoder.2.resid_post
    layer: int  # how many layers it has been through; 0 is the embedding
    logits: Tensor  # as the model's own


def stack_of(model: Any) -> tuple[str, Stack]:
    """The stack that the output is read off."""
    for name in ("decoder", "encoder"):
        stack = getattr(model, name, None)
        if isinstance(stack, Stack):
            return name, stack
    raise UserError(
        "A logit lens needs a residual stream, which every layer adds to: a Transformer's. "
        "This model's layers each make a state of their own, which its output matrix was never meant to read."
    )


@torch.inference_mode()
def readings(model: Any, trace: Trace) -> Iterator[Reading]:
    """From the embedding to the last layer; the last has the logits of the pass."""
    name, stack = stack_of(model)
    for layer in range(stack.depth + 1):
        tensor = f"{name}.{layer - 1}.resid_post" if layer else f"{name}.0.resid_pre"
        states = trace[tensor].unsqueeze(0)
        yield Reading(tensor, layer, model.logits(stack.norm(states) if stack.norm else states)[0])


def lens(task: Any, trace: Trace, place: int | None = None, count: int = 5) -> dict[str, Any]:
    """Ready for JSON: for each layer and prediction the likeliest, and the probability and rank of what was predicted in the end;
    of the prediction `place` the `count` likeliest."""
    _, stack = stack_of(task.model)
    final = answers.predictions(task, trace)
    if place is not None and not 0 <= place < len(final):
        raise UserError(f"There are the predictions 0 to {len(final) - 1}; {place} is none of them.")
    layers = []
    for reading in readings(task.model, trace):
        each = Trace(
            {"logits": reading.logits.unsqueeze(0)}, source=trace.source_tokens, target=trace.target_tokens, about=trace.about
        )
        rows = [(here.probabilities, there.chosen) for here, there in zip(answers.predictions(task, each), final, strict=True)]
        layers.append(
            {
                "tensor": reading.tensor,
                "layer": reading.layer,
                "p": [answers.shown(task, row[chosen].item()) for row, chosen in rows],
                "rank": [int((row > row[chosen]).sum()) + 1 for row, chosen in rows],
                "best": [] if final[0].probabilities.numel() == 1 else [answers.top(task, row, 1)[0] for row, _ in rows],
                "top": [] if place is None else answers.top(task, rows[place][0], count),
            }
        )
    return {
        "normalised": stack.norm is not None,
        "predictions": [{"position": one.position, "place": one.place, "token": one.label} for one in final],
        "layers": layers,
    }
