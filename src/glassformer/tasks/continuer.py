"""Going on with a text without a model: prompts, windows, what is written and when it ends. No torch is needed for it."""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from glassformer.errors import UserError
from glassformer.options import GenerationOptions, Recipe, TextData
from glassformer.text.tokenizer import Tokenizer

Ids = list[int]


@dataclass
class Continuation:
    prompt: str
    text: str = ""  # without the prompt
    ids: Ids = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)  # by the model itself, whatever was drawn from
    ended: str = "length"  # by the end mark ("end"), a stop string ("stop"), or for want of room ("length")


class Continuer(ABC):
    """A tokenizer and a recipe. `go_on` is left to those who have a model."""

    recipe: Recipe
    data: TextData
    tokenizer: Tokenizer
    window: int

    @abstractmethod
    def go_on(self, texts: list[Ids], writers: list["Writer"], prompt: Ids, options: GenerationOptions) -> None:
        """Goes on from the texts read (B, T) until all have ended or the window is full."""

    def prompt_ids(self, prompt: str) -> Ids:
        """What is read before the first token is written: the beginning mark, if the model knows one, and the prompt."""
        begin = [self.tokenizer.bos] if self.tokenizer.bos >= 0 and self.data.documents == "line" else []
        ids = [*begin, *self.tokenizer.encode(prompt)]
        if len(ids) >= self.window:
            raise UserError(
                f"The prompt is {len(ids)} tokens long; this model's window holds {self.window}, and the answer needs room "
                "in it. Shorten the prompt."
            )
        if not ids:
            newline = self.tokenizer.encode("\n")
            ids = newline[-1:] or [0]  # a model without a beginning mark needs something to begin from
        return ids

    def generate(
        self,
        prompt: str,
        options: GenerationOptions | None = None,
        *,
        seed: int = 0,
        samples: int = 1,
        stop: Sequence[str] = (),
        write: Callable[[int, str], None] = lambda sample, text: None,
    ) -> list[Continuation]:
        """`samples` continuations at once, each drawn from its own generator. `write` is told new text of a sample as it comes.

        When the window is full, its last half is read again and the text goes on from that.
        """
        options = options or self.recipe.generation
        begun = self.prompt_ids(prompt)
        writers = [
            Writer(self.tokenizer, Continuation(prompt), stop, options.max_tokens, seed + sample, partial(write, sample))
            for sample in range(samples)
        ]
        while going := [writer for writer in writers if writer.going]:
            texts = [[*begun, *writer.done.ids] for writer in going]
            if len(texts[0]) >= self.window:
                texts = [ids[-(self.window // 2) :] for ids in texts]
            self.go_on(texts, going, begun, options)
        return [writer.done for writer in writers]


class Writer:
    """Turns the tokens of one sample into text: no half characters, and nothing that may yet become a stop string."""

    def __init__(
        self, tokenizer: Tokenizer, done: Continuation, stop: Sequence[str], most: int, seed: int, tell: Callable[[str], None]
    ) -> None:
        self.tokenizer, self.done, self.stop, self.most, self.tell = tokenizer, done, [s for s in stop if s], most, tell
        self.seed = seed
        self.going = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # what was not told yet
        self._understood = " " if tokenizer.spaced and not done.prompt else ""  # the space before the first word of all

    @cached_property
    def generator(self) -> Any:
        """What tokens are drawn from, if PyTorch draws them."""
        import torch

        return torch.Generator().manual_seed(self.seed % 2**64)

    def put(self, token: int, log_prob: float) -> None:
        """Takes a token, and tells the text that it makes certain."""
        if token == self.tokenizer.eos:
            return self._finish("end")
        self.done.ids.append(token)
        self.done.log_probs.append(log_prob)
        if new := self._decoder.decode(self.tokenizer.bytes_of(token)):
            self._held += new.removeprefix(self._understood)
            self._understood = ""
        found = [at for at in (self._held.find(s) for s in self.stop) if at >= 0]
        if found:
            self._held = self._held[: min(found)]
            return self._finish("stop")
        if len(self.done.ids) >= self.most:
            return self._finish("length")
        self._tell(len(self._held) - max((_overlap(self._held, s) for s in self.stop), default=0))

    def _finish(self, why: str) -> None:
        self.going, self.done.ended = False, why
        self._tell(len(self._held))

    def _tell(self, count: int) -> None:
        new, self._held = self._held[:count], self._held[count:]
        self.done.text += new
        if new:
            self.tell(new)


def _overlap(text: str, stop: str) -> int:
    """How many last characters of the text are the beginning of the stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
