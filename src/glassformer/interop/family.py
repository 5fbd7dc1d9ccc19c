"""What a family of another library's models is: how its settings become our options and back, and what its tensors are called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import config
from glassformer.errors import UserError
from glassformer.interop.rules import Rule
from glassformer.models.bert import Bert, MaskedHead, PooledHead, TokenHead
from glassformer.models.gpt import GPT
from glassformer.models.transformer import Transformer
from glassformer.options import BertOptions, BlockModel, BlockOptions, GPTOptions, Recipe, TransformerOptions

Settings = dict[str, Any]  # another library's config.json
ROLES = ("pad", "bos", "eos", "unk", "mask")  # of special tokens

ACTIVATIONS = {  # theirs → ours; of several that are the same function, the first is the one we write
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Family:
    name: str
    model_type: str  # as their settings say
    kind: str  # of our model
    tasks: dict[str, str]  # their class → our task
    keys: dict[str, tuple[str, ...]]  # our option → their settings, which must agree if they are several
    defaults: Settings  # what a setting means when it is left out or null
    fixed: dict[str, Any]  # options of ours that the family has no choice in
    zeros: dict[str, Any]  # … that it has no choice in either; where we have less, its tensors are zeros
    required: dict[str, tuple[Any, ...]]  # settings of theirs that we support some values of
    activation: str  # the setting that names the activation
    rules: Callable[[Any, str], list[Rule]]  # of our options and task
    activations: dict[str, str] = field(default_factory=lambda: ACTIVATIONS)
    flatten: Callable[[Settings], Settings] = lambda settings: settings  # settings that hide in others, or follow from them
    unflatten: Callable[[Settings], Settings] = lambda settings: settings
    renamed: tuple[tuple[str, str], ...] = ()  # patterns of older names for tensors, and what they are called now
    ignored: tuple[str, ...] = ()  # patterns of tensors that hold nothing of their own
    copies: Mapping[str, str] = field(default_factory=dict)  # tied tensors that a file may hold twice → the one that counts


def options_of(family: Family, settings: Settings, where: str) -> dict[str, Any]:
    """Our model options, not yet checked for range; whatever we cannot compute is refused, all of it at once."""
    settings = {**family.defaults, **{key: value for key, value in family.flatten(settings).items() if value is not None}}
    problems = [
        f"{key} is {settings[key]!r}; supported: {_listed(allowed)}"
        for key, allowed in family.required.items()
        if key in settings and settings[key] not in allowed
    ]
    options: dict[str, Any] = {"kind": family.kind, **family.zeros, **family.fixed}
    for option, keys in family.keys.items():
        values = [settings[key] for key in keys if key in settings]
        if any(value != values[0] for value in values[1:]):
            found = ", ".join(f"{key} {settings[key]!r}" for key in keys if key in settings)
            problems.append(f"{found} differ; supported: equal ones")
        if values:
            options[option] = values[0]
    named = settings[family.activation]
    if not isinstance(named, str) or named not in family.activations:
        problems.append(f"{family.activation} is {named!r}; supported: {_listed(family.activations)}")
    else:
        options["activation"] = family.activations[named]
    if problems:
        raise UserError(f"{where} is a {family.name} that cannot be computed here:\n  " + "\n  ".join(problems))
    return options


def blocks_of(recipe: Recipe) -> BlockModel:
    """The model of a recipe whose kind has a family."""
    assert isinstance(recipe.model, BlockOptions)
    return recipe.model


def settings_of(family: Family, options: BlockModel) -> Settings:
    """Their settings for our options; see `obstacles`."""
    given = _spelled_out(complete(family, options))
    settings = {key: given[option] for option, keys in family.keys.items() for key in keys}
    settings[family.activation] = {ours: theirs for theirs, ours in reversed(family.activations.items())}[options.activation]
    settings |= {key: allowed[0] for key, allowed in family.required.items() if key in family.defaults}
    return family.unflatten(settings)


def complete(family: Family, options: BlockModel) -> BlockModel:
    """Our options with what the family always has, for a model whose new tensors are zeros."""
    return replace(options, **{option: getattr(options, option) or value for option, value in family.zeros.items()})


def obstacles(family: Family, options: BlockModel) -> list[str]:
    """Why our model has no form in that family, if it has none."""
    given = _spelled_out(options)
    single = options.width // options.heads
    fixed = {"kv_heads": options.heads, "key_width": single, "value_width": single, **family.fixed}
    found = [
        f"model.{option} is {given[option]!r}; a {family.name} has {value!r}"
        for option, value in fixed.items()
        if option not in family.keys and given[option] != value
    ]
    setting: dict[str, str] = {}  # two options of ours that are one setting of theirs must agree
    for option, keys in family.keys.items():
        other = setting.setdefault(keys[0], option)
        if given[option] != given[other]:
            found.append(
                f"model.{option} is {given[option]!r} and model.{other} {given[other]!r}; a {family.name} has one for both"
            )
    if options.activation not in family.activations.values():
        allowed = _listed(dict.fromkeys(family.activations.values()))
        found.append(f"model.activation is {options.activation!r}; a {family.name} has {allowed}")
    return found


def _spelled_out(options: BlockModel) -> dict[str, Any]:
    """Every option, with the numbers that 0 stands for."""
    single = options.width // options.heads
    return {
        **vars(options),
        "kv_heads": options.kv_heads or options.heads,
        "key_width": options.key_width or single,
        "value_width": options.value_width or single,
    }


def recipe_of(task: str, options: dict[str, Any], vocabulary: int, specials: dict[str, str], where: str) -> Recipe:
    """A recipe for an imported model; every number is checked for its range here, before anything is built of it."""
    data = {}
    room = options.get("max_length")
    if task not in ("language", "fill") and isinstance(room, int):
        data["max_length"] = max(1, min(128, room - 2))
    tokenizer = {"kind": "imported", "vocabulary": vocabulary, **{role: "" for role in ROLES}, **specials}
    return config.from_dict({"task": task, "data": data, "tokenizer": tokenizer, "model": options}, where)


def blank(recipe: Recipe, vocabulary: int, labels: int) -> dict[str, Tensor]:
    """The tensors of our model by name, with shapes but no numbers: nothing is allocated, whatever the sizes."""
    with torch.device("meta"):
        model = _model(recipe, vocabulary, labels)
    return dict(model.named_parameters())  # a tied matrix once, under its first name


def _model(recipe: Recipe, vocabulary: int, labels: int) -> nn.Module:
    options = recipe.model
    if isinstance(options, GPTOptions):
        return GPT(options, vocabulary)
    if isinstance(options, TransformerOptions):
        return Transformer(options, vocabulary, vocabulary)
    assert isinstance(options, BertOptions)
    if recipe.task == "fill":
        return Bert(options, vocabulary, MaskedHead(options, vocabulary))
    head = TokenHead(options, labels) if recipe.task == "tag" else PooledHead(options, labels)
    return Bert(options, vocabulary, head)


def _listed(values: Any) -> str:
    return ", ".join(repr(value) if not isinstance(value, str) else value for value in values)
