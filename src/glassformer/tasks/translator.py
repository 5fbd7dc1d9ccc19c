"""Translation without a model: text → ids → text, whichever engine searches between them. No torch is needed for it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.decoding.state import Hypothesis, Limits
from glassformer.errors import UserError
from glassformer.options import DecodingOptions, PairData, Recipe
from glassformer.tasks.languages import guess
from glassformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from glassformer.decoding.sampling import Sampling

Ids = list[int]
SHARES = 4  # batches a core at least, so that none waits long for the other
LEAST = 800  # tokens of a batch that is worth a core of its own


@dataclass(frozen=True)
class Translation:
    source: str
    to: str
    text: str
    ids: Ids
    score: float  # Σ log p ÷ lengthᵅ; nan if CTranslate2 was greedy and not asked for it
    log_probs: list[float]  # of each token and the end; none if CTranslate2 has searched
    others: tuple["Translation", ...] = ()  # the next best, if more than one was wanted

    @property
    def nbest(self) -> tuple["Translation", ...]:
        """As many as were wanted, this one first."""
        return (self, *self.others)


class Translator(ABC):
    """Tokenizers and a recipe. `decode_all` is left to those who have a model."""

    recipe: Recipe
    data: PairData
    source: Tokenizer
    target: Tokenizer

    @abstractmethod
    def decode_all(
        self, sources: dict[int, Ids], options: DecodingOptions, sampling: "Sampling | None", batch_tokens: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """The sources by number, in batches: which, and the sequences found for each, best first."""

    @property
    def languages(self) -> tuple[str, str]:
        return self.data.source, self.data.target

    # -- text → ids → tensors

    def direction(self, text: str, to: str | None = None) -> str:
        """The language to translate into: as told, or guessed from the script of the text."""
        source, target = self.languages
        if not self.data.both_ways:
            if to not in (None, target):
                raise UserError(f"This model translates {source} into {target}, not into {to!r}.")
            return target
        if to is None:
            return target if guess(text, self.languages) == source else source
        if to not in self.languages:
            raise UserError(f"This model translates between {source} and {target}; it knows no {to!r}.")
        return to

    def source_ids(self, ids: Ids, to: str) -> Ids:
        """What the encoder reads: the target tag if the model has tags, the pieces, the end."""
        tag = [self.source.tag(f"<2{to}>")] if self.data.both_ways else []
        return [*tag, *ids, self.source.eos]

    def translate(
        self, text: str, to: str | None = None, options: DecodingOptions | None = None, sampling: "Sampling | None" = None
    ) -> Translation:
        return self.translate_all([text], to, options, sampling)[0]

    def translate_all(
        self,
        texts: Sequence[str],
        to: str | None = None,
        options: DecodingOptions | None = None,
        sampling: "Sampling | None" = None,
        *,
        first: int = 0,
        batch_tokens: int = 4096,
        progress: Callable[[int], None] = lambda count: None,
    ) -> list[Translation]:
        """One translation for each text, in order; batched by length, which changes no result.

        `first` is how many texts came before these, for messages that number them.
        """
        options = options or self.recipe.decoding
        towards = [self.direction(text, to) for text in texts]
        answers: dict[int, Translation] = {}
        sources = {
            i: self.source_ids(ids, towards[i]) for i, ids in enumerate(self.source.encode_batch(list(texts))) if texts[i].strip()
        }
        for i, ids in sources.items():
            self._check_length(ids, first + i + 1)
        for rows, found in self.decode_all(sources, options, sampling, batch_tokens):
            for i, hypotheses in zip(rows, found, strict=True):
                if not hypotheses:
                    raise UserError(f"Sentence {first + i + 1}: the model's numbers are not finite; its weights may be damaged.")
                best, *others = (
                    Translation(texts[i], towards[i], self.target.decode(h.ids), h.ids, h.score, h.log_probs) for h in hypotheses
                )
                answers[i] = replace(best, others=tuple(others)) if others else best
            progress(len(rows))
        return [answers.get(i) or Translation(text, towards[i], "", [], 0.0, []) for i, text in enumerate(texts)]

    def fits(self, source: str, target: str) -> bool:
        """Whether a pair, with its marks, is within the model's positions, either way round."""
        most = self.recipe.model.max_length - 2
        return max(len(self.source.encode(source)), len(self.target.encode(target))) <= most

    def _check_length(self, ids: Ids, number: int) -> None:
        most = self.recipe.model.max_length
        if len(ids) > most:
            raise UserError(
                f"Sentence {number} is {len(ids)} pieces long; this model reads at most {most}. Split it into shorter ones."
            )

    def unfamiliar(self, text: str) -> bool:
        """Whether most characters are spelled as bytes: their script has no pieces in the vocabulary."""
        characters = [character for character in text if not character.isspace()]
        return 2 * sum(len(ids) > 1 for ids in self.source.encode_batch(characters)) > len(characters)

    def limits(self, sources: list[Ids], options: DecodingOptions) -> Limits:
        """Where the translations of these sources must end, and what they may not contain."""
        tags = tuple(self.target.tag(tag) for tag in self.target.tags)
        banned = {self.target.pad, self.target.bos, *tags} - {-1}
        longest = [self.longest(ids, options) for ids in sources]
        return Limits(self.target.bos, self.target.eos, longest, min_length=options.min_length, banned=tuple(banned))

    def longest(self, source: Ids, options: DecodingOptions) -> int:
        """How long the translation of this source may become."""
        return min(options.max_length or 2 * len(source) + 10, self.recipe.model.max_length - 1)


def batches_of(sources: dict[int, Ids], most: int, cores: int, least: int = LEAST) -> list[list[int]]:
    """Rows in batches of at most so many tokens, padding counted; the longest first, and some for each core if they are not
    fewer than `least` then."""
    share = sum(map(len, sources.values())) // (SHARES * cores)
    order = sorted(sources, key=lambda i: len(sources[i]))
    return list(by_budget(order, sources, max(1, min(most, max(share, least)))))[::-1]


def by_budget(order: Iterable[int], sources: dict[int, Ids], tokens: int) -> Iterator[list[int]]:
    """Rows in batches whose padded size stays within `tokens`; order goes from short to long."""
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * len(sources[i]) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def load_tokenizers(folder: Path, recipe: Recipe) -> tuple[Tokenizer, Tokenizer]:
    if recipe.tokenizer.shared:
        both = Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer)
        return both, both
    names = ("tokenizer.source.json", "tokenizer.target.json")
    source, target = (Tokenizer.load(folder / name, recipe.tokenizer) for name in names)
    return source, target


def save_tokenizers(folder: Path, recipe: Recipe, source: Tokenizer, target: Tokenizer) -> None:
    if recipe.tokenizer.shared:
        source.save(folder / "tokenizer.json")
    else:
        source.save(folder / "tokenizer.source.json")
        target.save(folder / "tokenizer.target.json")
