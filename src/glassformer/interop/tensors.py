"""Tensors that lie in a file: their names and shapes are known, and compared with what a model needs, before any is read."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from glassformer.errors import UserError
from glassformer.interop.family import Family
from glassformer.interop.rules import Step, to_ours, to_theirs
from glassformer.weights import finite

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
PICKLE = "It would have to be unpickled, which can run any program hidden in it, so it is never loaded."


@dataclass(frozen=True)
class Found:
    """What a file (or several) holds."""

    where: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], Tensor]


def convert(found: Found, steps: Sequence[Step], blank: dict[str, Tensor], ignored: Sequence[str] = ()) -> dict[str, Tensor]:
    """Their tensors as ours. Whatever is missing, unexpected or of another shape is listed by name, all at once; `blank` is our
    model without numbers, and `ignored` are patterns of names that hold nothing of their own."""
    wanted = {name: tuple(x.shape) for name, x in to_theirs(steps, blank).items()}
    problems = [f"missing: {name}" for name in wanted if name not in found.shapes]
    problems += [
        f"unexpected: {name}"
        for name in found.shapes
        if name not in wanted and not any(re.fullmatch(pattern, name) for pattern in ignored)
    ]
    problems += [
        f"shape of {name}: {found.shapes[name]}, where the settings say {shape}"
        for name, shape in wanted.items()
        if name in found.shapes and found.shapes[name] != shape
    ]
    _refuse(found, problems)

    def read(name: str) -> Tensor:
        x = found.read(name)
        if x.dtype not in FLOATS:
            problems.append(
                f"numbers of {name}: {str(x.dtype).removeprefix('torch.')}, where float16, bfloat16 or float32 can be read"
            )
        elif not finite(x):
            problems.append(f"not all finite: {name}")
        return x

    ours = to_ours(steps, read)
    _refuse(found, problems)
    return ours


def _refuse(found: Found, problems: list[str]) -> None:
    if problems:
        shown = "\n  ".join(problems[:20]) + (f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise UserError(
            f"{found.where} does not hold the model its settings describe:\n  {shown}\nIt is damaged, or of another kind."
        )


def under_new_names(found: Found, family: Family) -> Found:
    """The same tensors under the names of today, and tied ones once."""
    names = {}
    for name in found.shapes:
        new = name
        for pattern, replacement in family.renamed:
            new = re.sub(f"^{pattern}", replacement, new)
        names[new] = name
    return Found(found.where, {new: found.shapes[old] for new, old in names.items()}, lambda name: found.read(names[name]))


def without_copies(found: Found, wanted: set[str], family: Family) -> Found:
    """A tied matrix that a file holds under several names counts once; if the copies differ, the settings are wrong."""
    names = {name: name for name in found.shapes}
    for copy, original in family.copies.items():
        if copy not in names or copy in wanted:
            continue
        del names[copy]
        if original not in names:
            names[original] = copy
        elif found.shapes[copy] != found.shapes[original] or not torch.equal(found.read(copy), found.read(names[original])):
            raise UserError(
                f"{found.where}: its settings say that {copy} is {original} (tie_word_embeddings), but the two differ. "
                "One of them is wrong."
            )
    return Found(found.where, {name: found.shapes[old] for name, old in names.items()}, lambda name: found.read(names[name]))


def refuse_pickle(path: Path) -> None:
    """Pickles and zips (in which PyTorch packs pickles) are refused by their first bytes, whatever they are called."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    # A pickle's second byte is its protocol and the third an instruction, never 0; a llama2.c file may begin 80 02 00 00.
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and head[2:3] != b"\x00":
        raise UserError(f"{path} is a pickle. {PICKLE} {HOW_TO_CONVERT}")
    if head[:2] == b"PK":
        raise UserError(f"{path} is a zip archive, probably of a pickle. {PICKLE} {HOW_TO_CONVERT}")


HOW_TO_CONVERT = (
    "Where you trust it, save it as safetensors with the library it came from (for Hugging Face models: "
    "AutoModel….from_pretrained(FOLDER).save_pretrained(NEW), of the class in its config.json), and import that."
)
