"""The page opens models that are no Transformers: every view and every step of the walk, without an error."""

from collections.abc import Iterator

import pytest
from chromium import VIEWS, Explorer, Server, browser_test
from small_tasks import TEXTS, make
from test_ancestors import MADE

SHOWN = ("additive", "fixed", "writes", "judges", "filters", "counts vectors")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    served = Server(*(make(folder / name, MADE[name][0], **MADE[name][1]) for name in SHOWN))
    yield served
    served.stop()


@browser_test
@pytest.mark.parametrize("name", SHOWN)
def test_every_view_opens(name: str, explorer: Explorer) -> None:
    explorer.go(view="walk", model=name, text=TEXTS[MADE[name][0]][0], lang="en")
    for view in VIEWS:
        explorer.click(f"[data-view={view}]")
        explorer.page.wait_for_url(f"**view={view}**")
        assert not explorer.page.locator(".problem").count(), (view, explorer.text())
