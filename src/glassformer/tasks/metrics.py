"""Scores of translations, by sacreBLEU, with the signatures that make them comparable."""

from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}  # everything else: sacreBLEU's default, 13a


@dataclass(frozen=True)
class Score:
    name: str
    value: float
    signature: str


def bleu(answers: list[str], references: list[str], tokenizer: str) -> Score:
    metric = BLEU(tokenize=tokenizer, force=True)  # no warning about text that is tokenised on purpose
    value = metric.corpus_score(answers, [references]).score
    return Score("BLEU", value, str(metric.get_signature()))


def chrf(answers: list[str], references: list[str]) -> Score:
    metric = CHRF()
    value = metric.corpus_score(answers, [references]).score
    return Score("chrF", value, str(metric.get_signature()))


def bleu_tokenizer(choice: str, language: str) -> str:
    return TOKENIZERS.get(language.split("-")[0], "13a") if choice == "auto" else choice
