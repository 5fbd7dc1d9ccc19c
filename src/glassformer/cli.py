"""The command `glassformer`. Answers go to standard output, one line for each input line; remarks go to standard error.

Imports that need torch stand inside the commands, so that `--help` answers at once.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.config import DecodingOptions
    from glassformer.decoding.sampling import Sampling
    from glassformer.tasks.evaluation import Evaluation
    from glassformer.tasks.translate import Translate, Translation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A Transformer you can see through: train, run and look inside.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Corpora that recipes know by name.")
app.add_typer(data_app, name="data")

ModelName = Annotated[str, typer.Option("--model", "-m", help="A bundled name or a run folder; see `glassformer models`.")]
DataDir = Annotated[Path | None, typer.Option(help="Where corpora are looked for first.")]
Beam = Annotated[int, typer.Option(min=0, max=1000, help="Beam width; 1 is greedy. 0: as the model's recipe says.")]

CHUNK = 256  # input lines that are read and batched together


@app.command()
def translate(
    text: Annotated[list[str] | None, typer.Argument(help="Sentences; `-` or nothing reads lines of standard input.")] = None,
    model: ModelName = "zh-en",
    to: Annotated[str | None, typer.Option(help="Language to translate into; guessed from the script if not given.")] = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="A file of sentences, one a line.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of to standard output.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an output file that exists.")] = False,
    beam: Beam = 0,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="α of score = Σ log p ÷ lengthᵅ.")] = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="Fewest pieces of an answer.")] = None,
    max_length: Annotated[int | None, typer.Option(min=0, help="Most pieces of an answer; 0: twice the source and ten.")] = None,
    nbest: Annotated[int, typer.Option(min=1, max=1000, help="How many answers; more than one prints: line, score, text.")] = 1,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="Draw tokens instead of searching; 0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Draw from the k likeliest only (before the softmax).")] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="… from the fewest that reach p (after it).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Makes drawing repeatable; 0 if not given.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Also tokens and alignment, on standard error.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line: tokens, scores, n-best, alignment.")] = False,
) -> None:
    """Translate sentences with a bundled or trained model."""
    text = None if text == ["-"] else text
    input, output = _unless_dash(input), _unless_dash(output)
    if text and input:
        raise UserError("Give sentences or --input, not both.")
    if output and output.exists() and input and input.exists() and output.samefile(input):
        raise UserError(f"{output} is the input: write the answers elsewhere.")
    _check_output(output, force)
    sampling = _sampling(temperature, top_k, top_p, seed)
    if sampling and nbest > 1:
        raise UserError(
            "--nbest ranks the results of a beam search; it does not go with --temperature, --top-k, --top-p or --seed."
        )
    if sampling and beam > 1:
        raise UserError("--beam searches and --temperature, --top-k, --top-p, --seed draw: choose one.")
    translator = _load(model)
    options = _decoding(translator, beam, length_penalty, min_length, max_length, nbest)
    lines = _arguments(text) if text else _lines(input)
    size = 1 if not (text or input) and sys.stdin and sys.stdin.isatty() else CHUNK  # a person at the keyboard waits for each
    done = 0
    with _progress("translating", beside_answers=output is None) as advance:

        def translate_next() -> "list[Translation]":
            return translator.translate_all(list(islice(lines, size)), to, options, sampling, first=done, progress=advance)

        answers = translate_next()  # before the output is opened: a mistake of the first lines costs no file
        with _writer(output) as out:
            while answers:
                for answer in answers:
                    done += 1
                    _print(out, translator, answer, done, nbest, as_json)
                    if show:
                        _show(translator, answer)
                out.flush()
                answers = translate_next()


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML), or a run folder to go on with.")],
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/NAME of the recipe if not given.")] = None,
    set: Annotated[list[str] | None, typer.Option("--set", help="Change the recipe: training.updates=2000")] = None,
    data_dir: DataDir = None,
) -> None:
    """Train a model; on an existing run folder, go on exactly where it stopped."""
    from glassformer.training.run import start

    start(recipe, out, set or [], data_dir)


@app.command()
def evaluate(
    model: ModelName = "zh-en",
    data: Annotated[
        list[str] | None, typer.Option(help="Pairs to judge by; the recipe's test (or dev) corpus if not given.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="One direction of a model that has two.")] = None,
    beam: Beam = 0,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer: auto, 13a, zh, char, intl, none.")] = "auto",
    limit: Annotated[int, typer.Option(min=0, help="Only the first pairs; 0 for all.")] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the translations here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an output file that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The scores as JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """BLEU and chrF with their signatures, loss and perplexity."""
    if tokenize not in ("auto", "13a", "zh", "char", "intl", "none"):
        raise UserError(f"--tokenize {tokenize!r} is not known; there are auto, 13a, zh, char, intl, none.")
    from glassformer.tasks import evaluation
    from glassformer.text.corpus import read_pairs
    from glassformer.text.datasets import find

    _check_output(output, force)
    translator = _load(model)
    recipe = translator.recipe
    specs = tuple(data or recipe.data.test or recipe.data.dev)
    if not specs:
        raise UserError("The recipe of this model names no test or dev corpus: give one with --data.")
    pairs = [
        (p.source, p.target) for p in islice(read_pairs(specs, recipe.data, lambda name: find(name, data_dir)), limit or None)
    ]
    if to:
        translator.direction("", to)
    options = _decoding(translator, beam)
    written: list[Translation] = []
    for towards, chosen in evaluation.directions(translator, pairs):
        if to not in (None, towards):
            continue
        with _progress("evaluating", len(chosen)) as advance:
            result = evaluation.evaluate(translator, chosen, towards, options, tokenizer=tokenize, progress=advance)
        print(_scores(result, len(chosen), as_json), flush=True)
        written += result.translations
    if output:
        with _writer(output) as out:
            out.writelines(_one_line(translation.text) + "\n" for translation in written)


@app.command()
def models() -> None:
    """What is bundled and what was trained here."""
    from glassformer import store

    for folder in (*store.bundled(), *store.trained()):
        try:
            print(store.describe(folder))
        except UserError as error:  # one broken folder does not hide the others
            print(f"glassformer: {error}", file=sys.stderr)
    if not store.bundled() and not store.trained():
        print("No model is bundled, and none was trained in runs/ here.", file=sys.stderr)


@app.command()
def demo() -> None:
    """Translate one sentence each way with the bundled model, and show what it looked at."""
    translator = _load("zh-en")
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


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A corpus by name; see `glassformer data list`.")],
    data_dir: DataDir = None,
) -> None:
    """Download a corpus, check it, and put it where recipes find it."""
    from glassformer.text.datasets import cache_dir, download

    with _progress(name) as advance:
        told = 0

        def report(done: int, total: int) -> None:
            nonlocal told
            advance(done - told)
            told = done

        paths = download(name, data_dir or cache_dir(), report)
    for path in paths:
        print(path)


@data_app.command("list")
def data_list() -> None:
    """The corpora known by name."""
    from glassformer.text.datasets import CORPORA

    for corpus in CORPORA.values():
        print(f"{corpus.name}\t{corpus.title}\t{corpus.licence}\t{corpus.page}")


def main() -> None:
    """Runs the command; a mistake of the user's is a sentence and exit code 2, never a traceback."""
    try:
        try:
            app(prog_name="glassformer")
        finally:
            if sys.stdout:
                sys.stdout.flush()  # here, where an error of it can still be told
    except UserError as error:
        print(f"glassformer: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nglassformer: interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        print(f"glassformer: {error}", file=sys.stderr)
        sys.exit(2)


def _load(name: str) -> "Translate":
    import glassformer

    return glassformer.load(name)


def _sampling(temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None) -> "Sampling | None":
    """Any of the four asks for drawing; the others take their neutral values."""
    from glassformer.decoding.sampling import Sampling

    if temperature is None and top_k is None and top_p is None and seed is None:
        return None
    for name, value in (("--temperature", temperature), ("--top-p", top_p)):
        if value is not None and not math.isfinite(value):
            raise UserError(f"{name} takes a number, not {value}.")
    return Sampling(1.0 if temperature is None else temperature, top_k or 0, 1.0 if top_p is None else top_p, seed or 0)


def _decoding(
    translator: "Translate",
    beam: int,
    length_penalty: float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    nbest: int = 1,
) -> "DecodingOptions":
    """The recipe's options with what the flags change."""
    from dataclasses import replace

    options = translator.recipe.decoding
    width = beam or max(options.beam, nbest)
    if nbest > width:
        raise UserError(f"--nbest {nbest} needs a beam at least as wide; --beam is {width}.")
    least = options.min_length if min_length is None else min_length
    most = options.max_length if max_length is None else max_length
    if 0 < most < least:
        raise UserError(f"The minimum length {least} is more than the maximum length {most}: see --min-length and --max-length.")
    penalty = options.length_penalty if length_penalty is None else length_penalty
    if not math.isfinite(penalty):
        raise UserError(f"--length-penalty takes a number, not {penalty}.")
    return replace(options, beam=width, length_penalty=penalty, min_length=least, max_length=most)


def _unless_dash(path: Path | None) -> Path | None:
    """`-` is standard input or output, which is what no path means."""
    return None if path == Path("-") else path


def _arguments(text: list[str]) -> Iterator[str]:
    for number, sentence in enumerate(text, start=1):
        try:
            sentence.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(f"Sentence {number} is not UTF-8.") from None
        yield sentence


def _lines(path: Path | None) -> Iterator[str]:
    from glassformer.text.corpus import read_lines

    if path is not None:
        return read_lines(path)
    return _standard_input()


def _standard_input() -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("There is no standard input: give sentences or --input.")
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UserError(f"Standard input, line {number}, is not UTF-8.") from None


def _check_output(path: Path | None, force: bool) -> None:
    """Said before the work is done, not after it. A device or a pipe may be written to, though it exists."""
    if path and path.is_dir():
        raise UserError(f"{path} is a folder; --output names a file.")
    if path and path.is_file() and not force:
        raise UserError(f"{path} exists; --force replaces it.")
    if path and not path.parent.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {path.parent}.")


@contextmanager
def _writer(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    try:
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
    with file:
        yield file


@contextmanager
def _progress(label: str, total: int | None = None, *, beside_answers: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on standard error for work that lasts; none where nobody watches, or where answers would tear it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not sys.stderr.isatty() or (beside_answers and sys.stdout.isatty())
    bar = Progress(
        *columns,
        console=Console(stderr=True),
        disable=hidden,
        transient=True,
        redirect_stdout=False,  # or the answers would go where the bar goes
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def _print(out: IO[str], translator: "Translate", answer: "Translation", number: int, nbest: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps(translator.explain(answer, nbest), ensure_ascii=False), file=out)
    elif nbest == 1:
        print(_one_line(answer.text), file=out)
    else:
        for each in answer.nbest[:nbest] or [answer]:
            print(f"{number}\t{each.score:.4f}\t{_one_line(each.text)}", file=out)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _show(translator: "Translate", answer: "Translation") -> None:
    from rich.console import Console

    from glassformer import heatmap

    heatmap.show_translation(Console(stderr=True, highlight=False), translator, answer)


def _scores(result: "Evaluation", count: int, as_json: bool) -> str:
    if as_json:
        scores = {score.name: {"value": score.value, "signature": score.signature} for score in result.scores}
        return json.dumps({"to": result.to, "pairs": count, "loss": result.loss, "perplexity": result.perplexity, **scores})
    lines = [f"into {result.to}, {count:,} pairs"]
    lines += [f"  {score.name:10} {score.value:7.2f}   {score.signature}" for score in result.scores]
    lines += [f"  loss       {result.loss:7.4f}   nats a token", f"  perplexity {result.perplexity:7.2f}"]
    return "\n".join(lines)
