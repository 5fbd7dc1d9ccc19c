"""Our models as CTranslate2 computes them: a fast engine for processors. No torch is needed for it.

`obstacles` says what of a model it has no word for. `convert` fills one of its own descriptions of models and writes the folder.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.arrays import Array, Weights
from glassformer.errors import UserError
from glassformer.layers.tables import sinusoids
from glassformer.options import BertOptions, BlockOptions, GPTOptions, Recipe, TransformerOptions

PRECISIONS = ("float32", "int8")
VOCABULARIES = ("vocabulary", "shared_vocabulary", "source_vocabulary", "target_vocabulary")
FILES = ("config.json", "model.bin", *(f"{name}.json" for name in VOCABULARIES))
TINY = 1e-30  # a row without a larger weight is as good as 0
LEVELS = 64  # the largest weight of a row in eight bits, see `_in_eight_bits`
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu-tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}


def library() -> Any:
    """The module, or how to get it."""
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "ctranslate2"
        why = "is not installed" if missing else f"cannot be loaded ({error})"
        raise UserError(f"CTranslate2 {why}: pip install 'glassformer[ctranslate2]'") from None


def obstacles(recipe: Recipe) -> list[str]:
    """What CTranslate2 has no word for in this model."""
    o = recipe.model
    if not isinstance(o, TransformerOptions | GPTOptions | BertOptions):
        return [f"model.kind is {o.kind!r}, which is no Transformer"]
    d_k, d_v = o.head_widths
    found = []
    if d_k != d_v:
        found.append(f"the keys of a head are {d_k} wide and its values {d_v}; CTranslate2 has one width for both")
    if o.scores != "dot":
        found.append(f"model.scores is {o.scores!r}; CTranslate2 has 'dot'")
    if o.epsilon <= 0:
        found.append("model.epsilon is 0")
    return found


def convert(
    recipe: Recipe, weights: Mapping[str, Array], source: Sequence[str], target: Sequence[str], folder: Path, precision: str
) -> None:
    """Writes the model into a folder that is there; `source` and `target` are the names of the pieces by id."""
    spec = _description(recipe, Weights(weights), list(source), list(target))
    spec.validate()
    spec.optimize()  # what is there twice is written once
    if precision == "int8":
        _in_eight_bits(spec)
    spec.save(str(folder))


def _in_eight_bits(spec: Any) -> None:
    """Every row of every matrix as whole numbers from −64 to 64, and what to divide them by.

    CTranslate2's own quantisation goes to 127. Processors with AVX2 and no VNNI add two products of a weight and an activation
    (0 to 255) in sixteen bits, where 2 · 255 · 127 does not fit and is cut off: that costs more than the coarser weights do.
    """
    model_spec = _specs().model_spec

    def quantise(layer: Any, name: str, value: Any) -> None:
        key = name.rsplit("/", 1)[-1]
        if isinstance(value, model_spec.Variable) and hasattr(layer, f"{key}_scale"):
            weight = value.numpy()
            largest = np.abs(weight).max(axis=1)
            scale = LEVELS / np.where(largest > TINY, largest, 1).astype(np.float32)
            setattr(layer, key, model_spec.NumpyVariable(np.rint(weight * scale[:, None]).astype(np.int8)))
            setattr(layer, f"{key}_scale", model_spec.NumpyVariable(scale))

    model_spec.visit_spec(spec, quantise)


def _description(recipe: Recipe, weights: Weights, source: list[str], target: list[str]) -> Any:
    o: Any = recipe.model
    specs = _specs()
    if isinstance(o, TransformerOptions):
        encoder = specs.TransformerEncoderSpec(o.encoder_layers, o.heads, **_options(o))
        decoder = specs.TransformerDecoderSpec(o.decoder_layers, o.heads, **_options(o))
        spec = specs.TransformerSpec(encoder, decoder)
        _stack(spec.encoder, "encoder", o, len(source), weights)
        decoder_table = "encoder.embed.token.weight" if o.tie == "all" else "decoder.embed.token.weight"
        _stack(spec.decoder, "decoder", o, len(target), weights, decoder_table)
        output = "output.weight" if o.tie == "none" else decoder_table
        spec.register_source_vocabulary(source)
        spec.register_target_vocabulary(target)
        spec.config.decoder_start_token = recipe.tokenizer.bos
    elif isinstance(o, GPTOptions):
        decoder = specs.TransformerDecoderSpec(o.layers, o.heads, with_encoder_attention=False, **_options(o))
        spec = specs.TransformerDecoderModelSpec(decoder)
        _stack(spec.decoder, "decoder", o, len(target), weights)
        output = "decoder.embed.token.weight" if o.tie else "output.weight"
        spec.register_vocabulary(target)
    else:
        return _encoder(recipe, weights, source)
    spec.decoder.projection.weight = weights(output, len(target), o.width)
    if isinstance(o, TransformerOptions) and o.output_bias:
        spec.decoder.projection.bias = weights("output.bias", len(target))
    weights.check_all_taken()
    return _configured(spec, recipe)


def _encoder(recipe: Recipe, weights: Weights, source: list[str]) -> Any:
    """BERT's blocks without its head, for which CTranslate2 has no word, but for the first layer of one that pools."""
    o: Any = recipe.model
    specs = _specs()
    encoder = specs.TransformerEncoderSpec(
        o.layers,
        o.heads,
        num_source_embeddings=2 if o.types else 1,
        embeddings_merge=_common().EmbeddingsMerge.ADD,
        layernorm_embedding=o.norm == "post",
        **_options(o),
    )
    pooled = recipe.task in ("classify", "compare") and o.pooling == "first"
    spec = specs.TransformerEncoderModelSpec(encoder, pooling_layer=pooled, pooling_activation=_common().Activation.Tanh)
    _stack(spec.encoder, "encoder", o, len(source), weights)
    if o.types:
        spec.encoder.embeddings[1].weight = weights("encoder.embed.types.weight", o.types, o.width)
    if o.norm == "post":
        _norm(spec.encoder.layernorm_embedding, "encoder.embed.norm", o, weights)
    if pooled:
        _linear(spec.pooler_dense, ["head.dense"], [o.width], o.width, True, weights)
    spec.register_vocabulary(source)
    return _configured(spec, recipe)


def _options(o: BlockOptions) -> dict[str, Any]:
    """What encoders and decoders have in common."""
    d, heads = o.head_widths[0], o.kv_heads or o.heads
    rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": o.rotary_base} if o.positions == "rotary" else {}
    return {
        "pre_norm": o.norm == "pre",
        "activation": _common().Activation[ACTIVATIONS[o.activation]],
        "ffn_glu": o.activation == "swiglu",
        "rms_norm": o.norm_kind == "rms",
        "num_heads_kv": heads if heads != o.heads else None,
        "head_dim": d if d * o.heads != o.width else None,
        **rotary,
    }


def _configured(spec: Any, recipe: Recipe) -> Any:
    names, o = recipe.tokenizer, recipe.model
    assert isinstance(o, BlockOptions)
    for role in ("bos", "eos", "unk"):
        if name := getattr(names, role):
            setattr(spec.config, f"{role}_token", name)
    spec.config.layer_norm_epsilon = o.epsilon
    return spec


def _stack(spec: Any, name: str, o: Any, vocabulary: int, weights: Weights, table: str = "") -> None:
    """An embedding and its blocks."""
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = weights(table or f"{name}.embed.token.weight", vocabulary, o.width)
    spec.scale_embeddings = isinstance(o, TransformerOptions)
    if o.positions == "sinusoidal":
        spec.position_encodings.encodings = sinusoids(o.max_length, o.width)
    elif o.positions == "learned":
        spec.position_encodings.encodings = weights(f"{name}.embed.position", o.max_length, o.width)
    if o.norm == "pre":
        _norm(spec.layer_norm, f"{name}.norm", o, weights)
    d = o.head_widths[0]
    queries, keys = o.heads * d, (o.kv_heads or o.heads) * d
    for i, layer in enumerate(spec.layer):
        block = f"{name}.{i}"
        own = layer.self_attention
        _linear(own.linear[0], [f"{block}.self.{x}" for x in "qkv"], [queries, keys, keys], o.width, o.bias, weights)
        _linear(own.linear[1], [f"{block}.self.o"], [o.width], queries, o.bias, weights)
        _norm(own.layer_norm, f"{block}.norm1", o, weights)
        if hasattr(layer, "attention"):
            cross = layer.attention
            _linear(cross.linear[0], [f"{block}.cross.q"], [queries], o.width, o.bias, weights)
            _linear(cross.linear[1], [f"{block}.cross.{x}" for x in "kv"], [keys, keys], o.width, o.bias, weights)
            _linear(cross.linear[2], [f"{block}.cross.o"], [o.width], queries, o.bias, weights)
            _norm(cross.layer_norm, f"{block}.norm2", o, weights)
        _linear(layer.ffn.linear_0, [f"{block}.ffn.w1"], [o.inner], o.width, o.bias, weights)
        _linear(layer.ffn.linear_1, [f"{block}.ffn.w2"], [o.width], o.inner, o.bias, weights)
        if o.activation == "swiglu":
            _linear(layer.ffn.linear_0_noact, [f"{block}.ffn.w3"], [o.inner], o.width, o.bias, weights)
        _norm(layer.ffn.layer_norm, f"{block}.norm3", o, weights)


def _norm(spec: Any, name: str, o: BlockOptions, weights: Weights) -> None:
    spec.gamma = weights(f"{name}.weight", o.width)
    if o.norm_kind == "layer":
        spec.beta = weights(f"{name}.bias", o.width) if o.bias else np.zeros(o.width, np.float32)


def _linear(spec: Any, names: list[str], outputs: list[int], inputs: int, bias: bool, weights: Weights) -> None:
    """One matrix product for several."""
    sized = list(zip(names, outputs, strict=True))
    spec.weight = np.concatenate([weights(f"{name}.weight", size, inputs) for name, size in sized])
    if bias:
        spec.bias = np.concatenate([weights(f"{name}.bias", size) for name, size in sized])


def _specs() -> Any:
    library()
    if "torch" in sys.modules:
        return importlib.import_module("ctranslate2.specs")
    sys.modules["torch"] = None  # type: ignore[assignment] # it imports torch if it can, which takes longer than all we do
    try:
        return importlib.import_module("ctranslate2.specs")
    finally:
        del sys.modules["torch"]


def _common() -> Any:
    return _specs().common_spec
