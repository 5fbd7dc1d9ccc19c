"""Going on with a text with CTranslate2. No torch is needed for it."""

import queue
from pathlib import Path
from typing import Any

from glassformer.engine import kept
from glassformer.interop import ctranslate2 as interop
from glassformer.options import GenerationOptions, Recipe, TextData
from glassformer.tasks.continuer import Continuer, Ids, Writer
from glassformer.text.tokenizer import Tokenizer


class FastContinuer(Continuer):
    """A language model that CTranslate2 computes: greedy, or drawing by chance and not by a seed.

    With more threads than one, only one such model goes well in a process.
    """

    def __init__(self, folder: Path, recipe: Recipe, precision: str = "float32", *, threads: int = 0) -> None:
        assert isinstance(recipe.data, TextData)
        self.recipe, self.data = recipe, recipe.data
        self.tokenizer = Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer)
        self.window = recipe.model.max_length
        self._names = self.tokenizer.names()
        options = {"compute_type": precision, "inter_threads": 1, "intra_threads": threads or kept.share(precision)}
        generator = interop.library().Generator
        words = (self.tokenizer, self.tokenizer)
        self._engine: Any = kept.load(folder, recipe, words, precision, lambda path: generator(path, **options))

    def go_on(self, texts: list[Ids], writers: list[Writer], prompt: Ids, options: GenerationOptions) -> None:
        assert options.repetition == 1
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stopped = False

        def tell(step: Any) -> bool:
            told.put((step.batch_id, step.token_id, step.log_prob, step.is_last))
            return stopped or not writers[step.batch_id].going

        written = len(writers[0].done.ids)
        waiting = self._engine.generate_batch(
            [[self._names[id] for id in ids] for ids in texts],
            asynchronous=True,  # so that Ctrl-C is heard
            max_length=min(self.window - len(texts[0]) + 1, options.max_tokens - written),
            include_prompt_in_result=False,
            sampling_topk=1 if options.temperature == 0 else options.top_k,
            sampling_temperature=options.temperature or 1.0,
            return_scores=True,
            callback=tell,
        )
        going = set(range(len(writers)))
        try:
            while going:
                row, token, log_prob, last = told.get()
                if writers[row].going:
                    writers[row].put(token, log_prob)
                if last or not writers[row].going:
                    going.discard(row)
        finally:
            stopped = True
            for each in waiting:
                each.result()


def obstacles(recipe: Recipe, options: GenerationOptions, *, seeded: bool) -> list[str]:
    """Why CTranslate2 would not write what we do."""
    found = interop.obstacles(recipe)
    if not recipe.tokenizer.eos:
        found.append("the vocabulary has no end mark, and CTranslate2 cannot do without")
    if options.repetition != 1:
        found.append("a penalty for repetition, which CTranslate2 forgets when the window moves on")
    if options.temperature > 0 and seeded:
        found.append("a seed: CTranslate2 draws by other random numbers")
    if options.temperature > 0 and options.top_p < 1:
        found.append("top-p, which CTranslate2 takes before the temperature")
    return found
