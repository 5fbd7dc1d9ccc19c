"""The README's examples are run as written, and the two READMEs say the same."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer import store

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.zh-CN.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name: str, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall((ROOT / name).read_text(encoding="utf-8")) if kind == language]


def test_both_readmes_have_the_same_commands() -> None:
    def bare(name: str) -> list[str]:
        bodies = [body for language in ("bash", "python", "toml", "text") for body in blocks(name, language)]
        return [re.sub(r"\s+# .*", "", line).rstrip() for line in "\n".join(bodies).splitlines()]

    assert bare(READMES[0]) == bare(READMES[1])


@pytest.mark.parametrize("name", READMES)
def test_links_and_pictures_exist(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with what the README says a person has: sentences to translate, pairs to train on, its recipe."""
    pairs = "".join(f"the {a} {b}\tdie {a} {b}\n" for a in ("cat", "dog", "bird", "fish") for b in ("sleeps", "runs", "eats"))
    for file in ("pairs.tsv", "dev.tsv", "test.tsv"):
        (tmp_path / file).write_text(pairs, encoding="utf-8")
    (tmp_path / "in.txt").write_text("the cat runs\n\n好久不见。\n", encoding="utf-8")
    for name, recipe in zip(("mine.toml", "reviews.toml"), blocks("README.md", "toml"), strict=True):
        (tmp_path / name).write_text(recipe, encoding="utf-8")
    reviews = [f"the {a} was {b},{c}\n" for a in ("film", "book", "song") for b, c in (("fine", "good"), ("dull", "bad"))]
    (tmp_path / "reviews.csv").write_text("text,label\n" + "".join(reviews) * 4, encoding="utf-8")
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    return tmp_path


ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUTF8": "1"}
SCRIPTS = dict(ENVIRONMENT)  # the same, for whole scripts
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture(scope="module", autouse=True)
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`glassformer` in these scripts is tests/ready.py: the command, but in a process that need not import torch each time."""
    folder = tmp_path_factory.mktemp("bin")
    ready = [sys.executable, "-S", str(ROOT / "tests" / "ready.py"), str(folder / "socket")]
    (folder / "glassformer").write_text(f'#!/bin/sh\nexec {shlex.join(ready)} "$@"\n')
    (folder / "glassformer").chmod(0o755)
    child = subprocess.Popen([sys.executable, *ready[2:]], env=ENVIRONMENT)
    while not (folder / "socket").exists():
        assert child.poll() is None
        time.sleep(0.02)
    SCRIPTS["PATH"] = f"{folder}:{ENVIRONMENT['PATH']}"
    yield
    child.kill()
    child.wait()


def run(script: str, folder: Path) -> str:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=SCRIPTS, **PIPES)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_translate_examples(workplace: Path) -> None:
    script = next(body for body in blocks("README.md", "bash") if "--show" in body)
    answers = run(script.replace("source .venv/bin/activate\n", ""), workplace).splitlines()
    assert len(answers) == 1 + 1 + 1 + 3 + 1 + 1 and all(answers)
    assert len((workplace / "out.txt").read_text(encoding="utf-8").splitlines()) == 3


def test_ancestors_examples(workplace: Path) -> None:
    script = next(body for body in blocks("README.md", "bash") if "zh-en-lstm" in body)
    assert "strawberries" in run(script, workplace)


def test_vectors_examples(workplace: Path) -> None:
    script = next(body for body in blocks("README.md", "bash") if "vectors neighbours" in body)
    (workplace / "pairs-of-words.tsv").write_text("coffee\ttea\t8\ncoffee\tdog\t1\ncat\t猫\t10\n", encoding="utf-8")
    answers = run(script, workplace).split("\n")
    assert "咖啡" in answers[0] and any("sister" in line for line in answers) and "3 of 3" in answers[-2]


def test_training_examples(workplace: Path) -> None:
    script = next(body for body in blocks("README.md", "bash") if "train mine.toml" in body)
    short = "--set training.updates=2 --set training.warmup=1 --set training.log_every=1"  # the README's own sizes, two updates
    run(script.replace("--out runs/mine\n", f"--out runs/mine {short}\n"), workplace)
    assert (workplace / "runs/mine/model.safetensors").exists()


def test_writing_and_labelling_examples(workplace: Path) -> None:
    script = next(body for body in blocks("README.md", "bash") if "generate" in body and "classify" in body)
    answers = run(script, workplace)
    assert answers.startswith("ROMEO:") and "arrow/NOUN" in answers and answers.count('"seed"') == 3


def test_other_tasks_examples(workplace: Path) -> None:
    script = next(body for body in blocks("README.md", "bash") if "train reviews.toml" in body)
    short = "--set training.updates=2 --set training.warmup=1"
    run(re.sub(r"(glassformer train .*)", rf"\1 {short}", script), workplace)
    assert (workplace / "runs/reviews-2/model.safetensors").exists()


def test_moving_examples(workplace: Path) -> None:
    """What needs the network or another package is left out here; tests/test_interop.py has it."""
    script = next(body for body in blocks("README.md", "bash") if "glassformer export" in body)
    run("\n".join(line for line in script.splitlines() if "export" in line), workplace)
    assert (workplace / "models/shakespeare-hf/config.json").exists()


def test_explore_examples(workplace: Path) -> None:
    """Each serves the page until Ctrl-C."""
    (workplace / "runs").mkdir()
    (workplace / "runs/mine").symlink_to(store.find_model("tagger"))
    script = next(body for body in blocks("README.md", "bash") if "glassformer explore" in body)
    for command in re.sub(r"\s+# .*| --port 9000", "", script).splitlines():
        child = subprocess.Popen([*command.split(), "--port", "0"], cwd=workplace, env=ENVIRONMENT, **PIPES)
        assert child.stdout
        with urllib.request.urlopen(child.stdout.readline().strip(), timeout=30) as page:
            assert b"Glassformer" in page.read()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0, child.communicate()


def test_export_examples(workplace: Path) -> None:
    """As written, but of a shorter text, which takes less time."""
    script = next(body for body in blocks("README.md", "bash") if "--export" in body).splitlines()[0]
    run(re.sub(r'--text ".*?"', '--model tagger --text "Hm."', script), workplace)
    assert (workplace / "page/index.html").exists() and (workplace / "page/export/manifest.json").exists()


def test_python_examples(workplace: Path) -> None:
    (workplace / "example.py").write_text("\n".join(blocks("README.md", "python")), encoding="utf-8")
    assert "torch.Size([6, " in run(f"{sys.executable} example.py", workplace)
