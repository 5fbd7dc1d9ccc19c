"""What a trace calls the tokens of a pass: their text, and which characters they cover."""

from collections.abc import Sequence

from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Token


def mark(tokenizer: Tokenizer, id: int) -> Token:
    """A special token, which covers no characters."""
    return Token(tokenizer.spell([id])[0], id, special=True)


def piece(tokenizer: Tokenizer, id: int) -> str:
    """A token on its own; one that is not a whole character is spelled in bytes, such as <0xE4>."""
    data = tokenizer.bytes_of(id)
    try:
        data.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in data)
    return tokenizer.spell([id])[0]


def read(tokenizer: Tokenizer, text: str, offset: int = 0) -> list[Token]:
    """The pieces of a text that begins at character `offset`."""
    pieces = tokenizer.pieces(text)
    shown = [piece.text if i == 0 or piece.start != pieces[i - 1].start else "" for i, piece in enumerate(pieces)]
    return [Token(text, piece.id, piece.start + offset, piece.end + offset) for text, piece in zip(shown, pieces, strict=True)]


def written(tokenizer: Tokenizer, ids: Sequence[int], offset: int = 0, *, goes_on: bool = False) -> list[Token]:
    """The pieces of what a model wrote, as characters of their text; `goes_on`: after other text, so a first space counts."""
    places = spans(tokenizer, ids, goes_on=goes_on)
    return [
        mark(tokenizer, id) if span is None else Token(text, id, span[0] + offset, span[1] + offset)
        for id, text, span in zip(ids, tokenizer.spell(ids), places, strict=True)
    ]


def spans(tokenizer: Tokenizer, ids: Sequence[int], *, goes_on: bool = False) -> list[tuple[int, int] | None]:
    """The characters [start, end) of `decode(ids)` that each piece covers, or None for special tokens.

    The pieces of one character share its span, as in `Tokenizer.pieces`.
    """
    pieces = [tokenizer.bytes_of(id) for id in ids]
    places = _characters(b"".join(pieces))
    text = tokenizer.decode(ids)
    dropped = 0 if goes_on or not places else places[-1] + 1 - len(text)  # a space before the first word
    found: list[tuple[int, int] | None] = []
    at = 0
    for piece in pieces:
        covered = places[at : at + len(piece)]
        at += len(piece)
        found.append((max(0, covered[0] - dropped), max(0, covered[-1] + 1 - dropped)) if covered else None)
    return found


def _characters(data: bytes) -> list[int]:
    """Which character each byte belongs to, where bytes that make none are U+FFFD, as `bytes.decode` counts them."""
    places: list[int] = []
    characters = 0
    while len(places) < len(data):
        try:
            whole, broken = data[len(places) :].decode(), 0
        except UnicodeDecodeError as error:
            whole, broken = error.object[: error.start].decode(), error.end - error.start
        for size in [len(character.encode()) for character in whole] + ([broken] if broken else []):
            places += [characters] * size
            characters += 1
    return places
