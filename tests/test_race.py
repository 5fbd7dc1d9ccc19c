"""`glassformer race`, end to end on made-up data: what it writes, how it goes on, what it refuses."""

import csv
import json
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from command import TINY, glassformer, process, small

from glassformer import charts, config
from glassformer.training.checkpoints import Progress
from glassformer.training.judging import Judged, Judgement, Measure, length_edges, on_shared_texts
from glassformer.training.standings import Finish, differing, on_the_same_texts

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
    assert "final BLEU is that of the weights that were best on the dev data" in printed
    assert "There is no test data: the dev data has both chosen the weights and judged them" in printed
    assert "Not trained on the same examples" not in printed
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
    assert again.out == printed and "This run has finished" in again.err and "--set" not in again.err
    assert len(rows(out / "curves.csv")) <= 3 * 12  # at most a dozen validations each


def test_the_same_race_asked_for_again_goes_on_and_another_is_refused(raced: tuple[Path, str]) -> None:
    out, printed = raced
    paths = [out.parent / f"{name}.toml" for name in ("transformer", "fixed", "gru")]  # as they were
    assert glassformer("race", *paths, "--out", out, "--tokens", 3000).out == printed  # with the limit it was begun with
    fewer = glassformer("race", *paths, "--out", out, "--limit", 3)
    assert fewer.code == 0 and "Judged by the same 3 texts of the dev data." in fewer.out
    assert "the same 3 texts" in glassformer("race", out).out  # asked for from now on
    assert "seconds to BLEU 77" in glassformer("race", out, "--limit", 8, "--quality", 77).out
    assert "seconds to BLEU 77" in glassformer("race", out).out
    assert glassformer("race", out, "--quality", 0).out == printed  # as without one
    for change in ("training.rate=0.5", "training.updates=99"):
        other = glassformer("race", *paths, "--out", out, "--set", change)
        assert other.code == 2 and f"{change.split('=')[0]} of fixed" in other.err and f"--out {out}-2" in other.err
    mine = out / "gru.toml"
    kept = mine.read_text()
    mine.write_text(kept.replace("seed = 1", "seed = 2"))
    changed = glassformer("race", out)
    mine.write_text(kept)
    assert changed.code == 2 and "gru.toml was changed after the race had begun, in seed" in changed.err


def test_models_of_a_race_are_models(raced: tuple[Path, str]) -> None:
    out, _ = raced
    found = glassformer("translate", "--model", out / "fixed", "1 May 2020", "--to", "zh", "--json")
    assert found.code == 0 and '"alignment": null' in found.out, found.err
    shown = glassformer("translate", "--model", out / "gru", "1 May 2020", "--to", "zh", "--show", "--beam", 3)
    assert shown.code == 0 and "looked at, in % (cross-attention of the last layer):" in " ".join(shown.err.split())
    many = glassformer("translate", "--model", out / "transformer", "1 May 2020", "--to", "zh", "--show").err
    assert "mean of its heads" in " ".join(many.split())
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


class TestTheSameTexts:
    """Some models read less than others; nobody is judged by what another cannot read."""

    def test_translations(self, tmp_path: Path) -> None:
        first, second, _ = recipes(tmp_path)
        pairs = [f"{'one ' * n}\t{'eins ' * n}" for n in range(1, 31)]
        (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
        for path, most in ((first, 200), (second, 22)):
            text = path.read_text().replace("synthetic:dates:300:1", "pairs.tsv").replace("synthetic:dates:12:2", "pairs.tsv")
            text = text.replace("[tokenizer]", '[tokenizer]\nkind = "word"').replace("dropout = 0.2\n", "")
            text = text.replace("[data]", f"[data]\nmax_length = {20 if most == 200 else 15}")
            path.write_text(text.replace("max_length = 200", f"max_length = {most}"))
        result = glassformer("race", first, second, "--out", tmp_path / "out", "--tokens", 600)
        assert result.code == 0, result.err
        assert "Judged by the same 20 texts of the dev data; 10 more are longer than fixed can read, and left out" in result.out
        assert "Not trained on the same examples: transformer 20, fixed 15." in result.out
        assert "Validated by the same dev texts: 10 more are longer than some of the models read" in result.out
        for name in ("transformer", "fixed"):
            assert len(json.loads((tmp_path / "out" / name / "prepared" / "dev.json").read_text())) == 20
            assert sum(int(row["texts"]) for row in rows(tmp_path / "out" / "lengths.csv") if row["recipe"] == name) == 40

    def test_only_what_everybody_answered_counts(self) -> None:
        made = [
            Judgement("share", [Judged(str(n), n, 0, number=n) for n in numbers], lambda part: len(part), 5)
            for numbers in ((0, 1, 2, 4), (1, 2, 3, 4), (0, 1, 4))
        ]
        assert [[each.number for each in judged.answers] for judged in on_shared_texts(made)] == [[1, 4]] * 3

    def test_what_is_said_of_them(self) -> None:
        recipe = config.from_dict({"task": "classify", "data": {"test": ["x.tsv"]}})
        texts = [Judged(str(n), 0, 0, number=n) for n in range(5)]
        made = [
            Finish("a", recipe, 1, Progress(), Measure("accuracy"), [], 1.0, Judgement("x", texts, len, 5, cut=3)),
            Finish("b", recipe, 1, Progress(), Measure("accuracy"), [], 1.0, Judgement("x", texts[1:], len, 5, long=1)),
        ]
        found, notes = on_the_same_texts(made, 1)
        assert notes == [
            "Validated by the same dev texts: 1 more is longer than some of the models read, and left out.",
            "Judged by the same 4 texts of the test data; 1 more is longer than b can read, and left out for all.",
            "Of 3 of them a read the beginning alone.",
            "final x is that of the weights that were best on the dev data, which may not be the last ones.",
        ]
        assert [finish.score for finish in found] == [4, 4]


def test_what_was_not_alike_while_training_is_said() -> None:
    both = [config.from_dict({"task": "classify", "training": {"average": average}}) for average in (3, 1)]
    judgement = Judgement("x", [Judged("a", 0, 0)], len, 1)

    def notes(*each: tuple[int, int | None]) -> list[str]:
        made = [
            Finish(name, recipe, 1, Progress(tokens=tokens), Measure("x"), [], 1.0, judgement, examples)
            for name, recipe, (tokens, examples) in zip("ab", both, each, strict=True)
        ]
        assert on_the_same_texts(made, 0)[1][1:] == [
            "final x of b is that of the weights that were best on the dev data, which may not be the last ones.",
            "There is no test data: the dev data has both chosen the weights and judged them, which flatters them.",
            "final x of a is that of the mean of the last checkpoints (training.average).",
        ]
        return [note.split(".")[0] for note in differing(made)]

    assert notes((1000, 5), (1050, 5)) == notes((1000, None), (1000, None)) == []
    assert notes((3964, 5), (2970, 5)) == ["Not trained on the same number of tokens: a 3,964, b 2,970"]
    assert notes((1000, 5), (1000, 4)) == ["Not trained on the same examples: a 5, b 4"]


class TestMeasures:
    def test_a_loss_is_called_one_and_smaller_is_better(self, tmp_path: Path) -> None:
        first, second, _ = recipes(tmp_path)
        loss = ("--set", "training.bleu_sentences=0")
        result = glassformer("race", first, second, "--out", tmp_path / "out", "--tokens", 1500, "--limit", 2, *loss)
        assert result.code == 0, result.err
        table = rows(tmp_path / "out" / "race.csv")
        best = {row["recipe"]: float(row["best dev loss"]) for row in table}
        for row in rows(tmp_path / "out" / "curves.csv"):
            assert float(row["loss"]) + 1e-4 >= best[row["recipe"]] > 0
        assert f"seconds to loss {max(best.values()):.4g}" in table[0] and "final BLEU" in table[0]

    def test_spans_are_judged_as_they_are_validated(self, tmp_path: Path) -> None:
        lines = ["we O\nmet O\nMr B-PER\nBlack I-PER\n", "she O\nis O\nin O\nRome B-LOC\n"] * 20
        (tmp_path / "words.conll").write_text("\n".join(lines), encoding="utf-8")
        small(tmp_path, "tag")
        text = (tmp_path / "tag.toml").read_text().replace("words.tsv", "words.conll")
        for name in ("one", "two"):
            (tmp_path / f"{name}.toml").write_text(text)
        result = glassformer("race", tmp_path / "one.toml", tmp_path / "two.toml", "--out", tmp_path / "out", "--tokens", 1500)
        assert result.code == 0, result.err
        for row in rows(tmp_path / "out" / "race.csv"):
            assert 0 < float(row["best dev span F1"]) == pytest.approx(float(row["final span F1"]), abs=1e-3)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ("bleu_sentences = 2|bleu_sentences = 1", "training.bleu_sentences"),
            ("vocabulary = 320|vocabulary = 300", "tokenizer.vocabulary"),
        ],
    )
    def test_what_could_not_be_compared_is_refused(self, tmp_path: Path, change: str, told: str) -> None:
        first, second, _ = recipes(tmp_path)
        second.write_text(second.read_text().replace(*change.split("|")))
        settings = ("--set", "training.bleu_sentences=0") if "tokenizer" in told else ()
        result = glassformer("race", first, second, "--out", tmp_path / "out", *settings)
        assert result.code == 2 and "measured alike" in result.err and told in result.err


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
        names = ["race.json.toml", "Race.csv.toml", ".race.toml", "...toml", "fixed.toml.toml"]
        for name in names:
            (tmp_path / name).write_text(first.read_text())
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thesis.txt").write_text("precious")
        for arguments, words in (
            ([first], "two recipes"),
            ([first, first], "file names"),
            ([first, tmp_path / "none.toml"], "no recipe"),
            ([tmp_path], "not a race folder"),
            ([tmp_path / "nowhere"], "neither a recipe nor a race folder"),
            ([raced[0], first], "by its folder alone"),
            ([first, second, "--out", tmp_path / "full"], "not a race folder"),
            ([first, second, "--out", first], "is a file"),
            ([first, second, third, "--out", raced[0], "--tokens", 5], "another race"),
            *(([second, tmp_path / name, "--out", tmp_path / "out"], f"The recipe {tmp_path / name} would") for name in names),
            *(([first, second, "--out", tmp_path / "out", "--quality", x], f"number, not {x}") for x in ("nan", "inf")),
            ([first, second, "--set", "data.dev=[]", "--out", tmp_path / "out"], "dev data"),
            ([first, second, "--set", "model.cells=3", "--out", tmp_path / "out"], "no key model.cells"),
        ):
            result = glassformer("race", *arguments)
            assert result.code == 2 and words in result.err and "Traceback" not in result.err, (arguments, result.err)
        assert (tmp_path / "full" / "thesis.txt").read_text() == "precious" and not (tmp_path / "out").exists()

    def test_what_to_type_is_quoted(self, tmp_path: Path) -> None:
        (tmp_path / "my race").mkdir()
        (tmp_path / "my race" / "race.json").write_text('{"names": [], "tokens": 5, "quality": null, "limit": 0}')
        result = glassformer("race", *recipes(tmp_path), "--out", tmp_path / "my race")
        assert result.code == 2 and f"glassformer race '{tmp_path / 'my race'}'" in result.err
        assert f"--out '{tmp_path / 'my race'}-2'" in result.err


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
    judged = task != "language"
    assert (tmp_path / "out" / "lengths.csv").exists() == judged == ("lengths.csv" in result.out)
    assert ("bits a character" in result.out) != judged


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
