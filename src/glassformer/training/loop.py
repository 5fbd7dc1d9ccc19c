"""The training loop: batches in, gradients out, and a run folder from which it can always go on.

Everything that decides the next weights is in a checkpoint (weights, optimiser, random state, place in the data), and
everything else is a function of the recipe; so a run that was killed and continued ends in the same weights, bit for bit.
"""

import gc
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from glassformer.decoding.cores import one_core
from glassformer.errors import UserError
from glassformer.files import write_text
from glassformer.memory import keep_memory
from glassformer.models.stack import parameters
from glassformer.options import BlockOptions, Word2VecOptions, usual_training
from glassformer.tasks.batch import Rows
from glassformer.text.batches import Place
from glassformer.training.checkpoints import Checkpoints, Progress
from glassformer.training.display import Display
from glassformer.training.film import Recorder
from glassformer.training.gradients import Gradients
from glassformer.training.optimiser import OPTIMISERS, clip_all, clip_rows, rate_at
from glassformer.training.prefetch import prefetch
from glassformer.training.work import Work
from glassformer.weights import named_weights, write_tensors


class Stopped(Exception):
    """A signal asked the run to stop; it has been saved."""

    def __init__(self, number: int, update: int) -> None:
        super().__init__(f"stopped at update {update}")
        self.number, self.update = number, update


class Trainer:
    def __init__(self, work: Work, run: Path, alone: bool = True) -> None:
        self.alone = alone  # not one of a race
        self.work, self.task, self.run = work, work.task, run
        self.recipe, self.options = work.task.recipe, work.task.recipe.training
        self.model = work.task.model
        self.optimiser = OPTIMISERS[self.options.optimiser](self.model, self.options)
        self.threads = self.options.threads or available_cores()
        self.gradients = Gradients(self.task, self.options.label_smoothing, self.threads)
        self.ema = {name: x.clone() for name, x in named_weights(self.model).items()} if self.options.ema else {}
        self.checkpoints = Checkpoints(run / "checkpoints")
        self.film = Recorder(self.task, run, "ema" if self.ema else "plain") if self.recipe.film.probes else None
        self.signal = 0

    def train(self) -> Progress:
        """Trains to the end, or from where an earlier run stopped; leaves model.safetensors in the run folder."""
        keep_memory(one_store=True)
        threads = self.threads
        torch.set_num_threads(threads)
        progress = self.checkpoints.read(self.model, self.optimiser, self.ema) or Progress(threads=threads)
        self._trim_log(progress.update)
        with Display(self.options.updates, progress.update) as self.display, _Signals(self), less_garbage():
            say = self.display.say
            say(
                f"{parameters(self.model):,} parameters, {threads} {'thread' if threads == 1 else 'threads'}."
                + self._continuing(progress, threads)
            )
            if self.film:
                self.film.trim(progress.update)
                if not progress.update:
                    self._record(progress)  # the fresh weights; a probe that does not fit is told of here
            with closing(self.gradients), closing(prefetch(self.work.batches(progress.place))) as stream:
                self._updates(progress, stream)
            self._finish(progress)
        return progress

    def _ended(self, progress: Progress) -> bool:
        """Asked of the options as they are now: a finished run that is given more updates, or more patience, goes on."""
        tired = 0 < self.options.patience <= progress.worse
        return tired or progress.update >= self.options.updates

    def _continuing(self, progress: Progress, threads: int) -> str:
        if not progress.update:
            return ""
        if self._ended(progress):
            more = "training.patience" if progress.update < self.options.updates else "training.updates"
            advice = f"; to train on, raise {more} with --set" if self.alone else ""
            return f" This run has finished, at update {progress.update:,}{advice}."
        other = f" It was begun with {progress.threads} threads, so rounding may differ." if progress.threads != threads else ""
        return f" Going on from update {progress.update:,}.{other}"

    def _updates(self, progress: Progress, stream: Iterator[tuple[Rows, Place]]) -> None:
        options = self.options
        self.model.train()
        began, seconds = time.monotonic(), progress.seconds
        logged, told = began, progress.tokens
        while not self._ended(progress):
            group = [next(stream) for _ in range(options.accumulate)]
            progress.update += 1
            nll, count = self._update(progress, [batch for batch, _ in group])
            progress.place = group[-1][1]
            progress.tokens += sum(batch.tokens for batch, _ in group)
            progress.unlogged_labels += count
            progress.unlogged_loss += nll
            progress.loss = mean = progress.unlogged_loss / max(1, progress.unlogged_labels)
            progress.seconds = seconds + time.monotonic() - began
            self.display.step(progress.update)
            if progress.update % options.log_every == 0:
                now = time.monotonic()
                speed = (progress.tokens - told) / (now - logged)
                self.display.log(progress.update, mean, speed)
                self._log(progress, loss=mean, tokens_per_second=round(speed), rate=rate_at(progress.update, options))
                logged, told = now, progress.tokens
                progress.unlogged_labels, progress.unlogged_loss = 0, 0.0
            pause = time.monotonic()
            if self.work.has_dev and self._validation_due(progress.update):
                self._validate(progress)
            if self.film and (progress.update in self.film.due or self._ended(progress)):
                self._record(progress)
            logged += time.monotonic() - pause
            progress.seconds = seconds + time.monotonic() - began
            if self._saving_due(progress.update) or self.signal:
                self._save(progress)
            if self.signal and not self._ended(progress):
                raise Stopped(self.signal, progress.update)

    def _validation_due(self, update: int) -> bool:
        return update % self.options.validate_every == 0 or update == self.options.updates

    def _saving_due(self, update: int) -> bool:
        return update % self.options.save_every == 0 or self._validation_due(update)

    def _update(self, progress: Progress, batches: list[Rows]) -> tuple[float, int]:
        """One step of the optimiser on some batches: their summed −log p, and of how many labels."""
        options = self.options
        count = sum(len(batch.labels) for batch in batches)
        rate = rate_at(progress.update, options)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["factor"]
        per = count if options.optimiser == "adamw" else 1  # plain steps are for every label
        nll = sum(self.gradients.add(batch, per) for batch in batches)
        # Where the cores go their own ways, they do not wait for each other here either: another program may keep one busy.
        with one_core() if any(map(self.gradients.parted, batches)) else nullcontext():
            self._step(progress, nll)
        return nll, count

    def _step(self, progress: Progress, nll: float) -> None:
        """The weights move by their gradients, and the moving average after them."""
        options = self.options
        clip = clip_rows if isinstance(self.recipe.model, Word2VecOptions) else clip_all
        norm = clip(self.model, options.clip or math.inf)
        if not (math.isfinite(nll) and math.isfinite(norm)):
            self._not_finite(progress, nll, norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.ema:
            decay = min(options.ema, (1 + progress.update) / (10 + progress.update))  # the first updates soon count for nothing
            for name, x in named_weights(self.model).items():
                self.ema[name].lerp_(x, 1 - decay)

    def _not_finite(self, progress: Progress, nll: float, norm: float) -> None:
        place, saved = progress.place, self.checkpoints.updates()
        last = str(self.checkpoints.path(saved[-1])) if saved else "none was saved yet"
        model, clip = self.recipe.model, self.options.clip
        cures = [f"a lower training.rate (now {self.options.rate})", f"a longer training.warmup ({self.options.warmup})"]
        usual = usual_training(self.recipe.task).clip
        if not 0 < clip <= usual:
            cures.append(f"training.clip = {usual} ({clip})")
        if isinstance(model, Word2VecOptions):
            cures.append(f"a smaller training.batch_tokens ({self.options.batch_tokens})")
        if isinstance(model, BlockOptions) and model.norm != "pre":
            cures.append(f"model.norm = 'pre' ({model.norm!r})")
        raise UserError(
            f"At update {progress.update} the loss is {nll} and the gradient norm {norm}: the run cannot go on.\n"
            f"Batch: epoch {place.epoch}, window {place.window}, number {place.batch}. Last good checkpoint: {last}.\n"
            f"Usual cures: {', '.join(cures)}."
        )

    def _validate(self, progress: Progress) -> None:
        """How good the model is on the dev data."""
        with self._at_rest():
            found = self.work.validate()
        score, mean_loss, entry = found.score, found.loss, found.entry
        # Between equal scores the loss decides: BLEU is 0 for a while, and the first 0 is not the best of them.
        if progress.best_score is None or (score, -mean_loss) > (progress.best_score, -(progress.best_loss or math.inf)):
            progress.best_score, progress.best_loss = score, mean_loss
            progress.best_update, progress.worse = progress.update, 0
        else:
            progress.worse += 1
        self._log(progress, **entry)
        progress.history.append({"update": progress.update, **entry})
        words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in entry.items())
        self.display.say(f"update {progress.update:,}: {words}" + ("  (best)" if progress.worse == 0 else ""))
        if 0 < self.options.patience <= progress.worse:
            self.display.say(
                f"No better for {progress.worse} validations: stopping. The best was update {progress.best_update:,}."
            )

    def _record(self, progress: Progress) -> None:
        assert self.film is not None
        with self._at_rest():
            self.film.record(progress)

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """The model as it is judged: without dropout, and with its moving average if there is one."""
        self.model.eval()
        kept = self._swap_in_average()
        try:
            yield
        finally:
            self._swap_back(kept)
            self.model.train()

    def _swap_in_average(self) -> dict[str, torch.Tensor]:
        weights = named_weights(self.model)
        kept = {name: x.clone() for name, x in weights.items()} if self.ema else {}
        for name, x in self.ema.items():
            weights[name].copy_(x)
        return kept

    def _swap_back(self, kept: dict[str, torch.Tensor]) -> None:
        weights = named_weights(self.model)
        for name, x in kept.items():
            weights[name].copy_(x)

    def _save(self, progress: Progress) -> None:
        self.checkpoints.write(self.model, self.optimiser, self.ema, progress)
        self.checkpoints.prune({*self._latest(), progress.best_update})

    def _latest(self) -> list[int]:
        """The checkpoints to average: the last that the recipe asked for. One that a signal asked for does not count, or a run
        that was stopped would end in other weights."""
        saved = self.checkpoints.updates()
        return ([update for update in saved if self._saving_due(update)] or saved)[-self.options.average :]

    def _finish(self, progress: Progress) -> None:
        """The weights to use: the mean of the last checkpoints, or the best one (of the moving average, if there is one)."""
        if self.options.average > 1:
            weights = self.checkpoints.average(self._latest())
            what = f"the mean of the last {len(self._latest())} checkpoints"
        else:
            update = progress.best_update or progress.update
            weights = self.checkpoints.weights(update, "ema" if self.ema else "model")
            what = f"update {update:,}" + (", moving average" if self.ema else "")
        write_tensors(self.run / "model.safetensors", weights)
        self.display.say(f"Done in {progress.seconds / 60:.1f} min. {self.run / 'model.safetensors'} is {what}.")

    def _log(self, progress: Progress, **values: Any) -> None:
        entry = {"update": progress.update, "epoch": progress.place.epoch, "seconds": round(progress.seconds, 1)}
        entry |= {"tokens": progress.tokens, **values}
        with open(self.run / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _trim_log(self, update: int) -> None:
        """Lines past the checkpoint will be written again, the same."""
        path = self.run / "log.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            write_text(path, "".join(line + "\n" for line in lines if _update_of(line) <= update))


@contextmanager
def less_garbage() -> Iterator[None]:
    """Python does not go through what is there by now, PyTorch's modules above all, for garbage again and again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Signals:
    """Ctrl-C and SIGTERM are noted; the run saves after the current update and stops. A second one stops at once."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.earlier: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.earlier[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.trainer.signal = number
        signal.signal(number, self.earlier[number])  # nothing is printed here: a handler may interrupt another print

    def __exit__(self, *_: object) -> None:
        for number, handler in self.earlier.items():
            signal.signal(number, handler)


def _update_of(line: str) -> float:
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut short by a kill


def available_cores() -> int:
    """The cores this process may use, which a container or taskset may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
