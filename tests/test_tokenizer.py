"""Text and pieces: exact round trips, spans, display, sampling, and files."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers as hf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers

from glassformer.errors import UserError
from glassformer.options import TokenizerOptions
from glassformer.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Piece, Tokenizer

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "A quick reader reads quickly; the reading is quick.",
    "How many readers read 42 books in 2025?",
    "机器学习很有趣。",
    "学习机器翻译，机器很忙。",
    "好久不见！你好，世界。",
    "hello world, hello 世界 👋",
] * 5
TAGS = ["<2en>", "<2zh>"]
EXACT = ["bpe", "unigram", "character"]
KINDS = [*EXACT, "word"]
HARD = [
    "",
    " ",
    "  two  spaces ",
    "\ttab\r\nnewline\n\n",
    "\0nul\0",
    "<bos> <2en>hello</2en> <unk>",
    "<0x41><0xE4>",
    "a▁b ▁ Ġc",
    "龘龘靐 seldom 學習",
    "👨‍👩‍👧‍👦👍🏽 e\u0301 \u202eabc\ufeff",
    "\ufffd \U0010ffff İSTANBUL ΣΑΣ",
]


def make(kind: str = "bpe", vocabulary: int = 420, **options) -> Tokenizer:
    return Tokenizer.train(LINES, TokenizerOptions(kind=kind, vocabulary=vocabulary, **options), TAGS)


TRAINED = {(kind, han): make(kind, split_han=han) for kind in KINDS for han in (False, True)}
LOWER = {kind: make(kind, lowercase=True) for kind in KINDS}
exact = pytest.mark.parametrize("tokenizer", [TRAINED[kind, han] for kind in EXACT for han in (False, True)])
every = pytest.mark.parametrize("tokenizer", [*TRAINED.values(), *LOWER.values()])
bpe = pytest.mark.parametrize("tokenizer", [TRAINED["bpe", False], TRAINED["bpe", True]])
texts = st.text(max_size=40) | st.lists(st.sampled_from([*HARD, *LINES[:7], *SPECIALS, *TAGS, " ", "學"]), max_size=5).map(
    "".join
)


def hard(test):
    for text in HARD:
        test = example(text=text)(test)
    return settings(max_examples=40, deadline=None)(given(text=texts)(test))


@exact
@hard
def test_round_trip_is_exact(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", EXACT)
@hard
def test_lowercase_round_trip_is_lowercase(kind, text):
    assert LOWER[kind].decode(LOWER[kind].encode(text)) == normalizers.Lowercase().normalize_str(text)


@every
@hard
def test_special_tokens_in_a_text_are_plain_text(tokenizer, text):
    reserved = {PAD, BOS, EOS, *map(tokenizer.tag, TAGS)}
    assert not reserved & set(tokenizer.encode(text))


@every
@hard
def test_encode_batch_and_pieces_agree(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.encode_batch([text, "x"])[0] == ids == [piece.id for piece in tokenizer.pieces(text)]


@exact
@hard
def test_decode_agrees_with_the_library(tokenizer, text):
    ids = [BOS, *tokenizer.encode(text), EOS]
    assert tokenizer.decode(ids) == tokenizer._rust.decode(ids)


@every
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_ids_decode_and_spell(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=30))
    assert isinstance(tokenizer.decode(ids), str)
    assert len(tokenizer.spell(ids)) == len(ids)


def test_words_join_with_spaces():
    tokenizer = TRAINED["word", False]
    assert tokenizer.decode(tokenizer.encode("hello \t fox\nquick ")) == "hello fox quick"
    assert tokenizer.encode("hello zyzzyva") == [tokenizer.encode("hello")[0], UNK]
    assert tokenizer.spell(tokenizer.encode("hello zyzzyva")) == ["hello", "<unk>"]


def test_words_that_look_like_byte_pieces_are_words():
    tokenizer = Tokenizer.train(["<0x41> is a byte"], TokenizerOptions(kind="word", vocabulary=16))
    assert tokenizer.decode(tokenizer.encode("a byte is <0x41>")) == "a byte is <0x41>"


def test_words_are_kept_by_frequency():
    tokenizer = Tokenizer.train(["c a b a", "b a <unk>"], TokenizerOptions(kind="word", vocabulary=16))
    assert [tokenizer.spell([id])[0] for id in range(tokenizer.size)] == [*SPECIALS, "a", "b", "c"]
    tokenizer = Tokenizer.train([f"{number:03} many" for number in range(99)], TokenizerOptions(kind="word", vocabulary=16))
    assert tokenizer.size == 16 and tokenizer.encode("many 010 011") == [4, 15, UNK]


@exact
@hard
def test_spans_cover_the_text_without_gaps(tokenizer, text):
    reached, previous = 0, (0, 0)
    for piece in tokenizer.pieces(text):
        span = (piece.start, piece.end)
        # A piece goes on where the last one ended, unless both hold bytes of one character.
        assert piece.start == reached or span == previous or piece.start == reached - 1
        assert piece.text and piece.text in text[piece.start : piece.end]
        reached, previous = piece.end, span
    assert reached == len(text)


@pytest.mark.parametrize("kind", EXACT)
def test_bytes_of_one_character_share_its_span(kind):
    spans = [(piece.text, piece.start, piece.end) for piece in TRAINED[kind, True].pieces("a靐𰻝b")]
    assert spans == [("a", 0, 1), *[("靐", 1, 2)] * 3, *[("𰻝", 2, 3)] * 4, ("b", 3, 4)]


def test_pieces_show_words_without_the_space_before():
    tokenizer = TRAINED["bpe", False]
    hello = tokenizer.pieces("x hello ")[1]
    assert hello == Piece(hello.id, "hello", 1, 7)
    assert tokenizer.pieces("x hello ")[-1].text == " "


@pytest.mark.parametrize("kind", KINDS)
def test_spans_of_lowercased_text_are_of_the_original(kind):
    assert [(p.text, p.start, p.end) for p in LOWER[kind].pieces("HELLO World")][-1][2] == 11
    assert "".join(piece.text for piece in LOWER[kind].pieces("HELLO World")).replace(" ", "") == "HELLOWorld"


@exact
@hard
def test_spelling_holds_the_text_and_no_broken_characters(tokenizer, text):
    shown = tokenizer.spell(tokenizer.encode(text))
    assert "".join(shown).count("\ufffd") == text.count("\ufffd")
    assert "".join(shown).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("kind", EXACT)
def test_spelling_groups_bytes_at_the_first(kind):
    tokenizer = TRAINED[kind, True]
    ids = [BOS, *tokenizer.encode("学靐👨🏽好"), EOS]
    shown = tokenizer.spell(ids)
    assert shown[:6] == ["<bos>", "学", "靐", "", "", "👨"]
    assert [text for text in shown[5:] if text] == ["👨", "🏽", "好", "<eos>"]
    assert len(shown) > 10


def test_spelling_of_broken_bytes():
    tokenizer = TRAINED["bpe", True]
    first, second, third = tokenizer.encode("靐")
    letter = tokenizer.encode("x")[0]
    assert tokenizer.spell([first, second, letter, second, first]) == ["\ufffd", "", "x", "\ufffd", "\ufffd"]
    assert tokenizer.spell([first, first, EOS, second, third]) == ["\ufffd", "靐", "<eos>", "", ""]
    assert tokenizer.spell([]) == []


def test_half_a_surrogate_pair_is_replaced():
    tokenizer = TRAINED["bpe", False]
    assert tokenizer.decode(tokenizer.encode("a\ud83db")) == "a\ufffdb"
    assert [(p.start, p.end) for p in tokenizer.pieces("a\ud83d")] == [(0, 1), *[(1, 2)] * 3]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_split_han_makes_each_character_a_piece(kind):
    ids = TRAINED[kind, True].encode("机器学习，很有趣。")
    assert TRAINED[kind, True].spell(ids) == list("机器学习，很有趣。")
    assert len(TRAINED[kind, False].encode("机器学习很有趣。")) < 8


@bpe
@hard
def test_sampling_keeps_the_text_and_whole_characters(tokenizer, text):
    ids = [tokenizer.tag("<2en>"), *tokenizer.encode(text), EOS]
    for dropout in (0.1, 0.5, 1.0):
        sampled = tokenizer.sample(ids, dropout, random.Random(1))
        assert tokenizer.decode(sampled) == text
        assert (sampled[0], sampled[-1]) == (ids[0], ids[-1])
        assert len(sampled) - len(ids) <= len(text)
    assert tokenizer.sample(ids, 0.0, random.Random(1)) == ids


def test_sampling_never_splits_a_character():
    tokenizer = TRAINED["bpe", False]
    ids = tokenizer.encode("机器学习 reading")
    assert "" not in tokenizer.spell(ids)
    sampled = tokenizer.sample(ids, 1.0, random.Random(1))
    assert "" not in tokenizer.spell(sampled)
    assert tokenizer.spell(sampled)[-8:] == list(" reading")


def test_sampling_splits_with_the_probability_asked():
    tokenizer = TRAINED["bpe", False]
    rng = random.Random(1)
    piece = tokenizer.encode(" quick")
    assert len(piece) == 1
    splits = sum(len(tokenizer.sample(piece * 10, 0.2, rng)) > 10 for _ in range(2000))
    assert abs(splits / 2000 - (1 - 0.8**10)) < 0.03
    kept = sum(tokenizer.sample(piece * 10, 0.2, rng).count(piece[0]) for _ in range(2000))
    assert abs(kept / 20_000 - 0.8) < 0.02


@pytest.mark.parametrize("kind", ["unigram", "word", "character"])
def test_kinds_without_merges_are_not_sampled(kind):
    ids = TRAINED[kind, False].encode(LINES[0])
    assert TRAINED[kind, False].sample(ids, 0.9, random.Random(1)) == ids


def test_special_ids_come_first():
    for tokenizer in TRAINED.values():
        assert tokenizer.spell(range(6)) == [*SPECIALS, *TAGS]
        assert tokenizer.tags == TAGS
        assert [tokenizer.tag(name) for name in ("<pad>", "<bos>", "<eos>", "<unk>", "<2zh>")] == [PAD, BOS, EOS, UNK, 5]
        assert tokenizer.decode(range(6)) == ""


def test_the_vocabulary_is_no_larger_than_asked():
    assert {kind: make(kind, vocabulary=300).size for kind in EXACT} == {"bpe": 300, "unigram": 300, "character": 300}
    for kind in EXACT:
        bytes_alone = make(kind, vocabulary=262)
        assert bytes_alone.size == 262
        assert bytes_alone.decode(bytes_alone.encode("A 世界")) == "A 世界"
        assert len(bytes_alone.encode("A 世界")) == 8


@every
def test_saved_and_loaded_are_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.size, loaded.tags) == (tokenizer.size, tokenizer.tags)
    for text in [*HARD, *LINES]:
        ids = tokenizer.encode(text)
        assert loaded.encode(text) == ids
        assert loaded.decode(ids) == tokenizer.decode(ids)
        assert loaded.sample(ids, 0.5, random.Random(1)) == tokenizer.sample(ids, 0.5, random.Random(1))


def test_training_is_repeatable():
    # In other processes, since hashes are seeded once in each.
    script = "import test_tokenizer as t; print(*(t.make(kind)._rust.to_str() for kind in t.KINDS), sep='\\n')"
    runs = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parent,
            env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {"".join(make(kind)._rust.to_str() + "\n" for kind in KINDS).encode()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], ["", "  \n"], iter(())])
def test_an_empty_corpus_is_refused(kind, lines):
    with pytest.raises(UserError, match="empty"):
        Tokenizer.train(lines, TokenizerOptions(kind=kind))


@pytest.mark.parametrize("kind", EXACT)
def test_a_vocabulary_without_room_for_bytes_is_refused(kind):
    with pytest.raises(UserError, match="at least 262"):
        make(kind, vocabulary=261)


@pytest.mark.parametrize("tags", [["2en"], ["<2 en>"], ["<bos>"], ["<2en>", "<2en>"], ["<->"], ["<>"]])
def test_a_tag_is_a_new_word_in_angle_brackets(tags):
    with pytest.raises(UserError, match="<2en>"):
        Tokenizer.train(LINES, TokenizerOptions(), tags)


def test_a_missing_tag_lists_those_there_are():
    with pytest.raises(UserError, match=r"<2fr>.*<2en>, <2zh>"):
        TRAINED["bpe", False].tag("<2fr>")


def test_files_that_are_no_tokenizer_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match="There is no tokenizer"):
        Tokenizer.load(path)
    for content in (b"", b"hello", b"{}", b"[1]", b"\xff\xfe", json.dumps({"model": {"type": "BPE"}}).encode()):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a tokenizer file"):
            Tokenizer.load(path)
    with pytest.raises(UserError, match="not a tokenizer file"):
        Tokenizer.load(tmp_path)
    plain = hf.Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}, unk_token="<unk>"))
    plain.add_special_tokens(["<pad>", "<s>"])
    plain.save(str(path))
    with pytest.raises(UserError, match="lacks the special tokens <bos> <eos> <unk>; it has <pad> <s>"):
        Tokenizer.load(path)
    assert Tokenizer.load(path, TokenizerOptions(bos="<s>", eos="", unk="")).bos == 1
    plain = hf.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    plain.save(str(path))
    with pytest.raises(UserError, match="lacks the special tokens <pad> <bos> <eos> <unk>; it has none"):
        Tokenizer.load(path)


class TestRoles:
    """Which special token does what: by name, since other libraries have other names and other ids."""

    def test_ours(self):
        for tokenizer in TRAINED.values():
            roles = tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk
            assert roles == (PAD, BOS, EOS, UNK) == (0, 1, 2, 3) and tokenizer.mask == -1

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_mask_stands_before_the_tags_and_is_none_of_them(self, kind, tmp_path):
        options = TokenizerOptions(kind=kind, vocabulary=420, mask="<mask>")
        tokenizer = Tokenizer.train(LINES, options, TAGS)
        assert (tokenizer.mask, tokenizer.tags) == (4, TAGS)
        assert tokenizer.spell(range(7)) == [*SPECIALS, "<mask>", *TAGS] and tokenizer.decode(range(7)) == ""
        assert 4 not in tokenizer.encode("a <mask> b<mask>")  # typed, it is text
        tokenizer.save(tmp_path / "tokenizer.json")
        assert Tokenizer.load(tmp_path / "tokenizer.json", options).mask == 4
        with pytest.raises(UserError, match=r"lacks the special tokens \[MASK\]; it has <pad> <bos> <eos> <unk> <mask>"):
            Tokenizer.load(tmp_path / "tokenizer.json", TokenizerOptions(mask="[MASK]"))

    @pytest.mark.parametrize("mask", ["mask", "[MASK]", "<ma sk>", "<pad>", "<2en>", "<>"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_mask_is_a_new_word_in_angle_brackets(self, kind, mask):
        """As a tag is: any other might be a word of the text, and then be read as the mask."""
        with pytest.raises(UserError, match=r"tokenizer\.mask.*<mask>"):
            make(kind, mask=mask)

    def test_a_mask_takes_room_too(self):
        with pytest.raises(UserError, match="at least 263: 7 special tokens"):
            make(vocabulary=262, mask="<mask>")

    def test_an_imported_vocabulary_has_its_own(self, tmp_path):
        """Other names at other ids, some not there at all, gaps in the ids, and more rows in the model than pieces."""
        names = {"[PAD]": 5, "[CLS]": 7, "[SEP]": 8, "[UNK]": 9, "[MASK]": 10, "hello": 0, "##lo": 12}
        theirs = hf.Tokenizer(models.WordPiece(names, unk_token="[UNK]"))
        theirs.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])
        theirs.save(str(tmp_path / "tokenizer.json"))
        roles = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
        options = TokenizerOptions(kind="imported", vocabulary=32, **roles)
        loaded = Tokenizer.load(tmp_path / "tokenizer.json", options)
        assert (loaded.pad, loaded.bos, loaded.eos, loaded.unk, loaded.mask) == (5, 7, 8, 9, 10)
        assert (loaded.size, loaded.tags) == (32, [])
        assert loaded.encode("hellolo") == [0, 12] and loaded.decode([7, 0, 12, 0, 8, 31]) == "hellolo hello"
        assert loaded.spell([7, 0, 12, 31, 8]) == ["[CLS]", "hello", "lo", "", "[SEP]"]
        fewer = Tokenizer.load(tmp_path / "tokenizer.json", TokenizerOptions(kind="imported", **{**roles, "bos": "", "mask": ""}))
        assert (fewer.bos, fewer.mask, fewer.size) == (-1, -1, 8000)
        assert fewer.tags == ["[CLS]", "[MASK]"]


@pytest.mark.parametrize(
    ("how", "wanted"), [("split", ["it's", "3.5", ",", "(", "yes", ")", "?"]), ("drop", ["it's", "3.5", "yes"])]
)
def test_marks_at_the_edge_of_a_word(how, wanted):
    text = "it's 3.5, (yes)?"
    tokenizer = Tokenizer.train([text], TokenizerOptions(kind="word", vocabulary=32, punctuation=how))
    pieces = tokenizer.pieces(text)
    assert [piece.text for piece in pieces] == wanted
    assert all(text[piece.start : piece.end] == piece.text and piece.id != tokenizer.unk for piece in pieces)
