"""Texts to begin with, in a language that the model knows."""

from typing import Any

from glassformer.config import PairData, Recipe
from glassformer.text import synthetic
from glassformer.text.tokenizer import Tokenizer

SENTENCES = {
    "zh": ["我喜欢吃草莓。", "他昨天去了医院。", "好久不见。"],
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
    "en": ["What is the balance of my account?", "A film full of warmth and wit.", "Wake me at seven tomorrow."],
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
        found = [SENTENCES.get(code.split("-")[0], SENTENCES["en"]) for code in codes]
        return {"examples": [text for texts in zip(*found, strict=False) for text in texts][:4]}
    language = language_of(tokenizer)
    if recipe.task == "compare":
        return {"examples": [a for a, _ in PAIRS[language]], "seconds": [b for _, b in PAIRS[language]]}
    texts = {"language": BEGINNINGS, "fill": GAPS, "classify": OPINIONS}.get(recipe.task, SENTENCES)
    return {"examples": texts[language]}


def language_of(tokenizer: Tokenizer) -> str:
    """Chinese, if common characters are pieces of their own; else English."""
    ids = tokenizer.encode("的一人")
    return "zh" if len(ids) <= 3 and tokenizer.unk not in ids else "en"
