"""The command as tests call it: in this process where that proves as much, in its own where it is to be killed."""

import io
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from glassformer import cli
from glassformer.layers.threads import libraries
from glassformer.text import synthetic

ROOT = Path(__file__).parent.parent
REVERSE = ROOT / "recipes" / "reverse.toml"

# Everything random a run can have: dropout, BPE-dropout, both directions. An update takes about ten milliseconds.
TINY = """
task = "translate"
[data]
train = "synthetic:dates:300:1"
dev = "synthetic:dates:12:2"
source = "en"
target = "zh"
both_ways = true
[tokenizer]
vocabulary = 320
dropout = 0.2
[model]
width = 16
heads = 2
inner = 32
encoder_layers = 1
decoder_layers = 1
dropout = 0.1
max_length = 200
[training]
updates = 12
batch_tokens = 256
rate = 1e-2
warmup = 5
validate_every = 4
save_every = 3
bleu_sentences = 2
log_every = 1
threads = 1
[decoding]
beam = 1
max_length = 20
"""


# The other tasks, as small: texts about dates, which of two ways they are written in, and which of their words are numbers.
OTHERS = {  # the corpus of each, and the further keys of its data
    "language": ("texts.txt", ""),
    "fill": ("texts.txt", ""),
    "classify": ("labels.tsv", "columns = [1, 2]"),
    "compare": ("pairs.tsv", "columns = [1, 2, 3]"),
    "tag": ("words.tsv", ""),
}
OTHER = """
task = "{task}"
[data]
train = "{corpus}"
dev_share = 0.2
{data}
[tokenizer]
vocabulary = 320
mask = "<mask>"
[model]
width = 16
heads = 2
inner = 32
layers = 2
dropout = 0.1
max_length = {positions}
[training]
updates = 12
batch_tokens = 128
rate = 1e-2
warmup = 5
validate_every = 4
save_every = 3
log_every = 1
threads = 1
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class _Stream(io.TextIOWrapper):
    """Standard output or error that is kept, byte for byte."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding="utf-8", write_through=True)


def glassformer(*arguments: object, stdin: str | bytes = b"") -> Result:
    """`glassformer ARGUMENTS` in this process: what it printed and its exit code."""
    out, err = _Stream(), _Stream()
    data = stdin.encode() if isinstance(stdin, str) else stdin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["glassformer", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as left:
            cli.main()
    code = left.value.code
    assert code is None or isinstance(code, int), code
    return Result(code or 0, out.kept.getvalue().decode(), err.kept.getvalue().decode())


def process(*arguments: object, **options: object) -> subprocess.Popen[str]:
    """`glassformer ARGUMENTS` in a process of its own."""
    environment = {**os.environ, **_same_kernels(), "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    command = [sys.executable, "-m", "glassformer", *map(str, arguments)]
    return subprocess.Popen(command, text=True, encoding="utf-8", **{**settings, **options})  # type: ignore[call-overload]


@cache
def _same_kernels() -> dict[str, str]:
    """A process of its own would take those its processor trains fastest with; this one has others, which round differently."""
    found = [library.architecture for library in libraries() if library.internal_api == "openblas"]
    return {"OPENBLAS_CORETYPE": found[0]} if found else {}


_READY = multiprocessing.get_context("forkserver")
_READY.set_forkserver_preload(
    ["torch", "torch._dynamo", "sacrebleu", "command", "glassformer.training.loop", "glassformer.training.run"]
)


def forked(*arguments: object) -> Any:
    """`glassformer ARGUMENTS` in a process that forks from one which has imported torch already. Nobody hears what it says."""
    child = _READY.Process(target=_quietly, args=([*map(str, arguments)],), daemon=True)
    child.start()
    return child


def _quietly(arguments: list[str]) -> None:
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    sys.argv = ["glassformer", *arguments]
    cli.main()


def in_its_own_process(*arguments: object, **options: object) -> Result:
    child = process(*arguments, **options)
    try:
        out, err = child.communicate()
    finally:
        child.kill()
    return Result(child.returncode, out, err)


def tiny(folder: Path, *changes: str) -> list[str]:
    """Arguments that train the tiny recipe into folder/run, with changes such as training.ema=0.9."""
    recipe = folder / "tiny.toml"
    recipe.write_text(TINY, encoding="utf-8")
    return ["train", str(recipe), "--out", str(folder / "run"), *(word for change in changes for word in ("--set", change))]


def small(folder: Path, task: str, *changes: str, more: Sequence[object] = ()) -> list[str]:
    """Arguments that train a small model for one of the other tasks into folder/run; `more` are further arguments."""
    folder.mkdir(exist_ok=True)
    pairs = list(synthetic.pairs("dates", 120, 1))
    words = [[(word, "number" if word[0].isdigit() else "word") for word in source.split()] for source, _ in pairs]
    rows = {
        "texts.txt": [source for source, _ in pairs],
        "labels.tsv": [f"{source}\tnamed" if " " in source else f"{source}\tnumbers" for source, _ in pairs],
        "pairs.tsv": [f"{source}\t{pairs[i - i % 2][1]}\t{'other' if i % 2 else 'same'}" for i, (source, _) in enumerate(pairs)],
        "words.tsv": ["".join(f"{word}\t{label}\n" for word, label in sentence) for sentence in words],
    }
    corpus, data = OTHERS[task]
    (folder / corpus).write_text("\n".join(rows[corpus]) + "\n", encoding="utf-8")
    recipe, positions = folder / f"{task}.toml", 24 if task == "language" else 258
    recipe.write_text(OTHER.format(task=task, corpus=corpus, data=data, positions=positions), encoding="utf-8")
    settings = [word for change in changes for word in ("--set", change)]
    return ["train", str(recipe), "--out", str(folder / "run"), *map(str, more), *settings]


@dataclass(frozen=True)
class Learned:
    run: Path
    cpu_seconds: float


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """recipes/reverse.toml, trained by the command line as it stands. The other tests of the command use it too."""
    shared = "PYTEST_XDIST_WORKER" in os.environ  # then it is trained by the first worker that needs it, and on one core
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if shared else base) / "learned"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            result = in_its_own_process(
                "train", REVERSE, "--out", folder / "run", *(["--set", "training.threads=1"] if shared else [])
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert result.code == 0, result.err
            (folder / "seconds").write_text(str(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return Learned(folder / "run", float((folder / "seconds").read_text()))
