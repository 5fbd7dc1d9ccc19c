"""A model on its way into a folder of ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tokenizers as hf
from torch import Tensor

from glassformer.errors import UserError
from glassformer.interop.family import ROLES, Family, Settings, blank, blocks_of, options_of, recipe_of
from glassformer.interop.rules import Rule, plan
from glassformer.interop.tensors import Found, convert, without_copies
from glassformer.options import Recipe, TransformerOptions

NEEDED = {"bert": ("pad", "bos", "eos"), "transformer": ("pad", "bos", "eos"), "gpt": ()}  # special tokens


@dataclass(frozen=True)
class Imported:
    recipe: Recipe
    weights: dict[str, Tensor]
    tokenizer: str  # tokenizer.json
    labels: list[str]
    about: list[str] = field(default_factory=list)  # lines for the card


def assemble(
    family: Family,
    settings: Settings,
    found: Found,
    tokenizer: tuple[str, hf.Tokenizer],
    specials: dict[str, str],
    *,
    task: str,
    labels: Sequence[str] = (),
    rules: Callable[[Any], list[Rule]] | None = None,
    options: dict[str, object] | None = None,
    where: str = "",
) -> Imported:
    """Settings, tensors and a vocabulary → a model of ours. `rules` gives those of another format than the family's own,
    `options` what the tensors show and the settings do not say, `where` the file of the settings, if it is another."""
    where = where or found.where
    chosen = {**options_of(family, settings, where), **(options or {})}
    rows: Any = settings.get("vocab_size", family.defaults["vocab_size"])
    recipe = recipe_of(task, chosen, rows, {role: specials.get(role, "") for role in ROLES}, where)
    _check_specials(recipe, where)
    size = _check_size(tokenizer[1], rows, where)
    if (depth := _depth(recipe)) > len(found.shapes):  # before so many layers are built, if only without numbers
        raise UserError(f"{where}: it says {depth} layers, but {found.where} has {len(found.shapes)} tensors in all.")

    empty = blank(recipe, rows, len(labels))
    steps = plan(rules(blocks_of(recipe)) if rules else family.rules(blocks_of(recipe), task), empty)
    found = without_copies(found, {step.theirs for step in steps}, family)
    weights = convert(found, steps, empty, family.ignored)
    about = []
    if size < rows:
        about.append(f"Left out: {rows - size:,} rows of the vocabulary matrix that stand for no token.")
        weights |= {name: x[:size].clone() for name, x in weights.items() if _by_token(name, task)}
    recipe = replace(recipe, tokenizer=replace(recipe.tokenizer, vocabulary=size))
    return Imported(recipe, weights, tokenizer[0], list(labels), about)


def _depth(recipe: Recipe) -> int:
    options = blocks_of(recipe)
    return options.encoder_layers + options.decoder_layers if isinstance(options, TransformerOptions) else options.layers


def _by_token(name: str, task: str) -> bool:
    """Whether a tensor of ours has a row for each token."""
    return name.endswith("embed.token.weight") or name.startswith("output.") or (task == "fill" and name == "head.output.bias")


def _check_size(rust: hf.Tokenizer, rows: int, where: str) -> int:
    """How many ids the vocabulary has, for which the model must have rows."""
    size = max(rust.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if not 0 < size <= rows:
        raise UserError(f"{where}: its vocabulary has ids up to {size - 1}, but the model has rows for {rows} (vocab_size).")
    return size


def _check_specials(recipe: Recipe, where: str) -> None:
    needed = (*NEEDED[recipe.model.kind], *(("mask",) if recipe.task == "fill" else ()))
    if missing := [role for role in needed if not getattr(recipe.tokenizer, role)]:
        raise UserError(
            f"{where}: its tokenizer marks no special token for: {', '.join(missing)}. "
            "The model cannot be run without; look at the added_tokens in tokenizer.json and the token ids in config.json."
        )


def special_names(rust: hf.Tokenizer, ids: dict[str, object]) -> dict[str, str]:
    """The names of the special tokens by their roles, of those that the vocabulary marks as special."""
    special = {id: token.content for id, token in rust.get_added_tokens_decoder().items() if token.special}
    first = {role: id[0] if isinstance(id, list) and id else id for role, id in ids.items()}
    return {role: special[id] for role, id in first.items() if isinstance(id, int) and id in special}
