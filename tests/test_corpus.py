import gzip
import itertools
import os
import tracemalloc
from pathlib import Path

import pytest

from glassformer.errors import UserError
from glassformer.options import PairData
from glassformer.text.corpus import Pair, read_lines, read_pairs

OPTIONS = PairData(source="en", target="de")


def write(path: Path, content: str | bytes) -> Path:
    """A file of exactly these bytes, packed when its name ends in .gz."""
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def texts(folder: Path, *specs: str, data: PairData = OPTIONS) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(specs, data, lambda name: folder / name)]


def error(folder: Path, *specs: str, data: PairData = OPTIONS) -> str:
    with pytest.raises(UserError) as caught:
        texts(folder, *specs, data=data)
    return str(caught.value)


class TestLines:
    @pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
    def test_only_the_line_end_goes(self, tmp_path, name):
        path = write(tmp_path / name, "\ufeff one \r\n\ttwo\u2028\x0b\x85 still two\r\r\n\n\ufeffthree\r")
        assert list(read_lines(path)) == [" one ", "\ttwo\u2028\x0b\x85 still two\r", "", "\ufeffthree\r"]

    def test_no_last_line_end_is_needed_and_none_adds_a_line(self, tmp_path):
        assert list(read_lines(write(tmp_path / "a", "x\ny"))) == list(read_lines(write(tmp_path / "b", "x\ny\n"))) == ["x", "y"]
        assert list(read_lines(write(tmp_path / "c", ""))) == []

    def test_the_bytes_decide_what_is_packed(self, tmp_path):
        (tmp_path / "named.gz").write_bytes("not packed 你好\n".encode())
        (tmp_path / "plain.txt").write_bytes(gzip.compress("packed 你好\n".encode()))
        assert list(read_lines(tmp_path / "named.gz")) == ["not packed 你好"]
        assert list(read_lines(tmp_path / "plain.txt")) == ["packed 你好"]

    def test_several_packed_parts_are_one_file(self, tmp_path):
        (tmp_path / "parts.gz").write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n"))
        assert list(read_lines(tmp_path / "parts.gz")) == ["a", "bc", "d"]

    @pytest.mark.parametrize("name", ["latin.txt", "latin.txt.gz"])
    def test_broken_utf8_names_file_and_line(self, tmp_path, name):
        path = write(tmp_path / name, b"fine\n" + "schön\n".encode("latin-1"))
        with pytest.raises(UserError, match=r"latin.*:2: not valid UTF-8: byte 0xf6 at byte 4 .* Save the file as UTF-8"):
            list(read_lines(path))

    @pytest.mark.parametrize("broken", [slice(None, -30), slice(None, 5)])
    def test_truncated_gzip(self, tmp_path, broken):
        packed = gzip.compress("".join(f"line {n * n}\n" for n in range(1000)).encode())
        (tmp_path / "cut.gz").write_bytes(packed[broken])
        with pytest.raises(UserError, match=r"cut\.gz: the gzip data is broken or cut off after line \d+.*Get the file again"):
            list(read_lines(tmp_path / "cut.gz"))

    @pytest.mark.parametrize("place", [-6, 40])
    def test_corrupt_gzip(self, tmp_path, place):
        packed = bytearray(gzip.compress("".join(f"line {n * n}\n" for n in range(1000)).encode()))
        packed[place] ^= 0xFF
        (tmp_path / "bad.gz").write_bytes(packed)
        with pytest.raises(UserError, match=r"bad\.gz"):
            list(read_lines(tmp_path / "bad.gz"))

    def test_a_folder_is_no_corpus(self, tmp_path):
        with pytest.raises(UserError, match=r"cannot be read: Is a directory\. A corpus is a readable file"):
            list(read_lines(tmp_path))

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_file(self, tmp_path):
        write(tmp_path / "secret", "x").chmod(0)
        with pytest.raises(UserError, match="secret: cannot be read: Permission denied"):
            list(read_lines(tmp_path / "secret"))

    def test_a_vanished_file(self, tmp_path):
        with pytest.raises(UserError, match="gone: cannot be read: No such file"):
            list(read_lines(tmp_path / "gone"))


class TestTsv:
    @pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
    def test_pairs_with_their_places(self, tmp_path, name):
        write(tmp_path / name, 'a "quoted" cat\teine Katze \ndog\tHund\n')
        assert list(read_pairs([name], OPTIONS, lambda name: tmp_path / name)) == [
            Pair('a "quoted" cat', "eine Katze ", f"{tmp_path / name}:1"),
            Pair("dog", "Hund", f"{tmp_path / name}:2"),
        ]

    def test_columns_choose(self, tmp_path):
        write(tmp_path / "pairs.tsv", "7\tHund\tdog\tnoun\n")
        assert texts(tmp_path, "pairs.tsv", data=PairData(columns=(3, 2))) == [("dog", "Hund")]

    def test_too_few_columns(self, tmp_path):
        write(tmp_path / "pairs.tsv", "a\tb\tc\nd\te\n")
        message = error(tmp_path, "pairs.tsv", data=PairData(columns=(1, 3)))
        assert "pairs.tsv:2: found 2 of the 3 columns that data.columns [1, 3] needs" in message
        write(tmp_path / "spaces.tsv", "no tab here\n")
        assert "spaces.tsv:1: found 1 of the 2 columns" in error(tmp_path, "spaces.tsv")

    @pytest.mark.parametrize(
        ("line", "side"),
        [("\tHund", "source"), ("dog\t \u3000", "target"), ("", "source and the target"), (" \t ", "source and the target")],
    )
    def test_an_empty_side(self, tmp_path, line, side):
        write(tmp_path / "pairs.tsv", f"a\tb\n{line}\nc\td\n")
        assert f"pairs.tsv:2: the {side} is empty. Every pair needs a text on both sides" in error(tmp_path, "pairs.tsv")


class TestJsonl:
    @pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz"])
    def test_keys_are_language_names_or_source_and_target(self, tmp_path, name):
        write(tmp_path / name, '{"de": "Hund", "en": "dog", "id": 3}\n{"source": "c\\u0061t", "target": "Katze\\n"}\n')
        assert texts(tmp_path, name) == [("dog", "Hund"), ("cat", "Katze\n")]

    @pytest.mark.parametrize(
        ("line", "parts"),
        [
            ('{"en": "dog"', ["not valid JSON", "Each line is one object"]),
            ('{"en": ' + "9" * 5000 + "}", ["not valid JSON"]),
            ("[" * 100_000, ["not valid JSON"]),
            ('["dog", "Hund"]', ['{"en": …, "de": …}', "found a list"]),
            ("null", ["found null"]),
            ('{"en": "dog", "fr": "chien"}', ["no key 'de' and no key 'target'", "found 'en', 'fr'"]),
            ("{}", ["no key 'en' and no key 'source'", "found no keys"]),
            ('{"en": "dog", "de": 7}', ["'de' must be a text", "found a number", "keys: 'en', 'de'"]),
            ('{"en": "dog", "de": "\\ud83d"}', ["'de' has half a character"]),
            ('{"en": "dog", "de": ""}', ["the target is empty"]),
            ("  ", ["the source and the target is empty"]),
        ],
    )
    def test_errors_name_the_line_and_what_was_found(self, tmp_path, line, parts):
        write(tmp_path / "pairs.jsonl", f'{{"en": "a", "de": "b"}}\n{line}\n')
        message = error(tmp_path, "pairs.jsonl")
        assert message.startswith(f"{tmp_path / 'pairs.jsonl'}:2: ")
        assert [part for part in parts if part not in message] == []


class TestAligned:
    def test_braces_name_source_and_target(self, tmp_path):
        write(tmp_path / "train.en.gz", "dog\ncat\n")
        write(tmp_path / "train.de.gz", "Hund\nKatze")
        assert texts(tmp_path, "train.{en,de}.gz") == [("dog", "Hund"), ("cat", "Katze")]
        assert texts(tmp_path, "train.{de, en}.gz") == [("Hund", "dog"), ("Katze", "cat")]
        places = [pair.place for pair in read_pairs(["train.{en,de}.gz"], OPTIONS, lambda name: tmp_path / name)]
        assert places == [f"{tmp_path}/train.en.gz:1", f"{tmp_path}/train.en.gz:2"]

    @pytest.mark.parametrize(("sources", "targets"), [(2, 5), (5, 2), (3, 2), (0, 1)])
    def test_unequal_lengths_give_both_counts(self, tmp_path, sources, targets):
        write(tmp_path / "t.en", "x\n" * sources)
        write(tmp_path / "t.de", "y\n" * targets)
        message = error(tmp_path, "t.{en,de}")
        assert f"{tmp_path / 't.en'} has {sources}, {tmp_path / 't.de'} has {targets}" in message

    def test_an_empty_line_names_its_own_file(self, tmp_path):
        write(tmp_path / "t.en", "dog\ncat\n\n")
        write(tmp_path / "t.de", "Hund\n\n\n")
        assert f"{tmp_path / 't.de'}:2: the target is empty" in error(tmp_path, "t.{en,de}")
        write(tmp_path / "t.de", "Hund\nKatze\n\n")
        assert f"{tmp_path / 't.en'}:3: the source and the target is empty" in error(tmp_path, "t.{en,de}")

    @pytest.mark.parametrize("spec", ["t.{en,de,fr}", "t.{en,}", "t.{,}"])
    def test_braces_take_two_names(self, tmp_path, spec):
        assert f"{spec} needs two names in braces" in error(tmp_path, spec)


class TestCorpora:
    def test_synthetic(self, tmp_path):
        made = list(read_pairs(["synthetic:reverse:3:7"], OPTIONS, lambda name: pytest.fail("no file is needed")))
        assert [pair.target for pair in made] == [pair.source[::-1] for pair in made]
        assert [pair.place for pair in made] == [f"synthetic:reverse:3:7 pair {number}" for number in (1, 2, 3)]
        assert len(texts(tmp_path, "synthetic:copy")) == 20_000
        assert texts(tmp_path, "synthetic:copy:5") == texts(tmp_path, "synthetic:copy:5:0")

    @pytest.mark.parametrize(
        "spec", ["synthetic:copy:many", "synthetic:copy:1:2:3", "synthetic:copy:-1:0", f"synthetic:copy:{'9' * 5000}"]
    )
    def test_synthetic_form(self, tmp_path, spec):
        assert "synthetic:NAME:COUNT:SEED" in error(tmp_path, spec)

    def test_synthetic_names_and_counts(self, tmp_path):
        assert "copy, reverse, numerals, dates" in error(tmp_path, "synthetic:cpy")
        assert "at least 1 pair" in error(tmp_path, "synthetic:copy:0:1")

    def test_several_corpora_follow_each_other(self, tmp_path):
        write(tmp_path / "a.tsv", "1\tone\n")
        write(tmp_path / "b.jsonl", '{"source": "2", "target": "two"}\n')
        assert texts(tmp_path, "a.tsv", "b.jsonl", "a.tsv") == [("1", "one"), ("2", "two"), ("1", "one")]

    @pytest.mark.parametrize("spec", ["pairs.csv", "pairs", "pairs.txt.gz", "train.{en}.gz", ""])
    def test_an_unknown_kind_lists_the_allowed(self, tmp_path, spec):
        message = error(tmp_path, spec)
        assert repr(spec) in message
        assert all(kind in message for kind in ("pairs.tsv", "pairs.jsonl", ".gz", "train.{en,de}.gz", "synthetic:NAME"))

    @pytest.mark.parametrize("spec", ["none.tsv", "none.jsonl", "none.{a,b}", "none.tsv.gz"])
    def test_an_empty_corpus(self, tmp_path, spec):
        for name in ("none.tsv", "none.jsonl", "none.a", "none.b", "none.tsv.gz"):
            write(tmp_path / name, "")
        write(tmp_path / "full.tsv", "a\tb\n")
        assert f"The corpus {spec} is empty" in error(tmp_path, "full.tsv", spec)

    def test_no_corpus(self, tmp_path):
        assert "No corpus was named" in error(tmp_path)

    def test_what_find_says_is_passed_on(self):
        def find(name: str) -> Path:
            raise UserError(f"nowhere: {name}")

        for spec, name in [("a.tsv", "a.tsv"), ("a.jsonl.gz", "a.jsonl.gz"), ("a.{en,de}", "a.en")]:
            with pytest.raises(UserError, match=f"^nowhere: {name}$"):
                next(read_pairs([spec], OPTIONS, find))

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    def test_lines_are_read_when_they_are_asked_for(self, tmp_path):
        """A pipe that is never closed: a reader that wanted the end of the file would wait for ever."""
        os.mkfifo(tmp_path / "endless.tsv")
        end = os.open(tmp_path / "endless.tsv", os.O_RDWR)
        try:
            os.write(end, b"a\tb\n" * 3)
            pairs = read_pairs(["endless.tsv"], OPTIONS, lambda name: tmp_path / name)
            assert [pair.source for pair in itertools.islice(pairs, 2)] == ["a", "a"]
            pairs.close()
        finally:
            os.close(end)

    def test_memory_does_not_grow_with_the_file(self, tmp_path):
        def peak(lines: int) -> int:
            write(tmp_path / "big.tsv.gz", b"some words of a sentence\tand of another one\n" * lines)
            tracemalloc.start()
            assert sum(1 for _ in read_pairs(["big.tsv.gz"], OPTIONS, lambda name: tmp_path / name)) == lines
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return peak

        assert peak(20_000) < 1.5 * peak(2_000)
