import datetime
import itertools
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import UserError
from glassformer.text.synthetic import DATE_FORMS, SYNTHETIC, numeral, pairs, written


def value(words: str) -> int:
    """What a Chinese numeral says, read from left to right: the inverse of `numeral`, found another way."""
    total, digit = 0, None
    for word in words:
        if word in "十百千万":
            total += (1 if digit is None else digit) * {"十": 10, "百": 100, "千": 1000, "万": 10_000}[word]
            digit = None
        else:
            digit = "零一二三四五六七八九".index(word)
    return total + (digit or 0)


class TestNumerals:
    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (0, "零"), (2, "二"), (10, "十"), (11, "十一"), (20, "二十"), (21, "二十一"), (99, "九十九"),
            (100, "一百"), (101, "一百零一"), (105, "一百零五"), (110, "一百一十"), (111, "一百一十一"), (120, "一百二十"),
            (1000, "一千"), (1001, "一千零一"), (1010, "一千零一十"), (1100, "一千一百"), (1111, "一千一百一十一"),
            (10_000, "一万"), (10_001, "一万零一"), (10_010, "一万零一十"), (10_100, "一万零一百"), (11_000, "一万一千"),
            (20_305, "二万零三百零五"), (50_060, "五万零六十"), (70_809, "七万零八百零九"), (90_000, "九万"),
            (99_999, "九万九千九百九十九"),
        ],
    )  # fmt: skip
    def test_known_values(self, number, words):
        assert numeral(number) == words

    @given(st.integers(0, 99_999))
    def test_the_numeral_says_the_number(self, number):
        words = numeral(number)
        assert value(words) == number
        assert "零零" not in words
        assert number == 0 or not words.endswith("零")
        assert not re.search("零[十百千万]", words)
        # 零 stands exactly where a digit does not follow the one before it.
        assert number == 0 or words.count("零") == len(re.findall("0+(?=[1-9])", str(number)))
        assert not words.startswith("一十")

    @pytest.mark.parametrize("number", [-1, 100_000])
    def test_range(self, number):
        with pytest.raises(ValueError, match=f"not {number}"):
            numeral(number)


class TestPairs:
    def test_letters(self):
        for source, target in pairs("copy", 500, 1):
            assert source == target
            assert re.fullmatch("[a-z]( [a-z]){2,9}", source)
        for source, target in pairs("reverse", 500, 1):
            assert source[::-1] == target
            assert re.fullmatch("[a-z]( [a-z]){2,9}", source)
        assert {len(source.split()) for source, _ in pairs("reverse", 500, 1)} == set(range(3, 11))

    def test_numerals(self):
        made = list(pairs("numerals", 500, 1))
        for source, target in made:
            assert re.fullmatch(r"\d( \d){0,4}", source)
            assert value(target) == int(source.replace(" ", ""))
        assert {len(source.split()) for source, _ in made} == {1, 2, 3, 4, 5}

    def test_dates(self):
        for source, target in pairs("dates", 500, 1):
            date = datetime.date.fromisoformat(target)
            assert source in {written(date, form) for form in DATE_FORMS}
            assert datetime.date(1900, 1, 1) <= date <= datetime.date(2099, 12, 31)

    def test_written_dates(self):
        forms = {written(datetime.date(2021, 3, 5), form) for form in DATE_FORMS}
        assert len(forms) == len(DATE_FORMS)
        assert {"March 5, 2021", "5 Mar 2021", "March 5th, 2021", "2021年3月5日", "二〇二一年三月五日"} <= forms
        assert "Friday, March 5, 2021" in forms
        assert "2021年3月5日星期五" in forms
        assert written(datetime.date(2010, 12, 31), "{zh_year}年{zh_month}月{zh_day}日") == "二〇一〇年十二月三十一日"

    @pytest.mark.parametrize(
        ("day", "nth"),
        [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (22, "22nd"), (31, "31st")],
    )
    def test_ordinals(self, day, nth):
        assert written(datetime.date(2021, 3, day), "{nth}") == nth

    def test_no_written_form_has_two_meanings(self):
        meanings: dict[str, str] = {}
        for day in range(366):
            date = datetime.date(2020, 1, 1) + datetime.timedelta(days=day)
            for form in DATE_FORMS:
                assert meanings.setdefault(written(date, form), date.isoformat()) == date.isoformat()

    @pytest.mark.parametrize("name", SYNTHETIC)
    def test_decided_by_name_and_seed(self, name):
        made = list(pairs(name, 50, 3))
        assert list(pairs(name, 50, 3)) == made
        assert list(pairs(name, 20, 3)) == made[:20]
        assert list(pairs(name, 50, 4)) != made

    def test_the_same_in_another_process(self):
        """Python's own hash of a text changes with every process; a seed made of it would too."""
        program = "from glassformer.text.synthetic import pairs; print([list(pairs(n, 3, 5)) for n in ('copy', 'dates')])"
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "123",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment).stdout
        assert printed.decode().strip() == str([list(pairs(name, 3, 5)) for name in ("copy", "dates")])

    def test_the_same_on_every_machine(self):
        """Recipes and published scores rest on these very pairs."""
        assert next(pairs("copy", 1, 0)) == ("r g e e b g r", "r g e e b g r")
        assert next(pairs("dates", 1, 0)) == ("2036年6月12号", "2036-06-12")

    def test_lazy(self):
        assert len(list(itertools.islice(pairs("copy", 10**15, 0), 3))) == 3

    def test_unknown_name(self):
        with pytest.raises(UserError, match="no synthetic corpus 'revers'; there are copy, reverse, numerals, dates"):
            pairs("revers", 1, 0)

    def test_no_count(self):
        with pytest.raises(UserError, match="at least 1 pair; found a count of 0 for 'copy'"):
            pairs("copy", 0, 0)
