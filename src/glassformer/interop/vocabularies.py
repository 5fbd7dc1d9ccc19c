"""Vocabularies of other libraries as `tokenizers` builds them, cutting text exactly as those libraries do."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tokenizers as hf
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from glassformer.errors import UserError
from glassformer.text.tokenizer import BYTE_OF, BYTES

Made = TypeVar("Made")

SYMBOL_OF = {byte: symbol for symbol, byte in BYTE_OF.items()}
MOST_BYTES = 256 << 20  # of any settings or vocabulary file; the largest known are a tenth of that

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS_AND_NUMBERS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = WORDS_AND_NUMBERS % "{1,3}"  # GPT-4's, which Llama 3 took over
CL100K_SPECIALS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


# How text is cut into words before BPE, by the names GGUF has for it; each piece is then written in GPT-2's byte alphabet.
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CUTS: dict[str, Callable[[], list[pre_tokenizers.PreTokenizer]]] = {
    "gpt-2": lambda: [_split(GPT2_WORDS)],
    "default": lambda: [_split(p) for p in (r"[\p{P}\$\+<=>\^~\|]+", GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")],
    "llama-bpe": lambda: [_split(CL100K)],
    "smollm": lambda: [_split(r"\p{N}"), _split(GPT2_WORDS)],
    "qwen2": lambda: [_split(WORDS_AND_NUMBERS % "")],
}


def byte_level(
    vocabulary: dict[str, int], merges: Sequence[tuple[str, str]], where: str, *, cut: str = "gpt-2", whole: bool = False
) -> hf.Tokenizer:
    """GPT-2's kind of BPE. `whole`: a word that is a piece itself is taken as it is, without looking at merges."""
    rust = _made(where, lambda: hf.Tokenizer(models.BPE(vocabulary, list(merges), ignore_merges=whole)))
    if cut == "qwen2":
        rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [*CUTS[cut](), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    rust.decoder = decoders.ByteLevel()
    return rust


def gpt2_vocabulary(pieces: Path, merges: Path) -> hf.Tokenizer:
    """From `vocab.json` + `merges.txt`, which OpenAI calls `encoder.json` + `vocab.bpe`."""
    vocabulary = read_json(pieces)
    if not all(isinstance(id, int) for id in vocabulary.values()):
        raise UserError(f"{pieces} is not a vocabulary: it must hold a number for each piece.")
    lines = [line for line in _lines(merges) if line and not line.startswith("#version")]
    rust = byte_level(vocabulary, [_pair(line, str(merges)) for line in lines], str(merges))
    mark_special(rust, [name for name in ("<|endoftext|>",) if name in vocabulary])
    return rust


def tiktoken_vocabulary(path: Path, specials: dict[str, int] | None = None, cut: str = "llama-bpe") -> hf.Tokenizer:
    """From a `.tiktoken` file, such as GPT-4's cl100k_base: a piece in base64 and its rank on each line."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            piece, rank = line.split(" ")
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise UserError(f"{path}, line {number}: expected a piece in base64 and its rank; found {line[:40]!r}.") from None
    written = {piece: "".join(SYMBOL_OF[byte] for byte in piece) for piece in ranks}
    merges = [
        (written[left], written[right])
        for left, right in (_parts(piece, ranks) for piece in sorted(ranks, key=ranks.__getitem__) if len(piece) > 1)
        if left and right
    ]
    specials = CL100K_SPECIALS if specials is None else specials
    vocabulary = {written[piece]: rank for piece, rank in ranks.items()} | specials
    rust = byte_level(vocabulary, merges, str(path), cut=cut, whole=True)
    mark_special(rust, list(specials))
    return rust


def _parts(piece: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts whose merge made the piece: what merges of lower rank leave of it. Empty if that is not two parts."""
    parts = [piece[i : i + 1] for i in range(len(piece))]
    own = ranks[piece]
    while len(parts) > 2:
        lowest, at = own, -1
        for i in range(len(parts) - 1):
            if (rank := ranks.get(parts[i] + parts[i + 1], own)) < lowest:
                lowest, at = rank, i
        if at < 0:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 and parts[0] in ranks and parts[1] in ranks else (b"", b"")


def sentencepiece_bpe(
    pieces: Sequence[str],
    scores: Sequence[float],
    where: str,
    *,
    specials: Sequence[str],
    space: str = "▁",
    prefix: bool = True,
    unknown: str | None = None,
) -> hf.Tokenizer:
    """SentencePiece's kind of BPE: of all neighbours that make up a piece, the pair whose piece scores highest is merged first;
    characters that are no pieces are spelled in bytes. `space` is how pieces write a space; with `prefix` one begins a text."""
    closed = {*specials, *BYTES}  # no text is merged into these
    ids = {piece: id for id, piece in enumerate(pieces)}
    if len(ids) < len(pieces):
        twice = next(piece for id, piece in enumerate(pieces) if ids[piece] != id)
        raise UserError(f"{where}: the piece {twice!r} stands twice in its vocabulary.")
    found = [
        (-score, ids[piece[:cut]], ids[piece[cut:]])
        for piece, score in zip(pieces, scores, strict=True)
        if piece not in closed
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids and not {piece[:cut], piece[cut:]} & closed
    ]
    merges = [(pieces[left], pieces[right]) for _, left, right in sorted(found)]
    rust = _made(where, lambda: hf.Tokenizer(models.BPE(ids, merges, byte_fallback=True, unk_token=unknown, fuse_unk=True)))
    before: list[normalizers.Normalizer] = [normalizers.Prepend(space)] if prefix else []
    after: list[decoders.Decoder] = [decoders.ByteFallback(), decoders.Fuse()]
    if space != " ":
        before.append(normalizers.Replace(" ", space))
        after.insert(0, decoders.Replace(space, " "))
    rust.normalizer = normalizers.Sequence(before)
    rust.decoder = decoders.Sequence([*after, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    mark_special(rust, specials)
    return rust


def wordpiece(path: Path, *, lowercase: bool, split_han: bool = True, accents: bool | None = None) -> hf.Tokenizer:
    """BERT's, from vocab.txt: a piece on each line. `accents`: whether they are taken off; None: if lower-cased."""
    ids = {piece: id for id, piece in enumerate(_lines(path))}
    if "[UNK]" not in ids:
        raise UserError(f"{path} is not a BERT vocabulary: it has no piece [UNK].")
    rust = _made(str(path), lambda: hf.Tokenizer(models.WordPiece(ids, unk_token="[UNK]")))
    rust.normalizer = normalizers.BertNormalizer(handle_chinese_chars=split_han, strip_accents=accents, lowercase=lowercase)
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece()
    mark_special(rust, [name for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if name in ids])
    return rust


def mark_special(rust: hf.Tokenizer, names: Iterable[str], *, special: bool = True) -> None:
    tokens = [AddedToken(name, special=special, normalized=False) for name in names]
    if special:
        rust.add_special_tokens(tokens)
    else:
        rust.add_tokens(tokens)


def add_marks(rust: hf.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """What encoding puts around a text, or around the first and after the second of two."""
    if not (before or after):
        return
    single = " ".join([*before, "$A", *after])
    pair = " ".join([single, "$B:1", *(f"{name}:1" for name in after)])
    marks = [(name, id) for name in dict.fromkeys([*before, *after]) if (id := rust.token_to_id(name)) is not None]
    rust.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=marks)


def load_tokenizer(text: str, where: str) -> hf.Tokenizer:
    """From a tokenizer.json, tried once: some faults show only then."""
    rust = _made(where, lambda: hf.Tokenizer.from_str(text))
    _made(where, lambda: rust.encode("a b"))
    return rust


def read_text(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise UserError(f"{path} has {size:,} bytes; a file of this kind has at most {MOST_BYTES:,}. It is something else.")
        return path.read_bytes().decode("utf-8")  # as it is: no line ends are translated
    except FileNotFoundError:
        raise UserError(f"There is no {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as text: {error}.") from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}. It may be cut short: copy it again.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path} must hold a JSON object; found a {type(tree).__name__}.")
    return tree


def _lines(path: Path) -> list[str]:
    return read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")


def _pair(line: str, where: str) -> tuple[str, str]:
    left, _, right = line.partition(" ")
    if not left or not right:
        raise UserError(f"{where}: a merge is two pieces with a space between; found {line[:40]!r}.")
    return left, right


def _made(where: str, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # `tokenizers` raises bare Exception for whatever does not fit together, or panics
        raise UserError(f"The vocabulary of {where} does not fit together: {error}.") from None
