"""Translating with CTranslate2: the search of decoding/search.py, found by another engine. No torch is needed for it.

Two of our rules it has no option for: each sentence has its own greatest length, at which it must end and the end counts;
and some tokens are never written. The few sentences where either would make a difference are searched again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.config import DecodingOptions, PairData, Recipe
from glassformer.decoding.state import PATIENCE, Hypothesis
from glassformer.engine import kept
from glassformer.interop import ctranslate2 as interop
from glassformer.tasks.translator import Ids, Translator, by_budget, load_tokenizers

if TYPE_CHECKING:
    from glassformer.decoding.sampling import Sampling

NEARLY_NONE = 1e-9  # as good as no length penalty; with none, CTranslate2 has another rule for when to end
Found = list[Hypothesis]


class FastTranslator(Translator):
    """A translator whose model CTranslate2 computes."""

    def __init__(self, folder: Path, recipe: Recipe, precision: str = "float32") -> None:
        assert isinstance(recipe.data, PairData)
        self.recipe, self.data = recipe, recipe.data
        self.source, self.target = load_tokenizers(folder, recipe)
        self._source_names, self._target_names = self.source.names(), self.target.names()
        self._ids = {name: id for id, name in enumerate(self._target_names)}
        self._threads = kept.cores()
        options = {"compute_type": precision, "inter_threads": self._threads, "intra_threads": 1, "max_queued_batches": -1}
        translator = interop.library().Translator
        words = (self.source, self.target)
        self._engine: Any = kept.load(folder, recipe, words, precision, lambda path: translator(path, **options))

    def decode_all(
        self, sources: dict[int, Ids], options: DecodingOptions, sampling: "Sampling | None", batch_tokens: int
    ) -> Iterator[tuple[list[int], list[Found]]]:
        assert sampling is None and options.min_length == 0
        total = sum(map(len, sources.values()))
        budget = min(batch_tokens // options.beam, -(-total // self._threads))  # work for every core, if there is enough
        order = sorted(sources, key=lambda i: len(sources[i]))
        begun = []
        for rows in reversed(list(by_budget(order, sources, budget))):  # the longest first: none is waited for in the end
            limits = self.limits([sources[i] for i in rows], options).max_lengths
            begun.append((rows, self._begin([sources[i] for i in rows], options, PATIENCE, max(limits) + 1)))
        for rows, waiting in begun:
            yield rows, self._checked([sources[i] for i in rows], [each.result() for each in waiting], options)

    def _begin(self, sources: list[Ids], options: DecodingOptions, patience: int, most: int, **more: Any) -> Any:
        """Begins a search; the results are waited for one by one."""
        beam = options.beam
        return self._engine.translate_batch(
            [[self._source_names[id] for id in ids] for ids in sources],
            asynchronous=True,
            beam_size=beam,
            patience=patience,
            num_hypotheses=patience * beam if beam > 1 else 1,
            length_penalty=options.length_penalty or NEARLY_NONE,
            min_decoding_length=0,
            max_decoding_length=most,
            max_input_length=0,
            return_end_token=True,  # then it counts in the length, as with us
            return_scores=True,
            **more,
        )

    def _checked(self, sources: list[Ids], results: list[Any], options: DecodingOptions) -> list[Found]:
        """What was found for each source, searched again where our rules make a difference."""
        limits = self.limits(sources, options)
        banned = set(limits.banned)
        answers = []
        for source, result, most in zip(sources, results, limits.max_lengths, strict=True):
            found = self._read(result)
            strange = any(not banned.isdisjoint(h.ids) for h in found)
            if strange or any(len(h.ids) >= most for h in found):
                found = self._again(source, options, most, banned if strange else set())
            answers.append(found[: options.beam])
        return answers

    def _again(self, source: Ids, options: DecodingOptions, most: int, banned: set[int]) -> Found:
        """A search that ends at the greatest length and writes nothing banned; each of its results is scored by itself.

        Its greater patience changes nothing but that all it has at the end may be looked at.
        """
        never = [[self._target_names[id]] for id in sorted(banned)]
        waiting = self._begin([source], options, PATIENCE + 1, most, suppress_sequences=never or None)
        unique = {tuple(h.ids): h for h in self._read(waiting[0].result())}
        targets = [[self._target_names[id] for id in ids] for ids in unique]
        source_names = [self._source_names[id] for id in source]
        scored = self._engine.score_batch([source_names] * len(targets), targets, max_input_length=0)
        for h, result in zip(unique.values(), scored, strict=True):
            h.log_probs = list(result.log_probs)
            h.score = h.log_prob * len(h.log_probs) ** -options.length_penalty
        return sorted(unique.values(), key=lambda h: -h.score)

    def _read(self, result: Any) -> Found:
        eos = self._target_names[self.target.eos]
        found = []
        for names, score in zip(result.hypotheses, result.scores, strict=True):
            ids = [self._ids[name] for name in (names[:-1] if names and names[-1] == eos else names)]
            found.append(Hypothesis(ids, score=score))
        return found


def obstacles(recipe: Recipe, options: DecodingOptions) -> list[str]:
    """Why CTranslate2 would not find what our own search finds."""
    found = interop.obstacles(recipe)
    if options.min_length:
        found.append("a least length, before which CTranslate2 takes the end mark out of the probabilities")
    if options.length_penalty > 20:
        found.append(f"a length penalty of {options.length_penalty:g}, for which its numbers are too small")
    return found
