"""`glassformer export --to ctranslate2`: a folder for that engine, compared with our own numbers before it is kept."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.arrays import Unfit, read_weights
from glassformer.errors import UserError
from glassformer.interop.ctranslate2 import FILES, PRECISIONS, convert, library, obstacles
from glassformer.interop.folders import check_free, folder_aside
from glassformer.options import Recipe
from glassformer.tasks import registry
from glassformer.tasks.language import Language
from glassformer.tasks.translate import Translate
from glassformer.text.tokenizer import Tokenizer

WORDS = ("tokenizer.json", "tokenizer.source.json", "tokenizer.target.json")  # as ours, to cut texts into the pieces it reads
TOLERANCE = 1e-3  # of log p, or of a state, in single precision: more is an error of ours


def export(
    model: str, folder: Path, recipe: Recipe, out: Path, precision: str, *, force: bool, report: Callable[[str], None]
) -> None:
    """Writes the folder, whole or not at all."""
    if precision not in PRECISIONS:
        raise UserError(f"--quantization {precision!r} is not known; there are {', '.join(PRECISIONS)}.")
    check_free(out, (*FILES, *WORDS), force)
    if found := obstacles(recipe):
        raise UserError(f"{model} has no form that CTranslate2 knows:\n  " + "\n  ".join(found))
    engine = library()
    task: Any = registry.load(folder)
    source, target = _words(task)
    with folder_aside(out) as part:
        try:
            convert(recipe, read_weights(folder / "model.safetensors"), source.names(), target.names(), part, precision)
        except Unfit as error:
            raise UserError(f"{folder} is not whole: {error}.") from None
        for name in WORDS:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, part / name)
        largest, mean, what = _compare(engine, task, part, precision)
        if precision == "float32" and not largest < TOLERANCE:
            raise UserError(
                f"CTranslate2 computes other numbers than PyTorch ({what} differ by {largest:.2g}): nothing was written."
            )
    kind = {"translate": "Translator", "language": "Generator"}.get(recipe.task, "Encoder")
    report(f"{out}: for ctranslate2.{kind}, in {precision}")
    report(f"{what} differ from PyTorch's by {mean:.1g} in the mean, {largest:.1g} at most.")
    if kind == "Encoder":
        report("It gives the encoder's states. CTranslate2 has no word for the head on them, which is left out.")


def _words(task: Any) -> tuple[Tokenizer, Tokenizer]:
    return (task.source, task.target) if isinstance(task, Translate) else (task.tokenizer, task.tokenizer)


@torch.inference_mode()
def _compare(engine: Any, task: Any, folder: Path, precision: str) -> tuple[float, float, str]:
    """The largest and the mean difference over a few random texts, and of what."""
    source, target = _words(task)
    rng = np.random.default_rng(0)
    most = min(12, task.recipe.model.max_length - 2)
    texts = [rng.integers(4, source.size, length).tolist() for length in range(1, most + 1)]
    options = {"compute_type": precision, "intra_threads": 1}
    if isinstance(task, Translate):
        names, theirs = source.names(), target.names()
        written = [rng.integers(4, target.size, length).tolist() for length in range(1, most + 1)]
        read = [[*ids, source.eos] for ids in texts]
        scored = engine.Translator(str(folder), **options).score_batch(
            [[names[id] for id in ids] for ids in read], [[theirs[id] for id in ids] for ids in written]
        )
        pairs = [
            (_log_probs(task.model(torch.tensor([a]), torch.tensor([[target.bos, *b]])), task, [*b, target.eos]), each.log_probs)
            for a, b, each in zip(read, written, scored, strict=True)
        ]
        return *_difference(pairs), "Log-probabilities"
    if isinstance(task, Language):
        names = source.names()
        generator = engine.Generator(str(folder), **options)
        scored = generator.score_batch([[names[id] for id in ids] for ids in texts[1:]])
        pairs = [
            (_log_probs(task.model(torch.tensor([ids[:-1]])), task, ids[1:]), each.log_probs)
            for ids, each in zip(texts[1:], scored, strict=True)
        ]
        return *_difference(pairs), "Log-probabilities"
    encoder = engine.Encoder(str(folder), **options)
    pairs = []
    for ids in texts:
        types = {"token_type_ids": [[0] * len(ids)]} if task.recipe.model.types else {}
        states = np.array(encoder.forward_batch([ids], **types).last_hidden_state)
        pairs.append((task.model(torch.tensor([ids])).flatten().numpy(), states.flatten()))
    return *_difference(pairs), "States"


def _log_probs(states: Any, task: Any, chosen: list[int]) -> Any:
    rows = task.model.logits(states)[0].log_softmax(-1)
    return rows.gather(1, torch.tensor(chosen).unsqueeze(1)).squeeze(1).numpy()


def _difference(pairs: list[tuple[Any, Any]]) -> tuple[float, float]:
    apart = np.concatenate([np.abs(np.asarray(ours) - np.asarray(theirs)) for ours, theirs in pairs])
    return float(apart.max()), float(apart.mean())
