"""Translating with CTranslate2: the search of decoding/search.py by another engine, which goes on to the end where that one stops
when it is as good as decided. No torch is needed for it.

Two of our rules it has no option for: each sentence has its own greatest length, at which it must end and the end counts;
and some tokens are never written. Where an answer shows that either may make a difference, what was cut off is scored with its
end, or the sentence is searched again.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.decoding.state import PATIENCE, Hypothesis
from glassformer.engine import kept
from glassformer.interop import ctranslate2 as interop
from glassformer.options import DecodingOptions, PairData, Recipe
from glassformer.tasks.translator import Ids, Translator, load_tokenizers

if TYPE_CHECKING:
    from glassformer.decoding.sampling import Sampling

NEARLY_NONE = 1e-9  # as good as no length penalty; with none, CTranslate2 has another rule for when to end
GREEDY = {"float32": (3072, 128), "int8": (1024, 128)}  # tokens of the sources that are searched together: at most, at least
BEAMS = {"float32": (8192, 2000), "int8": (4096, 640)}  # … of all beams
SCORED = 1536  # of what is read once more for its score
AHEAD = 3  # batches that are begun, of each core
Found = list[Hypothesis]


class FastTranslator(Translator):
    """A translator whose model CTranslate2 computes.

    Of many sentences each core takes some. Where they come one by one, `many` is False and each takes a part of every matrix;
    but only one such translator goes well in a process, since the threads of another would be in its way. In eight bits one
    core has each sentence alone: when two shared a matrix, a sentence took up to twenty times as long.
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
        inter, intra = (self._threads, 1) if many else (1, 1 if precision == "int8" else self._threads)
        options = {"compute_type": precision, "inter_threads": inter, "intra_threads": intra, "max_queued_batches": -1}
        translator, words = interop.library().Translator, (self.source, self.target)
        self._engine: Any = kept.load(folder, recipe, words, precision, lambda path: translator(path, **options))

    def decode_all(
        self, sources: dict[int, Ids], options: DecodingOptions, sampling: "Sampling | None", batch_tokens: int
    ) -> Iterator[tuple[list[int], list[Found]]]:
        assert sampling is None and options.min_length == 0
        size, least = self._greedy if options.beam == 1 else (max(1, tokens // options.beam) for tokens in self._beams)
        size = min(size, batch_tokens)
        unclear: list[_Unclear] = []
        for rows, limits, results in self._searched(sources, list(shares(sources, size, least, self._threads)), options):
            done, answers = [], []
            for row, most, result in zip(rows, limits, results, strict=True):
                written = result.hypotheses
                banned = not self._banned.isdisjoint(chain.from_iterable(written))
                if banned or any([len(names) >= most for names in written]):
                    each = _Unclear(row, sources[row], most, banned, self._read_all(result), most == max(limits))
                    if each.matters(options) and (banned or options.beam > 1 or self.scored):
                        unclear.append(each)
                        continue
                    written = [names[:most] for names in written]  # greedy, it would write the same again
                done.append(row)
                answers.append(self._read(written[: options.wanted], result.scores))
            yield done, answers
        few = AHEAD * self._threads
        for part in (unclear[i : i + few] for i in range(0, len(unclear), few)):
            yield [each.row for each in part], self._decide(part, options)

    def _searched(
        self, sources: dict[int, Ids], batches: list[list[int]], options: DecodingOptions
    ) -> Iterator[tuple[list[int], list[int], list[Any]]]:
        """Each batch, the greatest lengths of its sentences, and what was found for them.

        So many are begun ahead that no core waits, and not all: what was begun is ended before Ctrl-C ends the program."""
        begun: deque[tuple[list[int], list[int], Any]] = deque()
        for number, rows in enumerate(batches, start=1):
            texts = [sources[i] for i in rows]
            limits = [self.longest(text, options) for text in texts]
            begun.append((rows, limits, self._begin(texts, options, PATIENCE, max(limits), asynchronous=len(batches) > 1)))
            while begun and (number == len(batches) or len(begun) > AHEAD * self._threads):
                rows, limits, waiting = begun.popleft()
                yield rows, limits, [each.result() for each in waiting] if len(batches) > 1 else waiting

    def _begin(self, sources: list[Ids], options: DecodingOptions, patience: int, most: int, **more: Any) -> Any:
        """Begins a search; the results are waited for here, or one by one if it is asynchronous."""
        beam = options.beam
        return self._engine.translate_batch(
            [[self._source_names[id] for id in ids] for ids in sources],
            beam_size=beam,
            patience=patience,
            num_hypotheses=patience * beam if beam > 1 else 1,
            length_penalty=options.length_penalty or NEARLY_NONE,
            min_decoding_length=0,
            max_decoding_length=most,
            max_input_length=0,
            return_end_token=True,  # then it counts in the length, as with us
            return_scores=beam > 1 or self.scored,
            **more,
        )

    def _decide(self, unclear: list["_Unclear"], options: DecodingOptions) -> list[Found]:
        """What is wanted of each, once what was cut off has its end and nothing banned is written."""
        begun = [(each, self._begin_again(each, options)) for each in unclear if not each.all_seen(options)]
        for each, waiting in begun:
            each.found = list({tuple(h.ids): h for h in self._read_all(waiting[0].result())}.values())
        self._score([(each.source, h) for each in unclear for h in each.found if each.banned or each.cut_off(h)], options)
        return [sorted(each.found, key=lambda h: -h.score)[: options.wanted] for each in unclear]

    def _begin_again(self, unclear: "_Unclear", options: DecodingOptions) -> Any:
        """A search that ends at the greatest length, and writes nothing banned.

        Its greater patience changes nothing but that all it has at the end may be looked at.
        """
        never = [[name] for name in sorted(self._banned)] if unclear.banned else None
        return self._begin([unclear.source], options, PATIENCE + 1, unclear.most, asynchronous=True, suppress_sequences=never)

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


@dataclass
class _Unclear:
    """A sentence of which CTranslate2's answer may not be ours."""

    row: int
    source: Ids
    most: int  # tokens of its translation
    banned: bool  # whether something was written that never should be
    found: Found  # the best that CTranslate2 has, best first
    own_length: bool  # whether its search ended at this very length

    def cut_off(self, found: Hypothesis) -> bool:
        """Whether it has no end yet, nor its score."""
        return len(found.ids) >= self.most

    def matters(self, options: DecodingOptions) -> bool:
        """Whether one that was cut off may be wanted, or something banned was in the way. Too long, one counts if it is among the
        best, though another might win by being cut off."""
        if self.banned or not self.own_length:
            return self.banned or any(map(self.cut_off, self.found[: options.wanted]))
        return self._ahead(max([h.score for h in self.found if self.cut_off(h)], default=-math.inf), options) < options.wanted

    def all_seen(self, options: DecodingOptions) -> bool:
        """Whether none can be wanted that CTranslate2 has but does not name."""
        if self.banned or not self.own_length:
            return False
        return len(self.found) < PATIENCE * options.beam or self._ahead(self.found[-1].score, options) >= options.wanted

    def _ahead(self, score: float, options: DecodingOptions) -> int:
        """How many have ended that none of this score overtakes when it ends: at best its end is certain, and so it is merely
        divided by a greater length."""
        best = score * (self.most / (self.most + 1)) ** options.length_penalty
        return sum(not self.cut_off(h) and h.score >= best for h in self.found)


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
