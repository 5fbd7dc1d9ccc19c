"""`glassformer fill`, `classify`, `tag` and `compare`: what an encoder makes of a text."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from glassformer.commands.common import (
    Force,
    Input,
    ModelName,
    Output,
    Text,
    answer_all,
    app,
    input_lines,
    load,
    one_line,
    unless_dash,
)
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.tasks.classify import Classified, Classify
    from glassformer.tasks.compare import Compare
    from glassformer.tasks.fill import Fill, Filled
    from glassformer.tasks.tag import Tag, Tagged

AsJson = Annotated[bool, typer.Option("--json", help="A JSON object a line, with everything.")]
Top = Annotated[int, typer.Option(min=1, help="How many labels to print for each text, likeliest first.")]
Advance = Callable[[int], None]


@app.command()
def fill(
    model: ModelName,
    text: Text = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many candidates for each gap.")] = 5,
    input: Input = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Which words fit at [MASK]: prints probability and word, a line each; an empty line between two texts."""
    input, output = unless_dash(input), unless_dash(output)
    lines, size = input_lines(text, input, output, force)
    filler: Fill = load(model, "fill")

    def solve(texts: list[str], done: int, advance: Advance) -> "list[Filled]":
        return filler.fill_all(texts, count, first=done, progress=advance)

    def put(out: IO[str], answer: "Filled", number: int) -> None:
        if as_json:
            print(json.dumps(asdict(answer), ensure_ascii=False), file=out)
            return
        if number > 1:
            print(file=out)
        for place, candidates in enumerate(answer.gaps, start=1):
            which = f"{place}\t" if len(answer.gaps) > 1 else ""
            for candidate in candidates:
                print(f"{which}{candidate.probability:.4f}\t{one_line(candidate.text)}", file=out)

    answer_all(lines, size, output, "filling", solve, put)


@app.command()
def classify(
    text: Text = None,
    model: ModelName = "intents",
    top: Top = 1,
    input: Input = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Which label a text has: prints label and probability."""
    input, output = unless_dash(input), unless_dash(output)
    lines, size = input_lines(text, input, output, force)
    classifier: Classify = load(model, "classify")

    def solve(texts: list[str], done: int, advance: Advance) -> "list[Classified]":
        return classifier.classify_all([(text,) for text in texts], first=done, progress=advance)

    answer_all(lines, size, output, "classifying", solve, _labels(top, as_json))


@app.command()
def compare(
    model: ModelName,
    text: Annotated[
        list[str] | None, typer.Argument(help="Two texts; nothing reads lines of standard input, TAB between.")
    ] = None,
    top: Top = 1,
    input: Input = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """How two texts relate: prints label and probability, or a score."""
    from glassformer.tasks.compare import Score

    if text and text != ["-"]:
        if len(text) != 2:
            raise UserError(f"compare takes two texts; found {len(text)}. Many pairs go into a file, with a TAB between the two.")
        text = ["\t".join(part.replace("\t", " ") for part in text)]
    input, output = unless_dash(input), unless_dash(output)
    lines, size = input_lines(text, input, output, force)
    comparer: Compare | Score = load(model, "compare")

    def solve(pairs: list[str], done: int, advance: Advance) -> list[Any]:
        texts = [_two(pair, done + i) for i, pair in enumerate(pairs, start=1)]
        if isinstance(comparer, Score):
            return list(zip(texts, comparer.score_all(texts, first=done, progress=advance), strict=True))
        return comparer.classify_all(texts, first=done, progress=advance)

    def put_score(out: IO[str], answer: tuple[tuple[str, ...], float | None], number: int) -> None:
        texts, score = answer
        shown = "" if score is None else f"{score:.3f}"
        print(json.dumps({"texts": texts, "score": score}, ensure_ascii=False) if as_json else shown, file=out)

    answer_all(lines, size, output, "comparing", solve, put_score if isinstance(comparer, Score) else _labels(top, as_json))


@app.command()
def tag(
    text: Text = None,
    model: ModelName = "tagger",
    words: Annotated[bool, typer.Option("--words", help="Words are what stands between spaces, already split.")] = False,
    input: Input = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """A label for every word: prints word/LABEL, one line for each sentence."""
    input, output = unless_dash(input), unless_dash(output)
    lines, size = input_lines(text, input, output, force)
    tagger: Tag = load(model, "tag")

    def solve(texts: list[str], done: int, advance: Advance) -> "list[Tagged]":
        return tagger.tag_all(texts, split=not words, first=done, progress=advance)

    def put(out: IO[str], answer: "Tagged", number: int) -> None:
        if as_json:
            print(json.dumps(asdict(answer), ensure_ascii=False), file=out)
        else:
            print(" ".join(f"{word.text}/{word.label}" for word in answer.words), file=out)

    answer_all(lines, size, output, "tagging", solve, put)


def _two(pair: str, number: int) -> tuple[str, ...]:
    """The two texts of a line; of an empty one they are empty."""
    texts = tuple(pair.split("\t")) if pair.strip() else ("", "")
    if len(texts) != 2:
        raise UserError(f"Line {number} has {len(texts)} columns; a pair is two texts with a TAB between them.")
    if pair.strip() and not all(text.strip() for text in texts):
        raise UserError(f"Line {number} has one text, and an empty one; a pair is two texts with a TAB between them.")
    return texts


def _labels(top: int, as_json: bool) -> "Callable[[IO[str], Classified, int], None]":
    def put(out: IO[str], answer: "Classified", number: int) -> None:
        if as_json:
            print(json.dumps(asdict(answer), ensure_ascii=False), file=out)
        else:
            best = list(answer.probabilities.items())[:top]
            print("\t".join(f"{one_line(label)}\t{probability:.4f}" for label, probability in best), file=out)

    return put
