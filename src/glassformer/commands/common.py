"""What the commands share: the application, options they have in common, input, output and progress."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from glassformer.errors import UserError

if TYPE_CHECKING:
    from glassformer.decoding.sampling import Sampling
    from glassformer.options import Recipe

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A Transformer you can see through: train, run and look inside.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelName = Annotated[str, typer.Option("--model", "-m", help="A bundled name or a folder; see `glassformer models`.")]
DataDir = Annotated[Path | None, typer.Option(help="Where corpora are looked for first.")]
Input = Annotated[Path | None, typer.Option("--input", "-i", help="A file of sentences, one a line.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write here instead of to standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an output file that exists.")]
Text = Annotated[list[str] | None, typer.Argument(help="Sentences; `-` or nothing reads lines of standard input.")]
Temperature = Annotated[float | None, typer.Option(min=0.0, help="Draw tokens instead of searching; 0 is greedy.")]
TopK = Annotated[int | None, typer.Option(min=0, help="Draw from the k likeliest only (before the softmax).")]
TopP = Annotated[float | None, typer.Option(min=0.0, max=1.0, help="… from the fewest that reach p (after it).")]
Seed = Annotated[int | None, typer.Option(min=0, help="Makes drawing repeatable; 0 if not given.")]
Engine = Annotated[str, typer.Option(help="What computes: auto, pytorch, ctranslate2 or ctranslate2-int8.")]

CHUNK = 1024  # input lines that are read and batched together


def load(name: str, task: str) -> Any:
    """The model, if it does what is asked of it."""
    from glassformer.tasks import registry

    return registry.load(find(name, task)[0])


def find(name: str, task: str) -> "tuple[Path, Recipe]":
    """The folder of a model that does what is asked of it, and its recipe."""
    from glassformer import config, store

    folder = store.find_model(name)
    recipe = config.read(folder / "recipe.toml")
    if recipe.task != task:
        others = [f.name for f in store.bundled() if config.read(f / "recipe.toml").task == task]
        there = f" For this there {'is' if len(others) == 1 else 'are'}: {', '.join(others)}." if others else ""
        command = {"language": "generate"}.get(recipe.task, recipe.task)
        raise UserError(f"The model {name} is for the command `glassformer {command}`, not for this one.{there}")
    return folder, recipe


def input_lines(text: list[str] | None, input: Path | None, output: Path | None, force: bool) -> tuple[Iterator[str], int]:
    """The sentences to answer, and how many to read at a time; what is wrong with files is said before any work is done."""
    text = None if text == ["-"] else text
    if text and input:
        raise UserError("Give sentences or --input, not both.")
    if input and not input.exists():
        raise UserError(f"There is no file {input}: --input names a file of sentences, one a line.")
    if output and output.exists() and input and input.exists() and output.samefile(input):
        raise UserError(f"{output} is the input: write the answers elsewhere.")
    check_output(output, force)
    alone = not (text or input) and sys.stdin and sys.stdin.isatty()  # a person at the keyboard waits for each answer
    return (arguments(text) if text else lines(input)), (1 if alone else CHUNK)


def unless_dash(path: Path | None) -> Path | None:
    """`-` is standard input or output, which is what no path means."""
    return None if path == Path("-") else path


def arguments(text: list[str]) -> Iterator[str]:
    for number, sentence in enumerate(text, start=1):
        try:
            sentence.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(f"Sentence {number} is not UTF-8.") from None
        yield sentence


def lines(path: Path | None) -> Iterator[str]:
    from glassformer.text.corpus import read_lines

    if path is not None:
        return read_lines(path)
    return standard_input()


def standard_input() -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("There is no standard input: give sentences or --input.")
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UserError(f"Standard input, line {number}, is not UTF-8.") from None


def check_output(path: Path | None, force: bool) -> None:
    """Said before the work is done, not after it. A device or a pipe may be written to, though it exists."""
    if path and path.is_dir():
        raise UserError(f"{path} is a folder; --output names a file.")
    if path and path.is_file() and not force:
        raise UserError(f"{path} exists; --force replaces it.")
    if path and not path.parent.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {path.parent}.")


@contextmanager
def writer(path: Path | None) -> Iterator[IO[str]]:
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
def progress(label: str, total: int | None = None, *, beside_answers: bool = False) -> Iterator[Callable[[int], None]]:
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


def one_line(text: str) -> str:
    return " ".join(text.splitlines())


def sampling(temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None) -> "Sampling | None":
    """Any of the four asks for drawing; the others take their neutral values."""
    if temperature is None and top_k is None and top_p is None and seed is None:
        return None
    from glassformer.decoding.sampling import Sampling

    for name, value in (("--temperature", temperature), ("--top-p", top_p)):
        if value is not None and not math.isfinite(value):
            raise UserError(f"{name} takes a number, not {value}.")
    return Sampling(1.0 if temperature is None else temperature, top_k or 0, 1.0 if top_p is None else top_p, seed or 0)


def answer_all(
    lines: Iterator[str],
    size: int,
    output: Path | None,
    label: str,
    solve: Callable[[list[str], int, Callable[[int], None]], list[T]],
    put: Callable[[IO[str], T, int], None],
) -> None:
    """Reads lines, answers them `size` at a time, and writes every answer in order.

    `solve` takes lines, how many came before them, and whom to tell of progress; `put` writes one answer with its number.
    """
    done = 0
    try:
        with progress(label, beside_answers=output is None) as advance:
            chunk = list(islice(lines, size))
            answers = solve(chunk, 0, advance) if chunk else []  # before the output is opened: a mistake in it costs no file
            with writer(output) as out:
                while chunk:
                    for answer in answers:
                        put(out, answer, done + 1)
                        done += 1
                    out.flush()
                    chunk = list(islice(lines, size))
                    answers = solve(chunk, done, advance) if chunk else []
    except KeyboardInterrupt:
        there = f"; {done:,} {'answer is' if done == 1 else 'answers are'} in {output}" if output and done else ""
        print(f"\nglassformer: interrupted{there}.", file=sys.stderr)
        sys.exit(130)
