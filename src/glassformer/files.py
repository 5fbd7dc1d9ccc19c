"""Files that appear whole or not at all: written aside, synced, renamed. An earlier file of that name stays until then."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` when the block ends well and is removed when it does not."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        sync(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    with aside(path) as part:
        part.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Waits until the disk has the file, or the entries of the folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
