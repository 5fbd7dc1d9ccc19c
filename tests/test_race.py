"""`glassformer race`, end to end on made-up data: what it writes, how it goes on, what it refuses."""

import csv
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from command import TINY, glassformer, process, small

from glassformer import charts
from glassformer.training.judging import Judged, Judgement, length_edges

RNN = (
    TINY[: TINY.index("[model]")]
    + """[model]
kind = "rnn"
cell = "{cell}"
attention = "{attention}"
bidirectional = true
width = 16
dropout = 0.1
max_length = 200
"""
    + TINY[TINY.index("[training]") :]
)


def recipes(folder: Path) -> list[Path]:
    made = {
        "transformer": TINY,
        "fixed": RNN.format(cell="lstm", attention="none"),
        "gru": RNN.format(cell="gru", attention="dot"),
    }
    for name, text in made.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return [folder / f"{name}.toml" for name in made]


def rows(path: Path) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("race")
    result = glassformer("race", *recipes(folder), "--out", folder / "out", "--tokens", 3000, "--limit", 8)
    assert result.code == 0, result.err
    return folder / "out", result.out


def test_everybody_has_the_same_tokens_and_a_row(raced: tuple[Path, str]) -> None:
    out, printed = raced
    table = rows(out / "race.csv")
    assert [row["recipe"] for row in table] == ["transformer", "fixed", "gru"]
    for row in table:
        assert abs(int(row["tokens"]) - 3000) < 400 and int(row["parameters"]) > 1000
        assert float(row["seconds"]) > 0 and float(row["tokens/s"]) > 0
        assert row["recipe"] in printed
        assert 0 <= float(row["final BLEU"]) <= 100
    reached = next(name for name in table[0] if name.startswith("seconds to BLEU"))
    assert all(row[reached] for row in table)  # what all reach is reached by all


def test_lengths_and_curves_are_of_everybody(raced: tuple[Path, str]) -> None:
    out, _ = raced
    parts, curve = rows(out / "lengths.csv"), rows(out / "curves.csv")
    for name in ("transformer", "fixed", "gru"):
        mine = [row for row in parts if row["recipe"] == name]
        assert sum(int(row["texts"]) for row in mine) == 16  # eight pairs, both ways
        assert len([row for row in curve if row["recipe"] == name]) >= 3
    picture = ET.parse(out / "race.svg").getroot()
    words = {element.text for element in picture.iter() if element.tag.endswith("text")}
    assert {"transformer", "fixed", "gru"} <= words
    assert len([element for element in picture.iter() if element.tag.endswith("polyline")]) == 9


def test_a_finished_race_is_told_again(raced: tuple[Path, str]) -> None:
    out, printed = raced
    again = glassformer("race", out)
    assert again.code == 0, again.err
    assert again.out == printed


def test_models_of_a_race_are_models(raced: tuple[Path, str]) -> None:
    out, _ = raced
    found = glassformer("translate", "--model", out / "fixed", "1 May 2020", "--to", "zh", "--json")
    assert found.code == 0 and '"alignment": null' in found.out, found.err
    shown = glassformer("translate", "--model", out / "gru", "1 May 2020", "--to", "zh", "--show", "--beam", 3)
    assert shown.code == 0 and "looked at" in shown.err
    drawn = [
        glassformer("translate", "--model", out / "gru", "1 May", "--to", "zh", "--temperature", 1, "--seed", 3) for _ in (1, 2)
    ]
    assert drawn[0].code == 0 and drawn[0].out == drawn[1].out
    assert "no attention" in glassformer("translate", "--model", out / "fixed", "1 May", "--to", "zh", "--show").err


def test_an_interrupted_race_ends_as_one_that_was_not(raced: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = raced
    slow = ["--tokens", 3000, "--limit", 8, "--out", tmp_path / "out"]
    child = process("race", *recipes(tmp_path), *slow)
    deadline = time.monotonic() + 200
    while not (tmp_path / "out" / "fixed" / "log.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate()
    if child.returncode:
        assert child.returncode == 130 and f"Go on with: glassformer race {tmp_path / 'out'}" in told, told
    again = glassformer("race", tmp_path / "out")
    assert again.code == 0, again.err
    for name in ("transformer", "fixed", "gru"):
        weights = "model.safetensors"
        assert (out / name / weights).read_bytes() == (tmp_path / "out" / name / weights).read_bytes()


class TestRefused:
    def test_recipes_that_do_not_share_a_task(self, tmp_path: Path) -> None:
        first, *_ = recipes(tmp_path)
        small(tmp_path, "classify")
        result = glassformer("race", first, tmp_path / "classify.toml", "--out", tmp_path / "out")
        assert result.code == 2 and not result.out and not (tmp_path / "out").exists()
        assert "share one task" in result.err and "classify is classify" in result.err and "Traceback" not in result.err

    def test_word_vectors(self, tmp_path: Path) -> None:
        paths = [tmp_path / f"{name}.toml" for name in ("one", "two")]
        for path in paths:
            path.write_text('task = "vectors"\n[data]\ntrain = "texts.txt"\n')
        result = glassformer("race", *paths, "--out", tmp_path / "out")
        assert result.code == 2 and "vectors evaluate" in result.err and not (tmp_path / "out").exists()

    def test_recipes_that_do_not_share_their_data(self, tmp_path: Path) -> None:
        first, second, _ = recipes(tmp_path)
        second.write_text(second.read_text().replace("dates:300:1", "dates:301:1"))
        result = glassformer("race", first, second, "--out", tmp_path / "out")
        assert result.code == 2 and "data.train" in result.err

    def test_other_mistakes(self, tmp_path: Path, raced: tuple[Path, str]) -> None:
        first, second, third = recipes(tmp_path)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thesis.txt").write_text("precious")
        for arguments, words in (
            ([first], "two recipes"),
            ([first, first], "file names"),
            ([first, tmp_path / "none.toml"], "no recipe"),
            ([tmp_path], "not a race folder"),
            ([raced[0], first], "by its folder alone"),
            ([first, second, "--out", tmp_path / "full"], "not a race folder"),
            ([first, second, "--out", first], "is a file"),
            ([first, second, third, "--out", raced[0], "--tokens", 5], "another race"),
            ([first, second, "--set", "data.dev=[]", "--out", tmp_path / "out"], "dev data"),
            ([first, second, "--set", "model.cells=3", "--out", tmp_path / "out"], "no key model.cells"),
        ):
            result = glassformer("race", *arguments)
            assert result.code == 2 and words in result.err and "Traceback" not in result.err, (arguments, result.err)
        assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(("task", "kinds"), [("classify", ("rnn", "textcnn", "mlp")), ("tag", ("rnn",)), ("language", ("rnn",))])
def test_other_tasks_race_too(task: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    small(tmp_path, task)
    text = (tmp_path / f"{task}.toml").read_text()
    paths = [tmp_path / f"{task}.toml"]
    for kind in kinds:
        path = tmp_path / f"{kind}.toml"
        before, after = text[: text.index("[model]")], text[text.index("[training]") :]
        path.write_text(
            f'{before}[model]\nkind = "{kind}"\nwidth = 16\nmax_length = {24 if task == "language" else 258}\n{after}'
        )
        paths.append(path)
    result = glassformer("race", *paths, "--out", tmp_path / "out", "--tokens", 1500)
    assert result.code == 0, result.err
    assert [row["model"] for row in rows(tmp_path / "out" / "race.csv")][1:] == list(kinds)
    assert (tmp_path / "out" / "lengths.csv").exists() == (task != "language")


def test_parts_by_length_hold_every_text() -> None:
    texts = [Judged("w " * n, n % 2, 0) for n in (1, 1, 1, 2, 3, 5, 8, 8, 13, 40)]
    judged = Judgement("share", texts, lambda part: sum(each.answer for each in part) / len(part))
    edges = length_edges([each.length for each in texts])
    assert edges == sorted(set(edges)) and sum(count for count, _ in judged.by_length(edges)) == len(texts)
    assert length_edges([4]) == [4, 5]
    assert [each.length for each in (Judged("你好 world", 0, 0), Judged("", 0, 0))] == [3, 0]


def test_a_chart_of_anything_is_valid() -> None:
    for points in ([], [(0, 0)], [(1, 5), (1, 5)], [(0, 1e-30), (3, 1e9)], [(0, float("nan")), (1, 2)]):
        for log in (False, True):
            ET.fromstring(charts.svg([charts.Chart("a <b> & c", "x", "y", [charts.Line("<l>", points)], log=log)]))
