"""A run that was stopped, however it was stopped, ends as one that never was."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from command import OTHERS, forked, glassformer, in_its_own_process, process, small, tiny

from glassformer import config, weights
from glassformer.training import checkpoints, loop, pairs, run

STARTING = (0, 5)  # of the ten kills, those that come while it still imports
EMA = ("training.updates=200", "training.save_every=7", "training.validate_every=60", "training.ema=0.9", "training.log_every=10")


def course(folder: Path) -> list[dict[str, object]]:
    """The lines of the log without those fields that tell the time."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")} for line in lines]


def same_end(one: Path, other: Path) -> None:
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert course(one) == course(other)


def ended(child: Any) -> int | None:
    """The exit code of a process, however it was begun."""
    if isinstance(child, subprocess.Popen):
        return child.wait()
    child.join()
    return child.exitcode


def alive(child: Any) -> bool:
    return child.poll() is None if isinstance(child, subprocess.Popen) else child.is_alive()


def saved(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("checkpoints/*") if path.name.isdigit())


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run to its end at update 12, with averaging."""
    folder = tmp_path_factory.mktemp("undisturbed")
    result = glassformer(*tiny(folder, "training.average=3"))
    assert result.code == 0, result.err
    return folder / "run"


@pytest.fixture
def trained(undisturbed: Path, tmp_path: Path) -> Path:
    """The same run, to be treated badly."""
    return shutil.copytree(undisturbed, tmp_path / "trained" / "run")


class TestKilled:
    @pytest.mark.timeout(900)  # it starts Python and PyTorch a dozen times
    def test_ten_kills_at_random_moments(self, tmp_path):
        """Some while starting, some while training, some while a checkpoint is half written."""
        draw = random.Random(1)
        whole, killed = tmp_path / "whole", tmp_path / "killed"
        for folder in (whole, killed):
            folder.mkdir()
        assert ended(forked(*tiny(whole, *EMA))) == 0
        moments = []
        for kill in range(10):
            # The first time there is no run folder yet; from then on its own name is enough.
            begun = (killed / "run" / "prepared" / "train.json").exists()
            arguments = ["train", killed / "run"] if begun else tiny(killed, *EMA)
            child = process(*arguments, stderr=subprocess.DEVNULL) if kill in STARTING else forked(*arguments)
            try:
                moments.append(self.wait(child, killed / "run", kill, draw))
            finally:
                child.kill()
            assert ended(child) == -signal.SIGKILL, "it ended before it could be killed"
        assert len({update for where, update in moments if where == "training"}) >= 3, moments
        assert any(where == "saving" for where, _ in moments), moments
        assert ended(forked("train", killed / "run")) == 0
        same_end(whole / "run", killed / "run")

    def wait(self, child: Any, folder: Path, kill: int, draw: random.Random) -> tuple[str, int]:
        """Waits for a random moment; says what the run was doing then, and after which update."""
        if kill in STARTING:
            time.sleep(draw.uniform(0.1, 1.5))
            return "starting", 0
        before = self.seen(folder)
        if kill % 2:
            place = folder / "checkpoints"
            while not any(place.glob(".*.part")) and alive(child):
                time.sleep(0.0005)
            time.sleep(draw.uniform(0.0, 0.003))
            return ("saving" if any(place.glob(".*.part")) else "training"), self.seen(folder)
        while self.seen(folder) <= before and alive(child):
            time.sleep(0.0005)
        time.sleep(draw.uniform(0.0, 0.02))
        return "training", self.seen(folder)

    def seen(self, folder: Path) -> int:
        return max(saved(folder), default=0)

    @pytest.mark.parametrize("half", ["recipe.toml", "log.jsonl", "checkpoint", "corpus", "nothing but the lock"])
    def test_half_written_files_are_made_good(self, tmp_path, trained, half):
        """What a kill can leave behind at the worst moments, made by hand."""
        folder = tmp_path / "run"
        if half == "nothing but the lock":
            folder.mkdir()
            (folder / ".lock").write_text("1")
            (folder / ".recipe.toml.part").write_text("task =")
        else:
            assert glassformer(*tiny(tmp_path, "training.average=3", "training.updates=8")).code == 0
        if half == "recipe.toml":
            (folder / ".recipe.toml.part").write_text("task =")
        elif half == "log.jsonl":
            with open(folder / "log.jsonl", "a") as log:
                log.write('{"update": 9, "epoch": 0, "loss": 1.5}\n{"update": 10, "ep')
            (folder / ".log.jsonl.part").write_text('{"upd')
        elif half == "checkpoint":
            shutil.copytree(folder / "checkpoints" / "00000008", folder / "checkpoints" / ".00000009.part")
            (folder / "checkpoints" / ".00000009.part" / "model.safetensors").write_bytes(b"half")
        elif half == "corpus":
            shutil.rmtree(folder / "checkpoints")
            (folder / "model.safetensors").unlink()
            (folder / "prepared" / "train.json").unlink()
            (folder / "prepared" / "train.ids").write_bytes(b"half")
        result = glassformer(*tiny(tmp_path, "training.average=3"))
        assert result.code == 0, result.err
        same_end(trained, folder)
        assert not list((folder / "checkpoints").glob(".*"))


class TestSignals:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_saves_says_how_to_go_on_and_ends_alike(self, tmp_path, trained, number, code):
        """At update 5 no checkpoint is due, so the one saved here is one the averaging must not see."""
        folder = tmp_path / "run"
        child = process(*tiny(tmp_path, "training.average=3", "training.updates=100000"))
        while "5/100,000" not in (line := child.stderr.readline()):
            assert line, "it ended by itself"
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == code, err
        stopped = saved(folder)[-1]
        assert f"Saved at update {stopped:,}. Go on with: glassformer train {folder}" in err
        assert "Traceback" not in err
        # The whole run, which nobody disturbed, to the same number of updates.
        more = stopped + 7
        assert glassformer("train", folder, "--set", f"training.updates={more}").code == 0
        (tmp_path / "other").mkdir()
        assert glassformer(*tiny(tmp_path / "other", "training.average=3", f"training.updates={more}")).code == 0
        same_end(tmp_path / "other" / "run", folder)

    def test_at_the_very_end_what_follows_is_stopped(self, monkeypatch, tmp_path):
        """The model is there, whole; a race would not go on to its next recipe."""
        original = loop.Trainer._finish

        def finish(self, progress):
            os.kill(os.getpid(), signal.SIGTERM)
            original(self, progress)

        monkeypatch.setattr(loop.Trainer, "_finish", finish)
        result = glassformer(*tiny(tmp_path))
        assert result.code == 143 and "Saved at update 12" in result.err
        assert (tmp_path / "run" / "model.safetensors").exists() and (tmp_path / "run" / "card.md").exists()

    @pytest.mark.parametrize("stop", [1, 3, 5, 7, 8, 11])  # 3 and 8 are saved anyway
    def test_at_every_update(self, monkeypatch, tmp_path, trained, stop):
        """The moment is chosen exactly: the signal comes while that update is computed."""
        original = loop.Trainer._update

        def update(self, progress, batches):
            if progress.update == stop:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(self, progress, batches)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Trainer, "_update", update)
            result = glassformer(*tiny(tmp_path, "training.average=3"))
        assert result.code == 143, result.err
        assert saved(tmp_path / "run")[-1] == stop
        assert glassformer("train", tmp_path / "run").code == 0
        same_end(trained, tmp_path / "run")

    def test_a_second_one_stops_at_once(self, monkeypatch, tmp_path):
        """Nothing is saved then, and nothing is broken."""

        def update(self, progress, batches):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
        try:
            with monkeypatch.context() as patch:
                patch.setattr(loop.Trainer, "_update", update)
                assert glassformer(*tiny(tmp_path)).code == 130
        finally:
            signal.signal(signal.SIGINT, before)
        assert saved(tmp_path / "run") == []
        assert glassformer("train", tmp_path / "run").code == 0


@pytest.fixture(scope="module", params=OTHERS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """One of the other tasks, and a run of it that nobody disturbed."""
    folder = tmp_path_factory.mktemp(request.param)
    result = glassformer(*small(folder, request.param))
    assert result.code == 0, result.err
    return request.param, folder / "run"


class TestEveryTask:
    """What is drawn at random differs from task to task: windows, gaps, the order of examples. All of it goes on."""

    @pytest.mark.parametrize("stop", [1, 5, 8])  # 8 is saved anyway
    def test_stopped_by_a_signal(self, monkeypatch, tmp_path, whole, stop):
        task, folder = whole
        original = loop.Trainer._update

        def update(self, progress, batches):
            if progress.update == stop:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(self, progress, batches)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Trainer, "_update", update)
            assert glassformer(*small(tmp_path, task)).code == 143
        assert saved(tmp_path / "run")[-1] == stop
        for corpus in tmp_path.glob("*.t[sx][vt]"):
            corpus.unlink()  # all that is needed is in the run folder
        assert glassformer("train", tmp_path / "run").code == 0
        same_end(folder, tmp_path / "run")

    def test_killed_while_preparing(self, tmp_path, whole):
        """Everything is there but the file that says so."""
        task, folder = whole
        assert glassformer(*small(tmp_path, task, "training.updates=1")).code == 0
        shutil.rmtree(tmp_path / "run" / "checkpoints")
        (tmp_path / "run" / "model.safetensors").unlink()
        (tmp_path / "run" / "prepared" / "train.json").unlink()
        (tmp_path / "run" / "prepared" / "train.ids").write_bytes(b"half")
        (tmp_path / "run" / "prepared" / "dev.json").write_text("half")
        assert glassformer(*small(tmp_path, task)).code == 0
        same_end(folder, tmp_path / "run")

    def test_more_updates_are_trained(self, tmp_path, whole):
        """Past the end of the first epoch."""
        task, folder = whole
        more = shutil.copytree(folder, tmp_path / "more")
        assert glassformer("train", more, "--set", "training.updates=40").code == 0
        assert glassformer(*small(tmp_path / "at once", task, "training.updates=40")).code == 0
        assert course(more)[-1]["epoch"] > 0
        same_end(tmp_path / "at once" / "run", more)


class TestGoingOn:
    def test_a_finished_run_says_so_and_keeps_its_weights(self, trained):
        before = (trained / "model.safetensors").read_bytes(), (trained / "log.jsonl").read_bytes()
        result = glassformer("train", trained)
        assert result.code == 0
        assert "This run has finished, at update 12" in result.err
        assert "training.updates" in result.err
        assert ((trained / "model.safetensors").read_bytes(), (trained / "log.jsonl").read_bytes()) == before

    def test_more_updates_are_trained(self, tmp_path, trained):
        result = glassformer("train", trained, "--set", "training.updates=16")
        assert result.code == 0
        assert "Going on from update 12" in result.err
        assert [line["update"] for line in course(trained) if "loss" in line] == list(range(1, 17))
        # The same as if 16 had been asked for at once (the inverse root does not know the end).
        (tmp_path / "at once").mkdir()
        assert glassformer(*tiny(tmp_path / "at once", "training.average=3", "training.updates=16")).code == 0
        same_end(trained, tmp_path / "at once" / "run")

    def test_fewer_updates_end_it_with_what_there_is(self, tmp_path):
        result = glassformer(*tiny(tmp_path, "training.updates=6"))
        assert result.code == 0
        result = glassformer("train", tmp_path / "run", "--set", "training.updates=2")
        assert result.code == 0
        assert (tmp_path / "run" / "model.safetensors").exists()

    def test_patience_stays_at_its_end_until_it_is_changed(self, monkeypatch, tmp_path):
        losses = iter([3.0, 1.0, 2.0, 2.0, 2.0, 0.5])
        monkeypatch.setattr(pairs, "loss", lambda *_: next(losses))
        once = ("data.both_ways=false", "training.bleu_sentences=0", "training.validate_every=2")
        result = glassformer(*tiny(tmp_path, *once, "training.patience=2"))
        assert "No better for 2 validations: stopping. The best was update 4." in result.err
        assert saved(tmp_path / "run") == [4, 8]
        for more in ((), ("--set", "training.updates=20")):
            result = glassformer("train", tmp_path / "run", *more)
            assert "This run has finished, at update 8" in result.err
            assert "training.patience" in result.err
        result = glassformer("train", tmp_path / "run", "--set", "training.patience=4", "--set", "training.updates=12")
        assert "Going on from update 8" in result.err
        assert saved(tmp_path / "run")[-1] == 12
        assert "model.safetensors is update 12" in result.err

    def test_the_corpus_may_be_gone(self, monkeypatch, tmp_path):
        """Files near the recipe are found when a run begins; it goes on from elsewhere, and after they were deleted."""
        place = tmp_path / "place"
        place.mkdir()
        lines = "".join(f"a{i} b{i}\tb{i} a{i}\n" for i in range(40))
        for name in ("train.tsv", "dev.tsv"):
            (place / name).write_text(lines)
        files = ("data.train=train.tsv", "data.dev=dev.tsv", "data.both_ways=false", "training.updates=4")
        assert glassformer(*tiny(place, *files)).code == 0
        (place / "train.tsv").unlink()
        (place / "dev.tsv").unlink()
        monkeypatch.chdir(tmp_path)
        result = glassformer("train", place / "run", "--set", "training.updates=6")
        assert result.code == 0, result.err
        assert "40 dev pairs" in result.err

    @pytest.mark.parametrize(
        ("spec", "files"),
        [
            ("pairs.tsv", ["pairs.tsv"]),
            ("deep/er/pairs.tsv.gz", ["deep/er/pairs.tsv.gz"]),
            ("train.{en,zh}.gz", ["train.en.gz", "train.zh.gz"]),
            ("rows.json#train", ["rows.json"]),
            ("rows.json.gz#the train part", ["rows.json.gz"]),
            ("c#.tsv", ["c#.tsv"]),
        ],
    )
    def test_corpora_near_the_recipe_are_kept_as_whole_paths(self, tmp_path, spec, files):
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        task = "classify" if ".json" in spec else "translate"
        recipe = config.from_dict({"task": task, "data": {"train": [spec, "multi30k/" + spec], "test": spec}})
        data = run.anchored(recipe, tmp_path).data
        assert data.train == (str(tmp_path / spec), "multi30k/" + spec)  # the other is no file here, but known by its name
        assert data.test == (str(tmp_path / spec),)

    def test_another_recipe_is_refused_and_the_difference_named(self, trained):
        before = (trained / "recipe.toml").read_bytes()
        result = glassformer("train", trained, "--set", "model.width=32", "--set", "training.rate=0.5")
        assert result.code == 2
        assert "these differ: model.width, training.rate" in result.err
        assert f"glassformer train {trained}" in result.err
        assert (trained / "recipe.toml").read_bytes() == before

    def test_a_recipe_that_led_nowhere_may_be_mended(self, tmp_path):
        assert glassformer(*tiny(tmp_path, "data.train=nowhere.tsv")).code == 2
        assert glassformer(*tiny(tmp_path, "training.updates=1")).code == 0

    def test_a_model_without_checkpoints_is_not_trained_over(self, trained):
        shutil.rmtree(trained / "checkpoints")
        before = (trained / "model.safetensors").read_bytes()
        result = glassformer("train", trained)
        assert result.code == 2
        assert "without checkpoints to go on from" in result.err
        assert (trained / "model.safetensors").read_bytes() == before

    def test_two_at_once_in_one_folder(self, trained):
        with run._lock(trained):
            result = glassformer("train", trained, "--set", "training.updates=20")
        assert result.code == 2
        assert "Another training is at work" in result.err
        assert "updates = 12" in (trained / "recipe.toml").read_text()

    def test_a_project_folder_keeps_its_data(self, tmp_path: Path) -> None:
        """A folder with a recipe.toml and a data/ of a person's own is no run, however alike it looks."""
        (tmp_path / "mine" / "data").mkdir(parents=True)
        (tmp_path / "mine" / "data" / "pairs.tsv").write_text("a\tb\n")
        recipe = '[data]\ntrain = "data/pairs.tsv"  # mine\n'
        (tmp_path / "mine" / "recipe.toml").write_text(recipe)
        result = glassformer("train", tmp_path / "mine")
        assert result.code == 2 and "is not a run folder" in result.err
        assert (tmp_path / "mine" / "data" / "pairs.tsv").exists()
        assert (tmp_path / "mine" / "recipe.toml").read_text() == recipe

    def test_a_folder_of_something_else_is_left_alone(self, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "thesis.doc").write_text("years of work")
        result = glassformer(*tiny(tmp_path))
        assert result.code == 2
        assert "is not a run folder" in result.err
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.doc"]


class TestDiskFull:
    def failing(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    @pytest.mark.parametrize("file", ["model", "optimiser", "progress", "final model"])
    def test_the_last_checkpoint_stays_and_the_run_goes_on(self, monkeypatch, tmp_path, trained, file):
        folder = tmp_path / "run"
        original, progress = weights.save_file, checkpoints.write_text

        def save(tensors, path, *rest):
            late = saved(folder) and saved(folder)[-1] >= (12 if file == "final model" else 4)
            if late and path.name == f".{file.removeprefix('final ')}.safetensors.part":
                path.write_bytes(b"as much as fitted")
                self.failing()
            return original(tensors, path, *rest)

        def write(path, text):
            if file == "progress" and path.name == "progress.json" and saved(folder) and saved(folder)[-1] >= 4:
                self.failing()
            progress(path, text)

        with monkeypatch.context() as patch:
            patch.setattr(weights, "save_file", save)
            patch.setattr(checkpoints, "write_text", write)
            result = glassformer(*tiny(tmp_path, "training.average=3"))
        assert result.code == 2, result.err
        assert "No space left" in result.err or "The disk is full" in result.err
        assert "Traceback" not in result.err
        last = 12 if file == "final model" else 4
        if last == 4:
            assert f"The last whole checkpoint, {folder / 'checkpoints' / '00000004'}, is intact." in result.err
        assert saved(folder)[-1] == last
        assert not list(folder.rglob("*.part"))
        assert glassformer("train", folder).code == 0
        same_end(trained, folder)

    def test_a_file_that_really_cannot_grow(self, tmp_path, trained):
        """The system refuses to write more than 100 kB into one file: the second checkpoint's optimiser has more."""
        folder = tmp_path / "run"
        assert glassformer(*tiny(tmp_path, "training.average=3", "training.updates=4")).code == 0
        size = (folder / "checkpoints" / "00000004" / "optimiser.safetensors").stat().st_size

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

        result = in_its_own_process("train", folder, "--set", "training.updates=12", preexec_fn=limit)
        assert result.code == 2, result.err
        assert "Saving the checkpoint of update 6 failed" in result.err
        assert "00000004, is intact." in result.err
        assert "Traceback" not in result.err
        assert saved(folder)[-1] == 4
        assert glassformer("train", folder).code == 0
        same_end(trained, folder)

    def test_a_disk_that_is_really_full(self, tmp_path, trained):
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", disk], capture_output=True, text=True)
        if mounted.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
        try:
            assert glassformer(*tiny(disk, "training.average=3", "training.updates=4")).code == 0
            room = shutil.disk_usage(disk).free
            (disk / "ballast").write_bytes(bytes(room - 20_000))
            result = glassformer("train", disk / "run", "--set", "training.updates=12")
            assert result.code == 2, result.err
            assert "disk is full" in result.err or "No space left" in result.err
            assert "Traceback" not in result.err
            (disk / "ballast").unlink()
            result = glassformer("train", disk / "run", "--set", "training.updates=12")
            assert result.code == 0, result.err
            same_end(trained, disk / "run")
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)  # its files may still be open in this process
