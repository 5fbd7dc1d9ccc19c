"""Recipes: what is read, what is refused and in which words."""

import dataclasses
import math
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import from_dict, read, to_toml
from glassformer.errors import UserError
from glassformer.options import DATA, MODELS, PRESETS, SERVED_BY, Recipe

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
    refused("model.qqqq", "known here: width, heads, kv_heads", model={"qqqq": 1})


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
        ("model", "kv_heads", -1, "at least 0"),
        ("model", "epsilon", math.nan, "at least 0.0"),
        ("training", "rates", 0.1, "names with numbers, such as {encoder = 0.1}"),
        ("training", "rates", {"encoder": "slow"}, "training.rates.encoder takes a number"),
        ("training", "rates", {"encoder": True}, "training.rates.encoder takes a number"),
        ("training", "rates", {"encoder": {"embed": 0.1}}, "training.rates.encoder takes a number"),
        ("training", "rates", {"encoder": -0.1}, "at least 0"),
        ("training", "rates", {"encoder": math.nan}, "at least 0"),
        ("training", "rates", {"encoder": math.inf}, "at least 0"),
        ("training", "freeze", 3, "a text in quotes"),
        ("training", "freeze", ["encoder", 3], "a text in quotes"),
        ("generation", "repetition", 0.5, "at least 1.0"),
        ("generation", "top_p", 1.1, "at most 1.0"),
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


@pytest.mark.parametrize(
    ("task", "words", "sections"),
    [
        ("language", "tokenizer.shared = false parts source from target", {"tokenizer": {"shared": False}}),
        ("language", "data.columns names the columns", {"data": {"columns": []}}),
        ("language", "a whole number or a text in quotes; found True", {"data": {"columns": [True]}}),
        ("classify", "takes 2 columns, a text and a label, not ['a']", {"data": {"columns": ["a"]}}),
        ("classify", "takes 2 columns, a text and a label", {"data": {"columns": [1, 2, 3]}}),
        ("compare", "takes 3 columns, two texts and a label", {"data": {"columns": [1, 2]}}),
        ("classify", "data.score = true is for the task 'compare'", {"data": {"score": True}}),
        ("tag", "takes two columns, of the words and the labels", {"data": {"columns": [1]}}),
        ("tag", "a whole number", {"data": {"columns": ["word", "label"]}}),
        ("tag", "does not fit into model.max_length 100", {"data": {"max_length": 99}, "model": {"max_length": 100}}),
        ("classify", "does not fit into model.max_length 100", {"data": {"max_length": 99}, "model": {"max_length": 100}}),
        ("language", "model.heads 12 does not divide into model.kv_heads 5", {"model": {"kv_heads": 5}}),
        ("fill", "must be even", {"model": {"key_width": 5, "positions": "rotary"}}),
        ("classify", "training.betas takes two numbers", {"training": {"betas": []}}),
    ],
)
def test_nor_in_another_task(task: str, words: str, sections: dict[str, Any]) -> None:
    refused(words, task=task, **sections)


def test_what_goes_together_passes() -> None:
    from_dict({"task": "tag", "data": {"columns": [2, 5], "max_length": 98}, "model": {"max_length": 100}})
    from_dict({"task": "compare", "data": {"columns": ["a", 2, "score"], "score": True}})
    from_dict({"model": {"heads": 8, "kv_heads": 2}})
    from_dict({"model": {"width": 10, "heads": 4, "key_width": 2, "value_width": 3}})
    from_dict({"tokenizer": {"shared": False}, "model": {"tie": "output"}})
    from_dict({"data": {"max_length": 98}, "model": {"max_length": 100}})


def test_a_preset_gives_sizes_that_can_be_changed(recipe) -> None:
    model = recipe('[model]\npreset = "big"\nheads = 8').model
    assert (model.width, model.heads, model.inner, model.dropout) == (1024, 8, 4096, 0.3)
    assert recipe("", "model.preset=tiny").model.width == 128


@pytest.mark.parametrize(("kind", "preset"), [(kind, preset) for kind in PRESETS for preset in PRESETS[kind]])
def test_every_preset_is_one_of_its_kind(kind: str, preset: str) -> None:
    task = next(task for task in DATA if kind in SERVED_BY[task] and task != "compare")  # which says no columns by itself
    made = from_dict({"task": task, "model": {"kind": kind, "preset": preset}}).model
    assert made == MODELS[kind](**PRESETS[kind][preset])
    others = {name for other in PRESETS if other != kind for name in PRESETS[other]} - set(PRESETS[kind])
    for name in others:
        words = f"model.preset is {name!r}; for {kind} there are {', '.join(PRESETS[kind])}."
        refused(words, task=task, model={"kind": kind, "preset": name})


class TestChosenSections:
    """The task decides which keys [data] has, and which kinds of model there may be; the kind decides which keys [model] has."""

    # A key that the section of this task has, and one that it has not.
    KEYS = (
        ("translate", "both_ways", True, "documents"),
        ("language", "documents", "file", "source"),
        ("fill", "dev_share", 0.1, "max_length"),
        ("classify", "relabel", ("0=bad",), "scheme"),
        ("tag", "scheme", "bio", "score"),
        ("compare", "score", True, "both_ways"),
        ("vectors", "min_count", 3, "max_length"),
    )

    def given(self, task: str, **data: Any) -> dict[str, Any]:
        return {"task": task, "data": {**({"columns": [1, 2, 3]} if task == "compare" else {}), **data}}

    def test_all_tasks_are_tried_here(self) -> None:
        assert {task for task, *_ in self.KEYS} == set(DATA) == set(SERVED_BY) == set(get_args(get_type_hints(Recipe)["task"]))

    @pytest.mark.parametrize(("task", "key", "value", "foreign"), KEYS)
    def test_by_task(self, task: str, key: str, value: Any, foreign: str) -> None:
        made = from_dict(self.given(task, **{key: value}))
        assert type(made.data) is DATA[task] and getattr(made.data, key) == value
        assert type(made.model) is MODELS[SERVED_BY[task][0]] and made.model.kind == SERVED_BY[task][0]
        refused(f"there is no key data.{foreign};", **self.given(task, **{foreign: value}))

    @pytest.mark.parametrize(
        ("task", "key", "value", "foreign"),
        [("translate", "encoder_layers", 3, "layers"), ("language", "tie", False, "types"), ("fill", "pooling", "mean", "tie")],
    )
    def test_by_kind(self, task: str, key: str, value: Any, foreign: str) -> None:
        for kind in ({}, {"kind": SERVED_BY[task][0]}):
            made = from_dict({**self.given(task), "model": {key: value, **kind}}).model
            assert type(made) is MODELS[SERVED_BY[task][0]] and getattr(made, key) == value
        refused(f"there is no key model.{foreign};", **self.given(task), model={foreign: value})

    @pytest.mark.parametrize("task", DATA)
    def test_a_kind_that_cannot_serve_is_refused_with_those_that_can(self, task: str) -> None:
        for kind in [*(set(MODELS) - set(SERVED_BY[task])), "lstm", ["gpt"], 3]:
            words = f"model.kind is {kind!r}; the task {task!r} is served by {', '.join(SERVED_BY[task])}."
            refused(words, **self.given(task), model={"kind": kind})

    def test_each_kind_has_the_defaults_of_its_paper(self) -> None:
        gpt, bert = (from_dict({"task": task}).model for task in ("language", "fill"))
        assert (gpt.width, gpt.layers, gpt.norm, gpt.activation, gpt.tie) == (768, 12, "pre", "gelu-tanh", True)
        assert (bert.width, bert.layers, bert.norm, bert.activation, bert.types) == (768, 12, "post", "gelu", 2)

    def test_columns_are_numbers_or_names(self) -> None:
        assert from_dict({"task": "classify", "data": {"columns": ["text", 3]}}).data.columns == ("text", 3)
        assert from_dict({"task": "language", "data": {"columns": 2}}).data.columns == (2,)


class TestParts:
    """training.rates and training.freeze name parts of a model."""

    def test_in_a_file(self, recipe) -> None:
        made = recipe(
            '[training]\nfreeze = ["encoder.embed", "encoder.0"]\nrates = {encoder = 0.1, "encoder.1.ffn" = 1}'
        ).training
        assert made.freeze == ("encoder.embed", "encoder.0")
        assert made.rates == {"encoder": 0.1, "encoder.1.ffn": 1.0} and type(made.rates["encoder.1.ffn"]) is float

    def test_as_a_section_and_as_overrides(self, recipe) -> None:
        text = '[training]\nupdates = 5\n[training.rates]\n"encoder.0" = 0.5'
        assert recipe(text).training.rates == {"encoder.0": 0.5}
        assert recipe(text, "training.rates.head=2").training.rates == {"encoder.0": 0.5, "head": 2.0}
        assert recipe(text, 'training.rates={"encoder.1" = 0}').training.rates == {"encoder.1": 0.0}
        assert recipe(text, "training.freeze=encoder").training.freeze == ("encoder",)

    @settings(max_examples=60)
    @given(
        freeze=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4),
        rates=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.floats(0, 1e6), max_size=4),
    )
    def test_written_and_read_they_are_the_same(
        self, tmp_path_factory: pytest.TempPathFactory, freeze: list[str], rates: dict[str, float]
    ) -> None:
        made = from_dict({"training": {"freeze": freeze, "rates": rates}})
        path = tmp_path_factory.getbasetemp() / "parts.toml"
        path.write_text(to_toml(made), encoding="utf-8")
        assert read(path) == made and read(path).training.rates == rates


class TestBase:
    """A recipe that starts from another model has its vocabulary and its sizes."""

    BASE: ClassVar[dict[str, Any]] = {
        "task": "fill",
        "seed": 5,
        "data": {"train": "texts.txt"},
        "tokenizer": {"mask": "<mask>", "vocabulary": 500, "kind": "unigram"},
        "model": {"preset": "tiny", "positions": "rotary", "dropout": 0.4},
        "training": {"rate": 0.5},
    }

    @pytest.fixture
    def begun(self, tmp_path: Path):
        def write(text: str, *overrides: str, base: dict[str, Any] = self.BASE) -> Recipe:
            (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
            return read(tmp_path / "recipe.toml", list(overrides), base=from_dict(base))

        return write

    def test_takes_the_vocabulary_and_the_sizes_alone(self, begun) -> None:
        made, base = begun('task = "classify"\n[data]\ntrain = "labels.tsv"'), from_dict(self.BASE)
        assert (made.tokenizer, made.model) == (base.tokenizer, base.model)
        assert made.data == DATA["classify"](train=("labels.tsv",))
        assert (made.seed, made.training) == (1, Recipe().training)

    def test_dropout_and_pooling_may_differ(self, begun) -> None:
        made = begun('task = "classify"\n[tokenizer]\ndropout = 0.1\n[model]\ndropout = 0.2\npooling = "mean"')
        assert (made.tokenizer.dropout, made.model.dropout, made.model.pooling) == (0.1, 0.2, "mean")
        assert (made.tokenizer.vocabulary, made.model.width) == (500, 128)

    def test_what_agrees_may_be_said(self, begun) -> None:
        made = begun('task = "tag"\n[tokenizer]\nvocabulary = 500\n[model]\nkind = "bert"\nwidth = 128', "model.layers=2")
        assert made.model == from_dict(self.BASE).model

    @pytest.mark.parametrize(
        ("override", "words"),
        [
            ("model.width=64", "model.width is 64, but the model it starts from has 128. Leave [model] out"),
            ("model.positions=learned", "model.positions is 'learned', but the model it starts from has 'rotary'"),
            ("model.kind=gpt", "model.kind is 'gpt', but the model it starts from has 'bert'"),
            (
                "tokenizer.vocabulary=600",
                "tokenizer.vocabulary is 600, but the model it starts from has 500. Leave [tokenizer] out",
            ),
            ("tokenizer.kind=bpe", "tokenizer.kind is 'bpe', but the model it starts from has 'unigram'"),
            ("model.dropout=2", "model.dropout is 2.0; it must be at least 0.0 and at most 0.95"),
            ("data.max_length=511", "does not fit into model.max_length 512"),
            # What is wrong without a model to start from is wrong with one.
            ("model.widht=128", "there is no key model.widht; did you mean model.width?"),
            ("tokenizer.maks=<mask>", "there is no key tokenizer.maks; did you mean tokenizer.mask?"),
            ("model.preset=huge", "model.preset is 'huge'; for bert there are base, small, tiny"),
            ("model=5", "model is a section of keys, not 5"),
            ("tokenizer=5", "tokenizer is a section of keys, not 5"),
        ],
    )
    def test_conflicts_are_refused(self, begun, override: str, words: str) -> None:
        with pytest.raises(UserError) as caught:
            begun('task = "classify"', override)
        assert words in str(caught.value)

    def test_a_model_of_another_kind_is_refused(self, begun) -> None:
        with pytest.raises(UserError, match=r"model\.kind is 'bert'; the task 'language' is served by gpt, rnn\."):
            begun('task = "language"')
        with pytest.raises(UserError, match=r"model\.kind is 'gpt'; the task 'tag' is served by bert, rnn\."):
            begun('task = "tag"', base={"task": "language"})


def test_what_is_not_chosen_is_left_alone() -> None:
    """from_dict changes nothing of what it is given."""
    tree = {"model": {"preset": "tiny"}, "training": {"rates": {"encoder": 1}}}
    from_dict(tree)
    assert tree == {"model": {"preset": "tiny"}, "training": {"rates": {"encoder": 1}}}


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
    if get_origin(hint) is dict:
        return st.dictionaries(values(str, {}), values(get_args(hint)[1], {"low": 0, "high": 1e6}), max_size=3)
    if get_origin(hint) is UnionType:
        return st.one_of(*(values(each, {}) for each in get_args(hint)))
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(low, high if high is not None else (low or 0) + 1_000_000)
    if hint is float:
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    assert hint is str, hint
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def options(cls: type, **chosen: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    plain = [field for field in dataclasses.fields(cls) if field.name not in chosen]
    each = {
        field.name: options(hints[field.name])
        if dataclasses.is_dataclass(hints[field.name])
        else values(hints[field.name], field.metadata)
        for field in plain
    }
    return st.builds(cls, **each, **chosen)


def recipes(task: str, kind: str) -> st.SearchStrategy[Recipe]:
    return options(Recipe, task=st.just(task), data=options(DATA[task]), model=options(MODELS[kind])).map(allowed)


def allowed(recipe: Recipe) -> Recipe:
    """The nearest recipe whose values go together."""
    change = dataclasses.replace
    fitting: dict[str, dict[str, Any]] = {
        "rnn": {"attention": "none", "bidirectional": False},
        "textcnn": {"sizes": (3, 4)},
        "mlp": {},
        "word2vec": {"ngrams": (2, 5) if getattr(recipe.model, "ngrams", ()) else ()},
    }
    blocks = {"key_width": 2, "value_width": 3, "kv_heads": 0, "scores": "dot"}
    data, model = recipe.data, change(recipe.model, max_length=1 << 20, **fitting.get(recipe.model.kind, blocks))
    training = change(recipe.training, betas=(0.1, 0.3), average=1)
    if recipe.task == "vectors":
        data = change(data, stop_words=(), stemming="", segment=0)
        training = change(training, optimiser="sgd", clip=0.0, ema=0.0)
    if recipe.task == "translate":
        model = change(model, tie="none")
        data = change(data, source="a" + data.source, target="b" + data.target, columns=(2, 5))
    elif recipe.task == "tag":
        data = change(data, columns=data.columns[:2] if len(data.columns) > 1 else ())
    else:
        wanted = {"classify": 2, "compare": 3}.get(recipe.task)
        data = change(data, columns=(*data.columns, "a", 1, "b")[:wanted])
    if recipe.task == "classify":
        data = change(data, score=False)
    tokenizer = change(recipe.tokenizer, shared=True)
    decoding = change(recipe.decoding, min_length=0)
    second = "\tx" if recipe.task in ("translate", "compare") else ""
    probes = [f"x{probe.replace(chr(9), '')}{second}" for probe in recipe.film.probes[:16]]
    film = change(recipe.film, probes=() if recipe.task == "vectors" else tuple(probes))
    return change(recipe, model=model, tokenizer=tokenizer, data=data, training=training, decoding=decoding, film=film)


@settings(max_examples=60)
@given(made=st.one_of(*(recipes(task, kind) for task in DATA for kind in SERVED_BY[task])))
def test_written_and_read_it_is_the_same(tmp_path_factory: pytest.TempPathFactory, made: Recipe) -> None:
    path = tmp_path_factory.getbasetemp() / "recipe.toml"
    path.write_text(to_toml(made), encoding="utf-8")
    found = read(path)
    assert found == made and (type(found.data), type(found.model)) == (type(made.data), type(made.model))
