"""Recipes: what is read, what is refused and in which words."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import config
from glassformer.config import Recipe, from_dict, read, to_toml
from glassformer.errors import UserError

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.toml"))


@pytest.fixture
def recipe(tmp_path: Path):
    def write(text: str, *overrides: str) -> Recipe:
        (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
        return read(tmp_path / "recipe.toml", list(overrides))

    return write


def refused(*words: str, **sections: Any) -> None:
    with pytest.raises(UserError) as caught:
        from_dict(sections)
    for word in words:
        assert word in str(caught.value)


def test_an_empty_recipe_is_all_defaults(recipe) -> None:
    assert recipe("") == Recipe()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_own_recipes_are_right(path: Path) -> None:
    assert read(path).data.train


def test_the_nearest_key_is_named() -> None:
    refused("training.update;", "did you mean training.updates?", training={"update": 5})
    refused("no key trainning", "did you mean training?", trainning={})
    refused("model.qqqq", "known here: kind, width, heads", model={"qqqq": 1})


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("model", "width", 0, "at least 1"),
        ("model", "dropout", 0.96, "at most 0.95"),
        ("model", "dropout", -0.1, "at least 0.0 and at most 0.95"),
        ("model", "dropout", math.nan, "at least 0.0"),
        ("training", "rate", math.nan, "at least 0.0"),
        ("training", "rate", math.inf, "finite"),
        ("training", "clip", -math.inf, "finite"),
        ("training", "updates", 0, "at least 1"),
        ("tokenizer", "vocabulary", 15, "at least 16"),
        ("decoding", "beam", 1001, "at most 1000"),
        ("model", "width", 8.0, "a whole number"),
        ("model", "width", True, "a whole number"),
        ("model", "width", "8", "a whole number"),
        ("model", "dropout", "0.1", "a number"),
        ("model", "dropout", True, "a number"),
        ("data", "both_ways", 1, "true or false"),
        ("data", "source", 3, "a text in quotes"),
        ("data", "train", [1], "a text in quotes"),
        ("data", "columns", ["a", "b"], "a whole number"),
        ("model", "norm", "pst", "Did you mean 'post'?"),
        ("model", "norm", 7, "post, pre"),
        ("model", "norm", ["post"], "post, pre"),
        ("model", "preset", "huge", "base, big, small, tiny"),
        ("model", "preset", ["base"], "base, big, small, tiny"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(section: str, key: str, value: Any, words: str) -> None:
    refused(f"{section}.{key}", words, **{section: {key: value}})


def test_seed_and_task_are_checked_too() -> None:
    refused("seed is -1", "at least 0", seed=-1)
    refused("task is 'translte'", "Did you mean 'translate'?", task="translte")
    refused("model is a section of keys, not 3", model=3)


def test_a_whole_number_serves_where_a_number_is_meant() -> None:
    rate = from_dict({"training": {"rate": 1}}).training.rate
    assert rate == 1.0 and type(rate) is float


def test_one_value_serves_as_a_list_of_one() -> None:
    assert from_dict({"data": {"train": "a.tsv"}}).data.train == ("a.tsv",)
    assert from_dict({"data": {"train": ["a.tsv", "b.tsv"]}}).data.train == ("a.tsv", "b.tsv")


@pytest.mark.parametrize(
    ("words", "sections"),
    [
        ("model.width 10 does not divide into model.heads 4", {"model": {"width": 10, "heads": 4}}),
        ("model.width 10 does not divide", {"model": {"width": 10, "heads": 4, "key_width": 2}}),
        ("must be even", {"model": {"width": 12, "heads": 4, "positions": "rotary"}}),
        ("must be even", {"model": {"key_width": 5, "positions": "rotary"}}),
        ("use model.scores = 'dot'", {"model": {"positions": "rotary", "scores": "additive"}}),
        ("model.tie = 'all' needs tokenizer.shared", {"tokenizer": {"shared": False}}),
        (
            "data.both_ways needs tokenizer.shared",
            {"data": {"both_ways": True}, "tokenizer": {"shared": False}, "model": {"tie": "none"}},
        ),
        ("two language names", {"data": {"both_ways": True, "source": "en", "target": "en"}}),
        ("data.columns takes two column numbers", {"data": {"columns": [1]}}),
        ("data.columns takes two column numbers", {"data": {"columns": []}}),
        ("data.columns takes two column numbers", {"data": {"columns": [0, 1]}}),
        ("training.betas takes two numbers", {"training": {"betas": [0.9]}}),
        ("training.betas takes two numbers", {"training": {"betas": [0.9, 1.0]}}),
        ("training.betas takes two numbers", {"training": {"betas": [0.9, math.nan]}}),
        ("choose one", {"training": {"ema": 0.99, "average": 3}}),
        ("does not fit into model.max_length 100", {"data": {"max_length": 99}, "model": {"max_length": 100}}),
    ],
)
def test_what_does_not_go_together_is_told(words: str, sections: dict[str, Any]) -> None:
    refused(words, **sections)


def test_what_goes_together_passes() -> None:
    from_dict({"model": {"width": 10, "heads": 4, "key_width": 2, "value_width": 3}})
    from_dict({"tokenizer": {"shared": False}, "model": {"tie": "output"}})
    from_dict({"data": {"max_length": 98}, "model": {"max_length": 100}})


def test_a_preset_gives_sizes_that_can_be_changed(recipe) -> None:
    model = recipe('[model]\npreset = "big"\nheads = 8').model
    assert (model.width, model.heads, model.inner, model.dropout) == (1024, 8, 4096, 0.3)
    assert recipe("", "model.preset=tiny").model.width == 128
    for preset in config.PRESETS:
        from_dict({"model": {"preset": preset}})


@pytest.mark.parametrize(
    ("override", "path", "wanted"),
    [
        ("training.updates=2000", "training.updates", 2000),
        ("training.updates = 2000", "training.updates", 2000),
        ("training.rate=5e-4", "training.rate", 5e-4),
        ("training.rate=1", "training.rate", 1.0),
        ("data.both_ways=false", "data.both_ways", False),
        ("model.norm=pre", "model.norm", "pre"),
        ('model.norm="pre"', "model.norm", "pre"),
        ("data.train=pairs/a=b.tsv", "data.train", ("pairs/a=b.tsv",)),
        ("data.train=train.{en,de}.gz", "data.train", ("train.{en,de}.gz",)),
        ('data.train=["a.tsv", "b.tsv"]', "data.train", ("a.tsv", "b.tsv")),
        ("data.columns=[2, 3]", "data.columns", (2, 3)),
        ("seed=7", "seed", 7),
    ],
)
def test_overrides(recipe, override: str, path: str, wanted: Any) -> None:
    value: Any = recipe("[training]\nupdates = 5", override)
    for part in path.split("."):
        value = getattr(value, part)
    assert value == wanted and type(value) is type(wanted)


def test_later_overrides_win_and_leave_the_rest(recipe) -> None:
    made = recipe("[training]\nupdates = 5\nwarmup = 6", "training.updates=7", "training.updates=8")
    assert (made.training.updates, made.training.warmup) == (8, 6)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.updates", "key=value"),
        ("=3", "key=value"),
        ("seed.x=3", "seed is not a section"),
        ("training.updatez=3", "did you mean training.updates?"),
        ("training.updates=", "a whole number"),
        ("training.updates=many", "a whole number"),
        ("training..updates=3", "no key training."),
        ("training=3", "training is a section"),
    ],
)
def test_wrong_overrides_are_told(recipe, override: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        recipe("seed = 1", override)
    assert words in str(caught.value)


def test_files_that_are_no_recipes(tmp_path: Path, recipe) -> None:
    with pytest.raises(UserError, match=r"There is no recipe .*nowhere\.toml"):
        read(tmp_path / "nowhere.toml")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path)
    with pytest.raises(UserError, match=r"not valid TOML.*line 1"):
        recipe("[model\n")
    with pytest.raises(UserError, match="not valid TOML"):
        recipe("seed = 1\nseed = 2")
    (tmp_path / "latin.toml").write_bytes(b'[data]\nsource = "\xe9"')
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "latin.toml")


def values(hint: Any, bounds: Any) -> st.SearchStrategy[Any]:
    """Any value a field allows."""
    low, high = bounds.get("low"), bounds.get("high")
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0], {}), max_size=3).map(tuple)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(low, high if high is not None else (low or 0) + 1_000_000)
    if hint is float:
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def options(cls: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    return st.builds(
        cls,
        **{
            field.name: options(hints[field.name])
            if dataclasses.is_dataclass(hints[field.name])
            else values(hints[field.name], field.metadata)
            for field in dataclasses.fields(cls)
        },
    )


def allowed(recipe: Recipe) -> Recipe:
    """The nearest recipe whose values go together."""
    model = dataclasses.replace(recipe.model, key_width=2, value_width=3, scores="dot", tie="none", max_length=1 << 20)
    tokenizer = dataclasses.replace(recipe.tokenizer, shared=True)
    data = dataclasses.replace(recipe.data, source="a" + recipe.data.source, target="b" + recipe.data.target, columns=(2, 5))
    training = dataclasses.replace(recipe.training, betas=(0.1, 0.3), average=1)
    decoding = dataclasses.replace(recipe.decoding, min_length=0)
    return dataclasses.replace(recipe, model=model, tokenizer=tokenizer, data=data, training=training, decoding=decoding)


@settings(max_examples=60)
@given(made=options(Recipe).map(allowed))
def test_written_and_read_it_is_the_same(tmp_path_factory: pytest.TempPathFactory, made: Recipe) -> None:
    path = tmp_path_factory.getbasetemp() / "recipe.toml"
    path.write_text(to_toml(made), encoding="utf-8")
    assert read(path) == made
