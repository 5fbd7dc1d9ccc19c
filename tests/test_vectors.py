"""Word vectors: the equations, the draws, what is learned, and the commands."""

import json
import math
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import glassformer
from conftest import WORD2VEC, WORDS, close, sentences, word2vec
from torch import Tensor

import glassformer as gf
from glassformer import store
from glassformer.config import from_dict
from glassformer.errors import UserError
from glassformer.layers.negative_sampling import negative_sampling
from glassformer.options import TokenizerOptions, Word2VecOptions, WordData
from glassformer.tasks import wordtests
from glassformer.tasks.contexts import _places, occurrences
from glassformer.tasks.space import Space
from glassformer.tasks.vectors import Vectors
from glassformer.text.batches import Place
from glassformer.text.neighbourhoods import DRAWN, Contexts, Stretches, drawing, kept
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import Words, bucket, ngrams
from glassformer.training.optimiser import clip_rows

RECIPE = """
task = "vectors"
[data]
train = "text.txt"
[model]
width = 12
window = 2
subsample = 0
{model}
[training]
updates = {updates}
batch_tokens = 64
log_every = 10
save_every = {save}
threads = 1
"""
ANIMALS, TOOLS = ["cat", "dog", "cow", "hen", "owl", "fox"], ["saw", "axe", "nail", "drill", "clamp", "rasp"]


def corpus(lines: int = 600, seed: int = 1) -> str:
    """Two groups of words that never meet, with words of no group between them."""
    draw = random.Random(seed)
    rows = []
    for _ in range(lines):
        group = draw.choice((ANIMALS, TOOLS))
        words = [word for _ in range(4) for word in (draw.choice(group), draw.choice(("the", "a", "and")))]
        rows.append(" ".join(words))
    return "\n".join(rows) + "\n"


def train(folder: Path, *changes: str, model: str = "", updates: int = 400, save: int = 1000) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text(corpus(), encoding="utf-8")
    (folder / "vectors.toml").write_text(RECIPE.format(model=model, updates=updates, save=save), encoding="utf-8")
    settings = [word for change in changes for word in ("--set", change)]
    result = glassformer("train", folder / "vectors.toml", "--out", folder / "run", *settings)
    assert result.code == 0, result.err
    return folder / "run"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("vectors"))


def task_of(**model: Any) -> Vectors:
    """An untrained task over the words of conftest."""
    options = {"width": 6, "window": 2, "negatives": 3, "subsample": 0.0, **model}
    recipe = from_dict({"task": "vectors", "data": {"split": "spaces"}, "model": options})
    tokenizer = Tokenizer.of_words(WORDS[1:], recipe.tokenizer)
    torch.manual_seed(0)
    task = Vectors(recipe, tokenizer, Words(recipe.data, recipe.tokenizer))  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in task.model.parameters():
            weight.normal_()
    return task


class Text:
    """A prepared text in memory."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = np.array(ids)

    def __len__(self) -> int:
        return len(self.ids)


def stretches(task: Vectors, ids: list[int], end: int, seed: int = 0) -> Stretches:
    counts = np.bincount([id for id in ids if id != end], minlength=task.tokenizer.size)
    made = Contexts(Text(ids), counts, task.options, end=end, tokens=64, seed=1)  # type: ignore[arg-type]
    return made.stretches(np.array(ids), np.random.default_rng(seed))


# -- the equations


def log_sigmoid(x: Tensor) -> float:
    return -math.log1p(math.exp(-x.item()))


class TestLoss:
    IDS = (4, 5, 6, 7, 99, 8, 9, 4, 10, 5, 99)  # two documents; 99 ends one

    def contexts(self, window: int) -> list[tuple[int, list[int]]]:
        """Each word's id with the ids around it, by a loop."""
        found, document = [], []
        for id in self.IDS:
            if id != 99:
                document.append(id)
                continue
            for i, word in enumerate(document):
                near = [document[j] for j in range(len(document)) if 0 < abs(i - j) <= window]
                found.append((word, near))
            document = []
        return found

    @pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
    @pytest.mark.parametrize("context", ["sum", "mean"])
    def test_negative_sampling(self, architecture, context):
        """−log σ(h·v) − (negatives ÷ drawn) Σ log σ(−h·v'), for every pair."""
        task = task_of(architecture=architecture, shrink=False, context=context)
        made = stretches(task, list(self.IDS), 99)
        w_in, w_out = task.model.input.weight, task.model.output.weight
        drawn = made.drawn[0].tolist()
        share = 3 / DRAWN
        expected = 0.0
        for word, near in self.contexts(2):
            if architecture == "skip-gram":
                pairs = [(w_in[word], target) for target in near]
            else:
                total = w_in[near].sum(0)
                pairs = [(total / len(near) if context == "mean" else total, word)]
            for h, target in pairs:
                expected -= log_sigmoid(h @ w_out[target])
                expected -= share * sum(log_sigmoid(-(h @ w_out[id])) for id in drawn)
        batch = task.batch(made)
        assert task.loss(batch)[0].item() == pytest.approx(expected, rel=1e-5)
        assert len(batch.labels) == sum(len(near) if architecture == "skip-gram" else 1 for _, near in self.contexts(2))

    @pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
    def test_full_softmax(self, architecture):
        """−log softmax(h W_outᵀ)[target], for every pair."""
        task = task_of(architecture=architecture, shrink=False, negatives=0)
        w_in, w_out = task.model.input.weight, task.model.output.weight
        expected = 0.0
        for word, near in self.contexts(2):
            pairs = [(w_in[word], t) for t in near] if architecture == "skip-gram" else [(w_in[near].sum(0), word)]
            expected -= sum((h @ w_out.T).log_softmax(0)[target].item() for h, target in pairs)
        batch = task.batch(stretches(task, list(self.IDS), 99))
        assert task.loss(batch)[0].item() == pytest.approx(expected, rel=1e-5)

    def test_gradient_is_that_of_autograd(self):
        states, rows = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
        weights = torch.rand(2, 3, 5)
        sign = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
        plain = -(torch.nn.functional.logsigmoid(sign * (states @ rows.transpose(1, 2))) * weights).sum()
        ours = negative_sampling(states, rows, weights, 2)
        close(ours, plain)
        for a, b in zip(torch.autograd.grad(ours, (states, rows)), torch.autograd.grad(plain, (states, rows)), strict=True):
            close(a, b)

    def test_a_word_alone_is_not_predicted(self):
        for architecture in ("skip-gram", "cbow"):
            task = task_of(architecture=architecture)
            batch = task.batch(stretches(task, [4, 99, 5, 99], 99))
            assert task.loss(batch)[0].item() == 0 and len(batch.labels) == 0


@torch.no_grad()
def test_a_pass_is_two_matrices():
    for build in WORD2VEC.values():
        model = build()
        assert not [name for name, _ in model.named_parameters() if "bias" in name]
        ids = sentences(5)
        x = model.embed(ids)[0]
        hidden = model(ids)[0]
        if model.options.architecture == "cbow":
            total = x[0] + x[1] + x[3] + x[4]  # around the third, of a window of two
            close(hidden[2], total / 4 if model.options.context == "mean" else total)
        else:
            close(hidden, x)
        close(model.logits(hidden), hidden @ model.output.weight.T)


class TestNgrams:
    def test_as_in_the_paper(self):
        assert list(ngrams("where", (3, 3))) == ["<wh", "whe", "her", "ere", "re>"]
        assert "<where>" not in set(ngrams("where", (3, 9)))

    def test_hashed_as_fasttext_does(self):
        """FNV-1a over bytes taken as signed, by hand for one byte above 127."""
        assert bucket("a", 1 << 32) == ((2166136261 ^ 0x61) * 16777619) % (1 << 32)
        h = 2166136261
        for byte in "é".encode():
            h = ((h ^ (byte | 0xFFFFFF00)) * 16777619) % (1 << 32)
        assert bucket("é", 1 << 32) == h

    @torch.no_grad()
    def test_a_word_is_the_mean_of_its_parts(self):
        model = word2vec(ngrams=(3, 4))
        id = WORDS.index("tree")
        rows = [id, *(len(WORDS) + bucket(gram, 20) for gram in ngrams("tree", (3, 4)))]
        close(model.embed(torch.tensor([[0, id]]))[0, 1], model.input.weight[rows].mean(0))
        close(model.vectors()[id], model.input.weight[rows].mean(0))
        close(model.guess("tree"), model.input.weight[rows[1:]].mean(0))


# -- draws


class TestDraws:
    COUNTS = np.array([0, 1000, 100, 10, 1])

    def test_negatives_follow_counts_to_the_power(self):
        expected = self.COUNTS**0.75 / (self.COUNTS**0.75).sum()
        assert drawing(self.COUNTS, 0.75) == pytest.approx(expected)
        made = Contexts(
            Text([1] * 32_000),
            self.COUNTS,
            Word2VecOptions(window=1, subsample=0),
            end=9,
            tokens=64,
            seed=1,  # type: ignore[arg-type]
        ).stretches(np.ones(32_000, int), np.random.default_rng(0))
        found = np.bincount(made.drawn.flatten(), minlength=5) / made.drawn.size
        assert found == pytest.approx(expected, abs=0.01) and found[0] == 0

    def test_frequent_words_are_left_out_by_chance(self):
        share = self.COUNTS / self.COUNTS.sum()
        keep = kept(self.COUNTS, 0.01)
        for i in (1, 2):
            assert keep[i] == pytest.approx(math.sqrt(0.01 / share[i]) + 0.01 / share[i])
        assert keep[3] == keep[4] == 1
        ids = np.array(([1] * 10 + [2]) * 2000)
        options = Word2VecOptions(window=1, subsample=0.01)
        made = Contexts(Text(ids.tolist()), self.COUNTS, options, end=9, tokens=64, seed=1).stretches(  # type: ignore[arg-type]
            ids, np.random.default_rng(0)
        )
        real = made.near.any(2)  # a stretch that is not full ends in padding
        assert (made.words[real] == 1).sum() == pytest.approx(20_000 * keep[1], rel=0.05)
        assert (made.words[real] == 2).sum() == pytest.approx(2000 * keep[2], rel=0.1)
        assert made.tokens == len(ids)

    def test_windows_shrink_and_stay_in_their_document(self):
        ids = [*([1, 2, 3] * 20), 9, *([2, 3] * 30), 9]
        options = Word2VecOptions(window=5, subsample=0)
        made = Contexts(Text(ids), self.COUNTS, options, end=9, tokens=64, seed=1).stretches(  # type: ignore[arg-type]
            np.array(ids), np.random.default_rng(0)
        )
        sizes = made.near.sum(2)
        assert sizes.max() == 10 and set(np.unique(sizes)) >= {2, 4, 6, 8, 10}
        second = made.words[:, :, None] * made.near  # no word 1 stands in the second document
        assert not (made.near & (made.around[:, None] == 1) & (second == 0)).any()

    def test_every_word_is_read_once_an_epoch_wherever_it_goes_on(self):
        ids = [*([1, 2, 3, 4] * 30_000), 9]
        contexts = Contexts(
            Text(ids),
            np.array([0, 1, 1, 1, 1]),
            Word2VecOptions(subsample=0, negatives=0),
            end=9,
            tokens=4096,
            seed=1,  # type: ignore[arg-type]
        )
        stream = contexts.iterate(Place())
        whole = [next(stream) for _ in range(contexts.updates())]
        assert whole[-1][1] == Place(1) and sum(batch.tokens for batch, _ in whole) == 120_000
        for k in (3, 7, 20):
            again, _ = next(contexts.iterate(whole[k - 1][1]))
            assert (again.words == whole[k][0].words).all() and (again.near == whole[k][0].near).all()


# -- words of a text


class TestWords:
    def of(self, text: str, lowercase: bool = False, split_han: bool = False, **data: Any) -> list[str]:
        return Words(WordData(**data), TokenizerOptions(kind="word", lowercase=lowercase, split_han=split_han)).of(text)

    def test_split(self):
        assert self.of("Don't stop, well-known Émile! (2 x 3.)") == ["Don't", "stop", "well-known", "Émile", "2", "x", "3"]
        assert self.of("a , b.", split="spaces") == ["a", ",", "b."]
        assert self.of("ABC公司2024年_x") == ["ABC", "公司", "2024", "年", "x"]
        assert self.of("你好吗", split_han=True) == ["你", "好", "吗"]

    def test_the_articles_preparation(self):
        pytest.importorskip("snowballstemmer")
        found = self.of(
            "The Cats were RUNNING in the gardens", lowercase=True, stop_words=("english", "gardens"), stemming="english"
        )
        assert found == ["cat", "run"]

    @pytest.mark.parametrize("installed", [True, False])
    def test_a_stemmer_that_is_not_there(self, monkeypatch, installed):
        if installed:
            pytest.importorskip("snowballstemmer")
        else:
            monkeypatch.setitem(sys.modules, "snowballstemmer", None)
            with pytest.raises(UserError, match=r"needs the package snowballstemmer"):
                self.of("x", stemming="english")
        with pytest.raises(UserError, match=r"data\.stemming is 'klingon'; there are .*english"):
            self.of("x", stemming="klingon")

    def test_segmentation_finds_what_holds_together(self):
        draw = random.Random(1)
        parts = ["苹果", "图书馆", *(chr(0x4E00 + i) for i in range(200))]
        words = Words(WordData(segment=1000), TokenizerOptions(kind="word"))
        words.learn("".join(draw.choice(parts) for _ in range(20)) for _ in range(400))
        assert words.of("丁图书馆，七苹果。") == ["丁", "图书馆", "七", "苹果"]
        assert words.of("丁龘七") == ["丁", "龘", "七"]  # never seen

    def test_rare_words_are_left_out(self):
        words = Words(WordData(min_count=2), TokenizerOptions(kind="word"))
        assert words.counted(["a b a", "b c <unk> <unk>"]) == {"a": 2, "b": 2, "unk": 2}


# -- the space


class TestSpace:
    def space(self) -> Space:
        """king − man + woman = queen, by construction."""
        royal, male, female, fruit = torch.eye(4)
        words = {"king": royal + male, "queen": royal + female, "man": male, "woman": female, "apple": fruit}
        return Space(list(words), torch.stack(list(words.values())), normalise=str.lower)

    def test_analogy(self):
        space = self.space()
        a, b, c = (space.vector(word) for word in ("king", "man", "woman"))
        found = space.analogy("king", "man", "woman")
        assert found[0].word == "queen" and {near.word for near in found} == {"queen", "apple"}
        wanted = torch.nn.functional.cosine_similarity(a - b + c, space.vector("queen"), dim=0)
        assert found[0].cosine == pytest.approx(wanted.item())

    def test_neighbours_and_similarity(self):
        space = self.space()
        assert [near.word for near in space.neighbours("KING", 2)] in (["man", "queen"], ["queen", "man"])
        assert space.similarity("king", "man") == pytest.approx(2**-0.5)
        assert space.similarity("king", "king") == pytest.approx(1)
        assert len(space.neighbours("king", 100)) == 4

    def test_an_unknown_word_is_told_with_the_nearest(self):
        with pytest.raises(UserError, match=r"'quen' is not among the 5 .* Nearest in spelling: queen"):
            self.space().vector("quen")
        with pytest.raises(UserError, match=r"not among the 5 of this vocabulary\.$"):
            self.space().vector("龘")


class TestEvaluation:
    def test_spearman_with_ties(self):
        assert wordtests.spearman(np.array([1.0, 2, 3]), np.array([10.0, 20, 30])) == pytest.approx(1)
        assert wordtests.ranks(np.array([5.0, 1, 5, 9])).tolist() == [2.5, 1, 2.5, 4]
        a, b = np.array([1.0, 2, 2, 4, 5]), np.array([3.0, 1, 4, 4, 5])
        expected = np.corrcoef([1, 2.5, 2.5, 4, 5], [2, 1, 3.5, 3.5, 5])[0, 1]
        assert wordtests.spearman(a, b) == pytest.approx(expected)
        assert wordtests.spearman(np.array([1.0]), np.array([2.0])) is None

    def test_files(self, tmp_path):
        space = TestSpace().space()
        pairs, questions = tmp_path / "pairs.tsv", tmp_path / "questions.txt"
        pairs.write_text("# people\nking\tqueen\t7\nKing\tman\t9\nking\tapple\t1\nking\tdragon\t5\n", encoding="utf-8")
        questions.write_text(
            ": royal\nman king woman queen\nman king woman wizard\n: fruit\nman woman king apple\n", encoding="utf-8"
        )
        (judged,) = wordtests.evaluate(space, pairs)
        assert (judged.measure, judged.covered, judged.total) == ("spearman", 3, 4)
        whole, royal, fruit = wordtests.evaluate(space, questions)
        assert (royal.score, royal.covered, royal.total) == (1.0, 1, 2)
        assert (fruit.score, fruit.covered) == (0.0, 1) and (whole.score, whole.covered, whole.total) == (0.5, 2, 3)

    @pytest.mark.parametrize("line", ["one two", "a\tb\tmuch", "a b c d e", "a\tb\tnan"])
    def test_a_line_that_is_no_test(self, tmp_path, line):
        (tmp_path / "t.txt").write_text(f"# x\n{line}\n", encoding="utf-8")
        with pytest.raises(UserError, match=r"t\.txt:2: not a line of a test of word vectors"):
            wordtests.read_test(tmp_path / "t.txt")


# -- learning, and the commands


def apart(space: Space) -> float:
    """How much nearer words of one group are than words of two, in cosine."""

    def mean(a: list[str], b: list[str]) -> float:
        return float(np.mean([space.similarity(x, y) for x in a for y in b if x != y]))

    return (mean(ANIMALS, ANIMALS) + mean(TOOLS, TOOLS)) / 2 - mean(ANIMALS, TOOLS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        'architecture = "skip-gram"',
        'architecture = "cbow"',
        "negatives = 0",
        'architecture = "cbow"\nnegatives = 0',
        "ngrams = [2, 3]",
    ],
)
def test_words_that_keep_company_come_together(tmp_path, model):
    task = gf.load(train(tmp_path, "training.rate=0.05", model=model, updates=900))
    assert apart(task.space()) > 0.4
    assert task.neighbours("cat", 3)[0].word in ANIMALS


class TestManyCopiesInABatch:
    """Of fifteen words a batch of 512 has each some hundred times; the sum of their steps would go far too far."""

    @pytest.mark.parametrize(
        "model", ['architecture = "skip-gram"', "negatives = 0", 'architecture = "cbow"', 'architecture = "cbow"\nnegatives = 0']
    )
    def test_it_learns_all_the_same(self, tmp_path, model):
        task = gf.load(train(tmp_path, "training.batch_tokens=512", model=model, updates=150))
        assert apart(task.space()) > 0.4

    def test_without_the_clip_it_says_what_helps(self, tmp_path):
        (tmp_path / "text.txt").write_text(corpus(), encoding="utf-8")
        (tmp_path / "vectors.toml").write_text(RECIPE.format(model="", updates=100, save=1000), encoding="utf-8")
        settings = ("--set", "training.batch_tokens=512", "--set", "training.clip=0")
        result = glassformer("train", tmp_path / "vectors.toml", "--out", tmp_path / "run", *settings)
        assert result.code == 2 and "training.clip = 40.0 (0.0)" in result.err and "batch_tokens (512)" in result.err

    @pytest.mark.parametrize("negatives", [0, 3])
    def test_no_row_is_longer_than_it_may_be_and_shorter_ones_stay(self, negatives):
        task = task_of(negatives=negatives)
        task.loss(task.batch(stretches(task, [4, 5, 4, 6, 4, 5, 99], 99)))[0].backward()
        matrices = list(task.model.parameters())
        before = [p.grad.to_dense().clone() for p in matrices]
        largest = max(g.norm(dim=1).max().item() for g in before)
        assert clip_rows(task.model, 1e6) >= largest * 0.999
        assert all(p.grad.to_dense().equal(g) for p, g in zip(matrices, before, strict=True))
        clip_rows(task.model, 1.0)
        for p, g in zip(matrices, before, strict=True):
            factor = (1 / g.norm(dim=1, keepdim=True)).clamp(max=1)
            close(p.grad.to_dense(), g * factor)
            assert (factor < 1).any() and (factor == 1).any()


def test_a_run_that_went_on_ends_as_one_that_never_stopped(tmp_path):
    """Up to the middle of an epoch, and on from there; the rate must not depend on the end."""
    whole = train(tmp_path / "whole", "training.schedule=constant", updates=60, save=20)
    parts = train(tmp_path / "parts", "training.schedule=constant", updates=33, save=20)
    assert glassformer("train", parts, "--set", "training.updates=60").code == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


class TestCommands:
    def test_neighbours(self, trained):
        result = glassformer("vectors", "neighbours", "cat", "saw", "--model", trained, "-n", 3)
        assert result.code == 0 and result.err == ""
        first, second = result.out.strip().split("\n\n")
        assert len(first.split("\n")) == len(second.split("\n")) == 3
        assert all(re.fullmatch(r"-?\d\.\d{4}\t\w+", line) for line in first.split("\n"))
        answer = json.loads(glassformer("vectors", "neighbours", "cat", "--model", trained, "--json", "-n", 2).out)
        assert answer["word"] == "cat" and len(answer["nearest"]) == 2

    def test_analogy_and_similarity(self, trained):
        assert len(glassformer("vectors", "analogy", "cat", "dog", "saw", "-m", trained).out.splitlines()) == 10
        assert -1 <= float(glassformer("vectors", "similarity", "cat", "dog", "-m", trained).out) <= 1
        found = json.loads(glassformer("vectors", "similarity", "cat", "cat", "-m", trained, "--json").out)
        assert found["cosine"] == pytest.approx(1, abs=1e-5)

    def test_an_unknown_word(self, trained):
        result = glassformer("vectors", "neighbours", "catt", "-m", trained)
        assert (result.code, result.out) == (2, "") and "Nearest in spelling: cat" in result.err

    def test_evaluate(self, trained, tmp_path):
        (tmp_path / "t.tsv").write_text("cat\tdog\t9\ncat\tsaw\t1\ndog\taxe\t2\nelk\tdog\t5\n", encoding="utf-8")
        for command in (("vectors", "evaluate", tmp_path / "t.tsv"), ("evaluate", "--data", tmp_path / "t.tsv")):
            result = glassformer(*command, "--model", trained)
            assert result.code == 0 and result.out.startswith("t\tspearman\t") and "3 of 4" in result.out
        found = json.loads(glassformer("vectors", "evaluate", tmp_path / "t.tsv", "-m", trained, "--json").out)
        assert found[0]["covered"] == 3

    def test_tests_while_training(self, tmp_path):
        (tmp_path / "dev.tsv").write_text("cat\tdog\t9\ncat\tsaw\t1\ndog\taxe\t2\n", encoding="utf-8")
        run = train(tmp_path, f'data.dev="{tmp_path / "dev.tsv"}"', "training.validate_every=20", updates=40)
        log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        assert sum("dev" in line for line in log) == 2 and "Best validation" in (run / "card.md").read_text()

    def test_over_the_embedding_of_any_model(self):
        for model, word in (("zh-en", "苹"), ("zh-en", "we"), ("shakespeare", "e"), ("tagger", "the")):
            result = glassformer("vectors", "neighbours", word, "--model", model, "-n", 2)
            assert result.code == 0 and len(result.out.splitlines()) == 2, result.err

    def test_context(self, tmp_path):
        sentences = ("--in", "我吃了一个苹果。", "--in", "苹果公司的苹果很大。")
        result = glassformer("vectors", "context", "苹果", *sentences)
        lines = [line.split("\t") for line in result.out.splitlines()]
        assert result.code == 0 and [line[1:] for line in lines] == [
            ["我吃了一个[苹果]。", "[苹果]公司的苹果很大。"],
            ["我吃了一个[苹果]。", "苹果公司的[苹果]很大。"],
            ["[苹果]公司的苹果很大。", "苹果公司的[苹果]很大。"],
        ]
        assert all(-1 <= float(line[0]) < 0.9999 for line in lines)
        found = json.loads(glassformer("vectors", "context", "苹果", *sentences, "--json").out)
        assert found["places"][2] == {"sentence": 2, "start": 5, "end": 7, "pieces": found["places"][2]["pieces"]}

    @pytest.mark.parametrize(
        ("word", "sentence", "places"),
        [
            ("coffee", "Coffee is coffee, not coffees.", [0, 10]),
            ("Coffee", "My coffee.", [3]),
            ("us", "US and us", [7]),
            ("é", "café, é.", [6]),
            ("cafe", "cafe\u0301, cafe", [7]),
            ("кот", "Кот, который — кот", [0, 15]),
            ("果", "苹果abc果", [1, 5]),
            ("ねこ", "こねこがねこ", [1, 4]),
            ("apple", "吃apple吃apples", [1]),
            ("사과", "사과를 사과", [0, 4]),
            ("été", "l'été, étés", [2]),
            ("ßa", "ßa SSa", [0]),
            ("და", "და კატადა", [0]),
        ],
    )
    def test_where_a_word_stands(self, word, sentence, places):
        assert _places(word, sentence) == places

    def test_the_bytes_of_a_character_are_one_piece(self):
        found = occurrences(gf.load("zh-en"), "naïve", ["A naïve man."])[0]
        assert "".join(found.pieces) == "naïve" and all(found.pieces)

    @pytest.mark.parametrize("model", ["zh-en", "shakespeare", "tagger"])
    def test_states_are_those_of_the_trace(self, model):
        task = gf.load(model)
        read, states = task.states("The old king doesn't have a dog.")
        trace = task.trace("The old king doesn't have a dog.")
        side = "decoder" if model == "shakespeare" else "encoder"
        tokens = trace.target_tokens if side == "decoder" else trace.source_tokens
        assert read == tokens[: len(read)]
        close(states, trace[f"{side}.norm.out"])

    def test_the_same_sentence_twice_is_the_same(self):
        result = glassformer("vectors", "context", "king", "--in", "The king slept.", "--in", "The king slept.")
        assert result.out.startswith("1.0000\t")
        whole = glassformer("vectors", "context", "king", "--in", "Making kings, a king.", "--in", "The king slept.")
        assert "Making kings, a [king]." in whole.out and len(whole.out.splitlines()) == 1

    def test_what_context_refuses(self, trained):
        assert "gives a word one vector" in glassformer("vectors", "context", "cat", "--in", "a cat", "-m", trained).err
        inside = glassformer("vectors", "context", "cat", "--in", "a cat", "--in", "a category").err
        assert "Sentence 2 does not have the word 'cat' but inside of longer words" in inside
        assert "Sentence 2 does not have" in glassformer("vectors", "context", "cat", "--in", "a cat", "--in", "a dog").err
        assert "stands in one place" in glassformer("vectors", "context", "cat", "--in", "a cat").err

    def test_a_trace(self, trained):
        trace = gf.load(trained).trace("the cat and the Owl")
        assert list(trace) == ["word", "hidden", "logits"] and trace.source == ["the", "cat", "and", "the"]


class TestBadRecipes:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            (["data.min_count=100000"], "No word of the text occurs at least data.min_count = 100000 times"),
            (["model.subsample=1e-9"], "model.subsample = 1e-09 leaves nothing to learn from; set it to 0"),
            (["model.output=false"], "without the second matrix"),
            (["model.ngrams=[3]"], "model.ngrams takes the least and the largest length"),
            (["training.ema=0.9"], "training.ema = 0"),
            (["tokenizer.kind=bpe", "data.stemming=english"], "data.stemming needs words"),
            (["model.kind=gpt"], "the task 'vectors' is served by word2vec"),
            (["model.negativs=3"], "did you mean model.negatives"),
        ],
    )
    def test_are_told(self, tmp_path, changes, words):
        (tmp_path / "text.txt").write_text(corpus(20), encoding="utf-8")
        (tmp_path / "vectors.toml").write_text(RECIPE.format(model="", updates=2, save=9), encoding="utf-8")
        settings = [word for change in changes for word in ("--set", change)]
        result = glassformer("train", tmp_path / "vectors.toml", "--out", tmp_path / "run", *settings)
        assert result.code == 2 and words in result.err and "Traceback" not in result.err

    def test_pieces_may_be_words_too(self, tmp_path):
        run = train(tmp_path, "tokenizer.kind=bpe", "tokenizer.vocabulary=300", updates=10)
        assert glassformer("vectors", "neighbours", "cat", "-m", run, "-n", 1).code == 0


def test_a_model_of_another_task_has_its_own_command(trained):
    result = glassformer("classify", "x", "--model", trained)
    assert result.code == 2 and "glassformer vectors" in result.err


class TestBundled:
    def test_translations_are_near(self):
        task = gf.load("word-vectors")
        for word, other in (("coffee", "咖啡"), ("狗", "dog"), ("yesterday", "昨天"), ("school", "学校")):
            assert other in [near.word for near in task.neighbours(word, 5)]
        assert task.neighbours("王", 3) and task.similarity("coffee", "tea") > task.similarity("coffee", "horse")
        assert task.trace("我喜欢猫。").source == ["我", "喜欢", "猫"]

    def test_it_is_small_and_names_its_source(self):
        folder = store.find_model("word-vectors")
        assert sum(path.stat().st_size for path in folder.iterdir()) < 4e6
        assert "Tatoeba" in (folder / "ATTRIBUTION.txt").read_text(encoding="utf-8")

    def test_other_commands_say_what_to_use(self, tmp_path):
        export = glassformer("export", "word-vectors", "--out", tmp_path / "x")
        assert export.code == 2 and "glassformer vectors export word-vectors" in export.err
        assert glassformer("vectors", "neighbours", "coffee", "-n", 1).out.endswith("\t咖啡\n")
