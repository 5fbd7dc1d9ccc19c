"""Which of two languages a text is in, told by its script."""

import re
from collections.abc import Sequence

from glassformer.errors import UserError

# One match is about one word: a Chinese character counts as much as a run of letters.
_SCRIPTS = {
    "zh": r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]",
    "ja": r"[\u3040-\u30ff]+|[\u4e00-\u9fff]",
    "ko": r"[\uac00-\ud7af]+",
    "ru": r"[\u0400-\u04ff]+",
    "uk": r"[\u0400-\u04ff]+",
    "ar": r"[\u0600-\u06ff]+",
    "he": r"[\u0590-\u05ff]+",
    "el": r"[\u0370-\u03ff]+",
    "hi": r"[\u0900-\u097f]+",
    "th": r"[\u0e00-\u0e7f]",
}
_LATIN = r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]+"


def guess(text: str, languages: Sequence[str]) -> str:
    """The language of `text` among two; where both are written alike, the person must say."""
    scripts = [_SCRIPTS.get(language.split("-")[0], _LATIN) for language in languages]
    if scripts[0] == scripts[1]:
        choices = " or ".join(f"--to {language}" for language in languages)
        raise UserError(
            f"{languages[0]} and {languages[1]} are written alike, so the direction cannot be guessed: say {choices}."
        )
    counts = [len(re.findall(script, text)) for script in scripts]
    if counts[0] == counts[1]:  # a tie, or digits alone: take it for Latin if one is
        return next((language for language, script in zip(languages, scripts, strict=True) if script == _LATIN), languages[0])
    return languages[0] if counts[0] > counts[1] else languages[1]
