"""Language: text is gone on with, a token at a time, and judged by how well each token was foreseen."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.decoding.sampling import discourage, distribution, draw
from glassformer.decoding.search import walk, with_log_probs
from glassformer.errors import UserError
from glassformer.layers.cross_entropy import linear_cross_entropy
from glassformer.layers.threads import numpy_alone
from glassformer.models.gpt import GPT
from glassformer.models.rnn import RecurrentLanguage
from glassformer.options import GenerationOptions, GPTOptions, Recipe, RnnOptions, TextData
from glassformer.tasks import tokens
from glassformer.tasks.batch import Rows
from glassformer.tasks.continuer import Continuer, Writer
from glassformer.tasks.task import Ids, Task
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Edit, Token, Trace, run


@dataclass(frozen=True)
class Batch(Rows):
    """Full windows of text, none of it padding."""

    ids: Tensor  # (B, T)
    labels: Tensor  # (B · T) the token after each

    @property
    def read(self) -> Tensor:
        return self.ids


@dataclass(frozen=True)
class Fit:
    """How well a text was foreseen."""

    loss: float  # −log p a token, in nats
    tokens: int
    characters: int
    words: int  # by spaces, and one for each line's end

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_character(self) -> float:
        return self.loss * self.tokens / max(1, self.characters) / math.log(2)

    @property
    def word_perplexity(self) -> float:
        """What a model whose tokens are words would have to reach: the same −log p, shared out over words."""
        return math.exp(min(self.loss * self.tokens / max(1, self.words), 700.0))


class Language(Continuer, Task):
    """A decoder and its vocabulary."""

    model: GPT | RecurrentLanguage
    beside: Continuer | None = None  # another engine, which finds what a trace then looks into

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        assert isinstance(recipe.model, GPTOptions | RnnOptions) and isinstance(recipe.data, TextData)
        self.recipe = recipe
        self.data = recipe.data
        self.tokenizer = tokenizer
        self.window = recipe.model.max_length
        if isinstance(recipe.model, RnnOptions):
            self.model = RecurrentLanguage(recipe.model, tokenizer.size)
        else:
            self.model = GPT(recipe.model, tokenizer.size)

    @classmethod
    def build(cls, folder: Path, recipe: Recipe) -> "Language":
        return cls(recipe, Tokenizer.load(folder / "tokenizer.json", recipe.tokenizer))

    def save_words(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")

    # -- loss

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        states = self.model(batch.ids).flatten(0, 1)
        return linear_cross_entropy(states, self.model.output.weight, batch.labels, smoothing)

    @torch.inference_mode()
    def nll(
        self,
        ids: Sequence[int] | NDArray[Any],
        *,
        overlap: int = 0,
        batch_tokens: int = 4096,
        progress: Callable[[int], None] = lambda tokens: None,
    ) -> float:
        """Σ −log p of ids[1:], window by window; each window begins with `overlap` tokens that were judged before.

        Without overlap a window's first tokens are foreseen from little; with half a window every token has at least that
        much before it, for twice the work.
        """
        text = torch.from_numpy(np.asarray(ids, np.int64))
        starts = range(0, max(1, len(text) - 1 - overlap), self.window - overlap)
        windows = [text[start : start + self.window + 1] for start in starts]
        rows = max(1, batch_tokens // self.window)
        total = self._nll(windows[:1], 0)
        for i in range(1, len(windows) - 1, rows):
            total += self._nll(windows[i : min(i + rows, len(windows) - 1)], overlap)
            progress(rows * (self.window - overlap))
        return total + (self._nll(windows[-1:], overlap) if len(windows) > 1 else 0.0)  # the last may be shorter

    def _nll(self, windows: list[Tensor], judged: int) -> float:
        """Of windows of one length, without the labels of their first `judged` tokens."""
        text = torch.stack(windows)
        states, labels = self.model(text[:, :-1])[:, judged:], text[:, judged + 1 :]
        return linear_cross_entropy(states.flatten(0, 1), self.model.output.weight, labels.flatten(), 0.0)[1].item()

    def fit(self, texts: Sequence[str], *, progress: Callable[[int], None] = lambda tokens: None) -> Fit:
        """How well these documents are foreseen, each token from at least half a window."""
        ids = self.packed(texts)
        if len(ids) < 2:
            raise UserError(f"The text has {len(ids)} tokens; to judge a model it needs at least 2: one to read, one to foresee.")
        nll = self.nll(ids, overlap=self.window // 2, progress=progress)
        return Fit(nll / (len(ids) - 1), len(ids) - 1, *self.counts(texts))

    def counts(self, texts: Sequence[str]) -> tuple[int, int]:
        """Characters, with one for each document's end if that has a mark; words by spaces, with one for each line's end."""
        characters = sum(map(len, texts)) + (len(texts) if self.data.documents == "line" else 0)
        words = sum(len(line.split()) + 1 for text in texts for line in text.removesuffix("\n").split("\n"))
        return characters, words

    def packed(self, texts: Sequence[str]) -> Ids:
        """Documents one after another, with the end mark between them if each line is a document."""
        return [id for document in self.tokenizer.encode_batch(list(texts)) for id in self.marked(document)]

    def marked(self, document: Ids) -> Ids:
        """A document with its beginning and end, unless the corpus is one long text."""
        if self.data.documents == "file":
            return document
        return [id for id in (self.tokenizer.bos, *document, self.tokenizer.eos) if id >= 0]

    # -- answers

    @torch.inference_mode()
    def go_on(self, texts: list[Ids], writers: list[Writer], prompt: Ids, options: GenerationOptions) -> None:
        read = torch.tensor(texts)

        def choose(logits: Tensor, rows: list[int]) -> tuple[list[int], list[float]]:
            log_probs = logits.log_softmax(-1)
            if options.repetition != 1:
                logits = discourage(logits, [prompt + writers[row].done.ids for row in rows], options.repetition)
            if options.temperature == 0:
                return with_log_probs(logits.argmax(-1), log_probs)
            probs = distribution(logits, temperature=options.temperature, top_k=options.top_k, top_p=options.top_p)
            return with_log_probs(draw(probs, [writers[row].generator for row in rows]), log_probs)

        def write(row: int, token: int, log_prob: float) -> bool:
            writers[row].put(token, log_prob)
            return writers[row].going

        same = bool((read == read[0]).all())  # one prompt is read once, however many samples go on from it
        state = self.model.start(read[:1, :-1] if same else read[:, :-1])
        if same and len(read) > 1:
            state = state.reorder(torch.zeros(len(read), dtype=torch.long))
        with numpy_alone():
            walk(self.model, read[:, -1], state, choose, write, steps=self.window - read.size(1) + 1)

    # -- looking inside

    def _read(self, text: str) -> list[Token]:
        """The prompt with its beginning mark."""
        ids = self.prompt_ids(text)
        pieces = tokens.read(self.tokenizer, text)
        return [*tokens.written(self.tokenizer, ids[: len(ids) - len(pieces)]), *pieces]

    @torch.inference_mode()
    def states(self, text: str) -> tuple[list[Token], Tensor]:
        """Each from what stands before it."""
        read = self._read(text)
        return read, self.model(torch.tensor([[token.id for token in read]]))[0]

    def trace(self, text: str, *, max_tokens: int = 0, edits: dict[str, Edit] | None = None) -> Trace:
        """Every named tensor of one pass over the text and the likeliest `max_tokens` tokens after it, if the window has room."""
        prompt = self._read(text)
        most = min(max_tokens, self.window - len(prompt))
        greedy = GenerationOptions(temperature=0.0, max_tokens=most)
        more = (self.beside or self).generate(text, greedy)[0].ids if most > 0 else []
        read = [*prompt, *tokens.written(self.tokenizer, more, len(text), goes_on=bool(text))]
        about = {"task": self.recipe.task, "text": text, "written": len(more)}
        return run(self.model, target=read, about=about, edits=edits, made_by=self)
