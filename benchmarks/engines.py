"""Glassformer as `glassformer translate` has it, beside CTranslate2 called directly on the same weights, text in and text out.

In single precision `--engine auto` decides, which is what was compiled from layers/compiled.c; in eight bits it is CTranslate2.
CTranslate2 itself is called with its own batching in three sizes, on all cores; one by one with all cores at each sentence (four
at most, its default), and with one. Options make its search ours: a patience of 2, the end mark counted in the length. It is
checked that 99 of 100 answers are the same. Each works in a process of its own, so that the threads of one do not stand in the
other's way, and without PyTorch, as `glassformer translate` does.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.turns import OURS, Build, Case, Turn, Unavailable, about_of
from glassformer import config
from glassformer.decoding.state import PATIENCE
from glassformer.engine import choice, kept
from glassformer.errors import UserError
from glassformer.interop import ctranslate2 as interop
from glassformer.tasks.translator import load_tokenizers

Solve = Callable[[list[str]], list[str]]
How = tuple[int, int] | None  # CTranslate2 itself: source tokens of a batch (0: one sentence) and threads that share it; or ours
BATCHES = (1024, 2048, 4096)  # of source tokens, which CTranslate2 called directly is tried with
SLICE = 10  # sentences that each translates one by one before it is another's turn
TURNS = 3  # of all sentences in a round, in batches
ENGINES = {"float32": "auto", "int8": "ctranslate2-int8"}
WORK = (("float32", 1), ("float32", 5), ("int8", 1), ("int8", 5))


def cases(model: str, *, quick: bool, tiny: bool) -> list[Case]:
    many, few = (8, 2) if tiny else (300, 60) if quick else (1000, 100)
    found = [
        Case(
            f"{'greedy' if beam == 1 else f'beam {beam}'}, {precision}, {'one by one' if one else 'in batches'}",
            "sentences/s",
            partial(prepare, model, few if one else many),
            sides(precision, beam, one),
            partial(check, precision, beam, one),
            apart=not tiny,
            slices=max(1, few // SLICE) if one else TURNS,
        )
        for one in (False, True)
        for precision, beam in WORK
    ]
    return found[-1:] if tiny else found


def prepare(model: str, count: int, folder: Path) -> dict[str, Any]:
    from benchmarks.decoding import preparing  # and PyTorch, which no side here needs

    return preparing(model, count)(folder)


def sides(precision: str, beam: int, one: bool) -> dict[str, Build]:
    """Ours, and the other with the sizes of batches that it is tried with, or the threads that share a sentence."""
    if one:
        direct = {"CTranslate2 itself": (0, min(kept.cores(), 4)), "CTranslate2 itself, one thread": (0, 1)}
    else:
        direct = {f"CTranslate2 itself, {size:,} tokens": (size, 1) for size in BATCHES}
    return {
        OURS: partial(side, None, precision, beam, one),
        **{name: partial(side, how, precision, beam, one) for name, how in direct.items()},
    }


def side(how: How, precision: str, beam: int, one: bool, folder: Path) -> Turn:
    texts = about_of(folder)["texts"]
    solve = solver(how, precision, beam, one, folder)
    slices = cycle([texts[i : i + SLICE] for i in range(0, len(texts), SLICE)] if one else [texts])

    def turn() -> float:
        return len(solve(next(slices)))

    return turn


def solver(how: How, precision: str, beam: int, one: bool, folder: Path) -> Solve:
    model, to = folder / "model", about_of(folder)["to"]
    recipe = config.read(model / "recipe.toml")
    try:
        if how is None:
            options = replace(recipe.decoding, beam=beam)
            ours = choice.translator(model, recipe, options, ENGINES[precision], [], many=not one)
            solve: Solve = lambda texts: [answer.text for answer in ours.translate_all(texts, to, options)]  # noqa: E731
        else:
            solve = Direct(model, recipe, precision, beam, *how, to)
    except UserError as error:  # it is not installed, or has no word for this model
        raise Unavailable(str(error)) from None
    return (lambda texts: [answer for text in texts for answer in solve([text])]) if one else solve


class Direct:
    """CTranslate2 as its own documentation calls it, with our tokenizer."""

    def __init__(self, folder: Path, recipe: Any, precision: str, beam: int, size: int, threads: int, to: str) -> None:
        self.recipe, self.beam, self.size = recipe, beam, size
        self.source, self.target = load_tokenizers(folder, recipe)
        self.names = self.source.names()
        self.ids = {name: id for id, name in enumerate(self.target.names())}
        self.before = [f"<2{to}>"] if recipe.data.both_ways else []
        cores = kept.cores() if size else 1  # each takes batches of its own
        options = {"compute_type": precision, "inter_threads": cores, "intra_threads": threads}
        converted = Path(kept.load(folder, recipe, (self.source, self.target), precision, str))
        if not converted.is_dir():
            raise Unavailable(f"converted models cannot be kept in {kept.home()}")
        self.engine = interop.library().Translator(str(converted), **options)  # in this thread, as anybody would

    def __call__(self, texts: list[str]) -> list[str]:
        eos = self.recipe.tokenizer.eos
        results = self.engine.translate_batch(
            [[*self.before, *(self.names[id] for id in ids), eos] for ids in self.source.encode_batch(texts)],
            max_batch_size=self.size,
            batch_type="tokens" if self.size else "examples",
            beam_size=self.beam,
            patience=PATIENCE if self.beam > 1 else 1,
            length_penalty=self.recipe.decoding.length_penalty,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=self.recipe.model.max_length - 1,
        )
        return [self.target.decode([self.ids[name] for name in result.hypotheses[0]]) for result in results]


def check(precision: str, beam: int, one: bool, folder: Path) -> None:
    texts = about_of(folder)["texts"]
    ours, theirs = (solver(how, precision, beam, one, folder)(texts) for how in (None, (0 if one else BATCHES[0], 1)))
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    if same < 0.99 * len(texts) - 1:
        raise SystemExit(f"Only {same} of {len(texts)} answers of CTranslate2 itself are ours: nothing is compared.")
