"""Translating with what was compiled from layers/compiled.c, and NumPy: PyTorch's search over PyTorch's numbers, without torch,
which takes longer to load than a sentence to translate."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassformer.arrays import Array, Weights, read_weights
from glassformer.decoding import search
from glassformer.decoding.state import Hypothesis
from glassformer.engine import kept
from glassformer.layers import compiled, tables
from glassformer.layers.compiled_stack import CompiledStack, Form, Ids, Map, Maps, Norm, Tables, Vocabulary
from glassformer.layers.threads import cores, each_its_own
from glassformer.layers.trails import Trails
from glassformer.options import DecodingOptions, PairData, Recipe, TransformerOptions
from glassformer.tasks.translator import Translator, batches_of, load_tokenizers

if TYPE_CHECKING:
    from glassformer.decoding.sampling import Sampling

TOGETHER = 512  # tokens of the sources, of all beams, that are searched together: more are slower, and need more memory
ALONE = 64  # tokens of a batch that is worth a core of its own


class CompiledTranslator(Translator):
    """A translator whose model is computed so; of many sentences each core takes some."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        assert isinstance(recipe.data, PairData) and isinstance(recipe.model, TransformerOptions)
        self.recipe, self.data = recipe, recipe.data
        self.source, self.target = load_tokenizers(folder, recipe)
        weights = Weights(read_weights(folder / "model.safetensors"))
        self.model = CompiledTransformer(recipe.model, weights, self.source.size, self.target.size)

    def decode_all(
        self, sources: dict[int, list[int]], options: DecodingOptions, sampling: "Sampling | None", batch_tokens: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        assert sampling is None
        count = kept.cores()
        batches = batches_of(sources, min(batch_tokens, TOGETHER) // options.beam, count, ALONE)

        def solve(rows: list[int]) -> list[list[Hypothesis]]:
            ids = [sources[i] for i in rows]
            before = cores.set(count if len(batches) == 1 else 1)  # a product is shared where no other batch is computed
            try:
                return search.find(self.model, self.model.start(ids), self.limits(ids, options), options)
            finally:
                cores.reset(before)

        for number, found in each_its_own(solve, batches, count):
            yield batches[number], found


class CompiledTransformer:
    """models/transformer.py, which decodes."""

    numbers = staticmethod(np.array)

    def __init__(self, o: TransformerOptions, weights: Weights, source_size: int, target_size: int) -> None:
        tokens = weights("encoder.embed.token.weight", source_size, o.width)
        self.encoder = _stack(o, weights, "encoder", tokens, o.encoder_layers)
        if o.tie != "all":
            tokens = weights("decoder.embed.token.weight", target_size, o.width)
        self.decoder = _stack(o, weights, "decoder", tokens, o.decoder_layers)
        output = weights("output.weight", target_size, o.width) if o.tie == "none" else tokens
        bias = weights("output.bias", target_size) if o.output_bias else None
        self.logits = Vocabulary(lambda: output, bias)
        weights.check_all_taken()

    def start(self, sources: list[list[int]]) -> Trails:
        memories, bias = [self.encoder.read(np.array(source)) for source in sources], None
        lengths = [len(each) for each in sources]
        memory = np.zeros((len(sources), max(lengths), self.encoder.width), np.float32)
        for row, each in zip(memory, memories, strict=True):
            row[: len(each)] = each
        if min(lengths) < max(lengths):
            real = np.arange(max(lengths)) < np.array(lengths)[:, None]
            bias = np.where(real, np.float32(0), np.float32(-np.inf))
        return self.decoder.begin(len(sources), self.decoder.look_up(memory, bias))

    def step(self, ids: Ids, state: Trails) -> tuple[Array, Trails]:
        """The token each row ends in (B) → logits of the next (B, V), and what is known after reading it."""
        x, state = self.decoder.step(ids, state)
        return self.logits(x), state


def fits(recipe: Recipe) -> bool:
    """Whether something was compiled, and for such a model."""
    o = recipe.model
    return compiled.library() is not None and isinstance(o, TransformerOptions) and o.scores == "dot"


def _stack(o: TransformerOptions, weights: Weights, name: str, tokens: Array, depth: int) -> CompiledStack:
    d_k, d_v = o.head_widths
    activation = "silu" if o.activation == "swiglu" else o.activation
    form = Form(o.heads, o.kv_heads or o.heads, d_k, d_v, o.norm == "post", activation, math.sqrt(o.width))
    position = None
    if o.positions == "sinusoidal":
        position = tables.sinusoids(o.max_length, o.width)
    elif o.positions == "learned":
        position = weights(f"{name}.embed.position", o.max_length, o.width)
    turns = tables.turns(o.max_length, d_k, o.rotary_base) if o.positions == "rotary" else None
    blocks = [_block(o, form, weights, f"{name}.{i}", cross=name == "decoder") for i in range(depth)]
    norm = _norm(o, weights, f"{name}.norm") if o.norm == "pre" else None
    return CompiledStack(form, Tables(tokens, position, turns), blocks, norm)


def _block(o: TransformerOptions, form: Form, weights: Weights, name: str, *, cross: bool) -> Maps:
    """Queries are scaled by 1 / √d_k in their weights, and the keys of a head stand beside its values."""

    def attention(kind: str) -> tuple[list[Array], list[Array]]:
        """W and b of queries, and of keys beside values."""
        widths = {"q": form.heads * form.d_k, "k": form.kv_heads * form.d_k, "v": form.kv_heads * form.d_v}
        q, k, v = (_parts(o, weights, f"{name}.{kind}.{each}", width, o.width) for each, width in widths.items())
        scale = np.float32(1 / math.sqrt(form.d_k))
        both = [
            np.concatenate([x.reshape(form.kv_heads, -1, *x.shape[1:]) for x in each], axis=1).reshape(-1, *each[0].shape[1:])
            for each in zip(k, v, strict=True)
        ]
        return [x * scale for x in q], both

    def linear(each: str, outputs: int, inputs: int) -> Map:
        return _map(*_parts(o, weights, f"{name}.{each}", outputs, inputs))

    z = form.heads * form.d_v
    q, both = attention("self")
    across = attention("cross") if cross else None
    return Maps(
        norms=(
            _norm(o, weights, f"{name}.norm1"),
            _norm(o, weights, f"{name}.norm2") if cross else None,
            _norm(o, weights, f"{name}.norm3"),
        ),
        joined=_map(*(np.concatenate(each) for each in zip(q, both, strict=True))),
        o=linear("self.o", o.width, z),
        q=_map(*across[0]) if across else None,
        both=_map(*across[1]) if across else None,
        cross_o=linear("cross.o", o.width, z) if cross else None,
        w1=linear("ffn.w1", o.inner, o.width),
        w2=linear("ffn.w2", o.width, o.inner),
        w3=linear("ffn.w3", o.inner, o.width) if o.activation == "swiglu" else None,
    )


def _parts(o: TransformerOptions, weights: Weights, name: str, outputs: int, inputs: int) -> list[Array]:
    """W (outputs, inputs), and b if there is one."""
    return [weights(f"{name}.weight", outputs, inputs), *([weights(f"{name}.bias", outputs)] if o.bias else [])]


def _map(weight: Array, bias: Array | None = None) -> Map:
    return Map(np.ascontiguousarray(weight.T), bias)


def _norm(o: TransformerOptions, weights: Weights, name: str) -> Norm:
    centred = o.norm_kind == "layer"
    bias = weights(f"{name}.bias", o.width) if centred and o.bias else None
    return Norm(weights(f"{name}.weight", o.width), bias, o.epsilon, centred)
