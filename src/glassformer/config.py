"""Recipes: everything that decides a run, as frozen dataclasses ⇄ TOML.

A recipe is read from a file, changed by dotted overrides (`training.updates=2000`), checked once, and saved whole in the run
folder. Every key is checked by name, type and range, so a misspelt one is an error that names the nearest.
"""

import dataclasses
import difflib
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from glassformer.errors import UserError


def number(default: Any, *, low: float | None = None, high: float | None = None) -> Any:
    """A field whose value must lie in [low, high]."""
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True)
class DataOptions:
    """Where sentence pairs come from.

    A corpus is a path (`pairs.tsv`, `pairs.jsonl`, each also `.gz`), two aligned files written with braces
    (`train.{en,de}.gz`), or `synthetic:NAME`.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    source: str = "source"  # language names: JSONL keys, target tags, and sacreBLEU's choice of tokenizer
    target: str = "target"
    columns: tuple[int, ...] = (1, 2)  # of a TSV: which hold the source and the target
    both_ways: bool = False  # one model for both directions, told apart by a target tag such as <2en>
    bleu: Literal["auto", "13a", "zh", "char", "intl", "none"] = "auto"  # sacreBLEU's tokenizer; auto: by target language
    max_length: int = number(128, low=1)  # longer training pairs (in pieces) are left out, and counted


@dataclass(frozen=True)
class TokenizerOptions:
    kind: Literal["bpe", "unigram", "word", "character"] = "bpe"
    vocabulary: int = number(8000, low=16, high=1_000_000)
    shared: bool = True  # one vocabulary for both sides, or one each
    lowercase: bool = False
    split_han: bool = False  # every Chinese character is a word of its own
    dropout: float = number(0.0, low=0.0, high=0.9)  # BPE-dropout on the source while training


@dataclass(frozen=True)
class TransformerOptions:
    """The encoder–decoder of "Attention Is All You Need"; the defaults are its `base`."""

    kind: Literal["transformer"] = "transformer"
    width: int = number(512, low=1, high=1 << 16)  # D, the paper's d_model
    heads: int = number(8, low=1, high=1 << 12)  # H
    key_width: int = number(0, low=0, high=1 << 16)  # d_k of one head; 0 means D / H
    value_width: int = number(0, low=0, high=1 << 16)  # d_v of one head; 0 means D / H
    inner: int = number(2048, low=1, high=1 << 18)  # F, the paper's d_ff
    encoder_layers: int = number(6, low=1, high=1000)
    decoder_layers: int = number(6, low=1, high=1000)
    norm: Literal["post", "pre"] = "post"
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    scores: Literal["dot", "additive"] = "dot"
    activation: Literal["relu", "gelu"] = "relu"
    tie: Literal["all", "output", "none"] = "all"  # which share the vocabulary matrix: embeddings and output, target only, none
    dropout: float = number(0.1, low=0.0, high=0.95)
    max_length: int = number(512, low=2, high=1 << 20)  # positions


@dataclass(frozen=True)
class TrainingOptions:
    updates: int = number(10_000, low=1)
    batch_tokens: int = number(4096, low=1)  # positions on the larger side of a batch, padding included
    accumulate: int = number(1, low=1)  # batches per update
    rate: float = number(1e-3, low=0.0)  # the peak learning rate
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    warmup: int = number(1000, low=0)
    betas: tuple[float, ...] = (0.9, 0.98)
    epsilon: float = number(1e-9, low=0.0)
    weight_decay: float = number(0.0, low=0.0)
    label_smoothing: float = number(0.1, low=0.0, high=0.99)
    clip: float = number(1.0, low=0.0)  # largest gradient norm; 0 switches it off
    ema: float = number(0.0, low=0.0, high=0.99999)  # moving average of the weights; 0 switches it off
    average: int = number(1, low=1)  # mean of the last N checkpoints; 1 means the best one
    save_every: int = number(500, low=1)
    validate_every: int = number(500, low=1)
    bleu_sentences: int = number(500, low=0)  # of the dev set, translated at each validation; 0 for loss alone
    patience: int = number(0, low=0)  # validations without a better score before stopping; 0 for never
    log_every: int = number(50, low=1)
    threads: int = number(0, low=0)  # 0 means one per core


@dataclass(frozen=True)
class DecodingOptions:
    beam: int = number(5, low=1, high=1000)
    length_penalty: float = number(1.0, low=0.0)  # α: the score is the log-probability ÷ lengthᵅ
    min_length: int = number(0, low=0)
    max_length: int = number(0, low=0)  # 0 means twice the source and ten more


PRESETS: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "heads": 16, "inner": 4096, "dropout": 0.3},
    "small": {"width": 256, "heads": 4, "inner": 1024, "encoder_layers": 3, "decoder_layers": 3},
    "tiny": {"width": 128, "heads": 4, "inner": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
}


@dataclass(frozen=True)
class Recipe:
    task: Literal["translate"] = "translate"
    seed: int = number(1, low=0, high=2**31 - 1)
    data: DataOptions = DataOptions()
    tokenizer: TokenizerOptions = TokenizerOptions()
    model: TransformerOptions = TransformerOptions()
    training: TrainingOptions = TrainingOptions()
    decoding: DecodingOptions = DecodingOptions()


def read(path: Path, overrides: list[str] | None = None) -> Recipe:
    """The recipe in a TOML file, with `key.path=value` overrides applied."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"There is no recipe {path}. A recipe is a TOML file such as recipes/reverse.toml.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The recipe {path} cannot be read: {error}") from None
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise UserError(f"The recipe {path} is not valid TOML: {error}") from None
    for override in overrides or []:
        _apply(tree, override)
    return from_dict(tree, str(path))


def from_dict(tree: dict[str, Any], where: str = "recipe") -> Recipe:
    """A checked recipe from nested dicts; `model.preset` fills in the sizes that are not given."""
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in tree.items()}
    model = tree.get("model", {})
    if isinstance(model, dict) and "preset" in model:
        preset = model.pop("preset")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise UserError(f"{where}: model.preset is {preset!r}; there are {_listed(PRESETS)}.")
        tree["model"] = {**PRESETS[preset], **model}
    recipe = _build(Recipe, tree, where, "")
    _check_together(recipe, where)
    return recipe


def to_toml(recipe: Recipe) -> str:
    return tomli_w.dumps(dataclasses.asdict(recipe))


def _check_together(recipe: Recipe, where: str) -> None:
    """What no single key can be blamed for."""
    model, data = recipe.model, recipe.data
    if not (model.key_width and model.value_width) and model.width % model.heads:
        raise UserError(
            f"{where}: model.width {model.width} does not divide into model.heads {model.heads}; "
            "choose a multiple, or give model.key_width and model.value_width."
        )
    if model.positions == "rotary" and (model.key_width or model.width // model.heads) % 2:
        raise UserError(f"{where}: rotary positions turn pairs of numbers, so the width of a head must be even.")
    if model.positions == "rotary" and model.scores == "additive":
        raise UserError(f"{where}: rotary positions act on dot products; use model.scores = 'dot' with them.")
    if model.tie == "all" and not recipe.tokenizer.shared:
        raise UserError(f"{where}: model.tie = 'all' needs tokenizer.shared = true; use tie = 'output' or 'none'.")
    if data.both_ways and not recipe.tokenizer.shared:
        raise UserError(f"{where}: data.both_ways needs tokenizer.shared = true.")
    if data.both_ways and data.source == data.target:
        raise UserError(
            f"{where}: data.both_ways needs two language names; data.source and data.target are both {data.source!r}."
        )
    if len(data.columns) != 2 or min(data.columns) < 1:
        raise UserError(f"{where}: data.columns takes two column numbers counted from 1, not {list(data.columns)}.")
    if len(recipe.training.betas) != 2 or not all(0 <= beta < 1 for beta in recipe.training.betas):
        raise UserError(f"{where}: training.betas takes two numbers in [0, 1), not {list(recipe.training.betas)}.")
    if recipe.training.ema and recipe.training.average > 1:
        raise UserError(f"{where}: training.ema and training.average > 1 are two ways to one end; choose one.")
    if 0 < recipe.decoding.max_length < recipe.decoding.min_length:
        raise UserError(f"{where}: decoding.min_length is more than decoding.max_length.")
    if data.max_length + 2 > model.max_length:
        raise UserError(
            f"{where}: data.max_length {data.max_length} (and two marks) does not fit into model.max_length {model.max_length}."
        )


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, such as training.updates=2000; found {override!r}.")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        value = raw.strip()  # an unquoted word is a string
    *parents, leaf = key.strip().split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise UserError(f"--set {override}: {parent} is not a section.")
    tree[leaf] = value


def _build(cls: Any, tree: Any, where: str, prefix: str) -> Any:
    if not isinstance(tree, dict):
        raise UserError(f"{where}: {prefix.rstrip('.')} is a section of keys, not {tree!r}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    hints = get_type_hints(cls)
    values = {}
    for key, value in tree.items():
        name = prefix + key
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
            hint = f"did you mean {prefix + near[0]}?" if near else f"known here: {_listed(fields)}."
            raise UserError(f"{where}: there is no key {name}; {hint}")
        if dataclasses.is_dataclass(hints[key]):
            values[key] = _build(hints[key], value, where, name + ".")
        else:
            values[key] = _convert(name, value, hints[key], where)
            _check_range(name, values[key], fields[key].metadata, where)
    return cls(**values)


def _convert(name: str, value: Any, hint: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if value in get_args(hint):
            return value
        near = difflib.get_close_matches(str(value), [str(a) for a in get_args(hint)], n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"{where}: {name} is {value!r}; allowed: {_listed(get_args(hint))}.{guess}")
    if origin is tuple:
        items = list(value) if isinstance(value, list | tuple) else [value]  # one may stand for a list of one
        return tuple(_convert(name, item, get_args(hint)[0], where) for item in items)
    if hint is float and type(value) is int and abs(value) < 1 << 60:
        return float(value)
    if type(value) is not hint:
        raise UserError(f"{where}: {name} takes {_kind(hint)}; found {value!r}.")
    return value


def _check_range(name: str, value: Any, bounds: Any, where: str) -> None:
    if isinstance(value, float) and math.isinf(value):
        raise UserError(f"{where}: {name} is {value}; it must be a finite number.")
    low, high = bounds.get("low"), bounds.get("high")
    if (low is not None and not value >= low) or (high is not None and not value <= high):  # "not >=" also refuses nan
        allowed = " and ".join(
            words
            for words in (f"at least {low}" if low is not None else "", f"at most {high}" if high is not None else "")
            if words
        )
        raise UserError(f"{where}: {name} is {value}; it must be {allowed}.")


def _kind(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text in quotes"}
    return names.get(hint, str(hint))


def _listed(names: Any) -> str:
    return ", ".join(str(name) for name in names)
