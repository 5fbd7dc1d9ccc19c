"""JoeyNMT (2.3.0): its model, its loss and its batches, in the update of its own training loop."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from benchmarks.training import IGNORED, batches_of, settings
from benchmarks.turns import Turn
from glassformer.text.tokenizer import BOS, EOS, PAD
from glassformer.training.optimiser import adamw


def model_of(recipe: Any, vocabulary: int) -> Any:
    from joeynmt.model import build_model

    logging.disable(logging.INFO)
    o = recipe.model

    class Words(list[str]):
        """What build_model asks of a vocabulary."""

        pad_index, bos_index, eos_index, unk_index, sep_index = PAD, BOS, EOS, 3, None
        lang_tags: list[str] = []  # noqa: RUF012
        specials: list[str] = []  # noqa: RUF012

    words = Words(map(str, range(vocabulary)))
    side = {
        "type": "transformer",
        "hidden_size": o.width,
        "ff_size": o.inner,
        "num_heads": o.heads,
        "dropout": o.dropout,
        "layer_norm": o.norm,
        "activation": o.activation,
        "embeddings": {"embedding_dim": o.width, "scale": True},
    }
    sizes = {
        "encoder": {**side, "num_layers": o.encoder_layers},
        "decoder": {**side, "num_layers": o.decoder_layers},
        "tied_embeddings": True,
        "tied_softmax": True,
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
    }
    return build_model(sizes, words, words)


def training_turn(folder: Path) -> Turn:
    recipe, vocabulary = settings(folder)
    options = recipe.training
    model = model_of(recipe, vocabulary)
    model.loss_function = ("crossentropy", options.label_smoothing)
    model.train()
    optimiser = adamw(model, options)
    made = []
    for batch in batches_of(folder):
        labels = batch.labels.masked_fill(batch.labels == IGNORED, PAD)
        made.append((batch, labels, SimpleNamespace(mask=(labels != PAD).unsqueeze(1), lengths=batch.mask.sum(1))))

    def turn() -> float:
        for batch, labels, more in made:
            loss, *_ = model(
                return_type="loss",
                src=batch.source,
                trg_input=batch.target,
                trg=labels,
                src_mask=(batch.source != PAD).unsqueeze(1),
                src_length=more.lengths,
                trg_mask=more.mask,
                trg_prompt_mask=None,
                src_prompt_mask=None,
            )
            (loss / batch.tokens).backward()
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            loss.item()
        return sum(batch.tokens for batch, _, _ in made)

    return turn
