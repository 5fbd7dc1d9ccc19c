"""`glassformer generate`: text is gone on with."""

import json
import math
import secrets
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from glassformer.commands.common import (
    Engine,
    Force,
    Input,
    Output,
    Text,
    TopK,
    TopP,
    app,
    find,
    input_lines,
    unless_dash,
    writer,
)
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.options import GenerationOptions, Recipe
    from glassformer.tasks.continuer import Continuation, Continuer


@app.command()
def generate(
    text: Text = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A bundled name or a folder; tang for Chinese and shakespeare if not given."),
    ] = None,
    input: Input = None,
    output: Output = None,
    force: Force = False,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="How boldly tokens are drawn; 0 is greedy.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    repetition: Annotated[
        float | None, typer.Option(min=1.0, help="More than 1 makes tokens that were there less likely.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="At most so many tokens.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; may be given several times.")] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=1000, help="How many, made at once.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Makes drawing repeatable; by chance if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each: text, tokens, log p, how it ended.")] = False,
    engine: Engine = "auto",
) -> None:
    """Go on with a text. One sample is written as it is made; Ctrl-C keeps what there is."""
    from glassformer.engine import choice

    choice.check(engine)
    input, output = unless_dash(input), unless_dash(output)
    lines, _ = input_lines(text, input, output, force)
    lines, begun = chain(peeked := list(islice(lines, 1)), lines), "".join(peeked)
    folder, recipe = find(model or usual_model(begun), "language")
    options = _options(recipe, temperature, top_k, top_p, repetition, max_tokens)
    seeded = seed is not None or as_json  # which tells the seed, so that its answer can be had again
    language = choice.continuer(folder, recipe, options, engine, [], seeded=seeded)

    def ready() -> Iterator[str]:
        """What is wrong with a prompt is said before anything of its answer is written."""
        for prompt in lines:
            language.prompt_ids(prompt)
            yield prompt

    prompts = ready()
    first = next(prompts, None)  # before the output is opened: a mistake of the first costs no file
    with writer(output) as out:
        for number, prompt in enumerate(prompts if first is None else chain([first], prompts)):
            drawn = secrets.randbelow(2**31) if seed is None else seed
            if number and not as_json:
                print(file=out)
            _answer(out, language, prompt, options, drawn, samples, stop or [], as_json)


def usual_model(text: str) -> str:
    from glassformer.tasks.languages import guess

    return "tang" if guess(text, ("en", "zh")) == "zh" else "shakespeare"


def _options(
    recipe: "Recipe",
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    repetition: float | None,
    max_tokens: int | None,
) -> "GenerationOptions":
    """The model's own options with what the flags change."""
    given: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition": repetition,
        "max_tokens": max_tokens,
    }
    for name, value in given.items():
        if value is not None and not math.isfinite(value):
            raise UserError(f"--{name.replace('_', '-')} takes a number, not {value}.")
    return replace(recipe.generation, **{name: value for name, value in given.items() if value is not None})


def _answer(
    out: IO[str],
    language: "Continuer",
    prompt: str,
    options: "GenerationOptions",
    seed: int,
    samples: int,
    stop: list[str],
    as_json: bool,
) -> None:
    live = samples == 1 and not as_json
    told = [""] * samples

    def write(sample: int, text: str) -> None:
        told[sample] += text
        if live:
            out.write(text)
            out.flush()

    def end() -> None:
        if live:
            print(file=out)
        elif not as_json:
            print(*(prompt + text for text in told), sep="\n\n", file=out)
        out.flush()

    if live:
        out.write(prompt)
        out.flush()
    try:
        found = language.generate(prompt, options, seed=seed, samples=samples, stop=stop, write=write)
    except KeyboardInterrupt:
        end()
        print("\nglassformer: interrupted.", file=sys.stderr)
        sys.exit(130)
    for i, each in enumerate(found if as_json else []):
        print(json.dumps(_explained(language, each, seed + i), ensure_ascii=False), file=out)
    end()


def _explained(language: "Continuer", found: "Continuation", seed: int) -> dict[str, Any]:
    return {
        **asdict(found),
        "seed": seed,
        "tokens": language.tokenizer.spell(found.ids),
    }
