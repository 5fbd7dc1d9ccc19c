"""What a person sees while a model trains: a live line on a terminal, plain lines in a file. Always on standard error."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """Progress, loss, tokens/s and time left."""

    def __init__(self, updates: int, done: int) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.live = sys.stderr.isatty()
        self._begun, self._first, self._updates = time.monotonic(), done, updates
        self._bar = Progress(
            TextColumn("{task.completed:,}/{task.total:,}"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self._task = self._bar.add_task("starting", total=updates, completed=done)

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, update: int) -> None:
        self._bar.update(self._task, completed=update)

    def log(self, update: int, loss: float, tokens_per_second: float) -> None:
        words = f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s"
        self._bar.update(self._task, description=words)
        if not self.live:
            left = (time.monotonic() - self._begun) / max(1, update - self._first) * (self._updates - update)
            self.say(f"{update:,}/{self._updates:,}  {words}  {left / 60:.1f} min left")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)
