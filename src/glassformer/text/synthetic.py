"""Corpora made by code: endless, free, the same everywhere, and with one right answer for every source.

A corpus is decided by its name and seed; a larger count only continues it. A dev set uses another seed. Nothing keeps the two
apart, but few pairs are drawn in both: beside 20,000 training pairs, about 2% of a dev set of `copy`, `reverse` or `dates`. Only
`numerals` has so few numbers that more than a quarter was seen in training.

`copy`, `reverse` and the digits of `numerals` stand apart, so every tokenizer takes them as words. Chinese numerals and dates are
written as people write them: use `tokenizer.kind = "character"` there.
"""

import datetime
import random
from collections.abc import Callable, Iterator

from glassformer.errors import UserError

COUNT, SEED = 20_000, 0  # of a corpus written as `synthetic:NAME` alone

DIGITS = "零一二三四五六七八九"
UNITS = ("", "十", "百", "千", "万")

# Not taken from the calendar module, whose names follow the machine's language.
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

FIRST_DAY, LAST_DAY = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)

# No form such as 3/5/21, whose meaning depends on the country and the century.
DATE_FORMS = (
    "{month} {day}, {year}",
    "{month} {nth}, {year}",
    "{mon} {day}, {year}",
    "{weekday}, {month} {day}, {year}",
    "{day} {month} {year}",
    "{day} {mon} {year}",
    "{weekday}, {day} {month} {year}",
    "the {nth} of {month} {year}",
    "{year}/{m}/{day}",
    "{year}.{m}.{day}",
    "{year}年{m}月{day}日",
    "{year}年{m}月{day}号",
    "{year}年{m}月{day}日星期{zh_weekday}",
    "{zh_year}年{zh_month}月{zh_day}日",
    "{zh_year}年{zh_month}月{zh_day}号",
    "{zh_year}年{zh_month}月{zh_day}日星期{zh_weekday}",
)


def pairs(name: str, count: int = COUNT, seed: int = SEED) -> Iterator[tuple[str, str]]:
    """`count` pairs of source and target, the same ones on every machine."""
    if name not in SYNTHETIC:
        raise UserError(f"There is no synthetic corpus {name!r}; there are {', '.join(SYNTHETIC)}.")
    if count < 1:
        raise UserError(f"A synthetic corpus has at least 1 pair; found a count of {count} for {name!r}.")
    rng = random.Random(f"{name}:{seed}")  # a text seeds by SHA-512: the same on every platform and in every process
    make = SYNTHETIC[name]
    return (make(rng) for _ in range(count))


def numeral(number: int) -> str:
    """The Chinese numeral of 0–99,999: 20305 is 二万零三百零五.

    A gap of zeros between two digits is read once, as 零; zeros at the end are silent; 10–19 begin with 十, not 一十.
    """
    if not 0 <= number <= 99_999:
        raise ValueError(f"numerals go from 0 to 99,999, not {number}")
    if number < 10:
        return DIGITS[number]
    if number < 20:
        return "十" + numeral(number % 10) if number % 10 else "十"
    words, gap = "", False
    for place, digit in zip(range(len(str(number)) - 1, -1, -1), str(number), strict=True):
        if digit == "0":
            gap = True
            continue
        words += ("零" if gap else "") + DIGITS[int(digit)] + UNITS[place]
        gap = False
    return words


def _letters(rng: random.Random) -> list[str]:
    return [rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 10))]


def _copy(rng: random.Random) -> tuple[str, str]:
    """c a t → c a t"""
    letters = " ".join(_letters(rng))
    return letters, letters


def _reverse(rng: random.Random) -> tuple[str, str]:
    """c a t → t a c"""
    letters = _letters(rng)
    return " ".join(letters), " ".join(reversed(letters))


def _numerals(rng: random.Random) -> tuple[str, str]:
    """1 0 5 → 一百零五"""
    longest = rng.choice((1, 2, 3, 4) + (5,) * 16)  # some short ones: of all numbers, only one in a thousand is below a hundred
    number = rng.randrange(10**longest)
    return " ".join(str(number)), numeral(number)


def _dates(rng: random.Random) -> tuple[str, str]:
    """March 5, 2021 or 二〇二一年三月五日 → 2021-03-05"""
    date = FIRST_DAY + datetime.timedelta(days=rng.randint(0, (LAST_DAY - FIRST_DAY).days))
    return written(date, rng.choice(DATE_FORMS)), date.isoformat()


def written(date: datetime.date, form: str) -> str:
    """The date in one of `DATE_FORMS`."""
    month, day = MONTHS[date.month - 1], date.day
    ending = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return form.format(
        year=date.year, m=date.month, day=day,
        month=month, mon=month[:3], nth=f"{day}{ending}", weekday=WEEKDAYS[date.weekday()],
        zh_year="".join("〇一二三四五六七八九"[int(digit)] for digit in str(date.year)),
        zh_month=numeral(date.month), zh_day=numeral(day), zh_weekday="一二三四五六日"[date.weekday()],
    )  # fmt: skip


SYNTHETIC: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "copy": _copy,
    "reverse": _reverse,
    "numerals": _numerals,
    "dates": _dates,
}
