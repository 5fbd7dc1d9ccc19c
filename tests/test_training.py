"""Training learns, and every part of an update is what it is said to be."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
import torch
from command import Learned, glassformer, in_its_own_process, small, tiny

from glassformer import config
from glassformer.options import TrainingOptions
from glassformer.tasks.batch import Rows
from glassformer.tasks.evaluation import Evaluation
from glassformer.tasks.metrics import Score
from glassformer.text import synthetic
from glassformer.training import loop, pairs, vocabulary
from glassformer.training.checkpoints import Progress
from glassformer.training.loop import Trainer
from glassformer.training.optimiser import adamw, rate_at
from glassformer.training.run import prepare_run
from glassformer.weights import named_weights, read_tensors, write_tensors


def trainer(folder: Path, *changes: str) -> Trainer:
    """What `glassformer train` makes of the tiny recipe, before its first update."""
    recipe = config.read(Path(tiny(folder)[1]), ["data.both_ways=false", "training.bleu_sentences=0", *changes])
    (folder / "run").mkdir()
    made = Trainer(prepare_run(recipe, folder / "run", Path, lambda text: None), folder / "run")
    made.display = loop.Display(recipe.training.updates, 0)
    return made


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def saved(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("checkpoints/*"))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(x, other[name]) for name, x in one.items())


@pytest.mark.slow
class TestLearning:
    def test_reverses_at_least_99_of_100_sequences(self, learned: Learned, tmp_path: Path) -> None:
        """recipes/reverse.toml through the command line, on its own test corpus: training, then translating a file."""
        wanted = list(synthetic.pairs("reverse", 500, 3))
        (tmp_path / "in.txt").write_text("".join(source + "\n" for source, _ in wanted))
        result = in_its_own_process(
            "translate", "--model", learned.run, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt"
        )
        assert result.code == 0, result.err
        answers = (tmp_path / "out.txt").read_text().splitlines()
        assert len(answers) == len(wanted)
        right = sum(answer == target for answer, (_, target) in zip(answers, wanted, strict=True))
        assert right / len(wanted) >= 0.99, f"{right} of {len(wanted)}"

    def test_in_under_90_seconds(self, learned: Learned) -> None:
        """By the run's own clock; or, where others keep the machine busy, by the processor time it took."""
        last = log(learned.run)[-1]
        told = f"{last['seconds']} s, {learned.cpu_seconds:.0f} s of processor time, load {os.getloadavg()[0]:.1f}"
        assert min(last["seconds"], learned.cpu_seconds) < 90, told

    def test_the_loss_falls_and_the_card_tells(self, learned: Learned) -> None:
        losses = [line["loss"] for line in log(learned.run) if "loss" in line]
        assert losses[0] > 2 > 0.05 > losses[-1]
        card = (learned.run / "card.md").read_text(encoding="utf-8")
        assert "source → target" in card and "synthetic:reverse:20000:1: 20,000 pairs" in card


class TestRate:
    def test_warms_up_to_the_peak(self) -> None:
        options = TrainingOptions(rate=0.5, warmup=10)
        assert [rate_at(update, options) for update in (1, 5, 10)] == pytest.approx([0.05, 0.25, 0.5])

    @pytest.mark.parametrize(
        ("schedule", "middle", "end"),
        [("inverse-sqrt", 0.5 * math.sqrt(10 / 55), 0.5 * math.sqrt(10 / 100)), ("cosine", 0.25, 0.0), ("constant", 0.5, 0.5)],
    )
    def test_falls_as_its_name_says(self, schedule, middle, end) -> None:
        options = TrainingOptions(rate=0.5, warmup=10, updates=100, schedule=schedule)
        assert rate_at(10, options) == 0.5
        assert rate_at(55, options) == pytest.approx(middle)
        assert rate_at(100, options) == pytest.approx(end, abs=1e-12)
        assert 0 <= rate_at(1000, options) <= 0.5  # beyond the end, for a run that is given more

    def test_is_the_papers(self) -> None:
        """Vaswani et al., equation 3: d^-0.5 · min(step^-0.5, step · warmup^-1.5), with its peak as training.rate."""
        options = TrainingOptions(rate=(512 * 4000) ** -0.5, warmup=4000)
        for step in (1, 100, 3999, 4000, 4001, 100_000):
            assert rate_at(step, options) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))

    def test_no_warm_up(self) -> None:
        assert rate_at(1, TrainingOptions(rate=0.5, warmup=0)) == 0.5

    def test_is_the_one_the_optimiser_uses(self, tmp_path: Path) -> None:
        made = trainer(tmp_path, "training.updates=7", "training.clip=0")
        used = []
        made.optimiser.register_step_pre_hook(lambda *_: used.append({group["lr"] for group in made.optimiser.param_groups}))
        made.train()
        assert used == [{rate_at(update, made.options)} for update in range(1, 8)]
        assert [line["rate"] for line in log(tmp_path / "run") if "rate" in line] == [
            rate_at(u, made.options) for u in range(1, 8)
        ]

    def test_only_matrices_decay(self, tmp_path: Path) -> None:
        made = trainer(tmp_path)
        decaying, staying = adamw(made.model, TrainingOptions(weight_decay=0.1)).param_groups
        assert decaying["weight_decay"] == 0.1 and all(p.dim() > 1 for p in decaying["params"])
        assert staying["weight_decay"] == 0.0 and all(p.dim() == 1 for p in staying["params"])
        assert len(decaying["params"]) + len(staying["params"]) == len(list(made.model.parameters()))


class TestUpdate:
    def gradient(self, made: Trainer, batches: list[Rows]) -> dict[str, torch.Tensor]:
        """What the optimiser is given for these batches."""
        found: dict[str, torch.Tensor] = {}

        def take(*_: object) -> None:
            found.update({name: p.grad.clone() for name, p in made.model.named_parameters()})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(made.optimiser, "step", take)
            made._update(Progress(update=1), batches)
        return found

    def test_accumulated_batches_are_one_large_batch(self, tmp_path: Path) -> None:
        """Also when one has many tokens and the other few: the mean is over tokens, not over batches."""
        made = trainer(tmp_path, "model.dropout=0.0", "training.clip=0.0")
        read = [made.work.corpus.read(record) for record in made.work.corpus.records(torch.arange(9).numpy())]
        rows = [(made.task.source_ids(source, "zh"), target) for source, target in read]
        rows[0] = (rows[0][0], rows[0][1][:2])
        few, many = made.task.batch(rows[:1]), made.task.batch(rows[1:])
        apart, together = self.gradient(made, [few, many]), self.gradient(made, [made.task.batch(rows)])
        for name, x in together.items():
            torch.testing.assert_close(apart[name], x, atol=1e-6, rtol=1e-4, msg=name)
        alone = self.gradient(made, [few])
        assert any((alone[name] - x).abs().max() > 1e-2 for name, x in together.items()), "the two batches do not differ"

    def test_takes_as_many_batches_as_the_recipe_says(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = trainer(tmp_path, "training.accumulate=3", "training.updates=4")
        original, sizes = Trainer._update, []
        monkeypatch.setattr(Trainer, "_update", lambda self, p, batches: sizes.append(len(batches)) or original(self, p, batches))
        made.train()
        assert sizes == [3, 3, 3, 3]

    def test_the_gradient_is_clipped(self, tmp_path: Path) -> None:
        made = trainer(tmp_path, "training.clip=0.01")
        batch = next(made.work.batches(loop.Place()))[0]
        norm = torch.stack([x.norm() for x in self.gradient(made, [batch]).values()]).norm()
        assert norm.item() == pytest.approx(0.01, rel=1e-3)

    def test_the_moving_average(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """ema ← d · ema + (1 − d) · weights, with d = min(training.ema, (1 + t) / (10 + t)). It is what the run ends with."""
        made = trainer(tmp_path, "training.ema=0.3", "training.updates=8", "training.validate_every=100")
        expected = {name: x.clone().double() for name, x in named_weights(made.model).items()}
        original = Trainer._update

        def update(self: Trainer, progress: Progress, batches: list[Rows]) -> tuple[float, int]:
            result = original(self, progress, batches)
            decay = min(0.3, (1 + progress.update) / (10 + progress.update))
            for name, x in named_weights(self.model).items():
                expected[name] = decay * expected[name] + (1 - decay) * x.double()
            return result

        monkeypatch.setattr(Trainer, "_update", update)
        made.train()
        found = read_tensors(tmp_path / "run" / "model.safetensors")
        for name, x in expected.items():
            torch.testing.assert_close(found[name], x.float(), atol=1e-5, rtol=1e-5)
        assert not same(found, named_weights(made.model)), "validation must give the trained weights back"

    def test_not_finite(self, tmp_path: Path) -> None:
        wild = (
            "training.rate=1e30",
            "training.warmup=0",
            "training.save_every=1",
            "training.validate_every=100",
            "training.clip=0",
        )
        result = glassformer(*tiny(tmp_path, *wild))
        assert result.code == 2
        last = saved(tmp_path / "run")[-1]
        assert f"At update {last + 1} the loss is " in result.err
        assert "Batch: epoch 0, window 0, number " in result.err
        assert f"Last good checkpoint: {tmp_path / 'run' / 'checkpoints' / f'{last:08d}'}." in result.err
        assert "training.rate" in result.err and "Traceback" not in result.err
        assert "training.clip = 1.0 (0.0), model.norm = 'pre' ('post')." in result.err


class TestParts:
    """training.freeze and training.rates, by what an update does to each parameter."""

    PLAIN = ("model.encoder_layers=2", "training.weight_decay=0.1")

    def moved(self, folder: Path, *changes: str, updates: int = 1) -> dict[str, torch.Tensor]:
        """How far some updates move every tensor, under each of its names (a tied matrix has several)."""
        folder.mkdir()
        made = trainer(folder, *self.PLAIN, *changes)
        before = {name: x.clone() for name, x in made.model.state_dict().items()}
        made.model.train()
        torch.manual_seed(5)  # the same dropout every time
        for update, (batch, _) in zip(range(1, updates + 1), made.work.batches(loop.Place()), strict=False):
            made._update(Progress(update=update), [batch])
        return {name: x - before[name] for name, x in made.model.state_dict().items()}

    @pytest.mark.parametrize("tie", ["all", "none"])
    @pytest.mark.parametrize("part", ["encoder.0", "encoder.1.self.q.bias", "encoder.embed", "encoder", "decoder"])
    def test_what_is_frozen_stays_and_the_rest_learns(self, tmp_path: Path, part: str, tie: str) -> None:
        """A matrix that a frozen part shares with another stays too."""
        found = self.moved(tmp_path / "a", f"model.tie={tie}", f"training.freeze={part}", updates=3)
        stays = {name for name in found if name == part or name.startswith(part + ".")}
        if tie == "all" and any(name.endswith("embed.token.weight") for name in stays):
            stays |= {"encoder.embed.token.weight", "decoder.embed.token.weight", "output.weight"}
        assert stays and {name for name, x in found.items() if not x.any()} == stays

    def test_several_parts(self, tmp_path: Path) -> None:
        found = self.moved(tmp_path / "a", "model.tie=none", 'training.freeze=["encoder.0", "decoder.embed"]', updates=2)
        assert {".".join(name.split(".")[:2]) for name, x in found.items() if not x.any()} == {"encoder.0", "decoder.embed"}

    def test_rates_scale_the_update(self, tmp_path: Path) -> None:
        """Of one update, decay included: the first from the same weights, so the gradients are the same."""
        plain = self.moved(tmp_path / "a", "model.tie=none")
        rates = '{encoder = 0.25, "encoder.1.ffn" = 2, "encoder.1" = 0.5, "decoder.0.norm1.bias" = 0}'
        found = self.moved(tmp_path / "b", "model.tie=none", f"training.rates={rates}")
        for name, x in plain.items():
            factor = next(
                factor
                for part, factor in (
                    ("encoder.1.ffn.", 2.0),  # the most exact name counts
                    ("encoder.1.", 0.5),
                    ("encoder.", 0.25),
                    ("decoder.0.norm1.bias", 0.0),
                    ("", 1.0),
                )
                if name.startswith(part)
            )
            assert x.any(), name
            torch.testing.assert_close(found[name], factor * x, atol=2e-7, rtol=1e-4, msg=name)

    def test_rates_follow_the_schedule(self, tmp_path: Path) -> None:
        made = trainer(tmp_path, "training.rates={encoder = 0.25}", "training.updates=7")
        rates: list[dict[float, float]] = []
        step = made.optimiser.step

        def note() -> None:
            rates.append({group["factor"]: group["lr"] for group in made.optimiser.param_groups})
            step()

        made.optimiser.step = note
        made.train()
        wanted = [rate_at(update, made.options) for update in range(1, 8)]
        assert [each[1.0] for each in rates] == wanted
        assert [each[0.25] for each in rates] == [0.25 * rate for rate in wanted]

    @pytest.mark.parametrize("change", ["training.freeze=encodr", "training.rates={encodr = 0.1}", "training.freeze=encoder.7"])
    def test_an_unknown_part_is_named_with_those_there_are(self, tmp_path: Path, change: str) -> None:
        result = glassformer(*tiny(tmp_path, change))
        part = "encoder.7" if "7" in change else "encodr"
        assert result.code == 2 and "Traceback" not in result.err
        assert f"This model has no part '{part}' (training.freeze, training.rates); it has " in result.err
        assert all(known in result.err for known in ("encoder.0", "encoder.embed", "decoder.0", "output"))

    def test_half_a_name_is_no_part(self, tmp_path: Path) -> None:
        """encoder.1 is not the beginning of encoder.10."""
        found = self.moved(tmp_path / "a", "model.encoder_layers=11", "training.freeze=encoder.1")
        assert {".".join(name.split(".")[:2]) for name, x in found.items() if not x.any()} == {"encoder.1"}

    def test_nothing_left_to_train(self, tmp_path: Path) -> None:
        result = glassformer(*tiny(tmp_path, 'training.freeze=["encoder", "decoder", "output"]'))
        assert result.code == 2 and "leaves nothing to train" in result.err

    @pytest.mark.parametrize("ema", ["training.ema=0.9", "training.average=2"])
    def test_going_on_with_frozen_parts_ends_alike(self, tmp_path: Path, ema: str) -> None:
        changes = ("training.freeze=encoder.0", "training.rates={decoder = 0.5}", ema)
        for name in ("whole", "parts"):
            (tmp_path / name).mkdir()
        assert glassformer(*tiny(tmp_path / "whole", *changes)).code == 0
        assert glassformer(*tiny(tmp_path / "parts", *changes, "training.updates=5")).code == 0
        assert glassformer("train", tmp_path / "parts" / "run", "--set", "training.updates=12").code == 0
        ends = [(tmp_path / name / "run" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
        assert ends[0] == ends[1]


@pytest.fixture(scope="module")
def filler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder that was trained to fill gaps."""
    folder = tmp_path_factory.mktemp("filler")
    result = glassformer(*small(folder, "fill"))
    assert result.code == 0, result.err
    return folder / "run"


class TestBegunWithAModel:
    """`--from`: the vocabulary, sizes and weights of another model, but for its head. A rate of 0 shows what was taken."""

    STILL = ("training.rate=0", "training.updates=1")

    def begun(self, folder: Path, task: str, model: Path, *changes: str) -> tuple[Path, str]:
        lines = small(folder, task, more=("--from", model))
        recipe = Path(lines[1])
        text = recipe.read_text(encoding="utf-8")
        recipe.write_text(text[: text.index("[tokenizer]")] + text[text.index("[training]") :], encoding="utf-8")
        result = glassformer(*lines, *(word for change in changes for word in ("--set", change)))
        assert result.code == 0, result.err
        return folder / "run", result.err

    @pytest.mark.parametrize("task", ["classify", "compare", "tag"])
    def test_the_encoder_is_taken_and_the_head_is_not(self, tmp_path: Path, filler: Path, task: str) -> None:
        run, said = self.begun(tmp_path, task, filler, *self.STILL)
        theirs, ours = (read_tensors(folder / "model.safetensors") for folder in (filler, run))
        encoder = {name for name in theirs if name.startswith("encoder.")}
        assert encoder == {name for name in ours if name.startswith("encoder.")}
        assert all(ours[name].equal(theirs[name]) for name in encoder)
        head = {name for name in ours if name.startswith("head.")}
        assert encoder | head == ours.keys()
        assert not any(name in theirs and theirs[name].any() and ours[name].equal(theirs[name]) for name in head)
        parts = {"tag": "head.output"}.get(task, "head.dense, head.output")
        assert f"Begins with {len(encoder)} tensors of {filler}; fresh: {parts}." in said
        assert (run / "tokenizer.json").read_bytes() == (filler / "tokenizer.json").read_bytes()

    def test_the_head_is_as_fresh_as_without_a_model(self, tmp_path: Path, filler: Path) -> None:
        run, _ = self.begun(tmp_path / "begun", "classify", filler, *self.STILL)
        assert glassformer(*small(tmp_path / "alone", "classify", *self.STILL)).code == 0
        begun, alone = (read_tensors(folder / "model.safetensors") for folder in (run, tmp_path / "alone" / "run"))
        assert begun["head.dense.weight"].equal(alone["head.dense.weight"])
        assert not begun["encoder.0.self.q.weight"].equal(alone["encoder.0.self.q.weight"])

    def test_the_same_task_takes_everything(self, tmp_path: Path, filler: Path) -> None:
        run, said = self.begun(tmp_path / "fill", "fill", filler, *self.STILL)
        assert same(read_tensors(run / "model.safetensors"), read_tensors(filler / "model.safetensors"))
        assert "fresh: none." in said

    @pytest.mark.parametrize("task", ["language", "translate"])
    def test_models_without_a_head_are_taken_whole(self, tmp_path: Path, task: str) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()

        def arguments(folder: Path, *changes: str) -> list[str]:
            return tiny(folder, *changes) if task == "translate" else small(folder, task, *changes)

        assert glassformer(*arguments(tmp_path / "a")).code == 0
        result = glassformer(*arguments(tmp_path / "b", "seed=9", *self.STILL), "--from", tmp_path / "a" / "run")
        assert result.code == 0 and "fresh: none." in result.err
        assert same(*(read_tensors(tmp_path / name / "run" / "model.safetensors") for name in ("a", "b")))

    def test_it_learns_from_there(self, tmp_path: Path, filler: Path) -> None:
        run, _ = self.begun(tmp_path, "classify", filler, "training.freeze=encoder.0", "training.rates={encoder = 0.1}")
        theirs, ours = (read_tensors(folder / "model.safetensors") for folder in (filler, run))
        moved = {name for name in theirs if name in ours and not ours[name].equal(theirs[name])}
        assert "encoder.1.ffn.w1.weight" in moved and not any(name.startswith("encoder.0.") for name in moved)
        card = (run / "card.md").read_text(encoding="utf-8")
        assert "Began with the weights of run." in card

    def test_going_on_ends_alike_though_the_model_is_gone(
        self, tmp_path: Path, filler: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run is its own once it has begun: from another folder, and when the model it began with was deleted."""
        whole, _ = self.begun(tmp_path / "whole", "classify", filler)
        model = shutil.copytree(filler, tmp_path / "model")
        monkeypatch.chdir(tmp_path)
        run, _ = self.begun(tmp_path / "parts", "classify", Path("model"), "training.updates=5")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert config.read(run / "recipe.toml").start == str(model)
        shutil.rmtree(model)
        result = glassformer("train", run, "--set", "training.updates=12")
        assert result.code == 0, result.err
        assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()

    def test_a_folder_of_any_name(self, tmp_path: Path, filler: Path) -> None:
        model = shutil.copytree(filler, tmp_path / '模型 🙂 "x" \\n')
        run, _ = self.begun(tmp_path, "classify", model, *self.STILL)
        assert config.read(run / "recipe.toml").start == str(model)

    @pytest.mark.parametrize(
        ("task", "model", "changes", "words"),
        [
            ("classify", "filler", ["model.width=32"], "model.width is 32, but the model it starts from has 16"),
            ("classify", "nowhere", [], "There is no model 'nowhere'"),
            ("language", "filler", ["model.max_length=258"], "model.kind is 'bert'; the task 'language' is served by gpt"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, filler: Path, task: str, model: str, changes: list[str], words: str) -> None:
        start = filler if model == "filler" else model
        result = glassformer(*small(tmp_path, task, *changes, more=("--from", start)))
        assert result.code == 2 and words in result.err and "Traceback" not in result.err
        assert not (tmp_path / "run").exists()

    def test_damaged_weights(self, tmp_path: Path, filler: Path) -> None:
        model = shutil.copytree(filler, tmp_path / "model")
        tensors = read_tensors(model / "model.safetensors")
        tensors["encoder.0.norm1.bias"] = torch.zeros(3)
        del tensors["encoder.1.self.q.weight"]
        write_tensors(model / "model.safetensors", tensors)
        result = glassformer(*small(tmp_path, "tag", more=("--from", model)))
        assert result.code == 2 and "is no model to start this one from" in result.err
        assert "missing: encoder.1.self.q.weight" in result.err
        assert "shape of encoder.0.norm1.bias: (3,), where the recipe says (16,)" in result.err


class TestVocabulary:
    """A vocabulary is learned from a part of a large corpus, evenly."""

    @pytest.mark.parametrize("characters", [1, 10, 99, 100, 150, 199, 10_000])
    def test_both_sides_are_read_whatever_the_share(self, monkeypatch: pytest.MonkeyPatch, characters: int) -> None:
        """Sides alternate: source, target, source, target."""
        monkeypatch.setitem(vocabulary.CHARACTERS, "bpe", characters)
        texts = [side for _ in range(100) for side in ("a", "b")]
        chosen = list(vocabulary.sampled(lambda: iter(texts), "bpe")())
        assert chosen.count("a") == chosen.count("b") > 0
        assert len(chosen) <= max(2, characters)

    def test_little_text_is_read_whole(self) -> None:
        assert list(vocabulary.sampled(lambda: iter("abc"), "word")()) == ["a", "b", "c"]

    @pytest.mark.parametrize("shared", ["true", "false"])
    def test_an_imported_one_comes_with_a_model(self, tmp_path: Path, shared: str) -> None:
        changes = ("tokenizer.kind=imported", f"tokenizer.shared={shared}", "data.both_ways=false", "model.tie=none")
        result = glassformer(*tiny(tmp_path, *changes))
        assert result.code == 2 and "--from" in result.err and "Traceback" not in result.err


class TestChoice:
    """Which weights a run ends with, and which checkpoints it keeps."""

    ONE_WAY = ("data.both_ways=false", "training.bleu_sentences=0", "training.validate_every=2", "training.save_every=100")

    def judged(self, monkeypatch: pytest.MonkeyPatch, *losses: float) -> None:
        """Validations find these losses, one after another."""
        given = iter(losses)
        monkeypatch.setattr(pairs, "loss", lambda *_: next(given))

    def test_the_best_and_the_last_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judged(monkeypatch, 3.0, 1.0, 2.0, 1.5)
        result = glassformer(*tiny(tmp_path, *self.ONE_WAY, "training.updates=8"))
        run = tmp_path / "run"
        assert "model.safetensors is update 4" in result.err
        assert saved(run) == [4, 8]
        best, last = (run / "checkpoints" / f"{update:08d}" for update in (4, 8))
        assert same(read_tensors(run / "model.safetensors"), read_tensors(best / "model.safetensors"))
        assert not same(read_tensors(run / "model.safetensors"), read_tensors(last / "model.safetensors"))
        assert (last / "optimiser.safetensors").exists() and not (best / "optimiser.safetensors").exists()
        assert "at update 4: dev loss zh 1.0" in (run / "card.md").read_text(encoding="utf-8")

    def test_patience(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judged(monkeypatch, 3.0, 1.0, 2.0, 0.9, 2.0, 1.0)
        result = glassformer(*tiny(tmp_path, *self.ONE_WAY, "training.updates=1000", "training.patience=2"))
        assert result.code == 0
        assert "No better for 2 validations: stopping. The best was update 8." in result.err
        assert saved(tmp_path / "run") == [8, 12]

    def test_between_equal_bleu_the_loss_decides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """BLEU is 0 at first. The first of those models must not be taken for the best, nor patience end the run."""
        self.judged(monkeypatch, 3.0, 2.5, 2.0, 1.5)
        nothing = Evaluation("zh", 0.0, 1.0, (Score("BLEU", 0.0, ""),), [])
        monkeypatch.setattr(pairs, "evaluate", lambda *_: nothing)
        none = ("training.bleu_sentences=2", "training.updates=8", "training.patience=2")
        result = glassformer(*tiny(tmp_path, *self.ONE_WAY, *none))
        assert [line["bleu_zh"] for line in log(tmp_path / "run") if "bleu_zh" in line] == [0.0] * 4
        assert "model.safetensors is update 8" in result.err

    def test_the_mean_of_the_last(self, tmp_path: Path) -> None:
        assert glassformer(*tiny(tmp_path, "training.average=3")).code == 0  # saved at 3, 4, 6, 8, 9, 12
        run = tmp_path / "run"
        assert {8, 9, 12} <= set(saved(run)) and len(saved(run)) <= 4  # and the best
        three = [read_tensors(run / "checkpoints" / f"{update:08d}" / "model.safetensors") for update in (8, 9, 12)]
        for name, x in read_tensors(run / "model.safetensors").items():
            torch.testing.assert_close(x, torch.stack([weights[name] for weights in three]).mean(0))

    def test_without_a_dev_corpus_the_last(self, tmp_path: Path) -> None:
        result = glassformer(*tiny(tmp_path, "data.dev=[]", "training.updates=5"))
        assert result.code == 0, result.err
        assert "model.safetensors is update 5" in result.err

    def test_the_same_seed_gives_the_same_weights_and_another_does_not(self, tmp_path: Path) -> None:
        found = []
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            (tmp_path / name).mkdir()
            assert glassformer(*tiny(tmp_path / name, f"seed={seed}", "training.updates=3")).code == 0
            found.append((tmp_path / name / "run" / "model.safetensors").read_bytes())
        assert found[0] == found[1] != found[2]
