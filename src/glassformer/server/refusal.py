"""What the API says when it cannot answer: a sentence, a short code that the page can translate, and details."""

from typing import Any


class Refusal(Exception):
    """An answer other than 200. `code` is for the page, `sentence` for people."""

    def __init__(self, status: int, code: str, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.status, self.code, self.sentence, self.details = status, code, sentence, details

    def body(self) -> dict[str, Any]:
        return {"error": self.sentence, "code": self.code, "details": self.details}


def bad(code: str, sentence: str, **details: Any) -> Refusal:
    return Refusal(422, code, sentence, **details)


def too_large(elements: int, limit: int) -> Refusal:
    sentence = f"This would be {elements:,} numbers; an answer holds {limit:,}. Take a smaller slice, or pool it with &pool=64."
    return bad("too-large", sentence, elements=elements, limit=limit)
