import csv
import gzip
import io
import itertools
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.options import LabelData, TagData, TextData
from glassformer.text import corpus, labelled, tables
from glassformer.text.labelled import Example, Sentence, read_examples, read_sentences, read_texts, scheme_of, spans

NUMBERED = LabelData(columns=(1, 2))


def write(path: Path, content: str | bytes) -> Path:
    """A file of exactly these bytes, packed when its name ends in .gz."""
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def texts(folder: Path, *specs: str, **options) -> list[str]:
    return list(read_texts(specs, TextData(**options), lambda name: folder / name))


def examples(folder: Path, *specs: str, data: LabelData = NUMBERED, training: bool = False) -> list[tuple[str, ...]]:
    found = read_examples(specs, data, lambda name: folder / name, training=training)
    return [(*example.texts, example.label) for example in found]


def sentences(folder: Path, *specs: str, **options) -> list[Sentence]:
    return list(read_sentences(specs, TagData(**options), lambda name: folder / name))


def error(read, *arguments, **options) -> str:
    with pytest.raises(UserError) as caught:
        read(*arguments, **options)
    return str(caught.value)


def written(sentence: Sentence) -> str:
    return "".join(word + " " * space for word, space in zip(sentence.words, sentence.spaces, strict=True))


class TestTexts:
    @pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
    def test_lines_and_files(self, tmp_path, name):
        content = " first line \r\n\n   \nsecond\u2028still second\n"
        write(tmp_path / name, "\ufeff" + content)
        assert texts(tmp_path, name) == [" first line ", "second\u2028still second"]
        assert texts(tmp_path, name, name, documents="file") == [content, content]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.tsv", "id\ttext\ttitle\n1\tthe moon\tNight\n2\tthe sun\t\n"),
            ("t.csv.gz", 'id,text,title\r\n1,the moon,Night\r\n2,"the sun",\r\n'),
            ("t.jsonl", '{"text": "the moon", "title": "Night"}\n{"title": "", "text": "the sun"}\n'),
            ("t.json#poems", '{"poems": [{"text": "the moon", "title": "Night"}, {"title": " ", "text": "the sun"}]}'),
        ],
    )
    def test_rows_of_tables(self, tmp_path, name, content):
        write(tmp_path / name.partition("#")[0], content)
        assert texts(tmp_path, name) == ["the moon", "the sun"]
        assert texts(tmp_path, name, columns=("title", "text")) == ["Night\nthe moon", "the sun"]
        assert texts(tmp_path, name, documents="file") == ["the moon\nthe sun"]

    def test_an_empty_row(self, tmp_path):
        write(tmp_path / "t.tsv", "a\tb\n\t \n")
        assert "t.tsv:2: the column 1 is empty. Fill it in or remove the row" in error(texts, tmp_path, "t.tsv", columns=(1, 2))

    @pytest.mark.parametrize("documents", ["line", "file"])
    def test_an_empty_corpus(self, tmp_path, documents):
        write(tmp_path / "e.txt", "\n \n")
        write(tmp_path / "e.tsv", "text\n")
        for name in ("e.txt", "e.tsv"):
            assert f"The corpus {name} is empty: it needs at least one text" in error(texts, tmp_path, name, documents=documents)

    @pytest.mark.parametrize("name", ["a.md", "a", "a.pdf.gz", ""])
    def test_an_unknown_kind(self, tmp_path, name):
        message = error(texts, tmp_path, name)
        assert repr(name) in message
        assert all(kind in message for kind in (".tsv", ".csv", ".jsonl", ".json#KEY", ".gz", ".txt"))
        assert "No corpus was named" in error(texts, tmp_path)


class TestTables:
    def test_examples_with_their_places(self, tmp_path):
        write(tmp_path / "t.tsv", 'label\ttext\npos\t a "good" one \nneg \tbad\n')
        assert list(read_examples(["t.tsv"], LabelData(), lambda name: tmp_path / name)) == [
            Example((' a "good" one ',), "pos", f"{tmp_path}/t.tsv:2"),
            Example(("bad",), "neg", f"{tmp_path}/t.tsv:3"),
        ]

    @pytest.mark.parametrize("name", ["t.tsv", "t.tsv.gz", "t.txt", "t.txt.gz"])
    def test_numbers_mean_no_first_line_of_names(self, tmp_path, name):
        write(tmp_path / name, "one\ttwo\tyes\nthree\tfour\tno\n")
        data = LabelData(columns=(2, 1, 3))
        assert examples(tmp_path, name, data=data) == [("two", "one", "yes"), ("four", "three", "no")]

    def test_names_and_numbers_together(self, tmp_path):
        write(tmp_path / "t.csv", "x,y\ngood,pos\n")
        assert examples(tmp_path, "t.csv", data=LabelData(columns=(1, "y"))) == [("good", "pos")]

    def test_csv_has_quotes_and_line_ends(self, tmp_path):
        write(tmp_path / "t.csv", 'text,label\r\n"a ""b"", c",x\r\n"two\r\nlines\n",y\r\n"z",w')
        found = list(read_examples(["t.csv"], LabelData(), lambda name: tmp_path / name))
        assert [example.texts[0] for example in found] == ['a "b", c', "two\r\nlines\n", "z"]
        assert [example.place.rpartition(":")[2] for example in found] == ["2", "3", "6"]

    @settings(max_examples=50)
    @given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)] * 2), min_size=1))
    def test_csv_round_trip(self, tmp_path_factory, rows):
        rows = [(text + "!", label.strip() or "none") for text, label in rows]
        out = io.StringIO(newline="")
        csv.writer(out).writerows(rows)
        folder = tmp_path_factory.getbasetemp()
        write(folder / "round.csv", "\ufeff" + out.getvalue())
        assert examples(folder, "round.csv") == rows

    @pytest.mark.parametrize(
        ("name", "content", "parts"),
        [
            ("t.tsv", "tekst\tlabel\na\tb\n", [":1: no column 'text'", "'tekst', 'label'", "Did you mean 'tekst'?", "numbers"]),
            ("t.csv", "a,b\nc,d\n", [":1: no column 'text'", "names 'a', 'b'"]),
            ("t.csv", "\n", [":1: no column 'text'", "names nothing"]),
            ("t.tsv", "text\tlabel\na\tb\nc\n", [":3: found 1 of the 2 columns", "data.columns ['text', 'label']"]),
            ("t.tsv", "text\tlabel\na\tb\tc\n", [":2: found 3 columns where the first line has 2", "stray"]),
            ("t.csv", 'text,label\n"a\nb",c\nd,e,f\n', [":4: found 3 columns where the first line has 2"]),
            ("t.tsv", "text\tlabel\n \tb\n", [":2: the column 'text' is empty"]),
            ("t.tsv", "text\tlabel\na\t\u3000\n", [":2: the column 'label' is empty"]),
            ("t.tsv", "text\tlabel\n\na\tb\n", [":2: the column 'text' is empty"]),
            ("t.csv", "text,label\na,b\n\n", [":3: the column 'text' is empty"]),
            ("t.csv", 'text,label\na,b\n"c,d\ne,f\n', [":3: not valid CSV", "unexpected end", "double quotes"]),
            ("t.csv", 'text,label\n"c"d,e\n', [":2: not valid CSV", "doubled"]),
            ("t.csv", 'text,label\n"' + "long\n" * 50_000 + '",x\n', [":2: not valid CSV", "field limit", "131,072", "JSONL"]),
            ("t.tsv", b"text\tlabel\nsch\xf6n\tb\n", [":2: not valid UTF-8: byte 0xf6"]),
            ("t.csv.gz", b"text,label\nsch\xf6n,b\n", [":2: not valid UTF-8: byte 0xf6"]),
            ("t.tsv", "text\tlabel\n", ["The corpus t.tsv is empty: it needs at least one example"]),
            ("t.csv", "", ["The corpus t.csv is empty"]),
            ("t.txt", "", ["The corpus t.txt is empty"]),
            ("t.xls", "", ["'t.xls'", ".tsv", ".csv", ".jsonl", ".json#KEY", ".txt"]),
        ],
    )
    def test_errors(self, tmp_path, name, content, parts):
        write(tmp_path / name, content)
        message = error(examples, tmp_path, name, data=LabelData())
        if parts[0].startswith(":"):
            line, _, parts[0] = parts[0].removeprefix(":").partition(": ")
            assert message.startswith(f"{tmp_path / name}:{line}: ")
        assert [part for part in parts if part not in message] == []

    def test_broken_gzip(self, tmp_path):
        packed = gzip.compress("".join(f"line {n * n}\tx\n" for n in range(1000)).encode())
        (tmp_path / "t.tsv.gz").write_bytes(packed[:-30])
        assert "t.tsv.gz: the gzip data is broken or cut off after line" in error(examples, tmp_path, "t.tsv.gz")

    @pytest.mark.parametrize("columns", [(0, 1), ("text", -1)])
    def test_columns_count_from_1(self, tmp_path, columns):
        write(tmp_path / "t.tsv", "a\tb\n")
        assert "counts from 1" in error(examples, tmp_path, "t.tsv", data=LabelData(columns=columns))

    def test_a_line_without_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(corpus, "LONGEST_LINE", 100)
        write(tmp_path / "t.tsv.gz", "a\tb\n" + "c" * 1000)
        assert "t.tsv.gz:2: the line is longer than 100 bytes" in error(examples, tmp_path, "t.tsv.gz")


class TestJson:
    @pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
    def test_jsonl_of_objects_and_lists(self, tmp_path, name):
        write(tmp_path / name, '{"label": "x", "a": "c\\u0061t", "b": "dog"}\n{"a": "1", "b": "2", "label": 7}\n')
        data = LabelData(columns=("a", "b", "label"))
        assert examples(tmp_path, name, data=data) == [("cat", "dog", "x"), ("1", "2", "7")]
        write(tmp_path / name, '["cat", 3]\n["dog", 4.5]\n')
        assert examples(tmp_path, name) == [("cat", "3"), ("dog", "4.5")]

    def test_json_keys_follow_each_other(self, tmp_path):
        tree = {"train": [["go", "verb"]], "other": [["cat", "noun"], ["dog", "noun"]]}
        write(tmp_path / "t.json", json.dumps(tree, indent=1))
        write(tmp_path / "packed.json.gz", json.dumps(tree))
        rows = [("go", "verb"), ("cat", "noun"), ("dog", "noun")]
        assert examples(tmp_path, "t.json#train, other") == examples(tmp_path, "packed.json.gz#train,other") == rows
        assert examples(tmp_path, "t.json#other", "t.json#train") == [*rows[1:], rows[0]]
        found = read_examples(["t.json#train,other"], NUMBERED, lambda name: tmp_path / name)
        assert [example.place for example in found] == [f"{tmp_path}/t.json#{row}" for row in ("train:1", "other:1", "other:2")]

    def test_a_list_needs_no_key(self, tmp_path):
        write(tmp_path / "t.json", '[{"text": "go", "label": "verb"}]')
        assert examples(tmp_path, "t.json", data=LabelData()) == [("go", "verb")]

    @pytest.mark.parametrize(
        ("line", "parts"),
        [
            ('{"text": "dog"', ["not valid JSON", "Each line is one object"]),
            ("", ["not valid JSON"]),
            ("[" * 100_000, ["not valid JSON"]),
            ("3", ["expected an object or a list, found a number"]),
            ('{"text": "dog", "labl": "x"}', ["no key 'label'", "found 'text', 'labl'", "Did you mean 'labl'?"]),
            ('["dog", "x"]', ["the row is a list", "numbers up to 2", "['text', 'label']"]),
            ('{"text": ["dog"], "label": "x"}', ["'text' must be a text, found a list"]),
            ('{"text": "dog", "label": null}', ["'label' must be a text, found null"]),
            ('{"text": "dog", "label": true}', ["'label' must be a text, found true or false"]),
            ('{"text": 0.5, "label": "x"}', ["'text' must be a text, found a number"]),
            ('{"text": "", "label": "x"}', ["the column 'text' is empty"]),
            ('{"text": "\\ud83d", "label": "x"}', ["'text' has half a character"]),
        ],
    )
    def test_errors_of_jsonl(self, tmp_path, line, parts):
        write(tmp_path / "t.jsonl", f'{{"text": "a", "label": "b"}}\n{line}\n')
        message = error(examples, tmp_path, "t.jsonl", data=LabelData())
        assert message.startswith(f"{tmp_path / 't.jsonl'}:2: ")
        assert [part for part in parts if part not in message] == []

    @pytest.mark.parametrize(
        ("spec", "content", "parts"),
        [
            ("t.json#trian", '{"train": [], "dev": []}', ["no key 'trian'", "'train', 'dev'", "Did you mean 'train'?"]),
            ("t.json#", '{"train": []}', ["no key ''", "'train'"]),
            ("t.json", '{"train": [], "dev": []}', ["found an object of 'train', 'dev'", ".json#KEY"]),
            ("t.json#train", '{"train": "x"}', ["t.json#train: expected a list of rows, found a text"]),
            ("t.json#train", "[]", ["found a list", "Leave out #train"]),
            ("t.json#train", '{"train": []}', ["The corpus t.json#train is empty"]),
            ("t.json#train", '{"train": [["a", "b"], ["c"]]}', ["t.json#train:2: the row is a list", "up to 1"]),
            ("t.json#train", '{"train": [["a", ""]]}', ["t.json#train:1: the column 2 is empty"]),
            ("t.json#train", '{"train":\n[["a", "b"]', ["t.json: not valid JSON", "line 2"]),
            ("t.json", "{}", ["found an object of nothing"]),
        ],
    )
    def test_errors_of_json(self, tmp_path, spec, content, parts):
        write(tmp_path / "t.json", content)
        message = error(examples, tmp_path, spec)
        assert [part for part in parts if part not in message] == []

    @pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
    def test_a_large_json_is_refused(self, tmp_path, monkeypatch, name):
        monkeypatch.setattr(tables, "LARGEST_JSON", 1000)
        write(tmp_path / name, json.dumps([["text", "label"]] * 100, indent=1))
        message = error(examples, tmp_path, name)
        assert f"{name}: longer than 1,000 characters" in message
        assert "Use JSONL" in message


def bracketed(tree: tuple) -> str:
    label, *parts = tree
    return f"({label} {' '.join(bracketed(part) if isinstance(part, tuple) else part for part in parts)})"


def phrases_of(tree: tuple) -> list[tuple[str, str]]:
    """Of every part its words and its label, told another way than by the reader."""
    label, *parts = tree
    below = [[(part, "")] if isinstance(part, str) else phrases_of(part) for part in parts]
    whole = " ".join(phrases[-1][0] for phrases in below)
    return [phrase for phrases in below for phrase in phrases if phrase[1]] + [(whole, label)]


WORD = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"], exclude_characters="()\\-"), min_size=1, max_size=6)
TREE = st.recursive(
    st.tuples(st.sampled_from("01234"), WORD),
    lambda trees: st.tuples(st.sampled_from("01234"), trees, trees) | st.tuples(st.sampled_from("01234"), trees),
    max_leaves=12,
)


class TestTrees:
    @pytest.mark.parametrize("name", ["t.txt", "t.txt.gz"])
    def test_the_root_and_its_place(self, tmp_path, name):
        write(tmp_path / name, "\n(3 (2 It) (4 (4 really) (2 works)))\n\n(0 Never)\n")
        assert list(read_examples([name], LabelData(), lambda name: tmp_path / name)) == [
            Example(("It really works",), "3", f"{tmp_path / name}:2"),
            Example(("Never",), "0", f"{tmp_path / name}:4"),
        ]

    def test_phrases_are_for_training(self, tmp_path):
        write(tmp_path / "t.txt", "(3 (2 It) (4 (4 really) (2 works)))\n(2 (2 It))\n")
        data = LabelData(phrases=True)
        assert examples(tmp_path, "t.txt", data=data) == [("It really works", "3"), ("It", "2")]
        assert examples(tmp_path, "t.txt", data=data, training=True) == [
            ("It", "2"),
            ("really", "4"),
            ("works", "2"),
            ("really works", "4"),
            ("It really works", "3"),
            ("It", "2"),
            ("It", "2"),
        ]

    def test_escapes(self, tmp_path):
        write(tmp_path / "t.txt", "(2 (2 -LRB-) (2 (2 and\\/or) (2 \\*\\*) (2 -RRB-)))")
        assert examples(tmp_path, "t.txt") == [("( and/or ** )", "2")]

    @settings(max_examples=50)
    @given(st.lists(TREE, min_size=1, max_size=5))
    def test_round_trip(self, tmp_path_factory, trees):
        folder = tmp_path_factory.getbasetemp()
        write(folder / "round.txt", "".join(bracketed(tree) + "\n" for tree in trees))
        found = examples(folder, "round.txt", data=LabelData(phrases=True), training=True)
        assert found == [phrase for tree in trees for phrase in phrases_of(tree)]
        assert examples(folder, "round.txt") == [phrases_of(tree)[-1] for tree in trees]

    def test_a_deep_tree(self, tmp_path):
        write(tmp_path / "t.txt", "(1 " * 100_000 + "deep" + ")" * 100_000)
        assert examples(tmp_path, "t.txt") == [("deep", "1")]

    @pytest.mark.parametrize(
        ("line", "wrong"),
        [
            ("(3 (2 It) (4 works)", "brackets not closed: 1"),
            ("(3 (2 It) (", "brackets not closed: 2"),
            ("(3 (2 It)) (4 works)", "'(' follows the end of the tree"),
            ("(3 (2 It)))", "')' follows the end of the tree"),
            ("(3 (2 It)) works", "'works' follows the end"),
            ("(3 ((2 It)))", "'(' stands where a label is due"),
            ("(3 () (2 It))", "')' stands where a label is due"),
            ("(3 (2) (2 It))", "there is no word under the label '2'"),
            ("3 (2 It)", "'3' stands outside of the brackets"),
            (")", "')' stands outside of the brackets"),
        ],
    )
    def test_malformed(self, tmp_path, line, wrong):
        write(tmp_path / "t.txt", f"(2 fine)\n{line}\n")
        message = error(examples, tmp_path, "t.txt")
        assert f"t.txt:2: not a tree: {wrong}" in message
        assert "(3 (2 It) (4 works))" in message
        assert ".tsv" in message


class TestRelabel:
    def test_rules_rename_and_leave_out(self, tmp_path):
        write(tmp_path / "t.tsv", "a\t0\nb\t1\nc\t2\nd\t3\n")
        data = LabelData(columns=(1, 2), relabel=("0=bad", "1 = bad", "2=", "3=so=so"))
        assert examples(tmp_path, "t.tsv", data=data) == [("a", "bad"), ("b", "bad"), ("d", "so=so")]

    @pytest.mark.parametrize("rule", ["0", "=bad", "", " = "])
    def test_a_malformed_rule(self, tmp_path, rule):
        message = error(examples, tmp_path, "t.tsv", data=LabelData(relabel=("1=good", rule)))
        assert f"found {rule!r}" in message
        assert '"0=negative"' in message

    def test_two_rules_for_one_label(self, tmp_path):
        assert "the label '1' two names, 'a' and 'b'" in error(examples, tmp_path, "x", data=LabelData(relabel=("1=a", "1=b")))

    def test_nothing_is_left(self, tmp_path):
        write(tmp_path / "t.tsv", "a\t0\n")
        message = error(examples, tmp_path, "t.tsv", data=LabelData(columns=(1, 2), relabel=("0=",)))
        assert "data.relabel ['0='] leaves out every example of the corpus t.tsv" in message


CONLLU = """\
# newdoc
# text = We can't go, Ana!
1\tWe\twe\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tca\tcan\tAUX\tMD\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
5\t,\t,\tPUNCT\t,\t_\t4\tpunct\t_\tNote=x
5.1\tsay\tsay\tVERB\tVB\t_\t_\t_\t_\t_
6\tAna\tAna\tPROPN\tNNP\t_\t4\tvocative\t_\tLang=es|SpaceAfter=No
7\t!\t!\tPUNCT\t.\t_\t4\tpunct\t_\t_


# text = wanna: 1 000
1-2\twanna\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\twan\twant\tVERB\tVB\t_\t0\troot\t_\t_
2\tna\tto\tPART\tTO\t_\t1\txcomp\t_\t_
3\t:\t:\tPUNCT\t:\t_\t1\tpunct\t_\t_
4\t1 000\t1000\tNUM\tCD\t_\t1\tobj\t_\tSpaceAfter=No
"""


class TestConllu:
    @pytest.mark.parametrize("name", ["t.conllu", "t.conllu.gz"])
    def test_words_labels_and_spaces(self, tmp_path, name):
        write(tmp_path / name, CONLLU)
        first, second = sentences(tmp_path, name)
        assert first.words == ("We", "ca", "n't", "go", ",", "Ana", "!")
        assert first.labels == ("PRON", "AUX", "PART", "VERB", "PUNCT", "PROPN", "PUNCT")
        assert (written(first), written(second)) == ("We can't go, Ana!", "wanna: 1 000")
        assert (first.place, second.place) == (f"{tmp_path / name}:3", f"{tmp_path / name}:16")
        assert not first.spaces[-1]

    def test_other_columns(self, tmp_path):
        write(tmp_path / "t.conllu", CONLLU)
        assert sentences(tmp_path, "t.conllu", columns=(3, 5))[1].words == ("want", "to", ":", "1000")
        assert sentences(tmp_path, "t.conllu", columns=(3, 5))[1].labels == ("VB", "TO", ":", "CD")
        message = error(sentences, tmp_path, "t.conllu", columns=(2, 11))
        assert "t.conllu:3: found 10 of the 11 columns that data.columns [2, 11] needs" in message

    @pytest.mark.parametrize(
        ("line", "parts"),
        [
            ("1 We we PRON", ["found 1 columns", "10 with tabs"]),
            ("1\tWe\twe\tPRON", ["found 4 columns", "the first '1'"]),
            ("x\tWe\twe\tPRON\t_\t_\t_\t_\t_\t_", ["the first 'x'", "counts the words"]),
            ("1" * 5000 + "\tWe\twe\tPRON\t_\t_\t_\t_\t_\t_", ["counts the words"]),
            ("1\t\twe\tPRON\t_\t_\t_\t_\t_\t_", ["the word in column 2 is empty"]),
            ("1\tWe\twe\t \t_\t_\t_\t_\t_\t_", ["the label in column 4 is empty"]),
        ],
    )
    def test_errors(self, tmp_path, line, parts):
        write(tmp_path / "t.conllu", f"# text\n{line}\n")
        message = error(sentences, tmp_path, "t.conllu")
        assert message.startswith(f"{tmp_path}/t.conllu:2: ")
        assert [part for part in parts if part not in message] == []

    def test_comments_alone_are_no_sentence(self, tmp_path):
        write(tmp_path / "t.conllu", "# one\n\n# two\n")
        assert "The corpus t.conllu is empty: it needs at least one sentence" in error(sentences, tmp_path, "t.conllu")


class TestColumns:
    @pytest.mark.parametrize("name", ["t.conll", "t.iob2", "t.bio", "t.tsv", "t.txt", "t.conll.gz"])
    def test_the_first_and_the_last(self, tmp_path, name):
        content = "-DOCSTART- -X- -X- O\n\n# a comment\nAna NNP  I-NP B-PER\nleft\tVBD\tI-VP\tO\n\n\nNow RB I-ADVP O"
        write(tmp_path / name, content)
        path = tmp_path / name
        assert sentences(tmp_path, name) == [
            Sentence(("Ana", "left"), ("B-PER", "O"), (True, False), f"{path}:4"),
            Sentence(("Now",), ("O",), (False,), f"{path}:8"),
        ]

    def test_chosen_columns(self, tmp_path):
        write(tmp_path / "t.iob2", "# sent_id = 1\n1\tAna\tB-PER\t-\tx\n2\tleft\tO\t-\n")
        assert sentences(tmp_path, "t.iob2", columns=(2, 3))[0].words == ("Ana", "left")
        assert sentences(tmp_path, "t.iob2", columns=(2, 3))[0].labels == ("B-PER", "O")

    def test_spaces_by_script(self, tmp_path):
        def joined(*words: str) -> str:
            write(tmp_path / "t.conll", "".join(f"{word}\tO\n" for word in words))
            return written(sentences(tmp_path, "t.conll")[0])

        assert joined("He", "said", ":", "yes") == "He said : yes"
        assert joined("他", "在", "New", "York", "住", "了", "3", "年", "。") == "他在New York住了3年。"
        assert joined("カメラ", "を", "𠮷野", "家", "！") == "カメラを𠮷野家！"
        assert joined("나는", "학교에", "간다", ".") == "나는 학교에 간다 ."

    def test_a_hash_may_be_a_word(self, tmp_path):
        write(tmp_path / "t.conll", "# note\nno O\n# O\n# a comment inside\n1 O\n\n#\tO\n#1\tO\n")
        assert [sentence.words for sentence in sentences(tmp_path, "t.conll")] == [("no", "#", "1"), ("#", "#1")]

    def test_other_white_space_parts_no_columns(self, tmp_path):
        write(tmp_path / "t.conll", "1\u00a0000   O  \n")
        assert sentences(tmp_path, "t.conll")[0].words == ("1\u00a0000",)

    @pytest.mark.parametrize(
        ("content", "options", "parts"),
        [
            ("a O\nword\n", {}, [":2: found 1 columns, expected 2", "data.columns"]),
            ("word\n", {}, [":1: found 1 columns, expected 2"]),
            ("a x O\nb O\n", {}, [":2: found 2 columns, expected 3"]),
            ("a x O\n\nb O\n", {"columns": (1, 3)}, [":3: found 2 of the 3 columns that data.columns [1, 3] needs"]),
            ("a\tO\n\tO\n", {}, [":2: the word in column 1 is empty"]),
            ("a\tO\nb\t \n", {}, [":2: the label in column 2 is empty"]),
            ("a\tO\n", {"columns": (0, 1)}, ["counts from 1; found [0, 1]"]),
            ("\n\n", {}, ["The corpus t.conll is empty"]),
            (b"a O\n\xff O\n", {}, [":2: not valid UTF-8"]),
        ],
    )
    def test_errors(self, tmp_path, content, options, parts):
        write(tmp_path / "t.conll", content)
        message = error(sentences, tmp_path, "t.conll", **options)
        if parts[0].startswith(":"):
            assert message.startswith(f"{tmp_path}/t.conll:")
        assert [part for part in parts if part not in message] == []

    def test_a_file_without_empty_lines(self, tmp_path, monkeypatch):
        monkeypatch.setattr(labelled, "LONGEST_SENTENCE", 10)
        write(tmp_path / "t.conll", "a O\n" * 10 + "\n" + "a O\n" * 11)
        assert "t.conll:12: the sentence has more than 10 lines" in error(sentences, tmp_path, "t.conll")

    @pytest.mark.parametrize("name", ["t.csv", "t", "t.json", ""])
    def test_an_unknown_kind(self, tmp_path, name):
        message = error(sentences, tmp_path, name)
        assert repr(name) in message
        assert all(kind in message for kind in (".conllu", ".conll", ".iob2", ".bio", ".tsv", ".txt", ".gz"))
        assert "No corpus was named" in error(sentences, tmp_path)


class TestSchemes:
    @pytest.mark.parametrize(
        ("labels", "scheme"),
        [
            ("O B-PER I-PER", "bio"),
            ("I-PER O", "bio"),
            ("O B-A-1 I-A-1", "bio"),
            ("B I O", "bio"),
            ("B-PER M-PER E-PER S-PER O", "bmes"),
            ("B-PER I-PER E-PER O", "bmes"),
            ("S-PER", "bmes"),
            ("B M E S", "bmes"),
            ("B E S", "bmes"),
            ("M S", "none"),
            ("B M S", "none"),
            ("I O", "none"),
            ("NOUN VERB X", "none"),
            ("O", "none"),
            ("", "none"),
            ("B-PER I-PER PER", "none"),
            ("B-PER I", "none"),
            ("B- I- O", "none"),
        ],
    )
    def test_told_by_the_labels(self, labels, scheme):
        assert scheme_of(iter(labels.split() * 2)) == scheme

    @pytest.mark.parametrize(
        ("scheme", "labels", "found"),
        [
            ("bio", "", []),
            ("bio", "O O", []),
            ("bio", "B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
            ("bio", "B-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
            ("bio", "O I-X I-X", [("X", 1, 3)]),
            ("bio", "B-X I-Y I-Y I-X", [("X", 0, 1), ("Y", 1, 3), ("X", 3, 4)]),
            ("bio", "B-A-B I-A-B I-A", [("A-B", 0, 2), ("A", 2, 3)]),
            ("bio", "B I O I", [("", 0, 2), ("", 3, 4)]),
            ("bmes", "B-X M-X E-X S-Y O", [("X", 0, 3), ("Y", 3, 4)]),
            ("bmes", "B-X I-X I-X E-X", [("X", 0, 4)]),
            ("bmes", "S-X S-X", [("X", 0, 1), ("X", 1, 2)]),
            ("bmes", "B-X E-X E-X", [("X", 0, 2), ("X", 2, 3)]),
            ("bmes", "E-X M-X E-X", [("X", 0, 1), ("X", 1, 3)]),
            ("bmes", "S-X M-X O E-Y", [("X", 0, 1), ("X", 1, 2), ("Y", 3, 4)]),
            ("bmes", "B-X O B-X S-X", [("X", 0, 1), ("X", 2, 3), ("X", 3, 4)]),
            ("bmes", "B-X M-Y E-Y", [("X", 0, 1), ("Y", 1, 3)]),
            ("bmes", "B M E S B E", [("", 0, 3), ("", 3, 4), ("", 4, 6)]),
            ("none", "B-X NOUN", []),
        ],
    )
    def test_spans(self, scheme, labels, found):
        assert spans(labels.split(), scheme) == found

    @settings(max_examples=50)
    @given(st.lists(st.sampled_from(["O", "B-X", "I-X", "M-Y", "E-X", "E-Y", "S-Y"]), max_size=12))
    def test_spans_cover_all_but_o(self, labels):
        covered = [index for _, start, end in spans(labels, "bmes") for index in range(start, end)]
        assert covered == [index for index, label in enumerate(labels) if label != "O"]
        for kind, start, end in spans(labels, "bmes"):
            assert {label.partition("-")[2] for label in labels[start:end]} == {kind}

    @pytest.mark.parametrize(
        ("scheme", "labels", "parts"),
        [
            ("auto", "O B-X I-X B_X", [":4: the label 'B_X' does not go with 'B-X' at", ":2", "O, and B, I, M, E, S", '"none"']),
            ("auto", "O X B-X", [":3: the label 'B-X' does not go with 'X' at", ":2"]),
            ("auto", "B-X B-", [":2: the label 'B-' does not"]),
            ("auto", "B-X B", [":2: the label 'B' does not"]),
            ("auto", "B-X L-X", [":2: the label 'L-X' does not"]),
            ("bio", "B-X E-X", [":2: the label 'E-X' is not one of data.scheme = 'bio'", "O, and B, I each"]),
            ("bio", "O PER", [":2: the label 'PER' is not one of"]),
            ("bio", "0 B-X", [":1: the label '0' is not one of"]),
            ("bio", "O b-x", [":2: the label 'b-x' is not one of"]),
            ("bio", "O B-X I", [":3: the label 'I' does not go with 'B-X' at"]),
            ("bmes", "O U-X", [":2: the label 'U-X' is not one of data.scheme = 'bmes'"]),
        ],
    )
    def test_malformed_labels(self, tmp_path, scheme, labels, parts):
        write(tmp_path / "t.bio", "".join(f"w\t{label}\n" for label in labels.split()))
        message = error(sentences, tmp_path, "t.bio", scheme=scheme)
        assert message.startswith(f"{tmp_path}/t.bio:")
        assert [part for part in parts if part not in message] == []
        assert len(sentences(tmp_path, "t.bio", scheme="none")[0].labels) == len(labels.split())

    @pytest.mark.parametrize(
        ("scheme", "labels"),
        [("auto", "NOUN M S"), ("auto", "B M E S"), ("bio", "B I O"), ("bmes", "B-X E-X O S-Y"), ("bio", "O")],
    )
    def test_good_labels(self, tmp_path, scheme, labels):
        write(tmp_path / "t.bio", "".join(f"w\t{label}\n" for label in labels.split()))
        assert sentences(tmp_path, "t.bio", scheme=scheme)[0].labels == tuple(labels.split())


def lines_of(kind: str, count: int) -> bytes:
    word = "word" * 250
    row = {"tsv": f"{word}\tlabel\n", "csv": f'"{word}\n",label\n', "jsonl": f'["{word}", "label"]\n'}
    return row.get(kind, f"(2 (2 {word}) (2 more))\n").encode() * count


class TestMemory:
    @pytest.mark.parametrize("name", ["t.tsv.gz", "t.csv.gz", "t.jsonl.gz", "t.txt.gz"])
    def test_a_file_is_not_held_whole(self, tmp_path, name):
        content = lines_of(name.split(".")[1], 3_000)
        write(tmp_path / name, content)
        tracemalloc.start()
        assert sum(1 for _ in read_examples([name], NUMBERED, lambda name: tmp_path / name)) == 3_000
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < len(content) / 5

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    @pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
    def test_rows_are_read_when_they_are_asked_for(self, tmp_path, kind):
        """A pipe that is never closed: a reader that wanted the end of the file would wait for ever."""
        name = f"endless.{kind}"
        os.mkfifo(tmp_path / name)
        end = os.open(tmp_path / name, os.O_RDWR)
        try:
            os.write(end, lines_of(kind, 3))
            found = read_examples([name], NUMBERED, lambda name: tmp_path / name)
            assert [example.label for example in itertools.islice(found, 2)] == ["label", "label"]
            found.close()
        finally:
            os.close(end)


FOLDER = os.environ.get("GLASSFORMER_DATA", "")
SICK = LabelData(columns=("sentence_A", "sentence_B", "entailment_judgment"))
CHNSENTICORP = LabelData(columns=("text_a", "label"))


@pytest.mark.skipif(not FOLDER, reason="GLASSFORMER_DATA names no folder of corpora")
@pytest.mark.parametrize(
    ("read", "data", "spec", "count"),
    [
        (read_texts, TextData(columns=(4,)), "tang-poems/tang_regular_forms.tsv.gz", 38_873),
        (read_texts, TextData(documents="file"), "wikitext2/train.txt.gz", 1),
        (read_texts, TextData(), "wikitext2/train.txt.gz", 23_767),
        (read_examples, LabelData(), "sst/train.txt", 8544),
        (read_examples, LabelData(), "sst/dev.txt", 1101),
        (read_examples, LabelData(relabel=("0=bad", "1=bad", "2=", "3=good", "4=good")), "sst/dev.txt", 872),
        (read_examples, CHNSENTICORP, "chnsenticorp/train.tsv", 9600),
        (read_examples, CHNSENTICORP, "chnsenticorp/dev.tsv", 1200),
        (read_examples, NUMBERED, "clinc150/data_full.json#train", 15_000),
        (read_examples, NUMBERED, "clinc150/data_full.json#val", 3000),
        (read_examples, NUMBERED, "clinc150/data_full.json#test,oos_test", 5500),
        (read_examples, SICK, "sick/SICK_train.txt", 4500),
        (read_examples, SICK, "sick/SICK_trial.txt", 500),
        (read_sentences, TagData(), "ud-en-ewt/en_ewt-ud-train.conllu.gz", 12_544),
        (read_sentences, TagData(), "ud-en-ewt/en_ewt-ud-dev.conllu.gz", 2001),
        (read_sentences, TagData(columns=(2, 3), scheme="bio"), "uner-zh-gsd/zh_gsd-ud-train.iob2", 3997),
        (read_sentences, TagData(columns=(2, 3)), "uner-zh-gsd/zh_gsd-ud-dev.iob2", 500),
    ],
)
def test_published_corpora(read, data, spec, count):
    path = Path(FOLDER).expanduser() / spec.partition("#")[0]
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    assert sum(1 for _ in read([spec], data, lambda name: Path(FOLDER).expanduser() / name)) == count


@pytest.mark.skipif(not FOLDER, reason="GLASSFORMER_DATA names no folder of corpora")
def test_a_treebank_is_put_together_as_it_was_written():
    path = Path(FOLDER).expanduser() / "ud-en-ewt/en_ewt-ud-dev.conllu.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    lines = [line.removeprefix("# text = ") for line in corpus.read_lines(path) if line.startswith("# text = ")]
    assert [written(sentence) for sentence in read_sentences([path.name], TagData(), lambda name: path)] == lines
