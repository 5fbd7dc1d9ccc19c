"""Small models that several tests look at, in every variant a recipe can ask for."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from command import learned  # noqa: F401 (a fixture)
from hypothesis import settings
from torch import Tensor

from glassformer.config import TransformerOptions
from glassformer.models.transformer import Transformer

settings.register_profile("glassformer", deadline=None)  # a busy machine is not a bug
settings.load_profile("glassformer")

VOCABULARY = 11
SIZES = TransformerOptions(width=16, heads=2, inner=24, encoder_layers=2, decoder_layers=2, dropout=0.0, max_length=32)
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "additive": {"scores": "additive"},
    "gelu": {"activation": "gelu"},
    "widths": {"key_width": 6, "value_width": 10},
    "untied": {"tie": "none"},
    "modern": {"norm": "pre", "positions": "rotary", "activation": "gelu", "key_width": 6, "value_width": 10, "tie": "output"},
    "bahdanau": {"norm": "pre", "positions": "learned", "scores": "additive", "key_width": 5, "value_width": 3},
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def transformer(seed: int = 0, **changes: Any) -> Transformer:
    """A small model whose every weight is random: biases, γ and β too, or an error in them would not show."""
    torch.manual_seed(seed)
    model = Transformer(replace(SIZES, **changes), VOCABULARY, VOCABULARY)
    scramble(model)
    return model.eval()


def scramble(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)


def sentences(*lengths: int, seed: int = 0) -> Tensor:
    """Random ids (B, longest), filled up with the padding 0."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(1, VOCABULARY, (len(lengths), max(lengths)), generator=draw)
    return rows.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1), 0)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
