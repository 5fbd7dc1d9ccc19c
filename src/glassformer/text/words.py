"""What word vectors are learned for: the words of a text, after lower-casing, segmentation, stop words and stemming."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import tokenizers as hf
from tokenizers import models

from glassformer.errors import UserError
from glassformer.options import TokenizerOptions, WordData
from glassformer.text.tokenizer import BYTES, SPECIALS, UNK, Tokenizer

HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
RUN = re.compile(f"[{HAN}]+")
WORD = re.compile(rf"[{HAN}]+|(?:(?![{HAN}])[^\W_])+(?:['’-](?:(?![{HAN}])[^\W_])+)*")  # don't and well-known are one word each
SEGMENTER = "segmenter.json"  # the vocabulary that Chinese is cut by, beside tokenizer.json

ENGLISH = """
a an the this that these those and or but nor so yet if then than because while although though unless until as at by for from in
into of off on onto out over to up down with without within about above across after against along among around before behind
below beneath beside between beyond during near since through under upon is am are was were be been being do does did done doing
have has had having will would shall should can could may might must not no yes i me my mine myself we us our ours ourselves you
your yours yourself he him his himself she her hers herself it its itself they them their theirs themselves who whom whose which
what when where why how there here all any both each every few more most other another some such only own same too very just also
again once ever even still
"""
CHINESE = """
的 了 着 过 地 得 之 是 在 有 和 与 跟 同 及 或 或者 而 而且 但 但是 可是 不过 因为 所以 如果 虽然 也 都 就 才 又 再 还 很 太 更
最 不 没 没有 我 你 您 他 她 它 我们 你们 他们 她们 它们 咱们 自己 这 那 这个 那个 这些 那些 这里 那里 哪 哪里 谁 什么 怎么 怎样
多少 几 为 被 把 给 让 使 从 到 向 对 对于 关于 于 以 用 由 吗 呢 吧 啊 呀 嘛 啦 一个 个 些 上 下 里 中 会 能 可以 要 将 已经 正在
"""
STEMMERS = """
arabic armenian basque catalan czech danish dutch dutch_porter english esperanto estonian finnish french german greek hindi
hungarian indonesian irish italian lithuanian nepali norwegian persian polish porter portuguese romanian russian serbian sesotho
spanish swedish tamil turkish yiddish
"""  # those of snowballstemmer 3.1, for when it is not installed
COHESION = (1, 10, 60, 200)  # of words of one, two, three, four characters
LEAST = 3  # times a word of several characters is seen
UNLIKELY = -30.0  # log-probability of a byte
FUNCTION = frozenset(word for word in CHINESE.split() if len(word) == 1)
STOP_WORDS = {"english": ENGLISH.split(), "chinese": CHINESE.split()}


class Words:
    """Text → words, the same way in training and when a person asks for one."""

    def __init__(self, data: WordData, tokenizer: TokenizerOptions, segmenter: Tokenizer | None = None) -> None:
        self.data, self.options = data, tokenizer
        self._segmenter = segmenter
        self._stop = stop_words(data.stop_words)
        self._stem = stemmer(data.stemming)
        self._cut = lru_cache(maxsize=100_000)(self._pieces)

    @classmethod
    def load(cls, folder: Path, data: WordData, tokenizer: TokenizerOptions) -> "Words":
        path = folder / SEGMENTER
        return cls(data, tokenizer, Tokenizer.load(path) if data.segment and path.exists() else None)

    def save(self, folder: Path) -> None:
        if self._segmenter:
            self._segmenter.save(folder / SEGMENTER)

    def learn(self, texts: Iterable[str]) -> None:
        """Learns what Chinese words there are, if texts are to be cut into them."""
        if self.data.segment:
            self._segmenter = segmenter(Counter(run for text in texts for run in RUN.findall(text)), self.data.segment)

    def of(self, text: str) -> list[str]:
        """The words of a text."""
        text = text.lower() if self.options.lowercase else text
        found = text.split() if self.data.split == "spaces" else WORD.findall(text)
        if self._segmenter or self.options.split_han:
            found = [part for word in found for part in (self._cut(word) if RUN.match(word) else (word,))]
        return [self._stem(word) for word in found if word not in self._stop]

    def normalised(self, word: str) -> str:
        """One word as the vocabulary would have it; it is not cut, and stop words are not left out."""
        return self._stem(word.lower() if self.options.lowercase else word)

    def counted(self, texts: Iterable[str]) -> Counter[str]:
        """How often each word occurs, of those that are frequent enough; a name such as <unk> is no word."""
        counts = Counter(word for text in texts for word in self.of(text))
        return Counter({word: n for word, n in counts.items() if n >= self.data.min_count and word not in SPECIALS})

    def _pieces(self, run: str) -> tuple[str, ...]:
        if self._segmenter is None:
            return tuple(run)
        spans = dict.fromkeys((piece.start, piece.end) for piece in self._segmenter.pieces(run))  # bytes of one share a span
        return tuple(run[start:end] for start, end in spans)


def segmenter(runs: Counter[str], most: int) -> Tokenizer:
    """A unigram model that cuts runs of Chinese characters into at most so many different words.

    Characters that stand together COHESION times as often as chance would have it make a word, wherever the word is parted; a
    longer one must hold together more, and neither begin nor end in a function word. How likely each word is follows from how
    often it is then cut out.
    """
    counts: Counter[str] = Counter()
    for run, n in runs.items():
        for start in range(len(run)):
            for end in range(start + 1, min(start + len(COHESION), len(run)) + 1):
                counts[run[start:end]] += n
    total = sum(n for part, n in counts.items() if len(part) == 1)

    def holds(word: str) -> bool:
        if len(word) == 1:
            return True
        if counts[word] < LEAST or (len(word) > 2 and FUNCTION & {word[0], word[-1]}):
            return False
        chance = max(counts[word[:i]] * counts[word[i:]] for i in range(1, len(word))) / total
        return counts[word] >= COHESION[len(word) - 1] * chance

    found = Counter({word: n for word, n in counts.items() if holds(word)})
    for _ in range(3):
        kept = frequent(Counter({word: n for word, n in found.items() if n >= LEAST or len(word) == 1}), most)
        all = sum(found[word] for word in kept)
        scores = [(word, math.log(max(found[word], 0.5) / all)) for word in kept]
        specials = [(name, UNLIKELY) for name in (*SPECIALS, *BYTES)]
        rust = hf.Tokenizer(models.Unigram([*specials, *scores], unk_id=UNK, byte_fallback=True))
        rust.add_special_tokens(list(SPECIALS))
        model = Tokenizer(rust)
        found = Counter({word: 0 for word in kept})
        for ids, n in zip(model.encode_batch(list(runs)), runs.values(), strict=True):
            for id in ids:
                if id >= len(specials):
                    found[kept[id - len(specials)]] += n
    return model


def frequent(counts: Counter[str], most: int) -> list[str]:
    """The words of a vocabulary, frequent ones first, ties in the order of the alphabet."""
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def stop_words(names: Iterable[str]) -> frozenset[str]:
    return frozenset(word for name in names for word in STOP_WORDS.get(name, [name]))


def stemmer(language: str) -> Callable[[str], str]:
    """What takes the ending off a word: the Snowball stemmer of a language; none leaves words as they are."""
    if not language:
        return lambda word: word
    try:
        import snowballstemmer  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        snowballstemmer = None
    known = snowballstemmer.algorithms() if snowballstemmer else STEMMERS.split()
    if language not in known:
        raise UserError(f"data.stemming is {language!r}; there are {', '.join(known)}.")
    if not snowballstemmer:
        raise UserError("data.stemming needs the package snowballstemmer: pip install 'glassformer[words]'")
    stem: Callable[[str], str] = snowballstemmer.stemmer(language).stemWord
    return lru_cache(maxsize=100_000)(stem)


def ngrams(word: str, lengths: tuple[int, ...]) -> Iterator[str]:
    """The character n-grams of <word>, of the least to the largest length, without <word> itself (Bojanowski et al. 2017)."""
    marked = f"<{word}>"
    for n in range(lengths[0], lengths[1] + 1):
        for start in range(len(marked) - n + 1):
            if n < len(marked):
                yield marked[start : start + n]


def bucket(ngram: str, buckets: int) -> int:
    """The row of an n-gram: FNV-1a of its UTF-8, as fastText hashes."""
    h = 2166136261
    for byte in ngram.encode("utf-8", "surrogatepass"):
        h = ((h ^ (byte - 256 if byte > 127 else byte) & 0xFFFFFFFF) * 16777619) & 0xFFFFFFFF
    return h % buckets
