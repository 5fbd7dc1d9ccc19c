"""Recipes: everything that decides a run, the dataclasses of options.py ⇄ TOML.

A recipe is read from a file, changed by dotted overrides (`training.updates=2000`), checked once, and saved whole in the run
folder. Every key is checked by name, type and range, so a misspelt one is an error that names the nearest.
"""

import dataclasses
import difflib
import math
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from glassformer.checks import check_together
from glassformer.errors import UserError
from glassformer.options import DATA, MODELS, PRESETS, SERVED_BY, USUAL, Recipe


def read(path: Path, overrides: list[str] | None = None, base: Recipe | None = None) -> Recipe:
    """The recipe in a TOML file, with `key.path=value` overrides applied; vocabulary and model as in `base`, if there is one."""
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
    if base:
        _take_over(tree, base, str(path))
    return from_dict(tree, str(path))


FREE = {"dropout", "pooling", "preset"}  # what a recipe may say of a model it starts from


def _take_over(tree: dict[str, Any], base: Recipe, where: str) -> None:
    """Puts the vocabulary and the sizes of `base` into a recipe that starts from it."""
    for section, known in (("tokenizer", base.tokenizer), ("model", base.model)):
        given, theirs = tree.get(section, {}), dataclasses.asdict(known)
        if not isinstance(given, dict):
            continue  # told with everything else
        for key, value in given.items():
            if key in theirs and key not in FREE and value != theirs[key]:
                raise UserError(
                    f"{where}: {section}.{key} is {value!r}, but the model it starts from has {theirs[key]!r}. "
                    f"Leave [{section}] out, but for {_listed(sorted(FREE - {'preset'}))}."
                )
        tree[section] = theirs | given  # a key that does not exist is told with everything else


def from_dict(tree: dict[str, Any], where: str = "recipe") -> Recipe:
    """A checked recipe from nested dicts; the task decides which keys [data] has, `model.kind` which [model] has, and
    `model.preset` fills in the sizes that are not given."""
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in tree.items()}
    task = _convert("task", tree.get("task", "translate"), get_type_hints(Recipe)["task"], where)
    model = tree.setdefault("model", {})
    if not isinstance(model, dict):
        raise UserError(f"{where}: model is a section of keys, not {model!r}.")
    kind = model.setdefault("kind", SERVED_BY[task][0])
    if kind not in SERVED_BY[task]:
        raise UserError(f"{where}: model.kind is {kind!r}; the task {task!r} is served by {_listed(SERVED_BY[task])}.")
    if "preset" in model:
        preset = model.pop("preset")
        if not isinstance(preset, str) or preset not in PRESETS[kind]:
            raise UserError(f"{where}: model.preset is {preset!r}; for {kind} there are {_listed(PRESETS[kind])}.")
        tree["model"] = {**PRESETS[kind][preset], **model}
    tree.setdefault("data", {})
    if task == "fill" and not tree.get("start") and isinstance(tree.setdefault("tokenizer", {}), dict):
        tree["tokenizer"].setdefault("mask", "<mask>")
    for section, values in USUAL.get(task, {}).items():
        given = tree.get(section, {})
        tree[section] = {**values, **given} if isinstance(given, dict) else given  # told with everything else
    recipe: Recipe = _build(Recipe, tree, where, "", {"data": DATA[task], "model": MODELS[kind]})
    check_together(recipe, where)
    return recipe


def to_toml(recipe: Recipe) -> str:
    return tomli_w.dumps(dataclasses.asdict(recipe))


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


def _build(cls: Any, tree: Any, where: str, prefix: str, chosen: dict[str, type] | None = None) -> Any:
    """`chosen` is the class of those sections that have several."""
    if not isinstance(tree, dict):
        raise UserError(f"{where}: {prefix.rstrip('.')} is a section of keys, not {tree!r}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    hints = {**get_type_hints(cls), **(chosen or {})}
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
    if origin is dict:
        if not isinstance(value, dict):
            raise UserError(f"{where}: {name} takes names with numbers, such as {{encoder = 0.1}}; found {value!r}.")
        return {key: _convert(f"{name}.{key}", item, get_args(hint)[1], where) for key, item in value.items()}
    if origin is UnionType:
        if type(value) in get_args(hint):
            return value
        raise UserError(f"{where}: {name} takes {' or '.join(_kind(each) for each in get_args(hint))}; found {value!r}.")
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
