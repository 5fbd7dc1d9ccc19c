"""Folders that appear whole or not at all: written aside and renamed."""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.errors import UserError
from glassformer.files import sync


def check_free(out: Path, own: Collection[str], force: bool) -> None:
    """Refuses to write where something is. With `force` a folder is replaced, if all that it holds are files of these names."""
    if out.is_symlink() or out.exists():
        if not out.is_dir():
            raise UserError(f"{out} is there already, and is not a folder. Choose another name.")
        found = sorted(path.name for path in out.iterdir())
        if found and not force:
            raise UserError(f"{out} is not empty. Choose another folder, or add --force to replace what is in it.")
        if foreign := [name for name in found if name not in own]:
            raise UserError(
                f"{out} also holds {', '.join(foreign[:5])}{' …' if len(foreign) > 5 else ''}, which --force would lose. "
                "Choose another folder, or empty it yourself."
            )


@contextmanager
def folder_aside(out: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `out` when the block ends well and is removed when it does not."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}.") from None
    try:
        yield part
        part.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        for path in part.iterdir():
            sync(path)
        if out.exists():
            old = part.with_suffix(".old")
            os.rename(out, old)
            os.rename(part, out)
            shutil.rmtree(old)
        else:
            os.rename(part, out)
        sync(out.parent)
    except OSError as error:
        raise UserError(f"{out} could not be written: {error.strerror or error}. Nothing there was changed.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
