"""Batches: every pair once an epoch, within the budget, in an order that goes on from any place."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.text import batches
from glassformer.text.batches import Batches, Place, Prepared, chunks, permuted, prepare

Row = tuple[int, bool]  # where the pair's ids begin, and whether it is turned round


def write(
    folder: Path, pairs: list[tuple[str, str]], max_length: int = 100, largest: int = 1000, max_target: int | None = None
) -> Prepared:
    """Pairs whose ids are their letters' numbers."""
    rows = (([ord(letter) for letter in source], [ord(letter) for letter in target]) for source, target in pairs)
    return prepare(folder, "train", rows, largest=largest, max_length=max_length, max_target=max_target)


def some_pairs(count: int) -> list[tuple[str, str]]:
    rng = np.random.default_rng(0)
    return [("s" * rng.integers(1, 30), "t" * rng.integers(1, 30)) for _ in range(count)]


def taken(made: Batches, place: Place, count: int) -> list[tuple[list[Row], Place]]:
    return [([(int(r["offset"]), turned) for r, turned in rows], after) for rows, after in islice(made.iterate(place), count)]


def epoch(made: Batches, number: int) -> list[list[Row]]:
    rows = []
    for batch, after in made.iterate(Place(number)):
        rows.append([(int(record["offset"]), turned) for record, turned in batch])
        if after.epoch > number:
            return rows
    raise AssertionError("an epoch ends")


@settings(max_examples=150)
@given(count=st.integers(1, 3000), key=st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 1000)))
def test_permuted_is_a_permutation(count: int, key: tuple[int, int]) -> None:
    whole = permuted(np.arange(count), count, key=key)
    assert np.array_equal(np.sort(whole), np.arange(count))
    some = np.arange(count)[count // 3 :: 2]
    assert np.array_equal(permuted(some, count, key=key), whole[some])  # each number by itself


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025])
def test_permuted_at_the_edges_of_its_powers(count: int) -> None:
    assert np.array_equal(np.sort(permuted(np.arange(count), count, key=(1, 2))), np.arange(count))


def test_permuted_mixes() -> None:
    """A shuffle has about one fixed point, keeps few neighbours together, and leaves no trend."""
    count = 10_000
    order = permuted(np.arange(count), count, key=(7, 0))
    assert (order == np.arange(count)).sum() < 10
    assert (np.abs(np.diff(order)) == 1).sum() < 20
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.05


@pytest.mark.parametrize("window", [1 << 17, 16, 7])
@pytest.mark.parametrize("both_ways", [False, True])
class TestIteration:
    @pytest.fixture
    def made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, both_ways: bool) -> Batches:
        monkeypatch.setattr(batches, "WINDOW", window)
        return Batches(write(tmp_path, some_pairs(101)), tokens=100, both_ways=both_ways, seed=3)

    def test_an_epoch_is_every_pair_once_each_way(self, made: Batches, both_ways: bool) -> None:
        starts = made.corpus.records(np.arange(101))["offset"].tolist()
        wanted = Counter((start, turned) for start in starts for turned in ((False, True) if both_ways else (False,)))
        for number in range(3):
            assert Counter(row for batch in epoch(made, number) for row in batch) == wanted

    @pytest.mark.parametrize("marks", [0, 1, 2])
    def test_the_budget_is_kept(self, made: Batches, both_ways: bool, marks: int) -> None:
        """Rows × the longer side, with the marks around a source (and its tag) and the one beside a target counted."""
        assert made.marks == 1  # <eos>, if nothing is said
        made = Batches(made.corpus, tokens=100, both_ways=both_ways, seed=3, marks=marks)
        full = 0
        for rows, _ in islice(made.iterate(Place()), 100):
            pairs = [
                (int(r["target"]), int(r["source"])) if turned else (int(r["source"]), int(r["target"])) for r, turned in rows
            ]
            longest = max(max(source + marks + both_ways, target + 1) for source, target in pairs)
            assert len(rows) * longest <= 100
            full += len(rows) * longest > 70
        assert full > 50  # nor is it left unused

    def test_one_way_is_what_is_meant(self, made: Batches, both_ways: bool) -> None:
        plain = Batches(made.corpus, tokens=100, seed=3)
        assert not plain.both_ways and plain.rows == 101
        assert both_ways or epoch(plain, 0) == epoch(made, 0)

    def test_from_any_place_it_goes_on_as_if_never_stopped(self, made: Batches) -> None:
        whole = taken(made, Place(), 3 * len(epoch(made, 0)))
        for i, (_, after) in enumerate(whole[:-4]):
            assert taken(made, after, 4) == whole[i + 1 : i + 5]

    def test_seeds_and_epochs_differ(self, made: Batches, both_ways: bool) -> None:
        other = Batches(made.corpus, tokens=100, both_ways=both_ways, seed=4)
        orders = [epoch(made, 0), epoch(made, 1), epoch(other, 0)]
        assert orders[0] == epoch(made, 0)
        assert all(a != b for i, a in enumerate(orders) for b in orders[:i])


def test_little_is_padded(tmp_path: Path) -> None:
    made = Batches(write(tmp_path, some_pairs(2000)), tokens=400, both_ways=False, seed=0)
    real = padded = 0
    for rows, after in made.iterate(Place()):
        lengths = [max(int(record["source"]), int(record["target"])) for record, _ in rows]
        real, padded = real + sum(lengths), padded + len(rows) * max(lengths)
        if after.epoch:
            break
    assert real / padded > 0.95


def test_lengths_are_mixed_over_an_epoch(tmp_path: Path) -> None:
    """Batches are sorted within, but taken in random order: the short ones do not all come first."""
    made = Batches(write(tmp_path, some_pairs(2000)), tokens=200, both_ways=False, seed=0)
    longest = [max(int(record["source"]) for record, _ in rows) for rows, _ in islice(made.iterate(Place()), 100)]
    assert abs(np.corrcoef(longest, np.arange(100))[0, 1]) < 0.4


def test_a_pair_beyond_the_budget_is_a_batch_of_its_own(tmp_path: Path) -> None:
    made = Batches(write(tmp_path, [("a", "b"), ("c" * 50, "d"), ("e", "f")]), tokens=10, both_ways=False, seed=0)
    assert sorted(len(batch) for batch in epoch(made, 0)) == [1, 2]


@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(st.text("abcé中", max_size=9), st.text("xyz", max_size=9)), min_size=1, max_size=8))
def test_what_was_prepared_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    corpus = write(tmp_path_factory.mktemp("corpus"), pairs, largest=0xFFFF)
    read = [corpus.read(record) for record in corpus.records(np.arange(corpus.count))]
    assert [("".join(map(chr, source)), "".join(map(chr, target))) for source, target in read] == pairs


def test_large_vocabularies_fit(tmp_path: Path) -> None:
    corpus = write(tmp_path, [("a\U0001f600", "b")], largest=200_000)
    assert corpus.read(corpus.records(np.array([0]))[0]) == ([97, 0x1F600], [98])


@pytest.mark.parametrize(("largest", "size"), [(0xFFFF, 2), (0x10000, 4), (2**32 - 1, 4)])
def test_the_largest_id_fits_exactly(tmp_path: Path, largest: int, size: int) -> None:
    corpus = prepare(tmp_path, "train", [([0, largest], [largest, 0])], largest=largest, max_length=9)
    assert corpus.read(corpus.records(np.array([0]))[0]) == ([0, largest], [largest, 0])
    assert (tmp_path / "train.ids").stat().st_size == 4 * size


def test_pairs_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    corpus = write(tmp_path, [("abc", "d"), ("abcd", "e"), ("f", "ghij"), ("klm", "nop")], max_length=3)
    assert corpus.count == corpus.about["pairs"] == 2
    assert corpus.about["skipped"] == 2
    assert corpus.read(corpus.records(np.array([1]))[0]) == ([107, 108, 109], [110, 111, 112])
    assert Prepared(tmp_path, "train").count == 2


def test_targets_may_have_another_limit(tmp_path: Path) -> None:
    pairs = [("ab", "cdef"), ("abc", "d"), ("ab", "cdefg"), ("", "")]
    corpus = write(tmp_path, pairs, max_length=2, max_target=4)
    assert [corpus.read(record) for record in corpus.records(np.arange(2))] == [([97, 98], [99, 100, 101, 102]), ([], [])]
    assert (corpus.count, corpus.about["skipped"]) == (2, 2)


@given(items=st.lists(st.integers(), max_size=20), size=st.integers(1, 7))
def test_chunks_are_the_items_in_order(items: list[int], size: int) -> None:
    found = list(chunks(iter(items), size))
    assert [item for chunk in found for item in chunk] == items
    assert all(len(chunk) == size for chunk in found[:-1]) and all(0 < len(chunk) <= size for chunk in found)


def test_nothing_left_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"all 1 are longer than data\.max_length 3"):
        write(tmp_path, [("abcd", "e")], max_length=3)
