"""`glassformer translate` and `glassformer demo`."""

import json
import math
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from glassformer.commands.common import (
    Engine,
    Force,
    Input,
    ModelName,
    Output,
    Seed,
    Temperature,
    Text,
    TopK,
    TopP,
    answer_all,
    app,
    find,
    input_lines,
    load,
    one_line,
    sampling,
    unless_dash,
)
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.options import DecodingOptions, Recipe
    from glassformer.tasks.translate import Translate
    from glassformer.tasks.translator import Translation

Beam = Annotated[int, typer.Option(min=0, max=1000, help="Beam width; 1 is greedy. 0: as the model's recipe says.")]


@app.command()
def translate(
    text: Text = None,
    model: ModelName = "zh-en",
    to: Annotated[str | None, typer.Option(help="Language to translate into; guessed from the script if not given.")] = None,
    input: Input = None,
    output: Output = None,
    force: Force = False,
    beam: Beam = 0,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="α of score = Σ log p ÷ lengthᵅ.")] = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="Fewest pieces of an answer.")] = None,
    max_length: Annotated[int | None, typer.Option(min=0, help="Most pieces of an answer; 0: twice the source and ten.")] = None,
    nbest: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How many answers; more than one prints: line, score, text.")
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    show: Annotated[bool, typer.Option("--show", help="Also tokens and alignment, on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line: tokens, scores, n-best, alignment.")] = False,
    engine: Engine = "auto",
) -> None:
    """Translate sentences with a bundled or trained model."""
    from glassformer.engine import choice

    choice.check(engine)
    input, output = unless_dash(input), unless_dash(output)
    lines, size = input_lines(text, input, output, force)
    drawing = sampling(temperature, top_k, top_p, seed)
    if drawing and (nbest or 1) > 1:
        raise UserError(
            "--nbest ranks the results of a beam search; it does not go with --temperature, --top-k, --top-p or --seed."
        )
    if drawing and beam > 1:
        raise UserError("--beam searches and --temperature, --top-k, --top-p, --seed draw: choose one.")
    folder, recipe = find(model, "translate")
    options = decoding(recipe, beam, length_penalty, min_length, max_length, nbest)
    asked = [
        f"{name}, for which the model is looked into by PyTorch"
        for name, given in (
            ("--show", show),
            ("--json", as_json),
            ("drawing by --temperature, --top-k, --top-p, --seed", drawing),
        )
        if given
    ]
    translator = choice.translator(
        folder, recipe, options, engine, asked, many=size > 1 and (text == ["-"] or len(text or []) != 1)
    )

    def solve(sentences: list[str], done: int, advance: Callable[[int], None]) -> "list[Translation]":
        return translator.translate_all(sentences, to, options, drawing, first=done, progress=advance)

    def put(out: IO[str], answer: "Translation", number: int) -> None:
        _print(out, translator, answer, number, 1 if drawing else options.wanted, as_json)
        if translator.unfamiliar(answer.source):
            remark = "is written in signs this model has hardly seen: its translation means nothing."
            print(f"glassformer: sentence {number} {remark}", file=sys.stderr)
        if show:
            _show(translator, answer)

    answer_all(lines, size, output, "translating", solve, put)


@app.command()
def demo() -> None:
    """Translate one sentence each way with the bundled model, and show what it looked at."""
    translator: Translate = load("zh-en", "translate")
    for sentence in ("我喜欢吃草莓。", "He went to the hospital yesterday."):
        answer = translator.translate(sentence)
        print(f"\n{sentence}  →  {answer.text}", flush=True)
        _show(translator, answer)
    print(
        "\nWhat to try next:\n"
        '  .venv/bin/glassformer translate "车站在哪里？" --show        your own sentence, either language\n'
        "  .venv/bin/glassformer train recipes/reverse.toml         train a small model, about a minute\n"
        '  .venv/bin/glassformer translate --model runs/reverse "c a t"\n'
        "  .venv/bin/glassformer --help",
        file=sys.stderr,
    )


def decoding(
    recipe: "Recipe",
    beam: int,
    length_penalty: float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    nbest: int | None = None,
) -> "DecodingOptions":
    """The recipe's options with what the flags change."""
    from dataclasses import replace

    options = recipe.decoding
    width = beam or max(options.beam, nbest or 1)
    if nbest and nbest > width:
        raise UserError(f"--nbest {nbest} needs a beam at least as wide; --beam is {width}.")
    least = options.min_length if min_length is None else min_length
    most = options.max_length if max_length is None else max_length
    if 0 < most < least:
        raise UserError(f"The minimum length {least} is more than the maximum length {most}: see --min-length and --max-length.")
    penalty = options.length_penalty if length_penalty is None else length_penalty
    if not math.isfinite(penalty):
        raise UserError(f"--length-penalty takes a number, not {penalty}.")
    return replace(options, beam=width, length_penalty=penalty, min_length=least, max_length=most, nbest=nbest or options.nbest)


def _print(out: IO[str], translator: Any, answer: "Translation", number: int, nbest: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps(translator.explain(answer), ensure_ascii=False), file=out)
    elif nbest == 1:
        print(one_line(answer.text), file=out)
    else:
        for each in answer.nbest:
            print(f"{number}\t{each.score:.4f}\t{one_line(each.text)}", file=out)


def _show(translator: Any, answer: "Translation") -> None:
    from rich.console import Console

    from glassformer import heatmap

    heatmap.show_translation(Console(stderr=True, highlight=False), translator, answer)
