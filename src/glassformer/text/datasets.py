"""Where files are found, and how named corpora are downloaded.

Nothing is downloaded unless asked for: a missing file is an error that says where it is published and where to put it.
"""

import contextlib
import difflib
import hashlib
import http.client
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from glassformer.errors import UserError
from glassformer.text.corpora import CORPORA as CORPORA  # the command line looks for it here
from glassformer.text.corpora import Corpus, RemoteFile

SCHEMES = ("https",)  # the only ones that are downloaded from, redirects included
TIMEOUT = 30  # seconds without a byte
CHUNK = 1 << 16


def cache_dir() -> Path:
    """Where downloads go unless told otherwise: glassformer/data in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG rules: a relative one is to be ignored
        base = os.path.expanduser("~/.cache")
    return Path(base) / "glassformer" / "data"


def find(name: str, data_dir: Path | None = None, near: Path | None = None) -> Path:
    """The existing file of that name: in --data-dir, as written, near the recipe, or in the first data folder that has it."""
    path = Path(os.path.expanduser(name))
    folders = [Path()] if path.is_absolute() else _folders(data_dir, near)
    for folder in folders:
        if os.path.isfile(folder / path):  # a pipe is none: a corpus is read several times
            return folder / path
    for folder in folders:
        if os.path.isdir(folder / path):
            raise UserError(f"{name!r} is a folder: {(folder / path).absolute()}. Name a file in it.")
    if path.is_absolute():
        raise UserError(f"There is no file {name}. Check the path.")
    looked = "".join(f"\n  {folder.absolute()}" for folder in folders)
    raise UserError(f"There is no file {name}. Looked in:{looked}\n{_advice(path)}")


def download(name: str, folder: Path, progress: Callable[[int, int], None] | None = None) -> list[Path]:
    """Fetch a corpus into `folder` and return its files; right ones that are there already are kept.

    A file appears whole and with the right SHA-256, or not at all. `progress` is told the bytes done and the bytes in all.
    """
    if name not in CORPORA:
        near = difflib.get_close_matches(name, CORPORA, n=1)
        guess = f" Did you mean {near[0]}?" if near else ""
        raise UserError(f"There is no corpus {name!r}; there are {', '.join(CORPORA)}.{guess}")
    corpus = CORPORA[name]
    targets = {file: _target(folder, file) for file in corpus.files}
    present = {file for file, target in targets.items() if os.path.lexists(target) and _is_right(target, file)}
    wanted = [file for file in corpus.files if file not in present]
    if any(file.url is None for file in wanted):
        raise UserError(f"{name} cannot be downloaded.\n{_described(corpus, corpus.files, folder)}")
    if wrong := [targets[file] for file in wanted if os.path.lexists(targets[file])]:
        raise UserError(
            f"These files are not the published ones of {name}: {', '.join(map(str, wrong))}. "
            "Nothing was overwritten: move them away and try again, or choose another folder."
        )
    done, total = 0, sum(file.size for file in corpus.files)

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(done, total)

    for file, target in targets.items():
        if file in present:
            advance(file.size)
        else:
            _fetch(file, target, advance)
    return list(targets.values())


def _folders(data_dir: Path | None, near: Path | None) -> list[Path]:
    variable = os.environ.get("GLASSFORMER_DATA")
    folders = [data_dir, Path(), near, Path(os.path.expanduser(variable)) if variable else None, Path("data"), cache_dir()]
    return list(dict.fromkeys(folder for folder in folders if folder is not None))


def _advice(path: Path) -> str:
    """What to do about a missing file."""
    corpus = CORPORA.get(path.parts[0]) if path.parts else None
    if corpus is None:
        return "Check the name, or say which folder has it with --data-dir or the environment variable GLASSFORMER_DATA."
    paths = [file.path for file in corpus.files]
    if path.as_posix() not in paths:
        return f"The corpus {corpus.name} has these files: {', '.join(paths)}."
    file = corpus.files[paths.index(path.as_posix())]
    command = f"\nOr run: glassformer data get {corpus.name}" if all(file.url for file in corpus.files) else ""
    return _described(corpus, (file,), cache_dir()) + command


def _described(corpus: Corpus, files: tuple[RemoteFile, ...], folder: Path) -> str:
    """What the corpus is, where its files are published, and where they are to be put."""
    lines = [f"{corpus.name} is {corpus.title}.", f"Licence: {corpus.licence}. Page: {corpus.page}", corpus.note]
    for file in files:
        lines.append(f"{file.url or file.path} ({file.size:,} bytes, sha256 {file.sha256})\n  belongs at {folder / file.path}")
    return "\n".join(line for line in lines if line)


def _target(folder: Path, file: RemoteFile) -> Path:
    path = PurePosixPath(file.path)
    target = folder / path
    # The parent is resolved, so a link in the folder cannot lead out of it either.
    if path.is_absolute() or ".." in path.parts or not target.parent.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{file.path!r} would be written outside of {folder}. A corpus stays inside its folder.")
    return target


def _is_right(path: Path, file: RemoteFile) -> bool:
    try:
        if path.stat().st_size != file.size:
            return False
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Move it away, or choose another folder.") from None


def _fetch(file: RemoteFile, target: Path, advance: Callable[[int], None]) -> None:
    """Download one file beside its place, check it, move it there."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    digest, size = hashlib.sha256(), 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as out:
            for piece in _pieces(file, target):
                size += len(piece)
                if size > file.size:
                    raise UserError(f"{file.url} is longer than the {file.size:,} bytes it should have. Nothing was kept.")
                digest.update(piece)
                out.write(piece)
                advance(len(piece))
            out.flush()
            os.fsync(out.fileno())
        if size != file.size:
            raise UserError(f"{file.url} ended after {size:,} of {file.size:,} bytes. Nothing was kept: try again.")
        if digest.hexdigest() != file.sha256:
            raise UserError(
                f"{file.url} is not the file it should be: its sha256 is {digest.hexdigest()}, expected {file.sha256}. "
                "Nothing was kept: it was changed since, or on the way."
            )
        os.replace(part, target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}. Choose another folder.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _pieces(file: RemoteFile, target: Path) -> Iterator[bytes]:
    """The bytes of a published file, as they arrive."""
    assert file.url is not None
    _check_scheme(file.url)
    request = urllib.request.Request(file.url, headers={"User-Agent": "glassformer"})
    try:
        with urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT) as answer:
            while piece := answer.read(CHUNK):
                yield piece
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            reason = f"the server answered {error.code} {reason}"
            error.close()
        raise UserError(
            f"{file.url} cannot be downloaded: {reason}. Check the network and try again, or bring the file another way: "
            f"{file.size:,} bytes, sha256 {file.sha256}, to be put at {target}"
        ) from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            _check_scheme(newurl)
        except UserError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str) -> None:
    if urllib.parse.urlsplit(url).scheme not in SCHEMES:
        raise UserError(f"{url} is not downloaded: only addresses that begin with {' or '.join(SCHEMES)}:// are allowed.")
