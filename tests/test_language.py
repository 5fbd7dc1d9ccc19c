"""Text is packed without waste, judged by the book, and gone on with exactly as the options say."""

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Result, glassformer
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tasks import scramble
from torch import Tensor

from glassformer import config
from glassformer.errors import UserError
from glassformer.options import GenerationOptions
from glassformer.tasks import continuer
from glassformer.tasks import language as language_module
from glassformer.tasks.language import Language
from glassformer.text.batches import Place
from glassformer.text.stream import Stream, Windows, prepare_stream
from glassformer.text.tokenizer import Tokenizer
from glassformer.training import loop

GREEDY = GenerationOptions(temperature=0.0, max_tokens=20)
DRAWN = GenerationOptions(temperature=1.0, max_tokens=20)


def language(window: int = 16, kind: str = "character", documents: str = "file", seed: int = 0, **model: Any) -> Language:
    """A small model with random weights that knows the letters of one line; whatever else is spelled in bytes."""
    recipe = config.from_dict(
        {
            "task": "language",
            "data": {"train": ["x.txt"], "documents": documents},
            "tokenizer": {"kind": kind, "vocabulary": 300},
            "model": {"width": 16, "heads": 2, "inner": 24, "layers": 1, "dropout": 0.0, "max_length": window, **model},
        }
    )
    torch.manual_seed(seed)
    found = Language(recipe, Tokenizer.train(["the owl and the hen sat on a bin\n"], recipe.tokenizer))
    scramble(found.model)
    found.model.eval()
    return found


class Scripted:
    """A model that writes what it is told, whatever it reads."""

    def __init__(self, ids: Sequence[int], vocabulary: int) -> None:
        self.ids, self.vocabulary, self.at = list(ids), vocabulary, 0

    def start(self, prompt: Tensor) -> "Scripted":
        return self

    def reorder(self, index: Tensor) -> "Scripted":
        return self

    def step(self, ids: Tensor, state: "Scripted") -> tuple[Tensor, "Scripted"]:
        logits = torch.zeros(len(ids), self.vocabulary)
        logits[:, self.ids[self.at]] = 9.0
        self.at += 1
        return logits, self


def scripted(text: str | Sequence[int], *, window: int = 64, prompt: str = "", stop: Sequence[str] = (), most: int = 0) -> Any:
    """What a model that writes this text, or these ids, is told to print: the continuation, and the pieces as they came."""
    task = language(window)
    ids = task.tokenizer.encode(text) if isinstance(text, str) else list(text)
    task.model = Scripted(ids, task.tokenizer.size)
    pieces: list[str] = []
    options = replace(GREEDY, max_tokens=most or len(ids))
    found = task.generate(prompt, options, stop=stop, write=lambda sample, new: pieces.append(new))[0]
    assert "".join(pieces) == found.text
    assert all(pieces)
    return found, pieces


def stream(folder: Path, ids: Sequence[int], largest: int = 1000) -> Stream:
    return prepare_stream(folder, "train", ["x"], lambda chunk: [list(ids)], lambda chunk: (1, 1), largest=largest)


class TestWindows:
    @settings(max_examples=60)
    @given(tokens=st.integers(2, 300), length=st.integers(1, 40), rows=st.integers(1, 9), seed=st.integers(0, 99))
    def test_an_epoch_is_every_window_once(self, tmp_path_factory, tokens, length, rows, seed):
        text = stream(tmp_path_factory.mktemp("windows"), range(tokens))
        windows = Windows(text, length=length, rows=rows, seed=seed).iterate(Place())
        length = min(length, tokens - 1)
        count = (tokens - 1) // length
        for epoch in range(2):
            begins, sizes, after = [], [], Place()
            while after.epoch == epoch or after == Place():
                batch, after = next(windows)
                assert batch.shape[1] == length + 1
                assert (np.diff(batch) == 1).all()  # the text as it stands, with the token after each
                begins += batch[:, 0].tolist()
                sizes.append(len(batch))
            assert after == Place(epoch + 1)
            assert len(begins) == count and len(set(begins)) == count
            assert set(np.diff(sorted(begins))) <= {length}  # side by side: nothing left out, nothing twice
            assert tokens - 1 - count * length < length  # what does not fill a window is less than one
            assert max(sizes) <= rows and max(sizes) - min(sizes) <= 1

    def test_another_order_and_other_cuts_every_epoch(self, tmp_path):
        windows = Windows(stream(tmp_path, range(1000)), length=30, rows=8, seed=1).iterate(Place())
        epochs: dict[int, list[int]] = {}
        place = Place()
        while place.epoch < 6:
            batch, after = next(windows)
            epochs.setdefault(place.epoch, []).extend(batch[:, 0].tolist())
            place = after
        assert len({tuple(begins) for begins in epochs.values()}) == 6
        assert len({min(begins) for begins in epochs.values()}) > 1
        assert all(begins != sorted(begins) for begins in epochs.values())

    def test_goes_on_from_any_place(self, tmp_path):
        text = stream(tmp_path, range(500))
        windows = Windows(text, length=20, rows=4, seed=3).iterate(Place())
        whole, places = [], [Place()]
        for _ in range(20):
            batch, after = next(windows)
            whole.append(batch)
            places.append(after)
        for i, place in enumerate(places[:-1]):
            batch, after = next(Windows(text, length=20, rows=4, seed=3).iterate(place))
            assert (batch == whole[i]).all() and after == places[i + 1]

    @pytest.mark.parametrize(("largest", "size"), [(65_535, 2), (65_536, 4)])
    def test_as_narrow_as_the_ids_allow(self, tmp_path, largest, size):
        text = stream(tmp_path, [0, largest, 7], largest=largest)
        assert text.ids.tolist() == [0, largest, 7]
        assert (tmp_path / "train.ids").stat().st_size == 3 * size

    @pytest.mark.parametrize("ids", [[], [5]])
    def test_too_little_text_leaves_no_corpus_behind(self, tmp_path, ids):
        with pytest.raises(UserError, match=rf"has {len(ids)} tokens; a language model needs at least 2"):
            stream(tmp_path, ids)
        assert not (tmp_path / "train.json").exists()


class TestFit:
    @pytest.mark.parametrize("overlap", [0, 1, 4, 7])
    @pytest.mark.parametrize("tokens", [2, 3, 8, 9, 10, 30, 57])
    def test_windows_that_overlap(self, tokens, overlap):
        task = language(window=8)
        ids = torch.randint(task.tokenizer.size, (tokens,)).tolist()
        total, judged, start = 0.0, 0, 0
        while judged < tokens - 1:  # a window at a time, and of each only what was not judged before
            window = ids[start : start + 9]
            log_p = task.model.logits(task.model(torch.tensor([window[:-1]])))[0].log_softmax(-1)
            for t in range(len(window) - 1):
                if start + t >= judged:
                    total -= log_p[t, window[t + 1]].item()
            judged, start = start + len(window) - 1, start + 8 - overlap
        for batch_tokens in (8, 20, 4096):
            assert task.nll(ids, overlap=overlap, batch_tokens=batch_tokens) == pytest.approx(total, rel=1e-5)

    @pytest.mark.parametrize("documents", ["file", "line"])
    def test_by_hand(self, documents):
        """With logits that are all 0, every token has −log p = log V."""
        task = language(documents=documents)
        torch.nn.init.zeros_(task.model.output.weight)
        texts = ["the owl sat", "on a bin"]
        fit, size = task.fit(texts), task.tokenizer.size
        marks = 2 if documents == "line" else 0  # of each line, of which the very first is read and not foreseen
        tokens = 11 + 8 + 2 * marks - 1
        characters = 11 + 8 + (2 if documents == "line" else 0)
        assert (fit.tokens, fit.characters, fit.words) == (tokens, characters, 3 + 3 + 2)
        assert fit.loss == pytest.approx(math.log(size), rel=1e-5)
        assert fit.perplexity == pytest.approx(size, rel=1e-4)
        assert fit.bits_per_character == pytest.approx(tokens * math.log2(size) / characters, rel=1e-5)
        assert fit.word_perplexity == pytest.approx(size ** (tokens / 8), rel=1e-4)

    def test_words_and_lines_of_a_file(self):
        assert language().counts(["one two\n\n three\n"]) == (16, 6)

    def test_nothing_to_foresee(self):
        with pytest.raises(UserError, match="has 1 tokens; to judge a model it needs at least 2"):
            language().fit(["a"])

    def test_training_reports_the_mean_over_full_windows(self, tmp_path):
        task = language(window=8)
        ids = torch.randint(task.tokenizer.size, (2, 9))
        batch = language_module.Batch(ids[:, :-1], ids[:, 1:].flatten())
        trained, plain = task.loss(batch)
        assert trained.item() == pytest.approx(plain.item())
        assert plain.item() == pytest.approx(sum(task.nll(row) for row in ids.tolist()), rel=1e-5)
        assert batch.tokens == 16


def replayed(task: Language, prompt: str, ids: Sequence[int]) -> list[Tensor]:
    """The logits each of these ids was chosen from, all read anew for each; of a full window the last half."""
    begun = task.prompt_ids(prompt)
    found = []
    held = list(begun)
    for id in ids:
        if len(held) > task.window:
            held = held[-(task.window // 2) :]
        found.append(task.model.logits(task.model(torch.tensor([held])))[0, -1])
        held.append(id)
    return found


class TestGenerate:
    @pytest.mark.parametrize("prompt", ["", "t", "the owl and th"])
    @pytest.mark.parametrize(
        "changes", [{}, {"positions": "rotary", "norm_kind": "rms", "kv_heads": 1}, {"positions": "sinusoidal"}], ids=str
    )
    def test_greedy_is_the_likeliest_at_every_step_also_past_the_window(self, prompt, changes):
        task = language(**changes)
        found = task.generate(prompt, replace(GREEDY, max_tokens=50))[0]
        assert len(found.ids) == 50 and found.ended == "length"
        for id, log_prob, logits in zip(found.ids, found.log_probs, replayed(task, prompt, found.ids), strict=True):
            assert logits[id] > logits.max() - 1e-4
            assert log_prob == pytest.approx(logits.log_softmax(-1)[id].item(), abs=1e-4)

    @pytest.mark.parametrize("window", [2, 3, 5])
    def test_the_smallest_windows(self, window):
        task = language(window=window)
        assert len(task.generate("a", DRAWN)[0].ids) == 20

    @pytest.mark.parametrize("changes", [{"top_k": 1}, {"top_p": 0.0}, {"temperature": 1e-9}, {"top_p": 1e-9}], ids=str)
    def test_other_names_of_greedy(self, changes):
        task = language()
        assert task.generate("owl", replace(DRAWN, **changes))[0].ids == task.generate("owl", GREEDY)[0].ids

    def test_top_k_and_top_p_are_kept_to(self):
        task = language()
        free = task.generate("owl", DRAWN, samples=20)
        chosen = [pair for sample in free for pair in zip(sample.ids, replayed(task, "owl", sample.ids), strict=True)]
        assert max(int((logits > logits[id]).sum()) for id, logits in chosen) >= 3
        for sample in task.generate("owl", replace(DRAWN, top_k=3), samples=20):
            for id, logits in zip(sample.ids, replayed(task, "owl", sample.ids), strict=True):
                assert (logits > logits[id] + 1e-4).sum() < 3
        for sample in task.generate("owl", replace(DRAWN, top_p=0.3), samples=20):
            for id, logits in zip(sample.ids, replayed(task, "owl", sample.ids), strict=True):
                p = logits.softmax(-1)
                assert p[p > p[id] + 1e-6].sum() < 0.3

    def test_temperature_flattens(self):
        task = language()

        def mean(temperature: float) -> float:
            found = task.generate("owl", replace(DRAWN, temperature=temperature), samples=20)
            return float(np.mean([x for sample in found for x in sample.log_probs]))

        assert mean(0.0) > mean(0.5) > mean(1.0) > mean(3.0)

    def test_a_seed_is_repeatable_and_samples_do_not_depend_on_each_other(self):
        task = language()
        options = replace(DRAWN, max_tokens=40)  # past the window, too
        three = task.generate("owl", options, seed=7, samples=3)
        assert task.generate("owl", options, seed=7, samples=3) == three
        assert [sample.ids for sample in task.generate("owl", options, seed=7, samples=5)[:3]] == [s.ids for s in three]
        assert [task.generate("owl", options, seed=7 + i)[0].ids for i in range(3)] == [s.ids for s in three]
        assert len({tuple(sample.ids) for sample in three}) == 3
        assert len(task.generate("owl", options, seed=2**70)[0].ids) == 40

    def test_samples_that_end_leave_the_others_as_they_are(self):
        task = language()
        options = replace(DRAWN, max_tokens=60)
        alone = [task.generate("owl", options, seed=i, stop=["e"])[0] for i in range(12)]
        together = task.generate("owl", options, samples=12, stop=["e"])
        assert [s.text for s in together] == [s.text for s in alone]
        assert len({len(sample.ids) for sample in together}) > 3

    def test_repetition_by_its_formula(self):
        """Of every token that was read or written before, however far back: logit / r, or logit · r if it is negative."""
        task = language()
        prompt, factor = "the owl and the", 1.7
        found = task.generate(prompt, replace(GREEDY, repetition=factor, max_tokens=40))[0]
        seen = set(task.prompt_ids(prompt))
        for id, log_prob, logits in zip(found.ids, found.log_probs, replayed(task, prompt, found.ids), strict=True):
            assert log_prob == pytest.approx(logits.log_softmax(-1)[id].item(), abs=1e-4)
            for token in seen:
                logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
            assert logits[id] > logits.max() - 1e-4
            seen.add(id)
        assert found.ids != task.generate(prompt, replace(GREEDY, max_tokens=40))[0].ids

    def test_an_end_mark_ends_it(self):
        eos = language().tokenizer.eos
        found, _ = scripted([*language().tokenizer.encode("owl"), eos, 5, 5])
        assert (found.text, found.ended, len(found.ids), len(found.log_probs)) == ("owl", "end", 3, 3)
        found, pieces = scripted([eos, eos])
        assert (found.text, found.ended, pieces) == ("", "end", [])

    def test_as_many_tokens_as_asked_for(self):
        for most in (1, 2, 15, 16, 17, 100):
            assert len(language().generate("owl", replace(GREEDY, max_tokens=most))[0].ids) == most

    def test_a_prompt_longer_than_the_window(self):
        task = language(window=8)
        assert task.generate("1234567"[:5], GREEDY)
        with pytest.raises(UserError, match="The prompt is 8 tokens long; this model's window holds 8"):
            task.generate("hen hen ", GREEDY)

    @pytest.mark.parametrize("documents", ["line", "file"])
    def test_an_empty_prompt(self, documents):
        task = language(documents=documents)
        begun = [task.tokenizer.bos] if documents == "line" else task.tokenizer.encode("\n")
        assert task.prompt_ids("") == begun
        assert task.generate("", GREEDY)[0].prompt == ""

    def test_a_word_model_writes_no_space_before_all(self):
        task = language(kind="word", documents="line")
        assert task.tokenizer.spaced
        for prompt in ("", "the owl"):
            found = task.generate(prompt, GREEDY)[0]
            assert found.text.startswith(" ") == bool(prompt)
            assert found.text.strip() == task.tokenizer.decode(found.ids)


class TestWriting:
    @pytest.mark.parametrize(
        ("text", "stop", "expected"),
        [
            ("the owl sat", ["owl"], "the "),
            ("the owl sat", ["t o"], "the owl sat"),
            ("the owl sat", ["sat", "owl"], "the "),
            ("the owl sat", ["the"], ""),
            ("the owl sat", ["sat"], "the owl "),
            ("hen\n\nowl", ["\n\n"], "hen"),
            ("aaab", ["aab"], "a"),
            ("abababac", ["ababac"], "ab"),
            ("the owl sat", ["sate"], "the owl sat"),
            ("the owl sat", ["", "owl"], "the "),
            ("the owl sat", [], "the owl sat"),
            ("今天天气好", ["天气"], "今天"),
            ("今天天气好", ["天天"], "今"),
        ],
    )
    def test_stop_strings(self, text, stop, expected):
        found, pieces = scripted(text, stop=stop)
        assert found.text == expected
        assert found.ended == ("stop" if expected != text else "length")
        assert len(pieces) >= 1 or not expected

    @given(text=st.text("abc", max_size=30), stop=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
    @settings(max_examples=80)
    def test_nothing_of_a_stop_string_is_told(self, text, stop):
        ends = [text.find(s) + len(s) for s in stop if s in text]
        read = text[: min(ends, default=len(text))]  # as soon as one is there
        begins = [read.find(s) for s in stop if s in read]
        found, pieces = scripted(text + "z", stop=stop)
        assert found.text == (read[: min(begins)] if begins else text + "z")
        told = ""
        for piece in pieces:
            told += piece
            assert found.text.startswith(told)

    @pytest.mark.parametrize("text", ["今天天气好", "a猫b", "😀 café", "ñ"])
    def test_no_half_characters(self, text):
        _, pieces = scripted(text)
        assert pieces == list(text)  # each came when its last byte did
        ids = language().tokenizer.encode(text)
        for most in range(1, len(ids) + 1):
            found, pieces = scripted(ids, most=most)
            assert text.startswith(found.text) and "\ufffd" not in found.text
            assert len(found.ids) == most

    def test_bytes_that_are_no_character(self):
        task = language()
        byte = {task.tokenizer.bytes_of(id): id for id in range(task.tokenizer.size)}
        found, _ = scripted([byte[b"\xe4"], byte[b"\xbd"], byte[b"a"], byte[b"\xff"], byte[b"b"]])
        assert found.text == "\ufffda\ufffdb"

    @given(data=st.data())
    @settings(max_examples=40)
    def test_whatever_is_written(self, data):
        """Pieces joined are the text, and the text is the decoded ids but for a character that was never finished."""
        task = language()
        plain = [id for id in range(task.tokenizer.size) if id != task.tokenizer.eos]
        ids = data.draw(st.lists(st.sampled_from(plain), min_size=1, max_size=30))
        found, _ = scripted(ids)
        assert found.ids == ids
        whole = task.tokenizer.decode(ids)
        assert found.text in (whole, whole[:-1])
        assert whole == found.text or whole[-1] == "\ufffd"


# -- the command

ANIMALS, VERBS, PLACES = ("owl", "hen", "cow", "猫"), ("sat", "hid", "ran"), ("barn", "pond", "hill")
SENTENCE = re.compile(rf"the ({'|'.join(ANIMALS)}) ({'|'.join(VERBS)}) by the ({'|'.join(PLACES)})\.")

RECIPE = """
task = "language"
[data]
train = "farm.txt"
dev = "farm.dev.txt"
[tokenizer]
kind = "bpe"
vocabulary = 280
[model]
width = 32
heads = 2
kv_heads = 1
inner = 64
layers = 2
max_length = 48
positions = "rotary"
norm_kind = "rms"
activation = "swiglu"
bias = false
dropout = 0.0
[training]
updates = 150
batch_tokens = 512
rate = 1e-2
warmup = 20
schedule = "cosine"
label_smoothing = 0.0
validate_every = 50
save_every = 50
log_every = 10
threads = 1
[generation]
temperature = 0.7
max_tokens = 60
"""


def farm(folder: Path) -> Path:
    draw = random.Random(1)
    lines = [f"the {draw.choice(ANIMALS)} {draw.choice(VERBS)} by the {draw.choice(PLACES)}." for _ in range(400)]
    (folder / "farm.txt").write_text("\n".join(lines[:360]) + "\n", encoding="utf-8")
    (folder / "farm.dev.txt").write_text("\n".join(lines[360:]) + "\n", encoding="utf-8")
    (folder / "farm.toml").write_text(RECIPE, encoding="utf-8")
    return folder / "farm.toml"


def train(recipe: Path, out: Path, *changes: str) -> Result:
    return glassformer("train", recipe, "--out", out, *(word for change in changes for word in ("--set", change)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("farm")
    result = train(farm(folder), folder / "run")
    assert result.code == 0, result.err
    assert f"Try it: glassformer generate --model {folder / 'run'}" in result.err
    return folder / "run"


def short(folder: Path, *changes: str) -> Path:
    """A run that learns nothing, but has dropout and an average to go wrong."""
    folder.mkdir(exist_ok=True)
    few = ("training.updates=8", "training.save_every=3", "training.validate_every=4", "training.ema=0.9", "model.dropout=0.2")
    result = train(farm(folder), folder / "run", *few, "training.log_every=1", *changes)
    assert result.code in (0, 137, 143), result.err
    return folder / "run"


@pytest.mark.slow
class TestLearned:
    def test_to_a_perplexity(self, run):
        """A sentence has log₂(4 · 3 · 3) bits."""
        best = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines() if "perplexity" in line][-1]
        bits = math.log2(len(ANIMALS) * len(VERBS) * len(PLACES))
        characters = sum(map(len, (run.parent / "farm.dev.txt").read_text(encoding="utf-8").splitlines(keepends=True)))
        assert best["bits_per_character"] < 1.15 * bits * 40 / characters

    def test_writes_its_grammar(self, run):
        result = glassformer("generate", "--model", run, "--samples", 10, "--seed", 1, "the", "--max-tokens", 100)
        texts = result.out.removesuffix("\n").split("\n\n")
        assert len(texts) == 10 and len(set(texts)) > 3
        assert sum(bool(SENTENCE.fullmatch(text)) for text in texts) >= 9

    def test_evaluate(self, run):
        found = json.loads(glassformer("evaluate", "--model", run, "--json").out)
        assert found["loss"] == pytest.approx(math.log(found["perplexity"]))
        task = Language.load(run)
        lines = (run.parent / "farm.dev.txt").read_text(encoding="utf-8").splitlines()
        assert found["perplexity"] == pytest.approx(task.fit(lines).perplexity)
        plain = glassformer("evaluate", "--model", run)
        assert "perplexity" in plain.out and f"{found['bits_per_character']:.4f}" in plain.out
        # Of other text less was foreseen; and a part of it is a part.
        (run.parent / "other.txt").write_text("colourless green ideas\nsleep furiously\n")
        other = json.loads(glassformer("evaluate", "--model", run, "--data", run.parent / "other.txt", "--json").out)
        assert other["perplexity"] > 10 * found["perplexity"]
        first = json.loads(glassformer("evaluate", "--model", run, "--limit", 3, "--json").out)
        assert first["loss"] == pytest.approx(task.fit(lines[:3]).loss)

    def test_evaluate_refuses_what_is_for_translators(self, run):
        result = glassformer("evaluate", "--model", run, "--beam", 4)
        assert result.code == 2 and "are for translators" in result.err


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short(tmp_path_factory.mktemp("whole"))


class TestGoesOn:
    @pytest.mark.parametrize("stop", [2, 3, 5])
    def test_killed_at_any_update_it_ends_alike(self, monkeypatch, tmp_path, whole, stop):
        """Nothing is saved at the moment it dies, so it goes on from a checkpoint before; or from none."""
        original = loop.Trainer._update

        def update(self, progress, batches):
            if progress.update == stop:
                raise SystemExit(137)
            return original(self, progress, batches)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Trainer, "_update", update)
            short(tmp_path)
        assert not (tmp_path / "run" / "model.safetensors").exists()
        (tmp_path / "farm.txt").unlink()
        (tmp_path / "farm.dev.txt").unlink()  # what was prepared is enough
        assert glassformer("train", tmp_path / "run").code == 0
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        drop = ("seconds", "tokens_per_second")
        one, other = (
            [{k: v for k, v in json.loads(line).items() if k not in drop} for line in (r / "log.jsonl").read_text().splitlines()]
            for r in (tmp_path / "run", whole)
        )
        assert one == other

    def test_the_card_and_the_listing_say_what_it_is(self, monkeypatch, whole):
        assert "characters" in (whole / "card.md").read_text()
        monkeypatch.chdir(whole.parent)
        (whole.parent / "runs").mkdir()
        (whole.parent / "runs" / "farm").symlink_to(whole)
        assert "runs/farm\tlanguage\tfarm.txt\tgpt" in glassformer("models").out


class TestData:
    def test_the_last_part_of_the_text_is_set_aside(self, tmp_path):
        recipe = farm(tmp_path)
        (tmp_path / "farm.txt").write_text("".join(f"{i:02}abcdefgh" for i in range(100)))
        few = ("training.updates=1", "data.documents=file", "data.dev=[]", "data.dev_share=0.1", "tokenizer.kind=character")
        result = train(recipe, tmp_path / "run", *few)
        assert result.code == 0, result.err
        assert "900 characters, 900 tokens; 100 dev tokens" in result.err
        task = Language.load(tmp_path / "run")
        dev = Stream(tmp_path / "run" / "prepared", "dev")
        assert task.tokenizer.decode(dev.ids.tolist()).startswith("90abcdefgh91")
        found = json.loads(glassformer("evaluate", "--model", tmp_path / "run", "--json").out)
        assert found["loss"] == pytest.approx(task.fit(["".join(f"{i:02}abcdefgh" for i in range(90, 100))]).loss)

    def test_many_files_and_the_last_lines(self, tmp_path):
        recipe = farm(tmp_path)
        for name in "ab":
            (tmp_path / f"{name}.txt").write_text("".join(f"{name}{i}\n" for i in range(10)))
        few = ("training.updates=1", 'data.train=["a.txt","b.txt"]', "data.dev=[]", "data.dev_share=0.25")
        result = train(recipe, tmp_path / "run", *few, "tokenizer.kind=character")
        assert result.code == 0, result.err
        task = Language.load(tmp_path / "run")
        train_text, dev = (Stream(tmp_path / "run" / "prepared", name) for name in ("train", "dev"))
        bos, eos = task.tokenizer.bos, task.tokenizer.eos
        lines = [[bos, *task.tokenizer.encode(f"{name}{i}"), eos] for name in "ab" for i in range(10)]
        assert train_text.ids.tolist() == [id for line in lines[:15] for id in line]
        assert dev.ids.tolist() == [id for line in lines[15:] for id in line]

    def test_no_dev_text_at_all(self, tmp_path):
        result = train(farm(tmp_path), tmp_path / "run", "training.updates=1", "data.dev=[]")
        assert result.code == 0, result.err
        result = glassformer("evaluate", "--model", tmp_path / "run")
        assert result.code == 2 and "names no test or dev corpus: give one with --data" in result.err

    @pytest.mark.parametrize(
        ("text", "changes", "message"),
        [
            ("", (), "empty"),
            (
                "a",
                ("data.documents=file", "tokenizer.kind=character", "data.dev=[]"),
                "1 tokens; a language model needs at least 2",
            ),
            ("a", ("data.documents=file", "data.dev=[]", "data.dev_share=0.5"), "corpus is empty"),
            ("abcdefgh", ("data.documents=file", "data.dev=[]", "data.dev_share=0.01"), "The dev text has 0 tokens"),
            ("one line\n", ("data.dev=[]", "data.dev_share=0.1"), "corpus is empty"),
        ],
    )
    def test_too_little_text(self, tmp_path, text, changes, message):
        recipe = farm(tmp_path)
        (tmp_path / "farm.txt").write_text(text)
        result = train(recipe, tmp_path / "run", "training.updates=1", *changes)
        assert result.code == 2 and message in result.err, result.err
        assert "Traceback" not in result.err
        # Nothing came of it, so the recipe may be mended.
        farm(tmp_path)
        assert train(recipe, tmp_path / "run", "training.updates=1").code == 0

    def test_a_text_shorter_than_a_window(self, tmp_path):
        recipe = farm(tmp_path)
        (tmp_path / "farm.txt").write_text("ab\n")
        result = train(recipe, tmp_path / "run", "training.updates=2", "tokenizer.kind=character")
        assert result.code == 0, result.err

    def test_starting_from_a_model_goes_on_with_its_vocabulary_and_weights(self, tmp_path, run):
        recipe = farm(tmp_path)
        text = recipe.read_text(encoding="utf-8")
        recipe.write_text(re.sub(r"\[tokenizer\].*\[training\]", "[training]", text, flags=re.DOTALL), encoding="utf-8")
        few = ("--set", "training.updates=1", "--set", "training.rate=0")
        result = glassformer("train", recipe, "--out", tmp_path / "run", "--from", run, *few)
        assert result.code == 0, result.err
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
        assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()


class TestCommand:
    def test_streams_the_prompt_and_what_comes_after(self, run):
        result = glassformer("generate", "--model", run, "--temperature", 0, "the owl")
        task = Language.load(run)
        assert result.out == "the owl" + task.generate("the owl", replace(task.recipe.generation, temperature=0.0))[0].text + "\n"
        assert result.err == ""

    def test_is_repeatable_by_seed_alone(self, run):
        outs = [glassformer("generate", "--model", run, "--seed", seed, "the").out for seed in (3, 3, 4, 5, 6)]
        assert outs[0] == outs[1]
        assert len(set(outs)) > 1
        freely = {glassformer("generate", "--model", run, "--temperature", 1.5, "the").out for _ in range(6)}
        assert len(freely) > 1

    def test_a_sample_by_its_own_seed(self, run):
        lines = glassformer("generate", "--model", run, "--seed", 3, "-n", 3, "--json", "the").out.splitlines()
        found = [json.loads(line) for line in lines]
        assert [each["seed"] for each in found] == [3, 4, 5]
        for each in found:
            assert each["prompt"] == "the" and each["ended"] in ("end", "length")
            assert len(each["ids"]) == len(each["log_probs"]) == len(each["tokens"])
            alone = glassformer("generate", "--model", run, "--seed", each["seed"], "the").out
            assert alone == "the" + each["text"] + "\n"

    def test_several_prompts(self, run):
        result = glassformer("generate", "--model", run, "--temperature", 0, stdin="the owl\n\nthe hen sat\n")
        answers = result.out.removesuffix("\n").split("\n\n")
        assert len(answers) == 3
        assert answers[0].startswith("the owl") and answers[2].startswith("the hen sat")
        assert SENTENCE.fullmatch(answers[1])  # an empty prompt is one, too
        assert glassformer("generate", "--model", run, "--temperature", 0, "the owl", "", "the hen sat").out == result.out

    def test_stop_and_length(self, run):
        greedy = ("generate", "--model", run, "--temperature", 0, "the owl")
        whole = glassformer(*greedy).out
        assert glassformer(*greedy, "--stop", " by", "--stop", "zebra").out == whole.split(" by")[0] + "\n"
        cut = glassformer(*greedy, "--max-tokens", 1).out.removesuffix("\n")
        assert whole.startswith(cut) and len("the owl") < len(cut) < len(whole)

    def test_into_a_file(self, run, tmp_path):
        file = tmp_path / "out.txt"
        greedy = ("generate", "--model", run, "--temperature", 0, "the owl", "-o", file)
        assert glassformer(*greedy) == Result(0, "", "")
        assert file.read_text(encoding="utf-8").startswith("the owl ")
        assert "--force replaces it" in glassformer(*greedy).err
        kept = file.read_bytes()
        result = glassformer("generate", "--model", run, "the " * 60, "-o", file, "--force")
        assert result.code == 2 and file.read_bytes() == kept  # a mistake costs no file

    @pytest.mark.parametrize("samples", [1, 3])
    def test_interrupted_it_keeps_what_was_written(self, monkeypatch, run, samples):
        original, count = continuer.Writer.put, 0

        def put(self, token, log_prob):
            nonlocal count
            count += 1
            if count == 3 * samples:
                raise KeyboardInterrupt
            original(self, token, log_prob)

        greedy = ("generate", "--model", run, "--temperature", 0, "the owl", "-n", samples)
        whole = glassformer("generate", "--model", run, "--temperature", 0, "the owl").out
        monkeypatch.setattr(continuer.Writer, "put", put)
        result = glassformer(*greedy)
        assert result.code == 130 and "interrupted" in result.err
        texts = result.out.removesuffix("\n").split("\n\n")
        assert len(texts) == samples
        for text in texts:
            assert whole.startswith(text) and len(text) > len("the owl")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["the " * 60], "The prompt is 62 tokens long; this model's window holds 48"),
            (["x", "--temperature", "inf"], "--temperature takes a number, not inf"),
            (["x", "--temperature", "nan"], "--temperature"),
            (["x", "--top-p", "nan"], "--top-p"),
            (["x", "--repetition", "inf"], "--repetition takes a number, not inf"),
            (["x", "--temperature", "-1"], "temperature"),
            (["x", "--top-p", "1.5"], "top-p"),
            (["x", "--repetition", "0.5"], "repetition"),
            (["x", "--max-tokens", "0"], "max-tokens"),
            (["x", "--samples", "0"], "samples"),
            (["x", "--input", "nowhere.txt"], "not both"),
            (["--input", "nowhere.txt"], "nowhere.txt"),
            (["\udcff"], "not UTF-8"),
        ],
        ids=lambda x: x[-1][:20] if isinstance(x, list) else "",
    )
    def test_bad_input(self, run, arguments, message):
        result = glassformer("generate", "--model", run, *arguments)
        assert result.code == 2 and message in result.err, result
        assert result.out == "" and "Traceback" not in result.err

    def test_any_whole_seed(self, run):
        for seed in (0, 2**31, 2**64 - 1, 2**64, 10**30):
            assert glassformer("generate", "--model", run, "--seed", seed, "the").code == 0
        assert glassformer("generate", "--model", run, "--seed", -1, "the").code == 2

    @pytest.mark.parametrize("command", ["translate", "fill", "classify", "compare", "tag"])
    def test_another_command_says_which_one_it_is_for(self, run, command):
        result = glassformer(command, "--model", run, "a", "b")
        assert result.code == 2 and "is for the command `glassformer generate`" in result.err

    def test_a_model_that_writes_no_text(self):
        result = glassformer("generate", "--model", "zh-en", "x")
        assert result.code == 2 and "is for the command `glassformer translate`" in result.err


def test_the_options_of_the_recipe_are_the_default(run):
    task = Language.load(run)
    assert task.recipe.generation.temperature == 0.7
    seen: list[GenerationOptions] = []
    original: Callable[..., Any] = continuer.Continuer.generate

    def generate(self, prompt, options=None, **rest):
        seen.append(options)
        return original(self, prompt, options, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuer.Continuer, "generate", generate)
        glassformer("generate", "--model", run, "the", "--top-k", 5)
    assert seen == [replace(task.recipe.generation, top_k=5)]
