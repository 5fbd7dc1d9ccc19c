"""Search and sampling against an exhaustive search and a plain sampler, on a model that is any function of the past."""

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from conftest import every_variant, sentences, transformer
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController
from torch import Tensor

from glassformer.decoding import search
from glassformer.decoding.cores import one_core, spread
from glassformer.decoding.sampling import Sampling, distribution, draw
from glassformer.decoding.state import Hypothesis, Limits
from glassformer.layers import one_dnn, products, threads
from glassformer.layers.threads import numpy_alone

PAD, BOS, EOS = 0, 1, 2
seeds = st.integers(0, 10_000)
lengths = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@dataclass(frozen=True)
class Pasts:
    """Which sentence each row is, and all it has read."""

    rows: tuple[tuple[int, ...], ...]

    def reorder(self, index: Tensor) -> "Pasts":
        return Pasts(tuple(self.rows[i] for i in index.tolist()))


class Oracle:
    """A model whose logits are random but fixed for every past."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.vocabulary = vocabulary
        self.seed = seed

    def start(self, sentence_numbers: range | list[int]) -> Pasts:
        return Pasts(tuple((number,) for number in sentence_numbers))

    def step(self, ids: Tensor, state: Pasts) -> tuple[Tensor, Pasts]:
        rows = tuple((*row, token) for row, token in zip(state.rows, ids.tolist(), strict=True))
        return torch.stack([self.logits(row) for row in rows]), Pasts(rows)

    def logits(self, row: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(np.random.default_rng((self.seed, *row)).normal(scale=2, size=self.vocabulary)).float()


def every_sequence(model: Oracle, number: int, limits: Limits) -> Iterator[tuple[tuple[int, ...], float]]:
    """All sequences that may be written for a sentence, and log p of each with its end mark."""

    def extend(written: tuple[int, ...], total: float) -> Iterator[tuple[tuple[int, ...], float]]:
        log_p = model.logits((number, BOS, *written)).double().log_softmax(-1).tolist()
        most = limits.max_lengths[number]
        if len(written) >= limits.min_length or len(written) == most:
            yield written, total + log_p[EOS]
        if len(written) < most:
            for token in range(model.vocabulary):
                if token != EOS and token not in limits.banned:
                    yield from extend((*written, token), total + log_p[token])

    yield from extend((), 0.0)


def limits_for(max_lengths: list[int], min_length: int = 0) -> Limits:
    return Limits(BOS, EOS, max_lengths, min_length=min_length, banned=(PAD, BOS))


def same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [h.ids for h in found] == [h.ids for h in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)


@settings(max_examples=25)
@given(
    seed=seeds,
    max_lengths=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    min_length=st.integers(0, 3),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
)
def test_a_wide_beam_is_an_exhaustive_search(seed: int, max_lengths: list[int], min_length: int, alpha: float) -> None:
    model, limits = Oracle(5, seed), limits_for(max_lengths, min_length)  # two tokens can be written: at most 31 sequences
    found = search.beam(model, model.start(range(len(max_lengths))), limits, width=32, length_penalty=alpha)
    for number, hypotheses in enumerate(found):
        wanted = sorted(
            ((total / (len(ids) + 1) ** alpha, ids) for ids, total in every_sequence(model, number, limits)), reverse=True
        )
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in wanted], abs=1e-4)
        assert {tuple(h.ids) for h in hypotheses} == {ids for _, ids in wanted}
        assert tuple(hypotheses[0].ids) == wanted[0][1]


@settings(max_examples=25)
@given(seed=seeds, width=st.integers(1, 7), max_lengths=lengths, alpha=st.sampled_from([0.0, 1.0]))
def test_the_n_best_are_sorted_distinct_and_true(seed: int, width: int, max_lengths: list[int], alpha: float) -> None:
    model, limits = Oracle(6, seed), limits_for(max_lengths)
    found = search.beam(model, model.start(range(len(max_lengths))), limits, width=width, length_penalty=alpha)
    for number, hypotheses in enumerate(found):
        assert 1 <= len(hypotheses) <= width
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            assert len(h.log_probs) == len(h.ids) + 1
            assert h.score == pytest.approx(h.log_prob / len(h.log_probs) ** alpha, abs=1e-4)
            past = (number, BOS)
            for token, log_prob in zip([*h.ids, EOS], h.log_probs, strict=True):
                assert log_prob == pytest.approx(model.logits(past).log_softmax(-1)[token].item(), abs=1e-5)
                past = (*past, token)


class Counting(Oracle):
    """One that counts how many rows it was asked about, and mostly wants to end."""

    asked = 0

    def step(self, ids: Tensor, state: Pasts) -> tuple[Tensor, Pasts]:
        logits, state = super().step(ids, state)
        self.asked += len(ids)
        logits[:, EOS] += 2
        return logits, state


@settings(max_examples=25)
@given(seed=seeds, width=st.integers(2, 5), wanted=st.integers(1, 3), max_lengths=lengths, alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_a_search_ends_when_none_can_win(seed: int, width: int, wanted: int, max_lengths: list[int], alpha: float) -> None:
    """All that might still be written is spared for: then what was stopped could not have changed the answer."""
    soon, late, limits = Counting(6, seed), Counting(6, seed), limits_for(max_lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SPARE", 7)
        found, whole = (
            search.beam(model, model.start(range(len(max_lengths))), limits, width=width, length_penalty=alpha, wanted=count)
            for model, count in ((soon, wanted), (late, 1000))
        )
    assert soon.asked <= late.asked
    for some, every in zip(found, whole, strict=True):
        same(some, every[:wanted])


def test_a_search_that_is_sure_ends_soon() -> None:
    soon, late, limits = Counting(6, 1), Counting(6, 1), limits_for([30] * 8)
    for model, count in ((soon, 1), (late, 1000)):
        search.beam(model, model.start(range(8)), limits, width=5, wanted=count)
    assert soon.asked < 0.9 * late.asked


@settings(max_examples=25)
@given(seed=seeds, max_lengths=lengths, min_length=st.integers(0, 3), alpha=st.sampled_from([0.0, 1.0, 2.0]))
def test_a_beam_of_one_is_greedy(seed: int, max_lengths: list[int], min_length: int, alpha: float) -> None:
    model, limits = Oracle(8, seed), limits_for(max_lengths, min_length)
    state = model.start(range(len(max_lengths)))
    greedy = search.greedy(model, state, limits)
    beam = search.beam(model, state, limits, width=1, length_penalty=alpha)
    assert [[h.ids for h in found] for found in beam] == [[h.ids] for h in greedy]
    assert [found[0].log_probs for found in beam] == [pytest.approx(h.log_probs, abs=1e-5) for h in greedy]


def test_greedy_takes_the_likeliest_every_time() -> None:
    model, limits = Oracle(8, 3), limits_for([6])
    past, wanted = (0, BOS), []
    while len(wanted) < 6:
        allowed = {token: x for token, x in enumerate(model.logits(past).tolist()) if token not in (PAD, BOS)}
        token = max(allowed, key=allowed.get)
        if token == EOS:
            break
        wanted.append(token)
        past = (*past, token)
    assert search.greedy(model, model.start([0]), limits)[0].ids == wanted


def one_of_each(model: Any, state: Any, limits: Limits, seeds: list[int]) -> dict[str, list[list[Hypothesis]]]:
    return {
        "greedy": [[h] for h in search.greedy(model, state, limits)],
        "beam": search.beam(model, state, limits, width=3),
        "sample": [[h] for h in search.sample(model, state, limits, seeds=seeds, sampling=Sampling(1.3, 4, 0.9))],
    }


@settings(max_examples=25)
@given(seed=seeds, max_lengths=lengths, min_length=st.integers(0, 7))
def test_lengths_are_respected(seed: int, max_lengths: list[int], min_length: int) -> None:
    model, limits = Oracle(6, seed), limits_for(max_lengths, min_length)
    for found in one_of_each(model, model.start(range(len(max_lengths))), limits, max_lengths).values():
        for most, hypotheses in zip(max_lengths, found, strict=True):
            for h in hypotheses:
                assert min(min_length, most) <= len(h.ids) <= most
                assert not {PAD, BOS, EOS} & set(h.ids)


@settings(max_examples=25)
@given(seed=seeds, max_lengths=st.lists(st.integers(0, 6), min_size=2, max_size=4))
def test_neighbours_change_nothing(seed: int, max_lengths: list[int]) -> None:
    model, count = Oracle(7, seed), len(max_lengths)
    together = one_of_each(model, model.start(range(count)), limits_for(max_lengths), list(range(count)))
    for i in range(count):
        alone = one_of_each(model, model.start([i]), limits_for([max_lengths[i]]), [i])
        for kind in together:
            same(alone[kind][0], together[kind][i])


@every_variant
def test_neighbours_and_padding_change_no_translation(changes: dict[str, Any]) -> None:
    model = transformer(3, **changes)
    sizes, most = (7, 2, 4), [9, 3, 6]
    sources = sentences(*sizes)
    with torch.no_grad():
        together = one_of_each(model, model.start(sources), limits_for(most), [1, 2, 3])
        for i, size in enumerate(sizes):
            alone = one_of_each(model, model.start(sources[i : i + 1, :size]), limits_for([most[i]]), [i + 1])
            for kind in together:
                same(alone[kind][0], together[kind][i])


@every_variant
@torch.no_grad()
def test_log_probs_of_the_search_are_those_of_one_pass_over_its_result(changes: dict[str, Any]) -> None:
    model = transformer(4, **changes)
    sources = sentences(5, 3)
    for found in one_of_each(model, model.start(sources), limits_for([8, 8]), [1, 2]).values():
        for i, h in enumerate(h for hypotheses in found for h in hypotheses[:1]):
            logits = model.logits(model(sources[i : i + 1], torch.tensor([[BOS, *h.ids]])))
            wanted = logits[0].log_softmax(-1).gather(1, torch.tensor([[*h.ids, EOS]]).T).squeeze(1)
            assert h.log_probs == pytest.approx(wanted.tolist(), abs=1e-4)


def test_no_sentences_give_no_hypotheses() -> None:
    model = Oracle(5, 0)
    assert search.greedy(model, model.start([]), limits_for([])) == []
    assert search.beam(model, model.start([]), limits_for([]), width=3) == []


def test_a_huge_length_penalty_is_not_an_overflow() -> None:
    model = Oracle(6, 0)
    for penalty in (1e4, 1e308):
        found = search.beam(model, model.start([0]), limits_for([5]), width=3, length_penalty=penalty, wanted=1)
        assert all(math.isfinite(h.score) for h in found[0])


@pytest.fixture
def numpys_threads() -> Iterator[Callable[[], set[int]]]:
    """How many threads NumPy's products take: two, at the beginning of a test."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(2)
    assert {library.get_num_threads() for library in libraries} <= {2}  # empty: NumPy multiplies with something else
    yield lambda: {library.get_num_threads() for library in libraries}
    for library, count in zip(libraries, before, strict=True):
        library.set_num_threads(count)


@pytest.mark.parametrize("threads", [1, 2])
def test_spread_work_is_all_done_and_threads_are_as_before(threads: int, numpys_threads: Callable[[], set[int]]) -> None:
    before, many = torch.get_num_threads(), numpys_threads()
    torch.set_num_threads(threads)

    def work(part: int) -> tuple[int, int, bool]:
        return 6 // part, torch.get_num_threads(), numpys_threads() <= {1}

    try:
        assert dict(spread(work, [3, 1, 2])) == {0: (2, 1, True), 1: (6, 1, True), 2: (3, 1, True)}
        with pytest.raises(ZeroDivisionError):
            list(spread(work, [1, 0, 2]))
        assert torch.get_num_threads() == threads and numpys_threads() == many
    finally:
        torch.set_num_threads(before)


def test_threads_of_numpy_are_as_before_when_the_last_one_leaves(numpys_threads: Callable[[], set[int]]) -> None:
    """Two at a time, and the one that came first leaves first."""
    many = numpys_threads()
    first, second = ExitStack(), ExitStack()
    first.enter_context(numpy_alone())
    second.enter_context(numpy_alone())
    assert numpys_threads() <= {1}
    first.close()
    assert numpys_threads() <= {1}
    second.close()
    assert numpys_threads() == many


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_large_product_is_shared_until_it_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes late goes alone for a while, for twice as long each time; who comes in time again goes alone for less."""
    monkeypatch.setattr(threads, "ALONE", (2, 4))
    used: list[int] = []
    shared = threads.Shared(lambda x: (used.append(torch.get_num_threads()), x)[1], torch.set_num_threads, 1)
    x = torch.ones(1, 1)
    shared(x)
    with one_core():
        for late in (False, True, True, True, False, True):
            monkeypatch.setattr(threads, "LATE", (-1.0 if late else 10.0, 0.0, 0.0))  # seconds
            shared(x)
            while shared.alone:
                shared(x)
    assert used == [2] + [2] + [2, 1, 1] + 2 * [2, 1, 1, 1, 1] + [2] + [2, 1, 1]


@pytest.mark.usefixtures("two_threads")
def test_threads_are_as_before_when_a_shared_product_fails() -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        assert torch.get_num_threads() == 2
        raise MemoryError

    with one_core():
        with pytest.raises(MemoryError):
            threads.Shared(fail, torch.set_num_threads, 1)(torch.ones(1, 1))
        assert torch.get_num_threads() == 1


def test_a_packed_product_is_the_product() -> None:
    weight, bias, x = torch.randn(400, 400), torch.randn(400), torch.randn(5, 400)
    large = products.product(weight, bias, turned=True)
    torch.testing.assert_close(large(x), x @ weight.t() + bias, rtol=1e-4, atol=1e-4)
    assert isinstance(large, products.Packed) == one_dnn.there()
    alive = weakref.ref(large)
    del large
    assert alive() is None  # a large matrix goes with its last user, not when garbage is collected


def test_any_thread_may_say_how_many_threads_numpy_multiplies_with(numpys_threads: Callable[[], set[int]]) -> None:
    """One after another, each as the only one that is inside."""
    many = numpys_threads()

    def inside() -> set[int]:
        with one_core():
            return numpys_threads()

    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for pool in (first, second):
            assert pool.submit(inside).result() <= {1}
            assert numpys_threads() == many


# Sampling


def plain_distribution(logits: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """Temperature, then top-k, then softmax, then top-p, in plain Python."""
    scaled = [x / temperature for x in logits]
    ranked = sorted(range(len(scaled)), key=lambda i: -scaled[i])
    ranked = ranked[:top_k] if top_k else ranked
    total = sum(math.exp(scaled[i]) for i in ranked)
    kept: dict[int, float] = {}
    for i in ranked:
        if kept and sum(kept.values()) >= top_p:
            break
        kept[i] = math.exp(scaled[i]) / total
    return [kept.get(i, 0.0) / sum(kept.values()) for i in range(len(logits))]


@settings(max_examples=60)
@given(
    seed=seeds,
    size=st.integers(1, 12),
    temperature=st.floats(0.1, 5),
    top_k=st.integers(0, 14),
    top_p=st.floats(0.0, 1.0),
)
def test_the_distribution_is_the_plain_one(seed: int, size: int, temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.from_numpy(np.random.default_rng(seed).normal(scale=2, size=(3, size)))
    found = distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    for row, probs in zip(logits.tolist(), found.tolist(), strict=True):
        assert probs == pytest.approx(plain_distribution(row, temperature, top_k, top_p), abs=1e-6)


def test_top_p_counts_what_is_left_after_top_k() -> None:
    """Of 0.5, 0.3, 0.2 the two likeliest are 0.625 and 0.375: half is reached by the first of them, 0.7 by both."""
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    assert distribution(logits, top_k=2, top_p=0.6).tolist() == pytest.approx([1, 0, 0])
    assert distribution(logits, top_p=0.6).tolist() == pytest.approx([0.625, 0.375, 0])


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": 1e-50}, {"temperature": 1e-20}, {"top_k": 1}, {"top_p": 0.0}]
)
def test_the_ends_of_the_range_are_greedy(options: dict[str, float]) -> None:
    logits = torch.tensor([[-3.0, 2.0, -math.inf, 1.0]])
    assert distribution(logits, **options).tolist() == [[0, 1, 0, 0]]


def test_an_infinite_temperature_draws_evenly_from_what_is_allowed() -> None:
    found = distribution(torch.tensor([-3.0, 2.0, -math.inf, 1.0]), temperature=math.inf)
    assert found.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_temperature_0_writes_what_greedy_writes() -> None:
    model, limits = Oracle(7, 1), limits_for([6, 6])
    state = model.start([0, 1])
    drawn = search.sample(model, state, limits, seeds=[1, 2], sampling=Sampling(temperature=0.0))
    for h, likeliest in zip(drawn, search.greedy(model, state, limits), strict=True):
        assert h.ids == likeliest.ids and h.log_probs == pytest.approx(likeliest.log_probs, abs=1e-5)


def test_draws_follow_the_probabilities() -> None:
    probs = torch.tensor([0.0, 0.15, 0.05, 0.0, 0.3, 0.5, 0.0])
    n = 4000
    counts = Counter(draw(probs.expand(n, -1), [torch.Generator().manual_seed(1)] * n).tolist())
    assert not {0, 3, 6} & set(counts)
    chi_square = sum((counts[i] - n * p) ** 2 / (n * p) for i, p in enumerate(probs.tolist()) if p)
    assert chi_square < 16.3  # 3 degrees of freedom: 99.9 % of fair draws stay below


@settings(max_examples=30)
@given(seed=seeds, size=st.integers(1, 30))
def test_only_what_is_possible_is_drawn(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    probs = torch.from_numpy(rng.random((5, size)) * (rng.random((5, size)) < 0.4)).float()
    probs[:, rng.integers(size)] += 1e-6
    drawn = draw(probs, [torch.Generator().manual_seed(seed + i) for i in range(5)])
    assert (probs.gather(1, drawn.unsqueeze(1)) > 0).all()


def written(model: Oracle, seeds: list[int]) -> list[list[int]]:
    found = search.sample(model, model.start([0] * len(seeds)), limits_for([8] * len(seeds), 8), seeds=seeds, sampling=Sampling())
    return [h.ids for h in found]


def test_the_seed_decides() -> None:
    model = Oracle(9, 0)
    first = written(model, [1, 2, 1])
    assert first == written(model, [1, 2, 1])
    assert first[0] == first[2] != first[1]
