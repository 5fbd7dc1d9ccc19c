"""Recording a film while a model trains.

A frame is taken at update round(U · (k / (n − 1))²) for k = 0 … n − 1: closer together at the beginning, where the loss falls
fastest. Evenly spaced frames would miss that; geometrically spaced ones would spend half of themselves on the first hundred
updates of ten thousand, in which no translation gets better. Nothing that decides the next weights is touched: no random number
is drawn, and the weights are those of validation, the moving average if there is one.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer import film
from glassformer.answers import answer, log_probs
from glassformer.errors import UserError
from glassformer.options import GenerationOptions
from glassformer.tasks.language import Language
from glassformer.tasks.task import Task
from glassformer.tasks.translate import Translate
from glassformer.trace import Trace
from glassformer.training.checkpoints import Progress

LARGEST = 1_000_000  # bytes of a probe's patterns in one frame: what the explorer's server sends at once
WHOLE = 200_000_000  # bytes of a whole film
GO_ON = 24  # tokens a language model writes after a probe
LABELS = 5  # the likeliest that are kept


def frame_updates(updates: int, frames: int) -> list[int]:
    return sorted({round(updates * (k / (frames - 1)) ** 2) for k in range(frames)})


class Recorder:
    """Takes the frames of one run."""

    def __init__(self, task: Task, run: Path, weights: str) -> None:
        self.task, self.run, self.weights = task, run, weights
        self.options = task.recipe.film
        self.due = set(frame_updates(task.recipe.training.updates, self.options.frames))
        self.probes = [tuple(probe.split("\t")) for probe in self.options.probes]

    def trim(self, update: int) -> None:
        """Frames past the checkpoint will be taken again, the same."""
        for later in film.recorded(self.run):
            if later > update:
                film.frame_path(self.run, later).unlink()

    def record(self, progress: Progress) -> None:
        """Writes the frame of this update. The model must be at rest: without dropout, with the weights that are judged."""
        passes = [self._pass(probe) for probe in self.probes]
        answers = self._answers(passes)
        patterns = {
            f"{progress.update:08d}/{i}/{name}": film.in_bytes(x)
            for i, one in enumerate(passes)
            for name, x in _patterns(one).items()
        }
        self._check_size(patterns)
        frame = {
            "update": progress.update,
            "tokens": progress.tokens,
            "loss": progress.loss,
            "dev": dict(progress.history[-1]) if progress.history else None,
            "answers": answers,
        }
        about = {"task": self.task.recipe.task, "weights": self.weights, "probes": [self._about(one) for one in passes]}
        film.write(film.frame_path(self.run, progress.update), about, [frame], patterns)

    def _pass(self, probe: tuple[str, ...]) -> Trace:
        """The same tokens in every frame: of a translator the text and the translation that the recipe gives."""
        task: Any = self.task
        if not isinstance(task, Translate):
            return task.trace(*probe)
        text, wanted = probe
        return task.trace(text, task.direction(text), target=task.target.encode(wanted))

    def _answers(self, passes: list[Trace]) -> list[dict[str, Any]]:
        """What the model says by itself, the likeliest at every step, and log p of every token that it was given."""
        task: Any = self.task
        if isinstance(task, Translate):
            greedy = replace(task.recipe.decoding, beam=1)
            found = task.translate_all([text for text, _ in self.probes], options=greedy)
            return [
                {"text": one.text, "score": one.score, "log_probs": _rounded(task, trace, _end(task, trace))}
                for one, trace in zip(found, passes, strict=True)
            ]
        if isinstance(task, Language):
            options = GenerationOptions(temperature=0.0, max_tokens=GO_ON)
            texts = [task.generate(text, options)[0] for (text,) in self.probes]
            return [
                {
                    "text": one.text,
                    "score": sum(one.log_probs) / max(1, len(one.log_probs)),
                    "log_probs": _rounded(task, trace),
                }
                for one, trace in zip(texts, passes, strict=True)
            ]
        return [_shortened(answer(task, trace)) for trace in passes]

    def _about(self, trace: Trace) -> dict[str, Any]:
        words: dict[str, Any] = {key: trace.about[key] for key in ("text", "second", "to") if key in trace.about}
        if isinstance(self.task, Translate):
            words["reference"] = self.task.target.decode([token.id for token in trace.target_tokens[1:]])
        return {
            **words,
            "source": [asdict(token) for token in trace.source_tokens],
            "target": [asdict(token) for token in trace.target_tokens],
            "patterns": {name: list(x.shape) for name, x in _patterns(trace).items()},
        }

    def _check_size(self, patterns: Mapping[str, Tensor]) -> None:
        for i, probe in enumerate(self.options.probes):
            size = sum(x.numel() for name, x in patterns.items() if name.split("/")[1] == str(i))
            if size > LARGEST:
                raise UserError(
                    f"The probe {probe!r} of film.probes takes {size / 1e6:.1f} MB in one frame, with all heads of all layers; "
                    f"at most {LARGEST / 1e6:.0f} MB are kept. Choose a shorter one."
                )
        whole = sum(x.numel() for x in patterns.values()) * self.options.frames
        if whole > WHOLE:
            raise UserError(
                f"The film would take {whole / 1e6:.0f} MB; at most {WHOLE / 1e6:.0f} MB are kept. Choose fewer film.frames "
                f"({self.options.frames}), or fewer or shorter film.probes."
            )


def _patterns(trace: Trace) -> dict[str, Tensor]:
    return {name.removesuffix(".pattern"): x for name, x in trace.items() if name.endswith(".pattern")}


def _rounded(task: Task, trace: Trace, *more: float) -> list[float]:
    """log p of each token that was given, and more; five digits are more than anybody reads."""
    return [round(x, 5) for x in (*log_probs(task, trace), *more) if x is not None]


def _end(task: Translate, trace: Trace) -> float:
    """log p of the end after the whole translation."""
    return float(trace["logits"][-1].log_softmax(-1)[task.target.eos])


def _shortened(found: dict[str, Any]) -> dict[str, Any]:
    """Of many labels the likeliest; of a gap the likeliest piece."""
    if "labels" in found:
        found["labels"] = dict(list(found["labels"].items())[:LABELS])
    return found
