"""`glassformer vectors`: words as points, over word vectors or the token embedding of any model."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.commands.common import DataDir, Force, app, arguments, one_line, progress
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.tasks.space import Near, Space

vectors_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Words as points: neighbours, analogies, words in context."
)
app.add_typer(vectors_app, name="vectors")

DEFAULT = "word-vectors"
ModelName = Annotated[str, typer.Option("--model", "-m", help="Word vectors, or any other model: then its token embedding.")]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many words.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object with everything.")]


@vectors_app.command()
def neighbours(
    word: Annotated[list[str], typer.Argument(help="One word or several.")],
    model: ModelName = DEFAULT,
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """Which words are nearest: prints cosine and word, a line each; an empty line between two answers."""
    words = list(arguments(word))
    space = _space(model)
    _print([(each, space.neighbours(each, count)) for each in words], as_json)


@vectors_app.command()
def analogy(
    a: Annotated[str, typer.Argument(help="king …")],
    b: Annotated[str, typer.Argument(help="… minus man …")],
    c: Annotated[str, typer.Argument(help="… plus woman")],
    model: ModelName = DEFAULT,
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """What is nearest to A − B + C: prints cosine and word, without the three."""
    a, b, c = arguments([a, b, c])
    _print([(f"{a} − {b} + {c}", _space(model).analogy(a, b, c, count))], as_json)


@vectors_app.command()
def similarity(
    a: Annotated[str, typer.Argument()],
    b: Annotated[str, typer.Argument()],
    model: ModelName = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """How alike two words are: prints the cosine of their vectors."""
    a, b = arguments([a, b])
    cosine = _space(model).similarity(a, b)
    print(json.dumps({"words": [a, b], "cosine": cosine}, ensure_ascii=False) if as_json else f"{cosine:.4f}")


@vectors_app.command()
def context(
    word: Annotated[str, typer.Argument(help="The word to look at.")],
    sentence: Annotated[list[str], typer.Option("--in", help="A sentence that has the word; at least two places in all.")],
    model: Annotated[str, typer.Option("--model", "-m", help="A model that reads whole sentences.")] = "zh-en",
    as_json: AsJson = False,
) -> None:
    """One word in different sentences: prints how alike its states are, for each two places."""
    import glassformer
    from glassformer.tasks.contexts import cosines, occurrences

    word, *sentences = arguments([word, *sentence])
    found = occurrences(glassformer.load(model), word, sentences)
    if len(found) < 2:
        raise UserError(f"The word {word!r} stands in one place; to compare, give another sentence with --in.")
    table = cosines(found).tolist()
    if as_json:
        places = [{"sentence": o.sentence, "start": o.start, "end": o.end, "pieces": o.pieces} for o in found]
        print(json.dumps({"word": word, "sentences": sentences, "places": places, "cosines": table}, ensure_ascii=False))
        return
    for i, first in enumerate(found):
        for j in range(i + 1, len(found)):
            shown = [_marked(sentences[place.sentence - 1], place.start, place.end) for place in (first, found[j])]
            print(f"{table[i][j]:.4f}\t{shown[0]}\t{shown[1]}")


@vectors_app.command()
def evaluate(
    test: Annotated[
        list[str] | None, typer.Argument(help="Tests: word TAB word TAB score, or analogies; all of word-eval if none.")
    ] = None,
    model: ModelName = DEFAULT,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """How good word vectors are: Spearman's ρ with people's scores, and how many analogies come out right."""
    from glassformer.tasks import wordtests
    from glassformer.text.datasets import find

    paths = [find(name, data_dir) for name in test or wordtests.DEFAULT]
    space = _space(model)
    with progress("evaluating", len(paths)) as advance:
        judged = []
        for path in paths:
            judged += wordtests.evaluate(space, path)
            advance(1)
    if as_json:
        print(json.dumps([asdict(each) for each in judged], ensure_ascii=False))
    else:
        print("\n".join(judged_lines([asdict(each) for each in judged])))


def judged_lines(judged: list[dict[str, Any]]) -> list[str]:
    """Name, measure, score, and how much of the test the vocabulary covers."""
    return [
        f"{each['name']}\t{each['measure']}\t{'-' if each['score'] is None else format(each['score'], '.4f')}"
        f"\t{each['covered']:,} of {each['total']:,}"
        for each in judged
    ]


@vectors_app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A file of word vectors: word2vec (text or binary), GloVe, fastText; also .gz.")],
    out: Annotated[Path, typer.Option(help="The model folder to make.")],
    limit: Annotated[int, typer.Option(min=0, help="Only the first words; 0 for all.")] = 0,
    force: Force = False,
) -> None:
    """Bring anyone's word vectors here."""
    from glassformer.interop.wordfiles import import_vectors

    import_vectors(source, out, limit=limit, force=force, report=_remark)


@vectors_app.command()
def export(
    model: Annotated[str, typer.Argument(help="A bundled name or a folder; of any model its token embedding.")],
    out: Annotated[Path, typer.Option(help="The file to make.")],
    to: Annotated[str, typer.Option(help="word2vec (text), word2vec-binary, or glove (text without a header).")] = "word2vec",
    force: Force = False,
) -> None:
    """Write word vectors as a file that other programs read."""
    import glassformer
    from glassformer.interop.wordfiles import export_vectors

    export_vectors(glassformer.load(model), to, out, force=force, report=_remark)


def _space(model: str) -> "Space":
    import glassformer
    from glassformer.tasks.space import space_of

    return space_of(glassformer.load(model))


def _print(answers: "list[tuple[str, list[Near]]]", as_json: bool) -> None:
    for number, (asked, found) in enumerate(answers):
        if as_json:
            print(json.dumps({"word": asked, "nearest": [asdict(near) for near in found]}, ensure_ascii=False))
            continue
        if number:
            print()
        for near in found:
            print(f"{near.cosine:.4f}\t{one_line(near.word)}")


def _marked(sentence: str, start: int, end: int) -> str:
    return one_line(f"{sentence[:start]}[{sentence[start:end]}]{sentence[end:]}").replace("\t", " ")


def _remark(text: str) -> None:
    print(text, file=sys.stderr)
