"""Translating with CTranslate2: the search of decoding/search.py by another engine, which goes on to the end where that one stops
when it is as good as decided. No torch is needed for it.

Two of our rules it has no option for: each sentence has its own greatest length, at which it must end and the end counts;
and some tokens are never written. The few sentences whose answers show that either would make a difference are searched again.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.decoding.state import PATIENCE, Hypothesis
from glassformer.engine import kept
from glassformer.interop import ctranslate2 as interop
from glassformer.memory import keep_memory
from glassformer.options import DecodingOptions, PairData, Recipe
from glassformer.tasks.translator import Ids, Translator, load_tokenizers

if TYPE_CHECKING:
    from glassformer.decoding.sampling import Sampling

NEARLY_NONE = 1e-9  # as good as no length penalty; with none, CTranslate2 has another rule for when to end
GREEDY = {"float32": (3072, 128), "int8": (1024, 128)}  # tokens of the sources that are searched together: at most, at least
BEAMS = {"float32": (6144, 1000), "int8": (4096, 640)}  # … of all beams
SCORED = 1536  # of what is read once more for its score
AHEAD = 3  # batches that are begun, of each core
Found = list[Hypothesis]


class FastTranslator(Translator):
    """A translator whose model CTranslate2 computes.

    Of many sentences each core takes some. Where they come one by one, `many` is False and cores share every matrix; but only one
    such translator goes well in a process, since the threads of another would be in its way.
    """

    scored = False  # whether greedy answers have scores too, which cost a seventh of the time; beams cannot do without

    def __init__(self, folder: Path, recipe: Recipe, precision: str = "float32", *, many: bool = True) -> None:
        assert isinstance(recipe.data, PairData)
        self.recipe, self.data = recipe, recipe.data
        self.source, self.target = load_tokenizers(folder, recipe)
        self._target_names = self.target.names()
        self._source_names = self._target_names if self.source is self.target else self.source.names()
        self._ids = {name: id for id, name in enumerate(self._target_names)}
        self._banned = {self._target_names[id] for id in self.limits([], recipe.decoding).banned}
        self._threads, self._greedy, self._beams = kept.cores(), GREEDY[precision], BEAMS[precision]
        if many:
            keep_memory()  # a beam's logits are 20 MB at every step, for which fresh pages were asked again and again
        inter, intra = (self._threads, 1) if many else (1, kept.share(precision))
        options = {"compute_type": precision, "inter_threads": inter, "intra_threads": intra, "max_queued_batches": -1}
        translator, words = interop.library().Translator, (self.source, self.target)
        self._engine: Any = kept.load(folder, recipe, words, precision, lambda path: translator(path, **options))

    def decode_all(
        self, sources: dict[int, Ids], options: DecodingOptions, sampling: "Sampling | None", batch_tokens: int
    ) -> Iterator[tuple[list[int], list[Found]]]:
        assert sampling is None and options.min_length == 0
        size, least = self._greedy if options.beam == 1 else (max(1, tokens // options.beam) for tokens in self._beams)
        size = min(size, batch_tokens)
        again: list[tuple[int, int, bool]] = []
        for rows, limits, results in self._searched(sources, list(shares(sources, size, least, self._threads)), options):
            done, answers = [], []
            for row, most, result in zip(rows, limits, results, strict=True):
                written = result.hypotheses
                banned = not self._banned.isdisjoint(chain.from_iterable(written))
                found = self._read(written, result.scores)
                # only what is wanted is looked at: one that lost at its full length would have to win by being cut off, and one
                # with something banned might have kept a better one from being found, were such tokens ever likely
                long = any([len(each.ids) >= most for each in found])
                if long and not banned and options.beam == 1 and not self.scored:
                    found[0].ids = found[0].ids[:most]  # greedy, it would write the same again
                    long = False
                if long or banned:
                    again.append((row, most, banned))
                else:
                    done.append(row)
                    answers.append(found)
            yield done, answers
        few = AHEAD * self._threads
        for part in (again[i : i + few] for i in range(0, len(again), few)):
            begun = [self._begin_again(sources[row], options, most, banned) for row, most, banned in part]
            found_again = [{tuple(h.ids): h for h in self._read_all(waiting[0].result())} for waiting in begun]
            self._score(
                [
                    (sources[row], h)
                    for (row, most, banned), found in zip(part, found_again, strict=True)
                    for h in found.values()
                    if banned or len(h.ids) >= most  # the others' ends are in their scores already, and all that was likely
                ],
                options,
            )
            yield (
                [row for row, _, _ in part],
                [sorted(found.values(), key=lambda h: -h.score)[: options.wanted] for found in found_again],
            )

    def _searched(
        self, sources: dict[int, Ids], batches: list[list[int]], options: DecodingOptions
    ) -> Iterator[tuple[list[int], list[int], list[Any]]]:
        """Each batch, the greatest lengths of its sentences, and what was found for them.

        So many are begun ahead that no core waits, and not all: what was begun is ended before Ctrl-C ends the program."""
        begun: deque[tuple[list[int], list[int], Any]] = deque()
        for number, rows in enumerate(batches, start=1):
            texts = [sources[i] for i in rows]
            limits = [self.longest(text, options) for text in texts]
            waiting = self._begin(texts, options, PATIENCE, max(limits) + 1, options.wanted, asynchronous=len(batches) > 1)
            begun.append((rows, limits, waiting))
            while begun and (number == len(batches) or len(begun) > AHEAD * self._threads):
                rows, limits, waiting = begun.popleft()
                yield rows, limits, [each.result() for each in waiting] if len(batches) > 1 else waiting

    def _begin(self, sources: list[Ids], options: DecodingOptions, patience: int, most: int, wanted: int, **more: Any) -> Any:
        """Begins a search; the results are waited for here, or one by one if it is asynchronous."""
        beam = options.beam
        return self._engine.translate_batch(
            [[self._source_names[id] for id in ids] for ids in sources],
            beam_size=beam,
            patience=patience,
            num_hypotheses=wanted,
            length_penalty=options.length_penalty or NEARLY_NONE,
            min_decoding_length=0,
            max_decoding_length=most,
            max_input_length=0,
            return_end_token=True,  # then it counts in the length, as with us
            return_scores=beam > 1 or self.scored,
            **more,
        )

    def _begin_again(self, source: Ids, options: DecodingOptions, most: int, banned: bool) -> Any:
        """A search that ends at the greatest length, and writes nothing banned.

        Its greater patience changes nothing but that all it has at the end may be looked at.
        """
        never = [[name] for name in sorted(self._banned)] if banned else None
        patience = PATIENCE + 1
        wanted = patience * options.beam if options.beam > 1 else 1
        return self._begin([source], options, patience, most, wanted, asynchronous=True, suppress_sequences=never)

    def _score(self, found: list[tuple[Ids, Hypothesis]], options: DecodingOptions) -> None:
        """By a pass over each, with its end."""
        sources = [[self._source_names[id] for id in source] for source, _ in found]
        targets = [[self._target_names[id] for id in h.ids] for _, h in found]
        scored = self._engine.score_batch(sources, targets, max_input_length=0, max_batch_size=SCORED, batch_type="tokens")
        for (_, h), result in zip(found, scored, strict=True):
            h.log_probs = list(result.log_probs)
            h.score = h.log_prob * len(h.log_probs) ** -options.length_penalty

    def _read_all(self, result: Any) -> Found:
        return self._read(result.hypotheses, result.scores)

    def _read(self, written: list[list[str]], scores: list[float]) -> Found:
        """Those that were written, the first scores are theirs."""
        found = []
        for names, score in zip(written, scores or [math.nan], strict=False):
            ids = [self._ids[name] for name in names]
            if ids[-1:] == [self.target.eos]:
                ids.pop()
            found.append(Hypothesis(ids, [], score))
        return found


def shares(sources: dict[int, Ids], most: int, least: int, cores: int) -> Iterator[list[int]]:
    """Batches of at most so many tokens, padding counted, the longest sources first; towards the end smaller ones, down to
    `least`, so that no core is waited for long."""
    order = sorted(sources, key=lambda i: len(sources[i]))
    left = sum(map(len, sources.values()))
    while order:
        budget = min(most, max(left // (2 * cores), least))
        count = max(1, budget // len(sources[order[-1]]))
        batch, order = order[-count:], order[:-count]
        left -= sum(len(sources[i]) for i in batch)
        yield batch


def obstacles(recipe: Recipe, options: DecodingOptions) -> list[str]:
    """Why CTranslate2 would not find what our own search finds."""
    found = interop.obstacles(recipe)
    if options.min_length:
        found.append("a least length, before which CTranslate2 takes the end mark out of the probabilities")
    if options.length_penalty > 20:
        found.append(f"a length penalty of {options.length_penalty:g}, for which its numbers are too small")
    return found
