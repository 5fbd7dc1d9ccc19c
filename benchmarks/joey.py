"""JoeyNMT (2.3.0): its model and its loss in the update of its own training loop, and its own search."""

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.training import IGNORED, batches_of, settings
from benchmarks.turns import Turn
from glassformer.text.tokenizer import BOS, EOS, PAD
from glassformer.training.optimiser import adamw

RENAMES = (  # from our names
    (r"^encoder\.embed\.token\.", "src_embed.lut."),
    (r"^decoder\.embed\.token\.", "trg_embed.lut."),
    (r"^output\.", "decoder.output_layer."),
    (r"^(encoder|decoder)\.norm\.", r"\1.layer_norm."),
    (r"^(encoder|decoder)\.(\d+)\.", r"\1.layers.\2."),
    (r"^(encoder.*)\.self\.", r"\1.src_src_att."),
    (r"^(encoder.*)\.norm1\.", r"\1.layer_norm."),
    (r"\.self\.", ".trg_trg_att."),
    (r"\.cross\.", ".src_trg_att."),
    (r"\.norm1\.", ".x_layer_norm."),
    (r"\.norm2\.", ".dec_layer_norm."),
    (r"\.norm3\.", ".feed_forward.layer_norm."),
    (r"_att\.([qkv])\.", r"_att.\1_layer."),
    (r"_att\.o\.", "_att.output_layer."),
    (r"\.ffn\.w1\.", ".feed_forward.pwff_layer.0."),
    (r"\.ffn\.w2\.", ".feed_forward.pwff_layer.3."),
)


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


class Search:
    """JoeyNMT's `search` with our weights. Its length penalty is another, so a beam may choose another sentence."""

    def __init__(self, recipe: Any, vocabulary: int, weights: Path, banned: list[int]) -> None:
        self.model = model_of(recipe, vocabulary).eval()
        self.model.lang_tags = banned  # what it never writes
        theirs = self.model.state_dict()
        with torch.no_grad():
            for name, x in load_file(weights).items():
                for pattern, new in RENAMES:
                    name = re.sub(pattern, new, name)
                theirs[name].copy_(x)
        for module in self.model.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = recipe.model.epsilon

    def __call__(self, source: Tensor, beam: int, most: int) -> list[list[int]]:
        from joeynmt.search import search

        real = source != PAD
        batch = SimpleNamespace(src=source, src_length=real.sum(1), src_mask=real.unsqueeze(1), has_trg=False)
        return search(self.model, batch, most, beam, 1.0)[0].tolist()
