"""Texts to begin with, in a language that the model knows."""

import re
from typing import Any

from glassformer.options import PairData, Recipe
from glassformer.tasks.fill import MASK
from glassformer.text import synthetic
from glassformer.text.tokenizer import Tokenizer

HAN = re.compile("[\u4e00-\u9fff]")

SENTENCES = {
    "zh": ["我喜欢吃草莓。", "他昨天去了医院。", "火车站在哪里？"],
    "en": ["He went to the hospital yesterday.", "I like strawberries.", "Where is the station?"],
    "de": ["Zwei Hunde spielen im Schnee.", "Eine Frau liest ein Buch."],
    "fr": ["Deux chiens jouent dans la neige.", "Une femme lit un livre."],
    "es": ["Dos perros juegan en la nieve.", "Una mujer lee un libro."],
    "ru": ["Две собаки играют в снегу.", "Женщина читает книгу."],
    "ja": ["お久しぶりです。", "私はいちごが好きです。"],
}
BEGINNINGS = {"zh": ["床前明月光", "春风", "山中"], "en": ["To be, or not to be", "Once upon a time", "The king"]}
OPINIONS = {
    "zh": ["房间很干净，下次还会来。", "服务太差了。"],
    "en": [
        "What is the balance of my account?",
        "A film full of warmth and wit.",
        "wake me up at seven tomorrow",
        "how do i say thank you in french",
    ],
}
GAPS = {
    "zh": ["今天天[MASK]很好。", "北京是中国的[MASK]都。"],
    "en": ["Paris is the [MASK] of France.", "She drinks a cup of [MASK]."],
}
PAIRS = {
    "zh": [("一个男人在弹吉他。", "有人在演奏乐器。"), ("孩子们在睡觉。", "孩子们在跑步。")],
    "en": [("A man is playing a guitar.", "Someone is making music."), ("Two dogs are running.", "The dogs are asleep.")],
}


def examples(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, list[str]]:
    """`examples`, and for a model that compares two texts also `seconds`, one for each."""
    data = recipe.data
    corpus: Any = next(iter(data.train), "")
    if corpus.startswith("synthetic:"):
        return {"examples": [source for source, _ in synthetic.pairs(corpus.split(":")[1], 3)]}
    if isinstance(data, PairData):
        codes = [data.source, data.target] if data.both_ways else [data.source]
        found = [known(SENTENCES.get(code.split("-")[0], SENTENCES["en"]), tokenizer) for code in codes]
        return {"examples": [text for texts in zip(*found, strict=False) for text in texts][:4]}
    language = language_of(tokenizer)
    if recipe.task == "compare":
        pairs = [pair for pair in PAIRS[language] if knows(tokenizer, *pair)] or PAIRS[language]
        return {"examples": [a for a, _ in pairs], "seconds": [b for _, b in pairs]}
    texts = {"language": BEGINNINGS, "fill": GAPS, "classify": OPINIONS}.get(recipe.task, SENTENCES)
    return {"examples": known(texts[language], tokenizer)}


def known(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    """Those without a word that is unknown to the model, unless all have one."""
    return [text for text in texts if knows(tokenizer, text)] or texts


def knows(tokenizer: Tokenizer, *texts: str) -> bool:
    return not any(tokenizer.unk in tokenizer.encode(text.replace(MASK, " ")) for text in texts)


def language_of(tokenizer: Tokenizer) -> str:
    """Chinese, if more than a tenth of the vocabulary is; a large one of any language has a few common characters."""
    pieces = (tokenizer.bytes_of(id).decode("utf-8", "ignore") for id in range(tokenizer.size))
    return "zh" if sum(bool(HAN.search(piece)) for piece in pieces) > tokenizer.size / 10 else "en"
