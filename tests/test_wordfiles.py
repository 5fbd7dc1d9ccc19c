"""Files of word vectors: what is written is read again, also by another program's reader, and what is wrong is told."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from command import glassformer
from torch import Tensor

import glassformer as gf
from glassformer.errors import UserError
from glassformer.interop.wordfiles import FORMATS, read_vectors, write_vectors

WORDS = ["the", "王", "naïve", "a-b", "𠮷", "</s>", "<unk>", "1.5"]
VECTORS = torch.randn(len(WORDS), 5, generator=torch.Generator().manual_seed(1))


def written(folder: Path, to: str) -> Path:
    path = folder / f"vectors.{to}"
    with open(path, "wb") as file:
        write_vectors(file, WORDS, VECTORS, to)
    return path


def by_hand(form: str, words: list[str], vectors: Tensor) -> bytes:
    """Another writer: word2vec.c's layout (a space after each number, or a line end after raw ones), fastText's and GloVe's."""
    head = f"{len(words)} {vectors.size(1)}\n".encode()
    rows = [(word.encode(), vector.tolist()) for word, vector in zip(words, vectors, strict=True)]
    if form == "binary":
        return head + b"".join(word + b" " + struct.pack(f"<{len(v)}f", *v) + b"\n" for word, v in rows)
    if form == "binary without line ends":
        return head + b"".join(word + b" " + struct.pack(f"<{len(v)}f", *v) for word, v in rows)
    text = b"".join(word + b" " + b"".join(f"{x!r} ".encode() for x in v) + b"\n" for word, v in rows)
    return text.replace(b" \n", b"\n") if form == "glove" else head + text


class TestRoundTrip:
    @pytest.mark.parametrize("to", FORMATS)
    def test_exact(self, tmp_path, to):
        found = read_vectors(written(tmp_path, to))
        assert found.words == WORDS and found.vectors.equal(VECTORS)

    @pytest.mark.parametrize("form", ["binary", "binary without line ends", "text", "glove"])
    @pytest.mark.parametrize("packed", [False, True])
    def test_of_another_writer(self, tmp_path, form, packed):
        data = by_hand(form, WORDS, VECTORS)
        path = tmp_path / "anything.xyz"  # the name says nothing
        path.write_bytes(gzip.compress(data) if packed else data)
        found = read_vectors(path)
        assert found.words == WORDS and found.vectors.equal(VECTORS)

    @pytest.mark.parametrize("binary", [False, True])
    def test_gensim_reads_and_writes_the_same(self, tmp_path, binary):
        models = pytest.importorskip("gensim.models")
        ours = written(tmp_path, "word2vec-binary" if binary else "word2vec")
        theirs = models.KeyedVectors.load_word2vec_format(str(ours), binary=binary)
        assert theirs.index_to_key == WORDS and np.array_equal(theirs.vectors, VECTORS.numpy())
        theirs.save_word2vec_format(str(tmp_path / "back"), binary=binary)
        found = read_vectors(tmp_path / "back")
        assert found.words == WORDS
        torch.testing.assert_close(found.vectors, VECTORS, atol=1e-6, rtol=1e-6)

    def test_gensim_reads_our_glove(self, tmp_path):
        models = pytest.importorskip("gensim.models")
        theirs = models.KeyedVectors.load_word2vec_format(str(written(tmp_path, "glove")), binary=False, no_header=True)
        assert theirs.index_to_key == WORDS and np.array_equal(theirs.vectors, VECTORS.numpy())

    def test_a_word_with_a_space(self, tmp_path):
        (tmp_path / "g.txt").write_text("a 1 2\n. . . 3 4\n", encoding="utf-8")
        assert read_vectors(tmp_path / "g.txt").words == ["a", ". . ."]

    def test_a_word_twice_counts_once(self, tmp_path):
        (tmp_path / "g.txt").write_text("a 1 2\na 3 4\nb 5 6\n", encoding="utf-8")
        found = read_vectors(tmp_path / "g.txt")
        assert (found.words, found.twice) == (["a", "b"], 1) and found.vectors[0].tolist() == [1, 2]

    @pytest.mark.parametrize("form", ["binary", "binary without line ends", "text", "glove"])
    def test_a_byte_order_mark_and_an_empty_line_at_the_end(self, tmp_path, form):
        (tmp_path / "v").write_bytes(b"\xef\xbb\xbf" + by_hand(form, WORDS, VECTORS) + b"\n\r\n")
        found = read_vectors(tmp_path / "v")
        assert found.words == WORDS and found.vectors.equal(VECTORS)

    @pytest.mark.parametrize("to", FORMATS)
    def test_only_the_first(self, tmp_path, to):
        assert read_vectors(written(tmp_path, to), 3).words == WORDS[:3]

    def test_many_rows(self, tmp_path):
        words, vectors = [f"w{i}" for i in range(10_000)], torch.randn(10_000, 3)
        with open(tmp_path / "v", "wb") as file:
            write_vectors(file, words, vectors, "word2vec-binary")
        found = read_vectors(tmp_path / "v")
        assert found.words == words and found.vectors.equal(vectors)


BAD: dict[str, tuple[bytes, str]] = {
    "a short row": (b"3 2\na 1 2\nb 1\nc 1 2\n", r"bad:3: found 1 number after the word; the other rows have 2"),
    "a short row without a header": (b"a 1 2\nb 3 4\nc 5\n", r"bad:3: found 1 number after"),
    "a long row": (b"2 2\na 1 2\nb 1 2 3\n", r"bad:3: found more than 2 numbers"),
    "a row of no numbers": (b"a 1 2\nb one two\n", r"bad:2: not a row of numbers"),
    "a number that is not finite": (b"a 1 2\nb nan 2\n", r"bad:2: the vector of 'b' has a number that is not finite"),
    "one in the first row after a header": (
        b"2 3\na nan 2 3\nb 1 2 3\n",
        r"bad:2: the vector of 'a' has a number that is not finite",
    ),
    "too few rows": (b"3 2\na 1 2\nb 1 2\n\n", r"says 3 words, but it has 2"),
    "an empty line between rows": (b"3 2\na 1 2\n\nb 1 2\n", r"bad:3: the line is empty, and more rows follow"),
    "a number too large": (b"a 1 2\nb 1e39 2\n", r"bad:2: the vector of 'b' has a number that is not finite, or too large"),
    "a binary with more than announced": (
        b"1 3\nab " + struct.pack("<3f", 1, 2, 3) + b"\ncd " + struct.pack("<3f", 1, 2, 3) + b"\n",
        r"says 1 word of width 3, but after the last of them 17 bytes more follow",
    ),
    "fewer rows than announced": (b"3 2\na 1.5 2\nb 1.5 2\n", r"says 3 words, but it has 2"),
    "more rows than announced": (b"1 2\na 1 2\nb 1 2\n", r"says 1 word, but there are more"),
    "an absurd count": (b"999999999999 100\na 1 2\n", r"says 999,999,999,999 words .* needs at least"),
    "an absurd width": (b"1 999999999999\na 1 2\n", r"widths of 1 to 65,536"),
    "no words": (b"0 5\n", r"says 0 words"),
    "a binary that is cut short": (
        b"2 3\nab " + struct.pack("<3f", 1, 2, 3) + b"\ncdefghijklmnopqr " + b"\x00" * 5,
        r"word 2: its vector has 1 number instead",
    ),
    "a binary without an end": (b"1 2\n" + b"\xff\x00" * 6000, r"is longer than|not valid UTF-8|ends here"),
    "not UTF-8": (b"\xff\xfe 1 2\n", r"bad:1: the word is not valid UTF-8"),
    "an empty word": (b"a 1 2\n 3 4\n", r"bad:2: (the word is empty|found)"),
    "an empty file": (b"", r"bad:1: not a file of word vectors"),
    "prose": (b"Once upon a time\nthere was\n", r"bad:1: not a row of numbers"),
    "a word alone": (b"hello\n", r"bad:1: not a file of word vectors"),
    "a pickle": (b"\x80\x04\x95\x10", r"is a pickle"),
    "a gzip that is cut off": (gzip.compress(b"a 1 2\n" * 5000)[:-20], r"broken or cut off"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files(tmp_path, what):
    data, message = BAD[what]
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "bad")
    result = glassformer("vectors", "import", tmp_path / "bad", "--out", tmp_path / "model")
    assert result.code == 2 and "Traceback" not in result.err and not (tmp_path / "model").exists()


class TestCommands:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        path = written(tmp_path, "glove")
        result = glassformer("vectors", "import", path, "--out", tmp_path / "model")
        assert result.code == 0 and result.out == "" and "8 words, width 5" in result.err
        return tmp_path / "model"

    def test_import_then_use(self, model):
        assert len(glassformer("vectors", "neighbours", "王", "--model", model).out.splitlines()) == 7
        assert gf.load(model).similarity("the", "王") == pytest.approx(
            torch.nn.functional.cosine_similarity(VECTORS[0], VECTORS[1], dim=0).item(), abs=1e-6
        )
        assert "one vector" in glassformer("vectors", "context", "the", "--in", "the the", "--model", model).err

    @pytest.mark.parametrize("to", FORMATS)
    def test_export_is_what_was_imported(self, model, tmp_path, to):
        result = glassformer("vectors", "export", model, "--out", tmp_path / "out", "--to", to)
        assert result.code == 0 and result.out == ""
        found = read_vectors(tmp_path / "out")
        assert found.words == WORDS and found.vectors.equal(VECTORS)

    def test_the_embedding_of_another_model(self, tmp_path):
        result = glassformer("vectors", "export", "shakespeare", "--out", tmp_path / "out")
        assert result.code == 0 and "were left out" in result.err
        assert "e" in read_vectors(tmp_path / "out").words

    def test_nothing_is_overwritten_unasked(self, model, tmp_path):
        (tmp_path / "out").write_text("mine")
        again = glassformer("vectors", "export", model, "--out", tmp_path / "out")
        assert again.code == 2 and "--force" in again.err and (tmp_path / "out").read_text() == "mine"
        assert glassformer("vectors", "export", model, "--out", tmp_path / "out", "--force").code == 0
        assert "--force" in glassformer("vectors", "import", tmp_path / "out", "--out", model).err
        assert glassformer("vectors", "import", tmp_path / "out", "--out", model, "--force").code == 0

    @pytest.mark.filterwarnings("error::RuntimeWarning")
    def test_a_vector_of_zeros_is_near_nothing(self, tmp_path):
        (tmp_path / "v.txt").write_text("a 1 2\nnone 0 0\nb 2 1\nb 1 1\nhuge 2e38 3e38\nfaint 1e-30 2e-30\n", encoding="utf-8")
        (tmp_path / "t.tsv").write_text("a\tb\t9\na\tnone\t1\nb\thuge\t2\n", encoding="utf-8")
        made = glassformer("vectors", "import", tmp_path / "v.txt", "--out", tmp_path / "m")
        assert made.code == 0 and "1 row was left out: its word had been read before." in made.err
        near = glassformer("vectors", "neighbours", "a", "--model", tmp_path / "m").out.splitlines()
        assert near == ["1.0000\tfaint", "0.9923\thuge", "0.8000\tb"]
        for command in (("neighbours", "none"), ("similarity", "a", "none"), ("analogy", "a", "none", "b")):
            result = glassformer("vectors", *command, "--model", tmp_path / "m")
            assert result.code == 2 and "'none' is 0 in every place" in result.err
            assert ("cosine with any other is undefined" in result.err) == ("no word is near" not in result.err)
            assert ("undefined" in result.err) == (command[0] == "similarity")
        assert glassformer("vectors", "analogy", "a", "b", "b", "--model", tmp_path / "m").code == 0
        assert "2 of 3" in glassformer("vectors", "evaluate", tmp_path / "t.tsv", "--model", tmp_path / "m").out

    def test_mistakes(self, model, tmp_path):
        folder = glassformer("vectors", "import", model, "--out", tmp_path / "z")
        assert folder.code == 2 and "is a folder; word vectors are imported from a file" in folder.err
        assert "there are word2vec" in glassformer("vectors", "export", model, "--out", tmp_path / "x", "--to", "csv").err
        assert "There is no file" in glassformer("vectors", "import", tmp_path / "gone", "--out", tmp_path / "y").err
        assert "no folder" in glassformer("vectors", "export", model, "--out", tmp_path / "gone" / "x").err
        with pytest.raises(UserError, match="second matrix"):
            gf.load(model).trace("the")
