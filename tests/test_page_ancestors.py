"""The page opens models that are no Transformers: every view and every step of the walk, without an error."""

from collections.abc import Iterator

import pytest
from chromium import Explorer, Server, browser_test
from small_tasks import TEXTS, make
from test_ancestors import MADE

SHOWN = ("additive", "fixed", "writes", "judges", "filters", "counts vectors")


@pytest.fixture(scope="module")
def ancestors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    served = Server(*(make(folder / name, MADE[name][0], **MADE[name][1]) for name in SHOWN))
    yield served
    served.stop()


@browser_test
@pytest.mark.parametrize("name", SHOWN)
def test_every_view_opens(name: str, ancestors: Server, browser) -> None:
    opened = Explorer(browser, ancestors)
    text = TEXTS[MADE[name][0]][0]
    for view in ("walk", "translate", "attention", "next"):
        opened.go(view=view, model=name, text=text, lang="en")
        assert not opened.page.locator(".problem").count(), (view, opened.text())
    opened.close()
