"""`glassformer evaluate`: how good a model is on data it has not seen."""

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.commands.common import DataDir, Force, ModelName, app, check_output, one_line, progress, writer
from glassformer.commands.translate import Beam, decoding
from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.tasks.classify import Classify
    from glassformer.tasks.compare import Score
    from glassformer.tasks.evaluation import Evaluation
    from glassformer.tasks.fill import Fill
    from glassformer.tasks.language import Language
    from glassformer.tasks.tag import Tag
    from glassformer.tasks.translate import Translate
    from glassformer.tasks.translator import Translation

TOKENIZERS = ("auto", "13a", "zh", "char", "intl", "none")
Find = Callable[[str], Path]


@app.command()
def evaluate(
    model: ModelName = "zh-en",
    data: Annotated[
        list[str] | None, typer.Option(help="What to judge by; the recipe's test (or dev) corpus if not given.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="One direction of a translator that has two.")] = None,
    beam: Beam = 0,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer: auto, 13a, zh, char, intl, none.")] = "auto",
    limit: Annotated[int, typer.Option(min=0, help="Only the first examples; 0 for all.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="The scores as JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """The scores of a model, each by the measure of its task: BLEU and chrF, perplexity, accuracy, F1, correlation."""
    if tokenize not in TOKENIZERS:
        raise UserError(f"--tokenize {tokenize!r} is not known; there are {', '.join(TOKENIZERS)}.")
    import glassformer
    from glassformer.text.datasets import find

    check_output(output, force)
    task = glassformer.load(model)
    recipe = task.recipe
    specs = tuple(data or recipe.data.test or recipe.data.dev)
    if not specs and not getattr(recipe.data, "dev_share", 0):
        raise UserError("The recipe of this model names no test or dev corpus: give one with --data.")
    if recipe.task != "translate" and (to or output or beam):
        raise UserError(f"--to, --beam and --output are for translators; this model is for the task {recipe.task!r}.")
    looked = lambda name: find(name, data_dir)  # noqa: E731
    if recipe.task == "vectors":
        from glassformer.commands import vectors  # the same answer from either command

        vectors.evaluate(list(specs), model, as_json, data_dir)
    elif recipe.task == "translate":
        _translate(task, specs, looked, limit, to, decoding(recipe, beam), tokenize, output, as_json)
    else:
        found, what = JUDGES[recipe.task](task, specs, looked, limit)
        print(json.dumps(found) if as_json else _table(found, what))


def _translate(
    translator: "Translate",
    specs: tuple[str, ...],
    find: Find,
    limit: int,
    to: str | None,
    options: Any,
    tokenize: str,
    output: Path | None,
    as_json: bool,
) -> None:
    from glassformer.tasks import evaluation
    from glassformer.text.corpus import read_pairs

    pairs = [(p.source, p.target) for p in islice(read_pairs(specs, translator.data, find), limit or None)]
    if to:
        translator.direction("", to)
    written: list[Translation] = []
    for towards, chosen in evaluation.directions(translator, pairs):
        if to not in (None, towards):
            continue
        with progress("evaluating", len(chosen)) as advance:
            result = evaluation.evaluate(translator, chosen, towards, options, tokenizer=tokenize, progress=advance)
        print(_scores(result, len(chosen), as_json), flush=True)
        written += result.translations
    if output:
        with writer(output) as out:
            out.writelines(one_line(translation.text) + "\n" for translation in written)


def _language(task: "Language", specs: tuple[str, ...], find: Find, limit: int) -> tuple[dict[str, Any], str]:
    texts = _texts(task, specs, find, limit)
    with progress("evaluating") as advance:
        fit = task.fit(texts, progress=advance)
    found = {
        "loss": fit.loss,
        "perplexity": fit.perplexity,
        "bits_per_character": fit.bits_per_character,
        "word_perplexity": fit.word_perplexity,
    }
    return found, f"{fit.characters:,} characters, {fit.tokens:,} tokens"


def _fill(task: "Fill", specs: tuple[str, ...], find: Find, limit: int) -> tuple[dict[str, Any], str]:
    texts = _texts(task, specs, find, limit)
    parts = [part for ids in task.tokenizer.encode_batch(texts) for part in task.parts(ids)]
    with progress("evaluating", len(parts)) as advance:
        found = asdict(task.evaluate(parts, progress=advance))
    return found, f"{len(texts):,} texts, {found.pop('count'):,} pieces to guess"


def _texts(task: "Language | Fill", specs: tuple[str, ...], find: Find, limit: int) -> list[str]:
    from glassformer.text.labelled import read_texts
    from glassformer.training.texts import Texts

    found = read_texts(specs, task.recipe.data, find) if specs else Texts(task.recipe, find).dev()  # type: ignore[arg-type]
    return list(islice(found, limit or None))


def _label(task: "Classify | Score", specs: tuple[str, ...], find: Find, limit: int) -> tuple[dict[str, Any], str]:
    from glassformer.options import LabelData
    from glassformer.tasks.classify import Classify
    from glassformer.text.labelled import read_examples
    from glassformer.training.labels import check_known, parted_examples

    data = task.recipe.data
    assert isinstance(data, LabelData)
    every = read_examples(specs, data, find) if specs else parted_examples(data, find).dev()
    examples = list(islice(every, limit or None))
    if isinstance(task, Classify):
        check_known(examples, task.labels)
    with progress("evaluating", len(examples)) as advance:
        found = asdict(task.evaluate(examples, progress=advance))
    cut = f" ({found['cut']:,} cut to the {task.options.max_length} tokens this model reads)" if found["cut"] else ""
    return found, f"{found.pop('count'):,} examples{cut}"


def _tag(task: "Tag", specs: tuple[str, ...], find: Find, limit: int) -> tuple[dict[str, Any], str]:
    from glassformer.options import TagData
    from glassformer.text.labelled import read_sentences
    from glassformer.training.labels import check_known, parted_sentences

    data = task.recipe.data
    assert isinstance(data, TagData)
    every = read_sentences(specs, data, find) if specs else parted_sentences(data, find).dev()
    chosen = list(islice(every, limit or None))
    check_known(chosen, task.labels)
    sentences = task.fitting(chosen)
    if not sentences:
        raise UserError(f"All {len(chosen)} sentences are longer than the {task.options.max_length} tokens this model reads.")
    with progress("evaluating", len(sentences)) as advance:
        found = asdict(task.evaluate(sentences, progress=advance))
    left = f" ({len(chosen) - len(sentences):,} longer than this model reads left out)" if len(sentences) < len(chosen) else ""
    return found, f"{found.pop('sentences'):,} sentences{left}, {found.pop('words'):,} words"


JUDGES: dict[str, Callable[..., tuple[dict[str, Any], str]]] = {
    "language": _language,
    "fill": _fill,
    "classify": _label,
    "compare": _label,
    "tag": _tag,
}


def _table(found: dict[str, Any], what: str) -> str:
    lines = [what]
    for name, value in found.items():
        if value is not None:
            shown = value if isinstance(value, str) else f"{value:.4f}"
            lines.append(f"  {name.replace('_', ' '):18} {shown}")
    return "\n".join(lines)


def _scores(result: "Evaluation", count: int, as_json: bool) -> str:
    if as_json:
        scores = {score.name: {"value": score.value, "signature": score.signature} for score in result.scores}
        return json.dumps({"to": result.to, "pairs": count, "loss": result.loss, "perplexity": result.perplexity, **scores})
    lines = [f"into {result.to}, {count:,} pairs"]
    lines += [f"  {score.name:10} {score.value:7.2f}   {score.signature}" for score in result.scores]
    lines += [f"  loss       {result.loss:7.4f}   nats a token", f"  perplexity {result.perplexity:7.2f}"]
    return "\n".join(lines)
