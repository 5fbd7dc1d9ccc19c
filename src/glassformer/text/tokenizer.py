"""Text ⇄ piece ids, on Hugging Face `tokenizers`.

Four kinds: byte-level BPE, unigram, words and characters. All but "word" are exact: `decode(encode(text)) == text` for every
string, since whatever was not seen in training is spelled in bytes. One table, the bytes of each piece, serves decoding and
display for every kind.
"""

import codecs
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path

import tokenizers as hf
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.errors import UserError
from glassformer.options import TokenizerOptions

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
TAG = r"<[^\s<>]*[^\W_][^\s<>]*>"  # a word in angle brackets

HAN = r"[\p{Han}\x{3000}-\x{303F}\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF20}\x{FF3B}-\x{FF40}\x{FF5B}-\x{FF65}]"  # and its punctuation
WORDS = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # a word takes the space before it along
BYTES = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}  # by the names `tokenizers` gives to byte pieces
LONGEST = 12  # characters in a unigram piece
COVERAGE = 0.9995  # share of the text whose characters are unigram pieces themselves, as in SentencePiece; the rest are bytes
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

OWN = TokenizerOptions()  # the names of the special tokens in a vocabulary of ours


@dataclass(frozen=True)
class Piece:
    """One token as a person sees it: `text` is what it covers, without the space before a word.

    The span [start, end) counts characters of the original string. The byte pieces of one character share its span.
    """

    id: int
    text: str
    start: int
    end: int


class Tokenizer:
    """A vocabulary with special tokens: `pad`, `bos`, `eos`, `unk` and `mask` are their ids (−1: it has none), `tags` the others.

    Our own begin with `<pad> <bos> <eos> <unk>` and then the tags, such as `<2en>`; an imported one has its own names for them.
    Special tokens exist as ids only: typed into a text, they are characters like any others.
    """

    def __init__(self, rust: hf.Tokenizer, options: TokenizerOptions = OWN):
        rust.encode_special_tokens = True  # special tokens in a text are plain text; not kept in the file, so set here
        rust.no_truncation()
        rust.no_padding()
        self._rust = rust
        self._specials = {token.content: id for id, token in sorted(rust.get_added_tokens_decoder().items()) if token.special}
        self._least = options.vocabulary if options.kind == "imported" else 0  # its model may have more rows than it has pieces
        self._roles = [options.pad, options.bos, options.eos, options.unk, options.mask]
        self.pad, self.bos, self.eos, self.unk, self.mask = (self._specials.get(name, -1) for name in self._roles)

    @classmethod
    def train(cls, lines: Iterable[str], options: TokenizerOptions, tags: Sequence[str] = ()) -> "Tokenizer":
        """Learn a vocabulary of at most `options.vocabulary` pieces; `tags` are further special tokens."""
        for tag in tags:
            if not re.fullmatch(TAG, tag) or tag in SPECIALS or tags.count(tag) > 1:
                raise UserError(f"A tag is a word in angle brackets, such as <2en>, given once; found {tag!r} in {list(tags)}.")
        if options.mask and (not re.fullmatch(TAG, options.mask) or options.mask in (*SPECIALS, *tags)):
            raise UserError(f"tokenizer.mask is {options.mask!r}; it must be a new word in angle brackets, such as <mask>.")
        specials = [*SPECIALS, *([options.mask] if options.mask else []), *tags]
        least = len(specials) + (1 if options.kind == "word" else 256)
        if options.vocabulary < least:
            needs = "a word" if options.kind == "word" else "the 256 bytes"
            raise UserError(
                f"tokenizer.vocabulary is {options.vocabulary}; kind {options.kind!r} needs at least {least}: "
                f"{len(specials)} special tokens and {needs}."
            )
        lines = _filled(lines)
        lower = normalizers.Lowercase()
        if options.lowercase:
            lines = map(lower.normalize_str, lines)
        rust = KINDS[options.kind](lines, options, specials)
        if options.lowercase:
            rust.normalizer = lower
        rust.add_special_tokens(specials)
        return cls(rust, options)

    @classmethod
    def of_words(cls, words: Sequence[str], options: TokenizerOptions) -> "Tokenizer":
        """A vocabulary of exactly these words, each its own piece, after the special tokens that the options name."""
        specials = [name for name in (options.pad, options.bos, options.eos, options.unk, options.mask) if name]
        rust = hf.Tokenizer(models.WordLevel({word: id for id, word in enumerate([*specials, *words])}, unk_token=SPECIALS[UNK]))
        rust.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
        rust.add_special_tokens(specials)
        return cls(rust, options)

    @classmethod
    def load(cls, path: Path, options: TokenizerOptions = OWN) -> "Tokenizer":
        try:
            rust = hf.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"There is no tokenizer {path}. Training writes it into the run folder as tokenizer.json.") from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `tokenizers` raises bare Exception for what it cannot parse, or panics
            raise UserError(f"{path} is not a tokenizer file: {error}") from None
        tokenizer = cls(rust, options)
        if missing := [name for name in tokenizer._roles if name and name not in tokenizer._specials]:
            found = " ".join(tokenizer._specials) or "none"
            raise UserError(f"The tokenizer {path} lacks the special tokens {' '.join(missing)}; it has {found}.")
        return tokenizer

    def save(self, path: Path) -> None:
        path.write_text(self._rust.to_str(pretty=True), encoding="utf-8")

    @property
    def size(self) -> int:
        return len(self._bytes)

    @property
    def tags(self) -> list[str]:
        return [name for name in self._specials if name not in self._roles]

    def tag(self, name: str) -> int:
        """The id of a special token."""
        if name not in self._specials:
            raise UserError(f"The tokenizer has no tag {name}; it has {', '.join(self.tags) or 'none'}.")
        return self._specials[name]

    def encode(self, text: str) -> list[int]:
        return self._rust.encode(_whole(text), add_special_tokens=False).ids

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        found = self._rust.encode_batch_fast([_whole(text) for text in texts], add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def pieces(self, text: str) -> list[Piece]:
        """The ids of `encode` with the characters they cover."""
        text = _whole(text)
        found = self._rust.encode(text, add_special_tokens=False)
        pieces: list[Piece] = []
        run = at = -1
        for id, (start, end) in zip(found.ids, found.offsets, strict=True):
            data = self._bytes[id]
            if len(data) == 1 and end - start > 1:
                # Unigram gives all bytes of a run of unseen characters the span of the run; go through it by character.
                at = start if start != run else min(at + _begins(data), end - 1)
                run, start, end = start, at, at + 1
            pieces.append(Piece(id, _shown(text[start:end]), start, end))
        return pieces

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids` without special tokens; bytes that make no character become U+FFFD."""
        text = b"".join([self._bytes[id] for id in ids]).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.spaced else text

    def bytes_of(self, id: int) -> bytes:
        return self._bytes[id]

    def names(self) -> list[str]:
        """What the vocabulary calls each id; all different, also where an imported one has gaps."""
        found = {id: name for name, id in self._rust.get_vocab().items()}
        return [found.get(id) or f"<unused {id}>" for id in range(self.size)]

    def spell_each(self) -> list[str]:
        """What to show for every id by itself."""
        names = {id: name for name, id in self._specials.items()}
        return [names.get(id) or _shown(data.decode("utf-8", "replace")) for id, data in enumerate(self._bytes)]

    def words(self) -> dict[str, int]:
        """Every piece that is text by itself, with its id; of two that read alike, that which begins a word."""
        found: dict[str, int] = {}
        for id, data in enumerate(self._bytes):
            if data and _is_utf8(data):
                text = _shown(data.decode())
                if text not in found or (data.startswith(b" ") and not self._bytes[found[text]].startswith(b" ")):
                    found[text] = id
        return found

    def spell(self, ids: Sequence[int]) -> list[str]:
        """What to show for each id: a character of several byte pieces stands at the first, the others are empty."""
        shown = [""] * len(ids)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        owner = 0  # the piece in which the unfinished character began
        for index, id in enumerate(ids):
            unfinished = decoder.getstate()[0]
            text = decoder.decode(self._bytes[id])
            if unfinished and text:
                shown[owner] += text[0]
            if text or not unfinished:
                owner = index
            shown[index] += text[1:] if unfinished else text
        if shown:
            shown[owner] += decoder.decode(b"", final=True)
        names = {id: name for name, id in self._specials.items()}
        return [names.get(id) or _shown(text) for id, text in zip(ids, shown, strict=True)]

    def sample(self, ids: Sequence[int], dropout: float, rng: random.Random) -> list[int]:
        """BPE-dropout on finished pieces: each falls with probability `dropout` into the two it was merged from, and they again.

        Characters stay whole and the text the same. Kinds without merges come back as they were.
        """
        if dropout <= 0 or not self._merged:
            return list(ids)
        # The number of pieces left alone before the next that falls is geometric: one random number each, not one per piece.
        scale = 1 / math.log1p(-dropout) if dropout < 1 else 0.0
        todo, done = list(reversed(ids)), []
        while (skip := math.log(1 - rng.random()) * scale) < len(todo):
            rest = len(todo) - int(skip)
            done += todo[: rest - 1 : -1]
            piece = todo[rest - 1]
            del todo[rest - 1 :]
            if piece in self._merged:
                todo += self._merged[piece]
            else:
                done.append(piece)
        return done + todo[::-1]

    @cached_property
    def spaced(self) -> bool:
        """Whether the space before the first word is understood, not written."""
        stripped = "Strip(" in repr(self._rust.decoder)
        return isinstance(self._rust.model, models.WordLevel | models.WordPiece) or self._underscored or stripped

    @cached_property
    def _underscored(self) -> bool:
        """Whether ▁ stands for a space, as in SentencePiece's vocabularies."""
        decoder = repr(self._rust.decoder)
        return "Metaspace" in decoder or "▁" in decoder

    @cached_property
    def _bytes(self) -> list[bytes]:
        """The UTF-8 bytes of each piece; none for special tokens."""
        byte_level = "ByteLevel" in repr(self._rust.decoder)
        added = self._rust.get_added_tokens_decoder()
        vocabulary = self._rust.get_vocab()
        table = [b""] * max(self._least, *(id + 1 for id in vocabulary.values()))  # an imported one may have gaps
        for piece, id in vocabulary.items():
            if piece in self._specials:
                continue
            if id in added:  # written as it is, whatever the others are
                table[id] = piece.encode()
            elif byte_level:
                table[id] = b"".join(bytes([BYTE_OF[symbol]]) if symbol in BYTE_OF else symbol.encode() for symbol in piece)
            elif isinstance(self._rust.model, models.WordPiece):
                table[id] = piece[2:].encode() if piece.startswith("##") else b" " + piece.encode()
            elif isinstance(self._rust.model, models.WordLevel):
                table[id] = b" " + piece.encode()
            else:
                table[id] = BYTES.get(piece) or (piece.replace("▁", " ") if self._underscored else piece).encode()
        return table

    @cached_property
    def _merged(self) -> dict[int, tuple[int, int]]:
        """The (right, left) parts of each piece that a merge made of whole characters."""
        ids = self._rust.get_vocab()
        parts: dict[int, tuple[int, int]] = {}
        for left, right in json.loads(self._rust.to_str())["model"].get("merges", []):
            if _is_utf8(self._bytes[ids[left]]) and _is_utf8(self._bytes[ids[right]]):
                parts.setdefault(ids[left + right], (ids[right], ids[left]))
        return parts


def _train_bpe(lines: Iterator[str], options: TokenizerOptions, specials: list[str]) -> hf.Tokenizer:
    rust = hf.Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.Sequence([*_han(options), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    rust.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocabulary,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(lines, trainer)
    return rust


def _train_unigram(lines: Iterator[str], options: TokenizerOptions, specials: list[str]) -> hf.Tokenizer:
    # Spaces stay spaces, where Metaspace would turn a "▁" in the text into one. WORDS parts "<" from the letters after it,
    # so that neither <bos> nor <0x41> in a text can be taken for the piece of that name.
    splitter = pre_tokenizers.Sequence([*_han(options), _isolate(WORDS)])
    words = _counted(lines, splitter)
    scores = _unigram_scores(words, options.vocabulary - len(specials) - len(BYTES))
    low = min(scores.values(), default=0.0)
    vocabulary = [*((name, low) for name in (*specials, *BYTES)), *scores.items()]
    rust = hf.Tokenizer(models.Unigram(vocabulary, unk_id=UNK, byte_fallback=True))
    rust.pre_tokenizer = splitter
    rust.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return rust


def _unigram_scores(words: Counter[str], room: int) -> dict[str, float]:
    """The log-probability of each of at most `room` pieces: many substrings, counted in the best segmentation and thinned out.

    Best segmentations give whole counts, so the result is the same each time; the trainer of `tokenizers` adds up fractions
    in the order of a random hash.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(start + LONGEST, len(word)) + 1):
                counts[word[start:end]] += count
    characters = _covering({piece: count for piece, count in counts.items() if len(piece) == 1})[:room]
    worth = {piece: count * len(piece) for piece, count in counts.items() if len(piece) > 1 and count > 1}
    kept = [*characters, *_frequent(worth, 10 * room)]
    while True:
        total = sum(counts[piece] or 0.5 for piece in kept)
        scores = {piece: math.log((counts[piece] or 0.5) / total) for piece in sorted(kept)}
        if len(kept) <= room:
            return scores
        model = hf.Tokenizer(models.Unigram([("<unk>", min(scores.values())), *scores.items()], unk_id=0))
        names = ["<unk>", *scores]
        counts = Counter()
        for found, count in zip(model.encode_batch_fast(list(words)), words.values(), strict=True):
            for id in found.ids:
                counts[names[id]] += count
        longer = {piece: counts[piece] for piece in kept if len(piece) > 1 and counts[piece]}
        kept = [*characters, *_frequent(longer, max(room, int(0.75 * len(kept))) - len(characters))]


def _train_word(lines: Iterator[str], options: TokenizerOptions, specials: list[str]) -> hf.Tokenizer:
    # The word <bos> in a text would be found in the vocabulary as the special token; taken apart, it is not. <unk> may be.
    named = "|".join(re.escape(name[1:]) for name in specials if name != SPECIALS[UNK])
    apart = _isolate(rf"\A<(?=(?:{named})\z)")
    spaces = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    splitter = pre_tokenizers.Sequence([spaces, *_han(options), *_punctuation(options), apart])
    words = _counted(lines, splitter)
    del words[SPECIALS[UNK]]
    vocabulary = [*specials, *_frequent(words, options.vocabulary - len(specials))]
    rust = hf.Tokenizer(models.WordLevel({word: id for id, word in enumerate(vocabulary)}, unk_token=SPECIALS[UNK]))
    rust.pre_tokenizer = splitter
    return rust


def _train_character(lines: Iterator[str], options: TokenizerOptions, specials: list[str]) -> hf.Tokenizer:
    characters = Counter(chain.from_iterable(lines))
    vocabulary = [*specials, *BYTES, *_frequent(characters, options.vocabulary - len(specials) - len(BYTES))]
    rust = hf.Tokenizer(models.BPE({piece: id for id, piece in enumerate(vocabulary)}, merges=[], byte_fallback=True))
    rust.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return rust


KINDS: dict[str, Callable[[Iterator[str], TokenizerOptions, list[str]], hf.Tokenizer]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "word": _train_word,
    "character": _train_character,
}


def _filled(lines: Iterable[str]) -> Iterator[str]:
    """The lines that hold something, of which there must be one."""
    filled = (_whole(line) for line in lines if line.strip())
    first = next(filled, None)
    if first is None:
        raise UserError("There is no text to learn a vocabulary from: the training corpus is empty.")
    return chain([first], filled)


def _isolate(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _han(options: TokenizerOptions) -> list[pre_tokenizers.PreTokenizer]:
    return [_isolate(HAN)] if options.split_han else []


def _punctuation(options: TokenizerOptions) -> list[pre_tokenizers.PreTokenizer]:
    """Marks at the edge of a word; those within one stay (it's, 3.5)."""
    edge = Regex(r"(?<!\w)[^\w\s<>]|[^\w\s<>](?!\w)")
    behaviour = {"split": "isolated", "drop": "removed"}.get(options.punctuation)
    return [pre_tokenizers.Split(edge, behaviour)] if behaviour else []


def _counted(lines: Iterator[str], splitter: pre_tokenizers.PreTokenizer) -> Counter[str]:
    return Counter(word for line in lines for word, _ in splitter.pre_tokenize_str(line))


def _frequent(counts: dict[str, int], most: int) -> list[str]:
    """The `most` highest, ties in the order of the alphabet so that training is repeatable."""
    return sorted(counts, key=lambda piece: (-counts[piece], piece))[:most]


def _covering(counts: dict[str, int]) -> list[str]:
    """The most frequent, as many as make up COVERAGE of the total."""
    ordered = _frequent(counts, len(counts))
    covered = accumulate(counts[piece] for piece in ordered)
    enough = COVERAGE * sum(counts.values())
    return ordered[: 1 + sum(count < enough for count in covered)]


def _whole(text: str) -> str:
    """Half a surrogate pair is no character and has no UTF-8; it becomes U+FFFD, one for one so that spans hold."""
    return LONE_SURROGATE.sub("\ufffd", text)


def _shown(text: str) -> str:
    return text.lstrip(" ") or text


def _begins(byte: bytes) -> bool:
    """Whether a byte of UTF-8 is the first of a character."""
    return byte[0] & 0xC0 != 0x80


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_symbols() -> dict[str, int]:
    """GPT-2's alphabet, which writes every byte as a visible character: its own where there is one, else from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_OF = _byte_symbols()
