"""A film is what the model said and where it looked at that update, and recording it changes nothing."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from command import glassformer, small, tiny
from safetensors import safe_open
from safetensors.torch import save_file

from glassformer import config, film, store
from glassformer.errors import UserError
from glassformer.tasks import registry
from glassformer.training import loop
from glassformer.training.bundle import bundle
from glassformer.training.film import LARGEST, frame_updates
from glassformer.weights import load_weights

PROBES = ("3 May 2021\t2021年5月3日", "1999年12月30日\tDecember 30, 1999")
FILM = (f"film.probes={json.dumps(PROBES)}", "film.frames=6")
EMA = ("training.ema=0.8", *FILM)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run with a film, without a moving average."""
    folder = tmp_path_factory.mktemp("plain")
    result = glassformer(*tiny(folder, *FILM))
    assert result.code == 0, result.err
    return folder / "run"


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("averaged")
    assert glassformer(*tiny(folder, *EMA)).code == 0
    return folder / "run"


def the_film(run: Path) -> film.Film:
    found = film.read(run)
    assert found is not None
    return found


def pattern(run: Path, update: int, probe: int, name: str) -> torch.Tensor:
    path = run / "film.safetensors" if (run / "film.safetensors").exists() else film.frame_path(run, update)
    with safe_open(path, framework="pt") as file:
        return file.get_tensor(f"{update:08d}/{probe}/{name}")


def test_frames_are_closer_together_at_the_beginning() -> None:
    chosen = frame_updates(9000, 30)
    assert len(chosen) == 30 and chosen[0] == 0 and chosen[-1] == 9000
    gaps = [b - a for a, b in pairwise(chosen)]
    assert gaps == sorted(gaps)
    assert frame_updates(3, 30) == [0, 1, 2, 3]


class TestFrames:
    def test_hold_what_the_weights_of_that_update_compute(self, averaged: Path) -> None:
        """The last checkpoint's moving average, loaded afresh: the same answers, and patterns within half a step."""
        found = the_film(averaged)
        assert [frame["update"] for frame in found.frames] == frame_updates(12, 6)
        assert found.weights == "ema" and found.task == "translate"
        task = registry.load(averaged)
        load_weights(task.model, averaged / "checkpoints" / "00000012" / "ema.safetensors")
        frame = found.frames[-1]
        for i, probe in enumerate(PROBES):
            text, wanted = probe.split("\t")
            said, about = frame["answers"][i], found.probes[i]
            assert said["text"] == task.translate(text).text
            assert about["reference"] == wanted and about["to"] == task.direction(text)
            trace = task.trace(text, target=task.target.encode(wanted))
            assert [token["text"] for token in about["source"]] == trace.source
            assert {f"{name}.pattern" for name in about["patterns"]} == {name for name in trace if name.endswith(".pattern")}
            for name in about["patterns"]:
                kept = pattern(averaged, 12, i, name).float() / 255
                assert (kept - trace[f"{name}.pattern"]).abs().max() <= 1 / 510 + 1e-6
            log_p = trace["logits"].log_softmax(-1)
            ids = [*task.target.encode(wanted), task.target.eos]
            assert said["log_probs"] == pytest.approx([float(log_p[t, id]) for t, id in enumerate(ids)], abs=1e-4)

    def test_change_while_the_model_learns_and_say_how_far_it_is(self, plain: Path) -> None:
        found = the_film(plain)
        assert found.weights == "plain"
        first, last = found.frames[0], found.frames[-1]
        assert first["loss"] is None and first["dev"] is None and first["tokens"] == 0
        log = [json.loads(line) for line in (plain / "log.jsonl").read_text().splitlines()]
        assert last["loss"] == next(line["loss"] for line in log if line["update"] == 12 and "loss" in line)
        assert last["dev"]["dev_loss_zh"] == log[-1]["dev_loss_zh"] and last["tokens"] == log[-1]["tokens"]
        name = "decoder.0.cross"
        assert not torch.equal(pattern(plain, 0, 0, name), pattern(plain, 12, 0, name))

    def test_are_sent_in_the_order_of_their_shapes(self, plain: Path) -> None:
        found = the_film(plain)
        names = found.probes[1]["patterns"]
        expected = b"".join(pattern(plain, update, 1, name).numpy().tobytes() for update in (2, 4) for name in names)
        assert [frame["update"] for frame in found.frames[1:3]] == [2, 4]
        assert found.patterns(1, 1, 2) == expected

    @pytest.mark.parametrize(
        ("task", "probe", "said"),
        [
            ("language", "May 3", {"text", "score", "log_probs"}),
            ("fill", "May [MASK], 1999", {"text", "candidates"}),
            ("classify", "May 3, 1999", {"label", "probability", "labels"}),
            ("compare", "May 3, 1999\t1999-05-03", {"label", "probability", "labels"}),
            ("tag", "May 3, 1999", {"words"}),
        ],
    )
    def test_of_every_task(self, tmp_path: Path, task: str, probe: str, said: set[str]) -> None:
        result = glassformer(*small(tmp_path, task, f"film.probes={json.dumps([probe])}", "film.frames=2", "training.updates=3"))
        assert result.code == 0, result.err
        found = the_film(tmp_path / "run")
        assert [frame["update"] for frame in found.frames] == [0, 3]
        assert set(found.frames[-1]["answers"][0]) == said
        assert len(found.patterns(0, 0, 2)) == 2 * sum(h * t * s for h, t, s in found.probes[0]["patterns"].values())


class TestRecording:
    def test_changes_neither_weights_nor_log(self, tmp_path: Path, averaged: Path) -> None:
        assert glassformer(*tiny(tmp_path, "training.ema=0.8")).code == 0
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == (averaged / "model.safetensors").read_bytes()
        for name in ("model", "ema", "optimiser"):
            mine, theirs = (run / "checkpoints" / "00000012" / f"{name}.safetensors" for run in (tmp_path / "run", averaged))
            assert mine.read_bytes() == theirs.read_bytes()
        assert not (tmp_path / "run" / "film").exists()

    def test_a_stopped_run_records_the_same_film(self, tmp_path: Path, averaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Killed after frames that the last checkpoint does not know of; a half frame is left over, too."""
        update = loop.Trainer._update

        def killed(self: Any, progress: Any, batches: Any) -> Any:
            if progress.update == 6:
                raise MemoryError
            return update(self, progress, batches)

        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(loop.Trainer, "_update", killed)
            glassformer(*tiny(tmp_path, *EMA))
        run = tmp_path / "run"
        assert film.recorded(run) == [0, 2, 4]
        shutil.copy(film.frame_path(run, 0), film.frame_path(run, 8))  # past the checkpoint, and wrong
        (run / "film" / ".00000008.safetensors.part").write_bytes(b"half")
        assert glassformer("train", run).code == 0
        for one in sorted((averaged / "film").iterdir()):
            assert (run / "film" / one.name).read_bytes() == one.read_bytes(), one.name
        assert film.recorded(run) == film.recorded(averaged)
        assert (run / "model.safetensors").read_bytes() == (averaged / "model.safetensors").read_bytes()

    def test_an_early_end_is_a_frame(self, tmp_path: Path) -> None:
        changes = ("training.updates=400", "training.patience=1", "training.rate=1e-9", "training.validate_every=2")
        assert glassformer(*tiny(tmp_path, *FILM, *changes)).code == 0
        ended = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["update"]
        assert ended < 400 and film.recorded(tmp_path / "run")[-1] == ended


class TestMistakes:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            (['film.probes=["May 3"]'], "a probe of the task 'translate' is a text, a tab and its translation; found 'May 3'"),
            (['film.probes=["a\\tb\\tc"]'], "a text, a tab and its translation"),
            (['film.probes=["a\\t "]'], "a text, a tab and its translation"),
            ([f"film.probes={json.dumps(['a	b'] * 17)}"], "film.probes are 17; at most 16"),
            (["film.frames=1"], "film.frames is 1; it must be at least 2"),
            ([f"film.probes={json.dumps(['5 ' * 150 + '	b'])}"], "this model reads at most 200"),
        ],
    )
    def test_are_told_before_the_first_update(self, tmp_path: Path, changes: list[str], said: str) -> None:
        result = glassformer(*tiny(tmp_path, *changes))
        assert result.code == 2 and said in result.err, result.err
        assert not (tmp_path / "run" / "log.jsonl").exists()

    def test_word_vectors_have_no_probes(self) -> None:
        with pytest.raises(UserError, match="word vectors read none"):
            config.from_dict({"task": "vectors", "film": {"probes": ["a"]}})

    def test_a_probe_that_is_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("glassformer.training.film.LARGEST", 100)
        result = glassformer(*tiny(tmp_path, *FILM))
        assert result.code == 2 and "in one frame" in result.err and LARGEST == 1_000_000
        monkeypatch.undo()
        monkeypatch.setattr("glassformer.training.film.WHOLE", 100)
        result = glassformer(*tiny(tmp_path, *FILM))
        assert result.code == 2 and "The film would take" in result.err

    @pytest.mark.parametrize("harm", ["cut", "words", "empty", "other", "large"])
    def test_a_damaged_film_is_told_of(self, tmp_path: Path, plain: Path, harm: str) -> None:
        run = shutil.copytree(plain, tmp_path / "run")
        path = film.frame_path(run, 4)
        if harm == "cut":
            path.write_bytes(path.read_bytes()[:-10])
        elif harm == "words":
            save_file({"x": torch.zeros(1)}, path, {"film": json.dumps({"format": film.FORMAT, "probes": 1})})
        elif harm == "empty":
            path.write_bytes(b"")
        elif harm == "large":
            path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
        else:
            film.write(path, {"task": "translate", "weights": "plain", "probes": []}, [], {})
        with pytest.raises(UserError, match=r"is not a whole film|belongs to another film"):
            film.read(run)


class TestBundling:
    def test_keeps_the_film_and_the_curve_in_one_file(self, tmp_path: Path, plain: Path) -> None:
        told: list[str] = []
        bundle(plain, tmp_path / "model", told.append)
        packed, loose = the_film(tmp_path / "model"), the_film(plain)
        assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
            "card.md", "film.safetensors", "model.safetensors", "recipe.toml", "tokenizer.json",
        ]  # fmt: skip
        assert packed.probes == loose.probes
        without: Callable[[Any], Any] = lambda frame: {key: value for key, value in frame.items() if key != "file"}  # noqa: E731
        assert list(map(without, packed.frames)) == list(map(without, loose.frames))
        assert packed.patterns(0, 0, 99) == loose.patterns(0, 0, 99)
        assert packed.curve == film.log_lines(plain / "log.jsonl")[0]
        assert (tmp_path / "model" / "model.safetensors").stat().st_size < (plain / "model.safetensors").stat().st_size * 0.6
        assert "film" in told[-1]

    def test_leaves_out_a_film_that_is_too_large(self, tmp_path: Path, plain: Path) -> None:
        told: list[str] = []
        bundle(plain, tmp_path / "model", told.append, largest=1000)
        assert not (tmp_path / "model" / "film.safetensors").exists()
        assert "left out" in told[-1] and (tmp_path / "model" / "model.safetensors").exists()


class TestLog:
    def test_reads_whole_lines_and_counts_broken_ones(self, tmp_path: Path) -> None:
        lines = ['{"update": 1, "loss": 2.5}', "", "no", '{"update": 2, "loss": NaN}', "[]", '{"update": true}', '{"update": 3']
        (tmp_path / "log.jsonl").write_text("\n".join(lines))
        entries, broken = film.log_lines(tmp_path / "log.jsonl")
        assert entries == [{"update": 1, "loss": 2.5}, {"update": 2}]
        assert broken == [3, 5, 6]  # the last is still being written

    def test_thins_without_averaging(self) -> None:
        entries = [{"update": i, "loss": 1 / (i + 1)} for i in range(5000)] + [{"update": 5000, "dev_loss": 1.0}]
        few = film.thinned(entries, 100)
        assert len(few) <= 101 and few[-1] == entries[-1] and few[-2] == entries[4999] and all(one in entries for one in few)


def test_the_bundled_translator_has_its_film() -> None:
    """In the last frame it says what it says: the film is of these weights, and no other's."""
    assert os.path.getsize(store.BUNDLED / "zh-en" / film.PACKED) <= film.LARGEST == 4_000_000
    shown = the_film(store.BUNDLED / "zh-en")
    assert len(shown.frames) >= 30 and shown.frames[0]["update"] == 0
    translator: Any = registry.load(store.find_model("zh-en"))
    greedy = replace(translator.recipe.decoding, beam=1)
    found = translator.translate_all([probe["text"] for probe in shown.probes], options=greedy)
    for probe, answer, kept in zip(shown.probes, found, shown.frames[-1]["answers"], strict=True):
        assert answer.text == kept["text"], probe
        assert answer.score == pytest.approx(kept["score"], abs=0.01)  # half precision
