"""Bad input gets a clear sentence, exit code 2, and nothing is lost."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command import Learned, Result, glassformer, tiny
from safetensors.torch import save_file

from glassformer.weights import read_tensors


def refused(result: Result, *words: str) -> None:
    assert result.code == 2, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert "glassformer: " in result.err
    for word in words:
        assert word in result.err, f"{word!r} is not said in: {result.err}"


def one_way(folder: Path, **data: str) -> list[str]:
    """Arguments that train on these corpora."""
    return tiny(folder, "data.both_ways=false", "data.dev=[]", *(f"data.{key}={value}" for key, value in data.items()))


PAIR = b"one two\tzwei eins\n"

CORPORA: dict[str, tuple[str, dict[str, bytes], list[str]]] = {
    "unequal line counts": (
        "train.{en,zh}",
        {"train.en": b"a\nb\nc\n", "train.zh": b"a\nb\n"},
        ["train.en has 3", "train.zh has 2"],
    ),
    "unequal line counts, packed": (
        "train.{en,zh}.gz",
        {"train.en.gz": gzip.compress(b"a\n"), "train.zh.gz": gzip.compress(b"a\n" * 2000)},
        ["train.en.gz has 1", "train.zh.gz has 2000"],
    ),
    "an empty target": ("p.tsv", {"p.tsv": PAIR + b"three\t\n"}, ["p.tsv:2", "the target is empty"]),
    "an empty source": ("p.tsv", {"p.tsv": PAIR + PAIR + b"  \tdrei\n"}, ["p.tsv:3", "the source is empty"]),
    "an empty line": ("p.tsv", {"p.tsv": PAIR + b"\n" + PAIR}, ["p.tsv:2", "source and the target is empty"]),
    "an empty side of aligned files": ("t.{en,zh}", {"t.en": b"a\nb\n", "t.zh": b"a\n\n"}, ["t.zh:2", "the target is empty"]),
    "too few columns": ("p.tsv", {"p.tsv": PAIR * 9 + b"no tab here\n"}, ["p.tsv:10", "found 1 of the 2 columns"]),
    "broken UTF-8": ("p.tsv", {"p.tsv": PAIR + b"sch\xf6n\tx\n"}, ["p.tsv:2", "not valid UTF-8", "0xf6"]),
    "UTF-16": ("p.tsv", {"p.tsv": "one\tzwei\n".encode("utf-16")}, ["p.tsv:1", "not valid UTF-8"]),
    "an empty file": ("p.tsv", {"p.tsv": b""}, ["p.tsv", "is empty"]),
    "an empty packed file": ("p.tsv.gz", {"p.tsv.gz": gzip.compress(b"")}, ["p.tsv.gz", "is empty"]),
    "two empty files": ("t.{en,zh}", {"t.en": b"", "t.zh": b""}, ["t.{en,zh}", "is empty"]),
    "a cut gzip": ("p.tsv.gz", {"p.tsv.gz": gzip.compress(PAIR * 999)[:-20]}, ["p.tsv.gz", "gzip data is broken or cut off"]),
    "broken JSON": ("p.jsonl", {"p.jsonl": b'{"en": "a", "zh": "b"}\n{"en": '}, ["p.jsonl:2", "not valid JSON"]),
    "a missing key": ("p.jsonl", {"p.jsonl": b'{"en": "a", "cn": "b"}\n'}, ["p.jsonl:1", "no key 'zh'", "'cn'"]),
    "a number for a text": ("p.jsonl", {"p.jsonl": b'{"en": "a", "zh": 5}\n'}, ["p.jsonl:1", "must be a text", "a number"]),
    "a list for an object": ("p.jsonl", {"p.jsonl": b'["a", "b"]\n'}, ["p.jsonl:1", "a list"]),
    "an unknown kind of file": ("p.xlsx", {"p.xlsx": b"PK"}, ["p.xlsx", "allowed", ".tsv"]),
    "a missing file": ("gone.tsv", {}, ["gone.tsv", "Looked in", "--data-dir"]),
    "one of two files missing": ("t.{en,zh}", {"t.en": b"a\n"}, ["t.zh"]),
    "a folder": (".", {}, ["allowed"]),
    "an unknown synthetic corpus": ("synthetic:revers", {}, ["'revers'", "copy, reverse, numerals, dates"]),
    "a synthetic corpus of none": ("synthetic:copy:0", {}, ["at least 1 pair"]),
    "pairs that are all too long": ("p.tsv", {"p.tsv": b"x " * 400 + b"\ty\n"}, ["data.max_length"]),
}


@pytest.mark.parametrize(("spec", "files", "words"), CORPORA.values(), ids=CORPORA)
def test_corpus(tmp_path, monkeypatch, spec, files, words):
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    refused(glassformer(*one_way(tmp_path, train=spec)), *words)
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    assert not (tmp_path / "run" / "checkpoints").exists(), "found only after training began"


def test_a_bad_dev_corpus_is_found_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.tsv").write_bytes(PAIR + b"three\n")
    refused(glassformer(*tiny(tmp_path, "data.dev=dev.tsv")), "dev.tsv:2", "columns")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_known_corpus_that_is_missing(tmp_path, monkeypatch):
    """Where it is published, how large it is, its sha256, where it belongs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFORMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = glassformer(*one_way(tmp_path, train="multi30k/tok/train.lc.norm.tok.{en,de}.gz"))
    place = tmp_path / "cache" / "glassformer" / "data" / "multi30k" / "tok" / "train.lc.norm.tok.en.gz"
    refused(result, "http", "bytes", "sha256", str(place), "glassformer data get multi30k")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.update=5", ["training.update", "did you mean training.updates?"]),
        ("model.hads=2", ["did you mean model.heads?"]),
        ("trainig.updates=5", ["no key trainig", "did you mean training?"]),
        ("training.updates=0", ["training.updates is 0", "at least 1"]),
        ("training.updates=-5", ["at least 1"]),
        ("training.updates=many", ["training.updates", "a whole number", "'many'"]),
        ("training.updates=1.5", ["a whole number"]),
        ("training.rate=-1.0", ["training.rate", "at least 0"]),
        ("training.rate=nan", ["training.rate"]),
        ("training.rate=inf", ["training.rate"]),
        ("training.label_smoothing=1.0", ["training.label_smoothing", "at most 0.99"]),
        ("training.schedule=cosin", ["'cosin'", "Did you mean 'cosine'?"]),
        ("training.betas=[0.9]", ["training.betas", "two numbers"]),
        ("training.ema=0.9", ["training.ema", "training.average"]),
        ("model.dropout=2", ["model.dropout", "at most 0.95"]),
        ("model.norm=both", ["model.norm", "post, pre"]),
        ("model.width=15", ["model.width 15", "model.heads 2"]),
        ("model.preset=huge", ["'huge'", "base, big"]),
        ("model.max_length=20", ["data.max_length", "model.max_length 20"]),
        ("tokenizer.kind=bp", ["tokenizer.kind", "bpe, unigram, word, character"]),
        ("tokenizer.vocabulary=100", ["tokenizer.vocabulary is 100", "256 bytes"]),
        ("tokenizer.shared=false", ["tokenizer.shared"]),
        ("tokenizer.shared=1", ["tokenizer.shared", "true or false"]),
        ("data.columns=[0, 1]", ["data.columns", "counted from 1"]),
        ("data.target=en", ["data.both_ways", "two language names"]),
        ("data.train=[]", ["data.train"]),
        ("data.train=5", ["data.train", "a text in quotes"]),
        ("seed=-1", ["seed", "at least 0"]),
        ("training=5", ["training is a section"]),
        ("training.updates.x=5", ["not a section"]),
        ("updates", ["key=value"]),
        ("=5", ["key=value"]),
    ],
)
def test_recipe_value(tmp_path, change, words):
    changes = ["training.average=2", change] if "ema" in change else [change]
    refused(glassformer(*tiny(tmp_path, *changes)), *words)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[training\nupdates = 5", ["not valid TOML", "line 1"]),
        (b"[training]\nupdates = 5\nupdates = 6", ["not valid TOML"]),
        (b"\xff\xfe", ["cannot be read"]),
        (b"", ["no data.train"]),
        (b"data = 5", ["data is a section"]),
        (b"[data]\ntrain = [['x']]", ["data.train"]),
    ],
)
def test_recipe_file(tmp_path, content, words):
    (tmp_path / "r.toml").write_bytes(content)
    refused(glassformer("train", tmp_path / "r.toml", "--out", tmp_path / "run"), *words)


def test_a_recipe_that_is_not_there(tmp_path):
    refused(glassformer("train", tmp_path / "gone.toml"), "There is no recipe", "gone.toml")
    refused(glassformer("train", tmp_path), "is not a run folder", "recipe.toml")


def test_a_run_folder_that_cannot_be(tmp_path):
    (tmp_path / "run").write_text("a file")
    refused(glassformer(*tiny(tmp_path)), "is a file; a run needs a folder")
    assert (tmp_path / "run").read_text() == "a file"


@pytest.fixture
def model(learned: Learned, tmp_path: Path) -> Path:
    """A good model, to be spoilt."""
    (tmp_path / "model").mkdir()
    for name in ("recipe.toml", "tokenizer.json", "model.safetensors"):
        shutil.copy(learned.run / name, tmp_path / "model" / name)
    return tmp_path / "model"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def renamed(path: Path) -> None:
    """Two names differ and one shape."""
    tensors = read_tensors(path)
    tensors["stranger"] = tensors.pop("encoder.0.norm1.weight")
    tensors["decoder.0.norm1.bias"] = torch.zeros(3)
    path.unlink()
    save_file(tensors, path)


SPOILT: dict[str, tuple[str, Callable[[Path], object], list[str]]] = {
    "cut weights": ("model.safetensors", cut, ["model.safetensors", "not a whole safetensors file"]),
    "empty weights": ("model.safetensors", lambda path: path.write_bytes(b""), ["not a whole safetensors file"]),
    "a web page": ("model.safetensors", lambda path: path.write_text("<!DOCTYPE html>" * 99), ["not a whole safetensors file"]),
    "a pickle": ("model.safetensors", lambda path: torch.save({"x": torch.zeros(2)}, path), ["not a whole safetensors file"]),
    "foreign weights": (
        "model.safetensors",
        renamed,
        ["missing: encoder.0.norm1.weight", "unexpected: stranger", "shape of decoder.0.norm1.bias: (3,)", "(64,)"],
    ),
    "another recipe": (
        "recipe.toml",
        lambda path: path.write_text(path.read_text().replace("encoder_layers = 2", "encoder_layers = 3")),
        ["missing: encoder.2."],
    ),
    "a broken recipe": ("recipe.toml", lambda path: path.write_text("task ="), ["not valid TOML"]),
    "no tokenizer": ("tokenizer.json", lambda path: path.unlink(), ["There is no tokenizer"]),
    "a cut tokenizer": ("tokenizer.json", cut, ["is not a tokenizer file"]),
    "no weights": ("model.safetensors", lambda path: path.unlink(), ["folder without a model"]),
}


@pytest.mark.parametrize(("file", "spoil", "words"), SPOILT.values(), ids=SPOILT)
def test_model_folder(model, file, spoil, words):
    spoil(model / file)
    refused(glassformer("translate", "-m", model, "c a t"), *words)


def test_a_missing_model_says_what_exists(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    (model.parent / "runs").mkdir()
    model.rename(model.parent / "runs" / "mine")
    refused(glassformer("translate", "-m", "nowhere", "c a t"), "no model 'nowhere'", "runs/mine")


def test_a_sentence_that_is_too_long(model, tmp_path):
    """Said, with its number, not silently cut."""
    long = "a " * 300
    refused(glassformer("translate", "-m", model, "c a t", long), "Sentence 2 is 301 pieces long", "at most 130")
    (tmp_path / "in.txt").write_text("c a t\n" * 299 + long + "\n")
    result = glassformer("translate", "-m", model, "-i", tmp_path / "in.txt")
    assert result.code == 2 and "Sentence 300 is 301 pieces long" in result.err
    (tmp_path / "pairs.tsv").write_text(f"a b\tb a\na b\t{long}\n")
    refused(glassformer("evaluate", "-m", model, "--data", tmp_path / "pairs.tsv"), "Pair 2 is longer than the 130 positions")


def test_an_empty_sentence_has_an_empty_translation(model):
    for empty in ("", "   ", "\t"):
        result = glassformer("translate", "-m", model, empty)
        assert (result.code, result.out, result.err) == (0, "\n", "")


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        ([], b"c a t\nsch\xf6n\n", ["Standard input, line 2, is not UTF-8"]),
        (["\udcff"], b"", ["Sentence 1 is not UTF-8"]),
        (["--input", "in.txt"], b"", ["in.txt:2", "not valid UTF-8"]),
        (["--input", "gone.txt"], b"", ["gone.txt", "There is no file"]),
        (["--input", "."], b"", ["cannot be read"]),
        (["--to", "zh", "c a t"], b"", ["translates source into target, not into 'zh'"]),
        (["--nbest", "4", "--beam", "2", "c a t"], b"", ["--nbest 4", "--beam is 2"]),
        (["--min-length", "5", "--max-length", "3", "c a t"], b"", ["minimum length 5", "maximum length 3"]),
        (["--length-penalty", "inf", "c a t"], b"", ["--length-penalty"]),
    ],
)
def test_translate(model, tmp_path, monkeypatch, arguments, stdin, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_bytes(b"c a t\nsch\xf6n\n")
    refused(glassformer("translate", "-m", model, *arguments, stdin=stdin), *words)


def test_two_languages_written_alike(tmp_path):
    """Guessing the direction from the script needs two scripts."""
    assert glassformer(*tiny(tmp_path, "data.target=de", "training.updates=1")).code == 0
    refused(glassformer("translate", "-m", tmp_path / "run", "hello"), "--to en", "--to de")
    assert glassformer("translate", "-m", tmp_path / "run", "hello", "--to", "de").code == 0
    refused(glassformer("translate", "-m", tmp_path / "run", "hello", "--to", "fr"), "between en and de", "'fr'")
