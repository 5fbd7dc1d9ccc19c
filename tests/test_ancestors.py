"""Recurrent, convolutional and bag-of-words models through everything that a Transformer goes through."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command import glassformer, small
from fastapi.testclient import TestClient
from small_tasks import TEXTS, make

import glassformer as gf
from glassformer import config, edits
from glassformer.config import from_dict
from glassformer.distance import norms_by_distance
from glassformer.errors import UserError
from glassformer.explain import explain
from glassformer.models.rnn import RecurrentTranslator
from glassformer.models.stack import parameters
from glassformer.notation import TABLE
from glassformer.options import RnnOptions
from glassformer.server.app import create_app
from glassformer.server.guard import Visitors
from glassformer.server.limits import Limits
from glassformer.server.shelf import Shelf
from glassformer.trace import Trace

SIZES = {"width": 16, "dropout": 0.0, "max_length": 48}
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed": ("translate", {"kind": "rnn", **SIZES, "layers": 2}),
    "dot": ("translate", {"kind": "rnn", **SIZES, "cell": "plain", "attention": "dot"}),
    "additive": (
        "translate",
        {"kind": "rnn", **SIZES, "cell": "gru", "attention": "additive", "bidirectional": True, "key_width": 5},
    ),
    "writes": ("language", {"kind": "rnn", **SIZES, "layers": 2}),
    "judges": ("classify", {"kind": "rnn", **SIZES, "bidirectional": True}),
    "tags": ("tag", {"kind": "rnn", **SIZES, "cell": "gru", "bidirectional": True}),
    "filters": ("classify", {"kind": "textcnn", **SIZES, "filters": 5}),
    **{
        f"counts {input}": ("classify", {"kind": "mlp", **SIZES, "input": input, "inner": 9, "buckets": 50})
        for input in ("one-hot", "bag", "ngrams", "vectors")
    },
}
every_made = pytest.mark.parametrize("name", MADE)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    at = tmp_path_factory.mktemp("ancestors")
    return {name: make(at / name, task, **model) for name, (task, model) in MADE.items()}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[TestClient]:
    shelf = Shelf(list(folders.values()), Limits(models=20))
    with TestClient(create_app(shelf, Visitors()), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@every_made
def test_a_saved_model_is_the_same(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    task = gf.load(folders[name])
    task.save(tmp_path / "again", torch.float16)
    text = TEXTS[MADE[name][0]][0]
    one, other = task.trace(text), gf.load(tmp_path / "again").trace(text)
    assert list(one) == list(other)
    torch.testing.assert_close(one["logits"], other["logits"], atol=0.05, rtol=0.05)  # half precision
    one.save(tmp_path / "trace")
    kept = Trace.load(tmp_path / "trace")
    assert all(kept[path].equal(x) for path, x in one.items())
    assert "logits" in one.table("logits")


def test_the_page_lists_them_all(client: TestClient) -> None:
    told = client.get("/api/models").json()
    assert not told["problems"] and {model["id"] for model in told["models"]} == set(MADE)
    for model in told["models"]:
        tensors = [name for stack in model["map"] for step in stack["steps"] for name in step["tensors"]]
        assert tensors[-1] == "logits" and len(set(tensors)) == len(tensors)


@every_made
def test_the_page_walks_through_them(name: str, client: TestClient) -> None:
    """The map names the tensors of the trace, each with a row; some cell of every tensor is explained."""
    (model,) = (model for model in client.get("/api/models").json()["models"] if model["id"] == name)
    found = client.post("/api/trace", json={"model": name, "text": TEXTS[MADE[name][0]][0]})
    assert found.status_code == 200, found.text
    trace = found.json()
    mapped = {tensor for stack in model["map"] for step in stack["steps"] for tensor in step["tensors"]}
    assert mapped == set(trace["tensors"])
    for tensor, about in trace["tensors"].items():
        assert about["row"] in TABLE
        cell = client.post(f"/api/trace/{trace['id']}/cell", json={"name": tensor, "index": [n - 1 for n in about["shape"]]})
        assert cell.status_code == 200, cell.text
        assert cell.json()["difference"] < 1e-3


@pytest.mark.parametrize("name", ["fixed", "judges", "filters", "counts bag", "writes"])
def test_edits_of_attention_are_refused_where_there_is_none(name: str, client: TestClient) -> None:
    trace = client.post("/api/trace", json={"model": name, "text": TEXTS[MADE[name][0]][0]}).json()
    edit = {"edits": [{"kind": "head-off", "path": "decoder.0.cross", "head": 0}]}
    said = client.post(f"/api/trace/{trace['id']}/edit", json=edit)
    assert said.status_code == 422 and "There is no attention 'decoder.0.cross'. There are: none." in said.json()["error"]


@pytest.mark.parametrize("name", ["dot", "additive"])
def test_edits_of_attention_do_what_they_say(name: str, folders: dict[str, Path]) -> None:
    task = gf.load(folders[name])
    trace = task.trace(TEXTS["translate"][0], "zh")
    off = edits.apply(task, trace, [edits.HeadOff("decoder.0.cross", 0)])
    assert not off.same and not off.trace["decoder.0.cross.z"].any()
    cell = explain(task.model, off.trace, "decoder.0.combine.out", [1, 2])
    assert cell.difference < 1e-5
    assert edits.apply(task, trace, [edits.NoScale("decoder.0.cross")]).same == (name == "additive")


@pytest.mark.parametrize("name", ["fixed", "dot", "additive"])
def test_the_page_searches_with_them(name: str, client: TestClient) -> None:
    found = client.post("/api/beam", json={"model": name, "text": "I like the cat.", "to": "zh", "beam": 3}).json()
    assert found["answers"] and found["rounds"]
    best = found["answers"][0]["ids"]
    asked = {"model": name, "text": "I like the cat.", "to": "zh", "written": best}
    assert client.post("/api/next", json=asked).status_code == 200


@every_made
def test_the_command_line_runs_them(name: str, folders: dict[str, Path]) -> None:
    task = MADE[name][0]
    command = "generate" if task == "language" else task
    more = ["--to", "zh"] if task == "translate" else ["--seed", "1", "--max-tokens", "5"] if task == "language" else []
    result = glassformer(command, "--model", folders[name], "the cat sat", *more)
    assert result.code == 0 and "Traceback" not in result.err, result.err
    refused = glassformer("export", folders[name], "--out", folders[name].parent / "exported")
    assert refused.code == 2 and "of which transformers has none" in refused.err


# -- training


def trained(arguments: list[str], *changes: str) -> Path:
    result = glassformer(*arguments, *(word for change in changes for word in ("--set", change)))
    assert result.code == 0, result.err
    return Path(arguments[arguments.index("--out") + 1])


MODELS = {
    "rnn": 'model={kind="rnn", cell="gru", width=16, bidirectional=true, layers=2, max_length=258}',
    "textcnn": 'model={kind="textcnn", width=16, filters=4, max_length=258}',
    "mlp": 'model={kind="mlp", input="ngrams", buckets=64, max_length=258}',
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_run_that_goes_on_ends_as_one_that_was_whole(kind: str, tmp_path: Path) -> None:
    """Also what batch norm has seen so far."""
    whole = trained(small(tmp_path / "whole", "classify"), MODELS[kind])
    parts = trained(small(tmp_path / "parts", "classify"), MODELS[kind], "training.updates=5")
    assert glassformer("train", parts, "--set", "training.updates=12").code == 0
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()
    assert kind in (whole / "card.md").read_text(encoding="utf-8")
    judged = json.loads(glassformer("evaluate", "--model", whole, "--json").out)
    assert 0 <= judged["accuracy"] <= 1


def test_a_language_model_and_a_tagger_train(tmp_path: Path) -> None:
    for task in ("language", "tag"):
        length = 24 if task == "language" else 258
        run = trained(small(tmp_path / task, task), f'model={{kind="rnn", width=16, max_length={length}}}')
        assert glassformer("evaluate", "--model", run).code == 0


REVERSE = """
task = "translate"
[data]
train = "synthetic:reverse:4000:1"
dev = "synthetic:reverse:60:2"
[tokenizer]
kind = "word"
vocabulary = 64
[model]
kind = "rnn"
cell = "gru"
width = 64
bidirectional = true
attention = "additive"
dropout = 0.0
max_length = 130
[training]
updates = 260
batch_tokens = 1024
rate = 1e-2
warmup = 30
schedule = "cosine"
label_smoothing = 0.0
validate_every = 130
save_every = 130
threads = 1
[decoding]
beam = 2
"""


@pytest.mark.slow
def test_it_learns_to_read_backwards(tmp_path: Path) -> None:
    """Every letter is written by looking at the right one: the attention is the diagonal, turned round."""
    (tmp_path / "reverse.toml").write_text(REVERSE, encoding="utf-8")
    run = trained(["train", str(tmp_path / "reverse.toml"), "--out", str(tmp_path / "run")])
    judged = json.loads(glassformer("evaluate", "--model", run, "--json").out)
    assert judged["BLEU"]["value"] > 90, judged
    task = gf.load(run)
    text = "g l a s s f o"
    assert task.translate(text).text == text[::-1]


# -- how far a gradient reaches


def test_gradients_fade_with_distance_in_a_plain_cell() -> None:
    """… and an LSTM that remembers passes more of them on; what comes later has none."""
    found = norms_by_distance(
        {"plain": {"kind": "rnn", "cell": "plain"}, "lstm": {"kind": "rnn"}, "gpt": {"kind": "gpt"}}, length=24, width=16
    )
    assert set(found) == {"plain", "lstm", "gpt"} and all(len(norms) == 24 for norms in found.values())
    fading = {name: norms[20] / norms[0] for name, norms in found.items()}
    assert fading["plain"] < fading["lstm"] and fading["plain"] < fading["gpt"]


# -- recipes that cannot be


@pytest.mark.parametrize(
    ("task", "model", "words"),
    [
        ("classify", {"kind": "rnn", "attention": "dot"}, "only the task 'translate'"),
        ("language", {"kind": "rnn", "bidirectional": True}, "cannot read from the end"),
        ("translate", {"kind": "rnn", "bidirectional": True, "width": 7}, "7 is odd"),
        ("translate", {"kind": "rnn", "cell": "lsmt"}, "Did you mean 'lstm'"),
        ("translate", {"kind": "rnn", "heads": 2}, "no key model.heads"),
        ("translate", {"kind": "rnn", "layers": 0}, "at least 1"),
        ("translate", {"kind": "textcnn"}, "is served by transformer, rnn"),
        ("tag", {"kind": "mlp"}, "is served by bert, rnn"),
        ("fill", {"kind": "rnn"}, "is served by bert"),
        ("classify", {"kind": "textcnn", "sizes": []}, "model.sizes"),
        ("classify", {"kind": "textcnn", "sizes": [3, 3]}, "model.sizes"),
        ("classify", {"kind": "textcnn", "sizes": [0]}, "model.sizes"),
        ("classify", {"kind": "mlp", "input": "bags"}, "Did you mean 'bag'"),
        ("classify", {"kind": "rnn", "preset": "tiny"}, "for rnn there are base"),
    ],
)
def test_impossible_recipes_are_told(task: str, model: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_dict({"task": task, "model": model})


def test_one_vocabulary_for_all_is_needed_to_share_it() -> None:
    with pytest.raises(UserError, match=r"tokenizer\.shared"):
        from_dict({"model": {"kind": "rnn", "tie": "all"}, "tokenizer": {"shared": False}})


def test_recipes_come_back_from_toml(tmp_path: Path) -> None:
    for task, model in MADE.values():
        recipe = from_dict({"task": task, "model": model, "data": {"max_length": 20} if task != "language" else {}})
        (tmp_path / "r.toml").write_text(config.to_toml(recipe))
        assert config.read(tmp_path / "r.toml") == recipe
    assert isinstance(from_dict({"model": {"kind": "rnn"}}).model, RnnOptions)


def test_the_lstm_beside_the_bundled_translator() -> None:
    """The same data, vocabulary and tags, and small enough to be bundled."""
    recipes = Path(__file__).parent.parent / "recipes"
    ours, lstm = (config.read(recipes / f"{name}.toml") for name in ("zh-en", "zh-en-lstm"))
    assert (ours.data, ours.tokenizer) == (lstm.data, lstm.tokenizer)
    assert isinstance(lstm.model, RnnOptions) and lstm.model.attention == "additive"
    with torch.device("meta"):
        model = RecurrentTranslator(lstm.model, lstm.tokenizer.vocabulary, lstm.tokenizer.vocabulary)
    assert 2 * parameters(model) < 7.8e6  # bytes in half precision, and room for names
