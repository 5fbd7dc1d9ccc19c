"""The tasks of an encoder: each learns a small problem through the command line, and answers the same whatever its company."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Result, glassformer
from conftest import close, scramble
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import config
from glassformer.errors import UserError
from glassformer.options import Recipe
from glassformer.tasks import registry
from glassformer.tasks.classify import macro_f1
from glassformer.tasks.compare import Compare, Score, _pearson, _ranks
from glassformer.tasks.fill import Fill
from glassformer.tasks.reading import by_budget, shortened
from glassformer.tasks.tag import WORD, cut
from glassformer.text.labelled import Example, Sentence
from glassformer.text.tokenizer import Tokenizer
from glassformer.weights import read_tensors

COLUMNS = {"classify": [1, 2], "compare": [1, 2, 3]}
LABELS = ["dry", "rainy", "windy"]
LINES = ["the owl and the hen sat on a bin", "a cow ran", "小猫吃鱼"]


def recipe(task: str, model: dict[str, Any] | None = None, tokenizer: dict[str, Any] | None = None, **data: Any) -> Recipe:
    columns = {"columns": COLUMNS[task]} if task in COLUMNS else {}
    lengths = {} if task == "fill" else {"max_length": 20}
    return config.from_dict(
        {
            "task": task,
            "data": {"train": ["x.tsv"], **columns, **lengths, **data},
            "tokenizer": {"vocabulary": 300, "mask": "<mask>", **(tokenizer or {})},
            "model": {"width": 16, "heads": 2, "inner": 24, "layers": 2, "dropout": 0.0, "max_length": 40, **(model or {})},
        }
    )


def build(task: str, model: dict[str, Any] | None = None, tokenizer: dict[str, Any] | None = None, **data: Any) -> Any:
    """A small task with random weights."""
    made = recipe(task, model, tokenizer, **data)
    words = Tokenizer.train(LINES, made.tokenizer)
    torch.manual_seed(0)
    cls = registry.task_of(made)
    rest: tuple[Any, ...] = () if cls is Fill else (3.0, 1.5) if cls is Score else (LABELS,)
    built: Any = cls(made, words, *rest)  # type: ignore[call-arg]
    scramble(built.model)
    built.model.eval()
    return built


# -- what is read

VARIANTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "pre-norm": {"norm": "pre"},
    "mean": {"pooling": "mean"},
    "no types": {"types": 0},
    "one type": {"types": 1, "pooling": "mean"},
    "modern": {"norm": "pre", "positions": "rotary", "norm_kind": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1},
}
every_variant = pytest.mark.parametrize("model", VARIANTS.values(), ids=VARIANTS)


class TestRows:
    @every_variant
    def test_padding_changes_no_answer(self, model):
        task = build("compare", model)
        rows = task.encode([("the owl", "a"), ("hen", "the cow sat on the bin"), ("a", "a")])
        together = task.logits(task.gather(rows))
        for i, row in enumerate(rows):
            close(together[i : i + 1], task.logits(task.gather([row])))

    @every_variant
    def test_padding_changes_no_token(self, model):
        task = build("fill", model)
        rows = [task.around(ids) for ids in task.tokenizer.encode_batch(["the owl", "the cow sat on the bin", "a"])]
        places = [list(range(len(ids))) for ids, _ in rows]
        together = task.logits(task.gather(rows, places=places)).split([len(each) for each in places])
        for row, each, found in zip(rows, places, together, strict=True):
            close(found, task.logits(task.gather([row], places=[each])))

    @pytest.mark.parametrize(("types", "second"), [(0, 0), (1, 0), (2, 1), (3, 1)])
    def test_marks_and_types(self, types, second):
        task = build("compare", {"types": types})
        bos, eos = task.tokenizer.bos, task.tokenizer.eos
        assert task.around([7, 8]) == ([bos, 7, 8, eos], [0, 0, 0, 0])
        assert task.around([7, 8], [9]) == ([bos, 7, 8, eos, 9, eos], [0, 0, 0, 0, second, second])
        assert task.around([7], []) == ([bos, 7, eos, eos], [0, 0, 0, second])

    def test_the_second_text_is_told_apart_by_its_type(self):
        with_types, without = build("compare"), build("compare", {"types": 0})
        for task in (with_types, without):
            (ids, types), plain = task.encode([("owl", "hen")])[0], torch.zeros(2, 3)
            plain = task.logits(task.gather([(ids, [0] * len(ids))]))
            assert torch.allclose(task.logits(task.gather([(ids, types)])), plain) == (task is without)

    @pytest.mark.parametrize("mark", ["pad", "bos", "eos"])
    def test_a_vocabulary_without_marks(self, mark):
        with pytest.raises(UserError, match=rf"tokenizer\.{mark} must not be empty"):
            build("classify", tokenizer={mark: ""})

    def test_pieces_taken_apart_at_random(self):
        task = build("compare", tokenizer={"dropout": 0.5})
        texts = ("the owl and the hen sat", "a cow ran on a bin")
        pieces = task.pieces([texts])[0]
        found = {tuple(map(tuple, task.sampled(pieces, random.Random(seed)))) for seed in range(9)}
        assert len(found) > 5
        for each in found:
            assert tuple(task.tokenizer.decode(ids) for ids in each) == texts
        long = (pieces[0] * 4, pieces[1])
        assert task.sampled(long, random.Random(0)) == long  # there is no room for more

    def test_words_taken_apart_at_random(self):
        task = build("tag", tokenizer={"dropout": 0.5})
        text, starts = " the owl and the hen", [1, 5, 9, 13, 17]
        ids, places = task.encode(text, starts)
        for seed in range(9):
            taken, begins = task.sampled(ids, places, random.Random(seed))
            assert task.tokenizer.decode(taken) == text
            assert [len(task.tokenizer.decode(taken[:begin]).rstrip()) for begin in begins] == [
                len(text[:start].rstrip()) for start in starts
            ]

    @given(lengths=st.lists(st.integers(0, 50), max_size=40), tokens=st.integers(1, 200))
    def test_batches_by_budget(self, lengths, tokens):
        groups = list(by_budget(lengths, tokens))
        assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
        for group in groups:
            assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= tokens

    @given(texts=st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=2), room=st.integers(0, 40))
    def test_cut_to_fit(self, texts, room):
        kept = shortened(texts, room)
        assert all(whole[: len(part)] == part for part, whole in zip(kept, texts, strict=True))
        assert sum(map(len, kept)) == min(room, sum(map(len, texts)))
        shorter, longer = sorted(range(len(texts)), key=lambda i: len(texts[i]))[:: len(texts) - 1 or 1][:2] * (3 - len(texts))
        if len(kept[shorter]) < len(texts[shorter]):  # the longer one was cut down to it first
            assert abs(len(kept[longer]) - len(kept[shorter])) <= 1


@pytest.fixture(scope="module")
def task() -> Fill:
    return build("fill", {"max_length": 400})


class TestMasking:
    def test_eight_in_ten_are_masked_one_is_another_and_one_stays(self, task):
        draw = random.Random(3)
        texts = [[draw.randrange(5, task.tokenizer.size) for _ in range(100)] for _ in range(200)]
        batch = task.masked_batch(texts, random.Random(1))
        assert len(batch.labels) == 200 * 15
        read = batch.ids.flatten()[batch.places]
        masked, kept = read == task.tokenizer.mask, read == batch.labels
        assert masked.double().mean().item() == pytest.approx(0.8, abs=0.03)
        assert kept.double().mean().item() == pytest.approx(0.1, abs=0.02)
        others = read[~masked & ~kept].tolist()
        assert len(others) / len(read) == pytest.approx(0.1, abs=0.02)
        assert all(task.tokenizer.bytes_of(id) for id in others)  # no special token
        assert len(set(others)) > 100

    @given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8), share=st.sampled_from([0.01, 0.15, 0.5, 0.9]))
    @settings(max_examples=40)
    def test_labels_are_what_stood_there_and_all_else_is_as_it_was(self, task, lengths, share):
        made = copy(task)
        made.recipe = replace(task.recipe, training=replace(task.recipe.training, mask=share))
        texts = [[5 + (7 * i + k) % 200 for k in range(length)] for i, length in enumerate(lengths)]
        batch = made.masked_batch(texts, random.Random(len(texts)))
        places = [divmod(place, batch.ids.size(1)) for place in batch.places.tolist()]
        assert [texts[row][at - 1] for row, at in places] == batch.labels.tolist()
        assert len(set(places)) == len(places)
        assert Counter(row for row, _ in places) == {i: max(1, round(share * n)) for i, n in enumerate(lengths)}
        for i, ids in enumerate(texts):
            whole, _ = task.around(ids)
            assert all(batch.ids[i, at] == id for at, id in enumerate(whole) if (i, at) not in places)
            assert not batch.real[i, len(whole) :].any() and batch.real[i, : len(whole)].all()

    def test_anew_each_time(self, task):
        texts = [list(range(5, 65))]
        first, same, other = (task.masked_batch(texts, random.Random(seed)).ids.tolist() for seed in (1, 1, 2))
        assert first == same != other

    def test_long_lines_come_in_parts_that_fit(self):
        task = build("fill", {"max_length": 10})
        assert list(task.parts(list(range(20)))) == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
        assert list(task.parts([])) == []

    def test_judged_by_the_same_pieces_each_time(self, task):
        texts = task.tokenizer.encode_batch(LINES * 5)
        found = task.evaluate(texts)
        assert task.evaluate(texts) == found
        assert found.count == sum(max(1, round(0.15 * len(ids))) for ids in texts)
        with pytest.raises(UserError, match="nothing to guess"):
            task.evaluate([])


class TestGaps:
    def test_where_they_are(self):
        task = build("fill")
        mask, encode = task.tokenizer.mask, task.tokenizer.encode
        bos, eos = task.tokenizer.bos, task.tokenizer.eos
        for text, parts in {
            "the [MASK] sat": ["the", None, " sat"],
            "[MASK]": [None],
            "[MASK] owl": [None, " owl"],
            "[MASK][MASK]": [None, None],
            "the [MASK] [MASK] sat": ["the", None, None, " sat"],
            "小猫[MASK]鱼": ["小猫", None, "鱼"],
            "the  [MASK].": ["the ", None, "."],
        }.items():
            pieces = [[mask] if part is None else encode(part) for part in parts]
            ids, gaps = task.read(text)
            assert ids == [bos, *(id for piece in pieces for id in piece), eos]
            assert gaps == [i for i, id in enumerate(ids) if id == mask]

    def test_filled_text_and_candidates(self):
        task = build("fill")
        found = task.fill("the [MASK] sat on [MASK]", 4)
        assert [len(gap) for gap in found.gaps] == [4, 4]
        for gap in found.gaps:
            assert [c.probability for c in gap] == sorted((c.probability for c in gap), reverse=True)
        first, second = (task.tokenizer.bytes_of(gap[0].id).decode("utf-8", "replace") for gap in found.gaps)
        assert found.text == f"the{first} sat on{second}"
        assert len(task.fill("[MASK]", 10**6).gaps[0]) == task.tokenizer.size
        assert sum(c.probability for c in task.fill("[MASK]", 10**6).gaps[0]) == pytest.approx(1, abs=1e-4)

    def test_the_name_the_vocabulary_has_for_it_is_text(self):
        task = build("fill")
        assert task.read("<mask> [MASK]")[0].count(task.tokenizer.mask) == 1

    @pytest.mark.parametrize("text", ["no gap", "[mask]", "<mask>", "MASK", "x" * 10_000])
    def test_none(self, text):
        with pytest.raises(UserError, match=r"There is no gap in .*: write \[MASK\] where") as caught:
            build("fill").fill(text)
        assert len(str(caught.value)) < 200


class TestCompany:
    """An answer depends on its own text alone."""

    TEXTS = ("the owl", "", "a cow ran on a bin and sat", "小猫吃鱼", "hen", " ", "the " * 12)

    def test_classify(self):
        task = build("classify")
        together = task.classify_all([(text,) for text in self.TEXTS])
        for text, found in zip(self.TEXTS, together, strict=True):
            alone = task.classify_all([(text,)])[0]
            assert (found.texts, found.label) == (alone.texts, alone.label) == ((text,), found.label)
            assert found.probabilities == pytest.approx(alone.probabilities, abs=1e-5)
            assert list(found.probabilities.values()) == sorted(found.probabilities.values(), reverse=True)
            assert sum(found.probabilities.values()) == pytest.approx(1 if text.strip() else 0)
            assert bool(found.label) == bool(text.strip())

    def test_score(self):
        task = build("compare", score=True)
        pairs = [(a, "the hen") if a.strip() else ("", "") for a in self.TEXTS]
        together = task.score_all(pairs)
        assert [x is None for x in together] == [not text.strip() for text in self.TEXTS]
        for pair, found in zip(pairs, together, strict=True):
            assert task.score_all([pair])[0] == (None if found is None else pytest.approx(found, abs=1e-4))

    @pytest.mark.parametrize("split", [True, False])
    def test_tag(self, split):
        task = build("tag")
        together = task.tag_all(self.TEXTS, split=split)
        for text, found in zip(self.TEXTS, together, strict=True):
            alone = task.tag_all([text], split=split)[0]
            assert [w.label for w in found.words] == [w.label for w in alone.words]
            assert [w.probability for w in found.words] == pytest.approx([w.probability for w in alone.words], abs=1e-5)
            assert all(text[w.start : w.end] == w.text for w in found.words)
            assert "".join(w.text for w in found.words) == re.sub(r"\s", "", text)

    def test_fill(self):
        task = build("fill")
        texts = ["the [MASK]", "", "[MASK] cow [MASK] on a bin and sat", "小[MASK]吃鱼"]
        together = task.fill_all(texts, 3)
        for text, found in zip(texts, together, strict=True):
            alone = task.fill_all([text], 3)[0]
            assert (found.text, len(found.gaps)) == (alone.text, text.count("[MASK]"))
            for ours, theirs in zip(found.gaps, alone.gaps, strict=True):
                assert [c.id for c in ours] == [c.id for c in theirs]

    def test_nothing_at_all(self):
        assert build("classify").classify_all([]) == []
        assert build("compare", score=True).score_all([]) == []
        assert build("tag").tag_all([]) == []
        assert build("fill").fill_all([]) == []

    @pytest.mark.parametrize(
        ("task", "ask", "name"),
        [
            ("classify", lambda task, texts: task.classify_all([(t,) for t in texts], first=10), "Text 12"),
            ("compare", lambda task, texts: task.classify_all([(t, "a") for t in texts], first=10), "Pair 12"),
            ("tag", lambda task, texts: task.tag_all(texts, first=10), "Sentence 12"),
            ("fill", lambda task, texts: task.fill_all([t + "[MASK]" for t in texts], first=10), "Text 12"),
        ],
    )
    def test_too_long(self, task, ask, name):
        with pytest.raises(UserError, match=rf"{name} is \d+ tokens long with its marks; this model reads at most 40"):
            ask(build(task), ["a", "bin " * 60, "a"])


# -- words


class TestWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("The owl sat.", "The owl sat ."),
            ("I don't, can't and won't!", "I do n't , ca n't and wo n't !"),
            ("DON'T she’s it's we'll they've I'm you're he'd", "DO N'T she ’s it 's we 'll they 've I 'm you 're he 'd"),
            ("'some' 'sad' n't", "' some ' ' sad ' n't"),
            ("cannot canned", "can not canned"),
            ("小猫吃鱼。", "小 猫 吃 鱼 。"),
            ("ABC公司2024年", "ABC 公 司 2024 年"),
            ("𠀀a𠀁", "𠀀 a 𠀁"),
            ("3.14 1,000 9:30 1/2 5% $7 -2", "3.14 1,000 9:30 1/2 5 % $ 7 - 2"),
            ("the 2nd of 1990s, 3km Q1 B2B", "the 2nd of 1990s , 3 km Q1 B2B"),
            ("3. Then", "3 . Then"),
            ("U.S. and e.g. this", "U.S. and e.g. this"),
            ("Mr. Hill vs. Dr. Pond", "Mr. Hill vs. Dr. Pond"),
            ("well-known, (so) said...", "well - known , ( so ) said ..."),
            ("what?! no!!! --- -- ***", "what ? ! no !!! --- -- ***"),
            ("see https://a.org/b?c=1, or www.d.net.", "see https://a.org/b?c=1 , or www.d.net ."),
            ("to ann.lee+x@mail.org; notes.txt", "to ann.lee+x@mail.org ; notes.txt"),
            ("ha :-) ;D :(", "ha :-) ;D :("),
            ("naïve café Ærø Москва", "naïve café Ærø Москва"),
            ("a_b __x__ _", "a _ b __ x __ _"),
            ("😀👍🏽", "😀 👍 🏽"),
            ("", ""),
            (" \t\n ", ""),
        ],
    )  # fmt: skip
    def test_split(self, text, words):
        assert [match[0] for match in WORD.finditer(text)] == words.split()

    @given(st.text(max_size=60) | st.text("abn't'’s.,:;-_@/1290 小w\t", max_size=60))
    @settings(max_examples=150)
    def test_every_character_belongs_to_one_word(self, text):
        assert "".join(match[0] for match in WORD.finditer(text)) == re.sub(r"\s", "", text)

    @pytest.mark.parametrize("part", ["a", "ab-", "a.", "a_", "n'", "n't", "'s", "x@y.", "a@", "http://", "1.", "can", "小a"])
    def test_long_lines_take_no_longer_than_they_must(self, part):
        assert sum(1 for _ in WORD.finditer(part * (50_000 // len(part)))) > 0

    @given(
        words=st.lists(st.text("abcdeowl小猫'.1é", min_size=1, max_size=6), min_size=1, max_size=8),
        gaps=st.lists(st.sampled_from(["", " ", "  ", "\t"]), min_size=9, max_size=9),
        kind=st.sampled_from(["bpe", "character", "unigram"]),
    )
    @settings(max_examples=30)
    def test_each_word_has_a_piece_of_its_own(self, words, gaps, kind):
        """The first piece of it that is not a space; and all pieces together are the text."""
        tokenizer = tokenizers(kind)
        task = build("tag")
        task.tokenizer = tokenizer
        text, starts = gaps[-1], []
        for word, gap in zip(words, gaps, strict=False):
            starts.append(len(text))
            text += word + gap
        assert "".join(cut(text, starts)) == text
        ids, places = task.encode(text, starts)
        assert tokenizer.decode(ids) == text
        assert len(set(places)) == len(places) and places == sorted(places)
        for word, place in zip(words, places, strict=True):
            assert word.encode().startswith(tokenizer.bytes_of(ids[place]).lstrip()[:1])

    def test_the_label_is_read_off_the_first_piece(self):
        task = build("tag")
        text = "zebra owl"
        ids, places = task.encode(text, [0, 6])
        assert len(ids) > 3  # zebra is several
        logits = task.logits(task.gather([task.around(ids)], places=[[i + 1 for i in range(len(ids))]]))
        found = task.tag_all([text])[0].words
        assert [word.label for word in found] == [LABELS[int(logits[place].argmax())] for place in places]

    @pytest.mark.parametrize("text", ["\x00", "\u200b", "a\x00b", "\u0301", "\ufeff"])
    def test_odd_characters(self, text):
        assert "".join(word.text for word in build("tag").tag_all([text])[0].words) == re.sub(r"\s", "", text)


def tokenizers(kind: str, made: dict[str, Tokenizer] = {}) -> Tokenizer:  # noqa: B006 (kept between calls)
    options = recipe("tag", tokenizer={"kind": kind, "vocabulary": 320}).tokenizer
    return made.setdefault(kind, made.get(kind) or Tokenizer.train(LINES * 9, options))


# -- measures


class TestMeasures:
    def test_macro_f1_by_hand(self):
        given_, wanted = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0])
        assert macro_f1(given_, wanted) == pytest.approx((2 * 1 / 4 + 2 * 2 / 5 + 0) / 3)
        assert macro_f1(wanted, wanted) == 1

    @given(st.lists(st.integers(0, 5), min_size=3, max_size=30))
    def test_ranks_share(self, numbers):
        expected = [sum(x < y for x in numbers) + (sum(x == y for x in numbers) + 1) / 2 for y in numbers]
        assert _ranks(np.array(numbers)).tolist() == expected

    def test_correlation(self):
        a = np.array([1.0, 2.0, 3.0, 5.0])
        assert _pearson(a, 2 * a + 1) == pytest.approx(1) and _pearson(a, -a) == pytest.approx(-1)
        assert _pearson(a, np.ones(4)) == 0
        assert _pearson(_ranks(a), _ranks(np.exp(a))) == pytest.approx(1)

    def test_accuracy_beside_the_commonest(self):
        task = build("classify")
        texts = ["the owl", "a cow ran", "hen", "the bin sat"]
        given_ = [answer.label for answer in task.classify_all([(text,) for text in texts])]
        wanted = ["dry", "rainy", "rainy", given_[3]]
        found = task.evaluate([Example((text,), label, "") for text, label in zip(texts, wanted, strict=True)])
        assert found.accuracy == sum(a == b for a, b in zip(given_, wanted, strict=True)) / 4
        commonest, most = Counter(wanted).most_common(1)[0]
        assert (found.commonest, found.majority) == (commonest, most / 4)
        chances = [task.classify_all([(text,)])[0].probabilities for text in texts]
        assert found.loss == pytest.approx(-np.mean([np.log(p[x]) for p, x in zip(chances, wanted, strict=True)]), rel=1e-4)
        assert (found.count, found.cut) == (4, 0)

    def test_what_is_longer_than_the_model_reads_is_judged_by_its_beginning(self):
        task = build("classify")
        long = Example(("the owl " * 60,), "dry", "x:1")
        read = task.tokenizer.decode(task.tokenizer.encode(long.texts[0])[:38])
        short = Example((read,), "dry", "x:2")
        assert task.evaluate([long]).loss == pytest.approx(task.evaluate([short]).loss, abs=1e-5)
        assert (task.evaluate([long, short]).cut, task.evaluate([long, short]).count) == (1, 2)
        pairs = build("compare", score=True)
        assert pairs.evaluate([Example(("the " * 90, "a"), "1", ""), Example(("a", "a"), "2", "")]).cut == 1

    def test_scores_in_the_units_of_the_data(self):
        task = build("compare", score=True)
        pairs = [("the owl", "a"), ("hen", "cow ran"), ("a", "bin")]
        given_, wanted = task.score_all(pairs), [1.0, 4.5, 3.0]
        found = task.evaluate([Example(pair, str(x), "") for pair, x in zip(pairs, wanted, strict=True)])
        assert found.mse == pytest.approx(np.mean([(a - b) ** 2 for a, b in zip(given_, wanted, strict=True)]), rel=1e-4)
        assert found.pearson == pytest.approx(np.corrcoef(given_, wanted)[0, 1], rel=1e-4)
        assert found.mean_mse == pytest.approx(np.var(wanted))
        batch = task.batch(task.encode(pairs), wanted)
        assert task.loss(batch)[0].item() / 3 == pytest.approx(found.loss, rel=1e-4)

    def test_words_and_spans(self):
        """F1 counts whole spans; a word counts by itself."""
        task = build("tag")
        task.labels = ["B-X", "I-X", "O"]
        task.scheme = "bio"
        given_ = [word.label for word in task.tag_all(["the owl and the hen"], split=False)[0].words]
        words, spaces = ("the", "owl", "and", "the", "hen"), (True,) * 4 + (False,)
        found = task.evaluate([Sentence(words, tuple(given_), spaces, "x:1")])
        assert found.accuracy == 1 and found.f1 in (1, 0)  # 0 if it found none
        assert (found.words, found.sentences) == (5, 1)
        task.scheme = "none"
        assert task.evaluate([Sentence(words, tuple(given_), spaces, "x:1")]).f1 is None
        with pytest.raises(UserError, match=r"x:9: the sentence is \d+ tokens long"):
            task.evaluate([Sentence(("the",) * 60, ("O",) * 60, (True,) * 59 + (False,), "x:9")])

    def test_smoothing_and_the_plain_loss(self):
        task = build("classify")
        batch = task.batch(task.encode([("the owl",), ("hen",)]), [0, 2])
        trained, plain = task.loss(batch, 0.1)
        log_p = task.logits(batch).log_softmax(-1)
        assert plain.item() == pytest.approx(-(log_p[0, 0] + log_p[1, 2]).item())
        assert trained.item() == pytest.approx(0.9 * plain.item() - 0.1 * log_p.mean(1).sum().item())


class TestFolder:
    @pytest.mark.parametrize(
        ("name", "data"), [("fill", {}), ("classify", {}), ("compare", {}), ("compare", {"score": True}), ("tag", {})]
    )
    def test_saved_and_loaded(self, tmp_path, name, data):
        task = build(name, **data)
        task.save(tmp_path / "model")
        again = registry.load(tmp_path / "model")
        assert type(again) is type(task)
        assert vars(again).keys() == {*vars(task), "name"} and again.name == "model"
        for key, x in task.model.state_dict().items():
            assert torch.equal(x, again.model.state_dict()[key])
        for key in ("labels", "scheme", "mean", "deviation", "recipe"):
            assert getattr(again, key, None) == getattr(task, key, None)

    @pytest.mark.parametrize("labels", ["", "{", "[]", '{"a": 1}', "[1, 2]", '"x"', "null", "[" * 100_000, None])
    @pytest.mark.parametrize("data", [{}, {"score": True}], ids=["labels", "score"])
    def test_damaged_labels(self, tmp_path, labels, data):
        build("compare", **data).save(tmp_path)
        if labels is None:
            (tmp_path / "labels.json").unlink()
        else:
            (tmp_path / "labels.json").write_text(labels)
        result = glassformer("compare", "--model", tmp_path, "a", "b")
        assert result.code == 2 and "labels.json" in result.err and "Traceback" not in result.err

    @pytest.mark.parametrize(
        "scale", ['{"mean": 1}', '{"mean": 1, "deviation": 0}', '{"mean": "x", "deviation": 1}', '{"mean": NaN, "deviation": 1}']
    )
    def test_a_damaged_scale(self, tmp_path, scale):
        build("compare", score=True).save(tmp_path)
        (tmp_path / "labels.json").write_text(scale)
        result = glassformer("compare", "--model", tmp_path, "a", "b")
        assert result.code == 2 and "the mean and the deviation" in result.err

    def test_other_labels_than_it_was_trained_with(self, tmp_path):
        build("classify").save(tmp_path)
        (tmp_path / "labels.json").write_text('["a", "b"]')
        result = glassformer("classify", "--model", tmp_path, "a")
        assert result.code == 2 and "head.output.weight" in result.err


# -- through the command line

SMALL = """
[tokenizer]
vocabulary = 320
mask = "<mask>"
split_han = true
[model]
width = 32
heads = 2
inner = 64
layers = 2
norm = "pre"
epsilon = 1e-5
dropout = 0.0
max_length = 32
[training]
updates = 120
batch_tokens = 512
rate = 5e-3
warmup = 20
schedule = "cosine"
label_smoothing = 0.0
validate_every = 40
save_every = 40
log_every = 20
threads = 1
"""
FOOD = {"owl": "mice", "hen": "corn", "cow": "hay", "dog": "bones"}
MEAL = {"猫": "鱼", "狗": "肉", "牛": "草", "鸟": "虫"}
WEATHER = {"rain": "wet", "drizzle": "wet", "sun": "dry", "heat": "dry", "gale": "windy"}
FILLERS = ("today", "we", "had", "some", "in", "town", "again", "and", "the")
NAMES, TOWNS = ("Zabran", "Okelu", "Mirov", "Tashi", "Brunel"), ("Ostby", "Quelm", "Varde")


def fill_lines(draw: random.Random) -> Iterator[str]:
    while True:
        yield f"{(animal := draw.choice([*FOOD]))} likes {FOOD[animal]}"
        yield f"{(animal := draw.choice([*MEAL]))}爱吃{MEAL[animal]}"


def weather_lines(draw: random.Random) -> Iterator[str]:
    while True:
        words = draw.choices(FILLERS, k=draw.randint(2, 7))
        sign = draw.choice([*WEATHER])
        words.insert(draw.randint(0, len(words)), sign)
        yield f"{' '.join(words)}\t{WEATHER[sign]}"


def pair_lines(draw: random.Random) -> Iterator[str]:
    """Which of the two texts is about an owl: only the types of the tokens, or their places, tell."""
    while True:
        label = draw.choice(["first", "second", "neither"])
        a, b = (draw.choice(["hen", "cow", "dog"]) for _ in range(2))
        yield f"the {'owl' if label == 'first' else a} sleeps\tan old {'owl' if label == 'second' else b} eats\t{label}"


def score_lines(draw: random.Random) -> Iterator[str]:
    while True:
        a, b = (draw.choices([*FOOD], k=2) for _ in range(2))
        yield f"{' '.join(a)}\t{' '.join(b)}\t{1 + sum(x == 'owl' for x in a) + sum(x == 'owl' for x in b)}"


def tag_blocks(draw: random.Random) -> Iterator[str]:
    while True:
        name = draw.sample(NAMES, draw.randint(1, 2))
        rows = [(word, "O") for word in draw.choices(("today", "then", "maybe"), k=draw.randint(0, 2))]
        rows += [(word, f"{'BI'[i]}-PER") for i, word in enumerate(name)]
        rows += [("went", "O"), ("to", "O"), (draw.choice(TOWNS), "B-LOC"), (".", "O")]
        yield "".join(f"{word}\t{label}\n" for word, label in rows)


PROBLEMS: dict[str, tuple[Any, str, str]] = {  # the lines, the file, and [data]
    "fill": (fill_lines, "txt", 'task = "fill"\n[data]'),
    "classify": (weather_lines, "tsv", 'task = "classify"\n[data]\ncolumns = [1, 2]\nmax_length = 24'),
    "compare": (pair_lines, "tsv", 'task = "compare"\n[data]\ncolumns = [1, 2, 3]\nmax_length = 24'),
    "score": (score_lines, "tsv", 'task = "compare"\n[data]\ncolumns = [1, 2, 3]\nscore = true\nmax_length = 24'),
    "tag": (tag_blocks, "iob2", 'task = "tag"\n[data]\nmax_length = 24'),
}


def write(folder: Path, problem: str, train: str | None = None, dev: str | None = None) -> Path:
    """A recipe and its data, made up or as given."""
    folder.mkdir(exist_ok=True, parents=True)
    make, ending, head = PROBLEMS[problem]
    lines = make(random.Random(5))
    for name, count, text in (("train", 300, train), ("dev", 60, dev)):
        made = "\n".join(next(lines) for _ in range(count)) + "\n"
        (folder / f"{name}.{ending}").write_text(made if text is None else text, encoding="utf-8")
    head += f'\ntrain = "train.{ending}"\ndev = "dev.{ending}"\n'
    (folder / "recipe.toml").write_text(head + SMALL, encoding="utf-8")
    return folder / "recipe.toml"


def train(recipe: Path, *changes: str, start: Path | str | None = None, updates: int | None = 1) -> Result:
    """Trains into `run` beside the recipe; but for the tests that are to learn something, one update."""
    few = () if updates is None else (f"training.updates={updates}",)
    begin = () if start is None else ("--from", start)
    words = [word for change in (*few, *changes) for word in ("--set", change)]
    return glassformer("train", recipe, "--out", recipe.parent / "run", *begin, *words)


def learned(factory: pytest.TempPathFactory, problem: str, *changes: str) -> Path:
    recipe = write(factory.mktemp(problem), problem)
    result = train(recipe, *changes, updates=None)
    assert result.code == 0, result.err
    return recipe.parent / "run"


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    wider = ("model.width=64", "training.batch_tokens=256", "training.rate=3e-3")
    return learned(tmp_path_factory, "fill", "training.updates=250", *wider)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return learned(tmp_path_factory, "classify", "model.pooling=mean", "training.updates=80")


@pytest.fixture(scope="module")
def comparer(tmp_path_factory):
    return learned(tmp_path_factory, "compare", "training.updates=250", "training.rate=1e-3")  # less, and luck decides


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    return learned(tmp_path_factory, "score", "model.pooling=mean", "training.updates=100")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    return learned(tmp_path_factory, "tag", "training.updates=130")


def answers(*arguments: Any, **options: Any) -> list[Any]:
    result = glassformer(*arguments, "--json", **options)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def scores(run: Path, *arguments: Any) -> dict[str, Any]:
    return answers("evaluate", "--model", run, *arguments)[0]


@pytest.mark.slow
class TestFill:
    def test_finds_the_word(self, filler):
        texts = [f"{animal} likes [MASK]" for animal in FOOD] + [f"{animal}爱吃[MASK]" for animal in MEAL]
        found = answers("fill", "--model", filler, *texts)
        for answer, word in zip(found, [*FOOD.values(), *MEAL.values()], strict=True):
            assert answer["gaps"][0][0]["text"] == word
            assert answer["gaps"][0][0]["probability"] > 0.5
        assert found[0]["text"] == "owl likes mice" and found[4]["text"] == "猫爱吃鱼"

    def test_prints_probability_and_word(self, filler):
        result = glassformer("fill", "--model", filler, "[MASK]爱吃[MASK]", "-n", 2)
        rows = [line.split("\t") for line in result.out.splitlines()]
        assert [row[0] for row in rows] == ["1", "1", "2", "2"]
        assert all(re.fullmatch(r"[01]\.\d{4}", row[1]) for row in rows)
        assert {rows[2][2], rows[3][2]} <= {*MEAL.values()}
        assert len(glassformer("fill", "--model", filler, "[MASK]爱吃鱼").out.splitlines()) == 5

    def test_an_empty_line_stands_between_texts(self, filler):
        one, two = "owl likes [MASK]", "猫爱吃[MASK]"
        single = [glassformer("fill", "--model", filler, text).out for text in (one, two)]
        assert glassformer("fill", "--model", filler, stdin=f"{one}\n{two}\n").out == "\n".join(single)
        found = answers("fill", "--model", filler, stdin=f"{one}\n\n{two}\n")
        assert [len(each["gaps"]) for each in found] == [1, 0, 1] and found[1]["text"] == ""

    def test_says_how_to_write_a_gap(self, filler):
        result = glassformer("fill", "--model", filler, "owl likes mice")
        assert result.code == 2 and "write [MASK] where a word is to be found" in result.err
        assert result.out == ""

    def test_evaluate(self, filler):
        found = scores(filler)
        assert found["accuracy"] > 0.7 > 3 * found["majority"]
        last = [json.loads(line) for line in (filler / "log.jsonl").read_text().splitlines() if "accuracy" in line][-1]
        assert found["loss"] == pytest.approx(last["dev_loss"], abs=1e-3)  # the same pieces are guessed
        text = glassformer("evaluate", "--model", filler).out
        assert "pieces to guess" in text and "majority" in text

    def test_needs_a_mask_before_anything_is_read(self, tmp_path):
        recipe = write(tmp_path, "fill", train="")
        result = train(recipe, "tokenizer.mask=")
        assert result.code == 2 and "set tokenizer.mask" in result.err


@pytest.mark.slow
class TestClassify:
    def test_tells_the_weather(self, classifier):
        found = answers("classify", "--model", classifier, "we had rain in town", "the sun again today and", "gale")
        assert [answer["label"] for answer in found] == ["wet", "dry", "windy"]
        assert all(answer["probability"] == answer["probabilities"][answer["label"]] > 0.8 for answer in found)

    def test_prints_labels_and_probabilities(self, classifier):
        result = glassformer("classify", "--model", classifier, "we had rain", "--top", 9)
        cells = result.out.rstrip("\n").split("\t")
        assert cells[0] == "wet" and {*cells[::2]} == {"wet", "dry", "windy"}
        assert sum(map(float, cells[1::2])) == pytest.approx(1, abs=1e-3)
        assert glassformer("classify", "--model", classifier, "we had rain").out.count("\t") == 1

    def test_lines_stay_lines(self, classifier, tmp_path):
        """An empty line is answered by an empty line."""
        lines = ["some rain", "", "the sun", "   ", "gale"]
        (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
        asked = ("classify", "--model", classifier, "--input", tmp_path / "in.txt")
        assert glassformer(*asked, "--output", tmp_path / "out.txt").code == 0
        found = (tmp_path / "out.txt").read_text().split("\n")
        assert [line.split("\t")[0] for line in found] == ["wet", "", "dry", "", "windy", ""]
        assert [answer["label"] for answer in answers(*asked)] == ["wet", "", "dry", "", "windy"]
        assert glassformer("classify", "--model", classifier, "").out == "\n"

    def test_evaluate_beside_the_commonest_label(self, classifier):
        found = scores(classifier)
        assert found["accuracy"] > 0.95 and found["macro_f1"] > 0.9
        lines = (classifier.parent / "dev.tsv").read_text().splitlines()
        commonest, most = Counter(line.split("\t")[1] for line in lines).most_common(1)[0]
        assert (found["commonest"], found["majority"]) == (commonest, most / 60)
        text = glassformer("evaluate", "--model", classifier).out
        assert re.search(r"^60 examples\n  accuracy +[01]\.\d+", text) and re.search(rf"commonest +{commonest}", text)
        assert scores(classifier, "--limit", 1)["majority"] == 1

    def test_training_says_how_uneven_the_labels_are(self, tmp_path):
        result = train(write(tmp_path, "classify", train="a\tx\n" * 3 + "b\ty\n", dev="a\tx\nb\ty\na\ty\n"))
        assert result.code == 0
        assert "2 labels: from 'y' (1) to 'x' (3, 75.0% of all). Saying 'x' every time scores 33.3%" in result.err

    def test_a_table_with_a_header_and_one_in_json(self, tmp_path):
        head = "id,kind,said\n" + "".join(f'{i},{"up" if i % 2 else "down"},"word{i % 2}, twice"\n' for i in range(20))
        recipe = write(tmp_path / "csv", "classify")
        (tmp_path / "csv" / "t.csv").write_text(head)
        rows = "".join(json.dumps({"said": f"word{i % 2}", "kind": i % 2}) + "\n" for i in range(4))
        (tmp_path / "csv" / "d.jsonl").write_text(
            rows.replace('"kind": 0', '"kind": "down"').replace('"kind": 1', '"kind": "up"')
        )
        result = train(recipe, 'data.columns=["said", "kind"]', "data.train=t.csv", "data.dev=d.jsonl")
        assert result.code == 0, result.err
        assert json.loads((tmp_path / "csv" / "run" / "labels.json").read_text()) == ["down", "up"]
        assert "20 training examples; 4 dev examples" in result.err


@pytest.mark.slow
class TestCompare:
    def test_which_text_has_the_owl(self, comparer):
        pairs = {"first": ("the owl sleeps", "an old hen eats"), "second": ("the hen sleeps", "an old owl eats")}
        for label, pair in pairs.items():
            assert glassformer("compare", "--model", comparer, *pair).out.startswith(label + "\t")
        lines = "".join("\t".join(pair) + "\n" for pair in pairs.values())
        assert [a["label"] for a in answers("compare", "--model", comparer, stdin=lines)] == [*pairs]
        found = scores(comparer)
        assert found["accuracy"] > 0.95 > found["majority"] + 0.2

    def test_the_order_and_the_border_of_the_texts_count(self, comparer):
        task = registry.load(comparer)
        assert isinstance(task, Compare)
        one, other, border = task.classify_all([("the owl", "an old hen"), ("an old hen", "the owl"), ("the", "owl an old hen")])
        assert one.probabilities != pytest.approx(other.probabilities, abs=1e-6)
        assert one.probabilities != pytest.approx(border.probabilities, abs=1e-6)

    def test_a_number(self, scorer):
        found = answers("compare", "--model", scorer, "hen cow", "cow dog") + answers(
            "compare", "--model", scorer, "owl owl", "owl hen"
        )
        assert [round(answer["score"]) for answer in found] == [1, 4]
        assert re.fullmatch(r"[34]\.\d{3}\n", glassformer("compare", "--model", scorer, "owl owl", "owl hen").out)
        judged = scores(scorer)
        assert judged["pearson"] > 0.95 and judged["spearman"] > 0.8
        assert judged["mse"] < 0.2 * judged["mean_mse"]

    @pytest.mark.parametrize("model", ["comparer", "scorer"])
    def test_lines_stay_lines(self, request, model):
        run = request.getfixturevalue(model)
        out = glassformer("compare", "--model", run, stdin="a\tb\n\n  \na\tb\n").out.split("\n")
        assert out[0] == out[3] != "" == out[1] == out[2] == out[4]
        found = answers("compare", "--model", run, stdin="a\tb\n\n")
        assert found[1]["texts"] == ["", ""] and not found[1].get("label", found[1].get("score"))

    @pytest.mark.parametrize(
        ("arguments", "stdin", "message"),
        [
            (["a"], "", "compare takes two texts; found 1"),
            (["a", "b", "c"], "", "compare takes two texts; found 3"),
            ([], "a\tb\na\n", "Line 2 has 1 columns"),
            ([], "a\tb\tc\n", "Line 1 has 3 columns"),
            ([], "a\t\n", "Line 1 has one text, and an empty one"),
            ([], "a\t" + "hen " * 40 + "\n", "tokens long with its marks; this model reads at most 32"),
        ],
    )
    def test_bad_pairs(self, comparer, arguments, stdin, message):
        result = glassformer("compare", "--model", comparer, *arguments, stdin=stdin)
        assert result.code == 2 and message in result.err, result.err
        assert result.out == ""

    def test_a_tab_inside_an_argument(self, comparer):
        assert glassformer("compare", "--model", comparer, "a\tb", "c").code == 0

    @pytest.mark.parametrize("types", [0, 1])
    def test_without_token_types(self, tmp_path, types):
        result = train(write(tmp_path, "compare"), f"model.types={types}", updates=2)
        assert result.code == 0, result.err
        assert glassformer("compare", "--model", tmp_path / "run", "a", "b").code == 0

    @pytest.mark.parametrize("label", ["much", "nan", "inf", "1e300"])
    @pytest.mark.parametrize("where", ["train", "dev"])
    def test_a_score_that_is_no_number(self, tmp_path, label, where):
        rows = {"train": "a\tb\t1\na\tc\t2\n", "dev": "a\tb\t1\n"}
        rows[where] += f"b\tc\t{label}\n"
        result = train(write(tmp_path, "score", **rows))
        place = f"{where}.tsv:{3 if where == 'train' else 2}"
        assert result.code == 2 and f"{place}: with data.score = true the label must be a number" in result.err

    def test_judging_by_scores_that_are_no_numbers(self, scorer, tmp_path):
        (tmp_path / "words.tsv").write_text("a\tb\t1\na\tb\talike\n")
        result = glassformer("evaluate", "--model", scorer, "--data", tmp_path / "words.tsv")
        assert result.code == 2 and "words.tsv:2: with data.score = true the label must be a number; found 'alike'" in result.err

    def test_one_score_only(self, tmp_path):
        result = train(write(tmp_path, "score", train="a\tb\t3\nb\tc\t3\n"))
        assert result.code == 2 and "All scores of the training data are 3.0: there is nothing to tell apart" in result.err


@pytest.mark.slow
class TestTag:
    def test_finds_names_and_places(self, tagger):
        found = answers("tag", "--model", tagger, "today Okelu Mirov went to Quelm.")[0]
        assert [(word["text"], word["label"]) for word in found["words"]] == [
            ("today", "O"),
            ("Okelu", "B-PER"),
            ("Mirov", "I-PER"),
            ("went", "O"),
            ("to", "O"),
            ("Quelm", "B-LOC"),
            (".", "O"),
        ]
        assert found["spans"] == [["PER", 1, 3], ["LOC", 5, 6]]
        assert all(found["text"][word["start"] : word["end"]] == word["text"] for word in found["words"])

    def test_lines_stay_lines(self, tagger):
        result = glassformer("tag", "--model", tagger, stdin="Tashi went to Ostby.\n\n \nthen Okelu went\n")
        first, *empty, last, end = result.out.split("\n")
        assert first == "Tashi/B-PER went/O to/O Ostby/B-LOC ./O"
        assert empty == ["", ""] and last.startswith("then/") and last.count("/") == 3 and end == ""

    def test_words_that_are_split_already(self, tagger):
        assert glassformer("tag", "--model", tagger, "--words", "Tashi went-to Ostby.").out.count("/") == 3
        assert glassformer("tag", "--model", tagger, "Tashi went-to Ostby.").out.count("/") == 6

    def test_evaluate_by_spans_and_words(self, tagger):
        found = scores(tagger)
        assert found["f1"] > 0.95 and found["accuracy"] > 0.95 > found["majority"] + 0.2
        assert found["commonest"] == "O" and found["precision"] > 0.9 < found["recall"]
        assert "60 sentences, " in glassformer("evaluate", "--model", tagger).out

    def test_an_unseen_label_names_the_word(self, tagger, tmp_path):
        (tmp_path / "other.iob2").write_text("Tashi\tB-PER\n\nwent\tO\nhome\tB-HOUSE\n")
        result = glassformer("evaluate", "--model", tagger, "--data", tmp_path / "other.iob2")
        assert result.code == 2 and "other.iob2:3: the label 'B-HOUSE' of 'home' in this sentence is not in" in result.err
        assert "which has: B-LOC, B-PER, I-PER, O." in result.err

    def test_chinese_characters_are_words_of_their_own(self, tmp_path):
        """Each has its own label, also where the vocabulary would join two."""
        block = "今\tB\n天\tE\n好\tS\n"
        recipe = write(tmp_path, "tag", train="\n".join([block] * 60), dev=block)
        result = train(recipe, "tokenizer.split_han=false", updates=40)
        assert result.code == 0, result.err
        assert "3 labels: from" in result.err and "spans (bmes)" in result.err
        assert glassformer("tag", "--model", tmp_path / "run", "今天好今天").out == "今/B 天/E 好/S 今/B 天/E\n"

    def test_sentences_longer_than_the_model_reads(self, tagger, tmp_path):
        long = "went\tO\n" * 60
        (tmp_path / "long.iob2").write_text(f"{long}\nTashi\tB-PER\n")
        text = glassformer("evaluate", "--model", tagger, "--data", tmp_path / "long.iob2").out
        assert "1 sentences (1 longer than this model reads left out), 1 words" in text
        (tmp_path / "long.iob2").write_text(long)
        result = glassformer("evaluate", "--model", tagger, "--data", tmp_path / "long.iob2")
        assert result.code == 2 and "All 1 sentences are longer than the 32 tokens this model reads" in result.err
        recipe = write(tmp_path / "run", "tag", dev=f"{long}\nTashi\tB-PER\n")
        assert "1 dev sentences (1 longer than the model reads left out)" in train(recipe).err


@pytest.mark.slow
class TestData:
    @pytest.mark.parametrize("problem", ["classify", "tag"])
    def test_one_class_only(self, tmp_path, problem):
        text = {"classify": "a\tx\nb\tx\n", "tag": "a\tx\n\nb\tx\n"}[problem]
        result = train(write(tmp_path, problem, train=text, dev=text))
        assert result.code == 2 and "has one label only, 'x': there is nothing to tell apart" in result.err

    def test_a_label_that_training_has_not(self, tmp_path, classifier):
        recipe = write(tmp_path, "classify", dev="a\twet\nb\tfoggy\n")
        result = train(recipe)
        message = "dev.tsv:2: the label 'foggy' is not in the training data, which has: dry, wet, windy."
        assert result.code == 2 and message in result.err
        result = glassformer("evaluate", "--model", classifier, "--data", tmp_path / "dev.tsv")
        assert result.code == 2 and message in result.err
        # Nothing came of it: the data may be mended.
        (tmp_path / "dev.tsv").write_text("a\twet\n")
        assert train(recipe).code == 0

    def test_many_labels_are_not_all_listed(self, tmp_path):
        text = "".join(f"w{i}\tL{i:02}\n" for i in range(30))
        result = train(write(tmp_path, "classify", train=text, dev="x\tnone\n"))
        assert "L19 and 10 more." in result.err

    @pytest.mark.parametrize("problem", ["classify", "tag"])
    def test_the_last_part_is_set_aside(self, tmp_path, problem):
        line = {"classify": "w{}\tL{}\n", "tag": "w{}\tL{}\n\n"}[problem]
        text = "".join(line.format(i, i % 2) for i in range(20))
        recipe = write(tmp_path, problem, train=text)
        result = train(recipe, "data.dev=[]", "data.dev_share=0.3")
        assert result.code == 0, result.err
        kept = json.loads((tmp_path / "run" / "prepared" / "dev.json").read_text())
        assert [row[0][0] for row in kept] == [f"w{i}" for i in range(14, 20)]
        assert re.search(r"14 training \w+; 6 dev", result.err)
        assert "6 " in glassformer("evaluate", "--model", tmp_path / "run").out.split("\n")[0]

    @pytest.mark.parametrize("problem", ["classify", "score", "tag"])
    def test_too_little_to_share_out(self, tmp_path, problem):
        text = {"classify": "a\tx\n", "score": "a\tb\t1\n", "tag": "a\tx\n"}[problem]
        result = train(write(tmp_path, problem, train=text), "data.dev=[]", "data.dev_share=0.5")
        assert result.code == 2 and "needs at least two examples to share out" in result.err

    def test_no_dev_data_at_all(self, tmp_path):
        result = train(write(tmp_path, "classify"), "data.dev=[]")
        assert result.code == 0, result.err
        result = glassformer("evaluate", "--model", tmp_path / "run")
        assert result.code == 2 and "names no test or dev corpus" in result.err

    def test_long_texts_are_left_out_of_training_and_cut_in_judging(self, tmp_path):
        long = "rain " * 60
        recipe = write(tmp_path, "classify", train=f"a\tx\nb\ty\n{long}\tx\n", dev=f"a\tx\n{long}\ty\n")
        result = train(recipe)
        assert "2 training examples (1 longer than 24 tokens left out); 2 dev examples" in result.err
        assert "2 examples (1 cut to the 32 tokens this model reads)" in glassformer("evaluate", "--model", tmp_path / "run").out

    def test_nothing_short_enough(self, tmp_path):
        long = "rain " * 60
        result = train(write(tmp_path, "classify", train=f"{long}\tx\n{long}\ty\n", dev="a\tx\n"))
        assert result.code == 2 and "all 2 are longer than data.max_length 24 pieces" in result.err

    @pytest.mark.parametrize("count", [20, 21, 22, 23, 24, 25])
    def test_pairs_up_to_what_the_model_reads(self, tmp_path, count):
        """Three marks go around a pair, one more than data.max_length leaves room for."""
        text = f"{'x' * count}\ty\tone\nx\ty\ttwo\n"
        recipe = write(tmp_path, "compare", train=text, dev=text)
        result = train(recipe, "model.max_length=26", "tokenizer.kind=character", updates=2)
        assert result.code == 0, result.err
        assert ("1 training examples" in result.err) == (count + 1 + 3 > 26)

    @pytest.mark.parametrize("problem", ["fill", "classify", "compare", "score", "tag"])
    def test_killed_it_ends_as_if_it_had_not_been(self, tmp_path, problem):
        """From a checkpoint, and without its data; dropout and masks are drawn as they would have been."""
        dropout = ("model.dropout=0.2", "tokenizer.dropout=0.3")
        steady = ("training.save_every=2", "training.validate_every=3", "training.schedule=constant", *dropout)
        for name, updates in (("whole", 5), ("stopped", 2)):
            result = train(write(tmp_path / name, problem), *steady, updates=updates)
            assert result.code == 0, result.err
        for file in (tmp_path / "stopped").glob("*.*"):
            file.unlink()
        result = glassformer("train", tmp_path / "stopped" / "run", "--set", "training.updates=5")
        assert result.code == 0 and "Going on from update 2" in result.err, result.err
        whole, stopped = (
            read_tensors(tmp_path / name / "run" / "checkpoints" / "00000005" / "model.safetensors")
            for name in ("whole", "stopped")
        )
        assert all(torch.equal(x, stopped[name]) for name, x in whole.items())

    @pytest.mark.parametrize("problem", ["fill", "classify", "tag"])
    def test_the_card(self, tmp_path, problem):
        assert train(write(tmp_path, problem)).code == 0
        card = (tmp_path / "run" / "card.md").read_text(encoding="utf-8")
        assert "accuracy" in card and "train." in card


COMMANDS = {"filler": "fill", "classifier": "classify", "comparer": "compare", "tagger": "tag"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "command"),
    [(m, c) for m, c in product(COMMANDS, [*COMMANDS.values(), "generate", "translate"]) if COMMANDS[m] != c],
)
def test_the_wrong_model_for_a_command(request, model, command):
    result = glassformer(command, "--model", request.getfixturevalue(model), "a [MASK]", "b")
    assert result.code == 2 and f"is for the command `glassformer {COMMANDS[model]}`, not for this one" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fill", "classify", "compare", "tag"])
def test_too_long_a_text_names_the_line(request, command):
    run = request.getfixturevalue(next(model for model, name in COMMANDS.items() if name == command))
    line = "\t".join(["hen [MASK] " * 30] * (2 if command == "compare" else 1))
    short = "a\tb" if command == "compare" else "a [MASK]"
    result = glassformer(command, "--model", run, stdin=f"{short}\n{line}\n")
    assert result.code == 2 and re.search(r"(Text|Sentence|Pair) 2 is \d+ tokens long", result.err), result.err
    assert result.out == ""


# -- starting from another model


def bare(folder: Path, problem: str) -> Path:
    """A recipe that leaves vocabulary and sizes to the model it starts from."""
    text = {
        "fill": "owl likes hay\n",
        "classify": "owl\tx\nhen\ty\n",
        "compare": "owl\thay\tx\nhen\thay\ty\n",
        "score": "owl\thay\t1\nhen\thay\t2\n",
        "tag": "owl\tx\nhay\ty\n",
    }[problem]
    recipe = write(folder, problem, train=text, dev=text)
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace(SMALL, SMALL[SMALL.index("[training]") :]), encoding="utf-8")
    return recipe


def encoder(run: Path) -> dict[str, torch.Tensor]:
    return {name: x for name, x in read_tensors(run / "model.safetensors").items() if name.startswith("encoder.")}


@pytest.mark.slow
class TestStartingFrom:
    @pytest.mark.parametrize("problem", ["classify", "compare", "score", "tag"])
    def test_the_encoder_is_taken_over_with_its_vocabulary(self, tmp_path, filler, problem):
        result = train(bare(tmp_path, problem), "training.rate=0", start=filler)
        assert result.code == 0, result.err
        assert "fresh: head." in result.err
        ours, theirs = encoder(tmp_path / "run"), encoder(filler)
        assert ours.keys() == theirs.keys() and all(torch.equal(x, theirs[name]) for name, x in ours.items())
        assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (filler / "tokenizer.json").read_bytes()
        made, base = (config.read(folder / "recipe.toml") for folder in (tmp_path / "run", filler))
        assert (made.model, made.tokenizer, made.start) == (base.model, base.tokenizer, str(filler))
        assert "Began with the weights of run" in (tmp_path / "run" / "card.md").read_text()

    def test_the_head_is_taken_too_if_it_means_the_same(self, tmp_path, filler):
        result = train(bare(tmp_path, "fill"), "training.rate=0", start=filler)
        assert "fresh: none" in result.err
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == (filler / "model.safetensors").read_bytes()

    def test_frozen_parts_stay_and_others_learn_at_their_own_rate(self, tmp_path, filler):
        freeze = 'training.freeze=["encoder.embed", "encoder.0"]'
        assert (
            train(
                bare(tmp_path, "classify"), freeze, 'training.rates={encoder=0.0, "encoder.norm"=1.0}', start=filler, updates=3
            ).code
            == 0
        )
        ours, theirs = encoder(tmp_path / "run"), encoder(filler)
        changed = {name for name, x in ours.items() if not torch.equal(x, theirs[name])}
        assert changed == {"encoder.norm.weight", "encoder.norm.bias"}

    def test_a_part_it_has_not(self, tmp_path, filler):
        result = train(bare(tmp_path, "classify"), 'training.freeze=["decoder"]', start=filler)
        assert result.code == 2 and "This model has no part 'decoder'" in result.err and "encoder.0" in result.err

    def test_nothing_left_to_train(self, tmp_path, filler):
        result = train(bare(tmp_path, "classify"), 'training.freeze=["encoder", "head"]', start=filler)
        assert result.code == 2 and "leaves nothing to train" in result.err

    @pytest.mark.parametrize(
        "change", ["model.width=48", "model.layers=3", "tokenizer.vocabulary=400", "model.positions=rotary", "model.kind=gpt"]
    )
    def test_other_sizes_are_refused(self, tmp_path, filler, change):
        result = train(bare(tmp_path, "classify"), change, start=filler)
        assert result.code == 2 and "but the model it starts from has" in result.err
        assert not (tmp_path / "run").exists()

    def test_dropout_and_pooling_are_its_own(self, tmp_path, filler):
        assert train(bare(tmp_path, "classify"), "model.dropout=0.3", "model.pooling=mean", start=filler).code == 0
        made = config.read(tmp_path / "run" / "recipe.toml").model
        assert (made.dropout, made.pooling) == (0.3, "mean")

    def test_the_same_sizes_may_be_said(self, tmp_path, filler):
        assert train(write(tmp_path, "classify"), "model.width=64", start=filler).code == 0

    def test_a_classifier_may_be_what_another_starts_from(self, tmp_path, classifier):
        result = train(bare(tmp_path, "tag"), "training.rate=0", start=classifier)
        assert result.code == 0, result.err
        assert all(torch.equal(x, encoder(classifier)[name]) for name, x in encoder(tmp_path / "run").items())

    @pytest.mark.parametrize("model", ["zh-en", "nowhere"])
    def test_what_cannot_be_started_from(self, tmp_path, model):
        result = train(bare(tmp_path, "classify"), start=model)
        assert result.code == 2 and "Traceback" not in result.err
        assert ("served by bert" if model == "zh-en" else "There is no model 'nowhere'") in result.err

    def test_goes_on_when_that_model_is_gone_and_from_elsewhere(self, monkeypatch, tmp_path):
        (tmp_path / "there").mkdir()
        monkeypatch.chdir(tmp_path / "there")
        assert train(write(Path("base"), "fill")).code == 0
        (tmp_path / "here").mkdir()
        recipe = bare(tmp_path / "here", "classify")
        assert train(recipe, start="base/run", updates=2).code == 0
        monkeypatch.chdir(tmp_path)
        assert glassformer("train", tmp_path / "here" / "run", "--set", "training.updates=3").code == 0
        for file in (tmp_path / "there" / "base" / "run").glob("*.*"):
            file.unlink()
        result = glassformer("train", tmp_path / "here" / "run", "--set", "training.updates=4")
        assert result.code == 0, result.err

    def test_an_imported_vocabulary_needs_its_model(self, tmp_path):
        result = train(write(tmp_path, "classify"), "tokenizer.kind=imported")
        assert result.code == 2 and "comes with a model to start from (--from)" in result.err
