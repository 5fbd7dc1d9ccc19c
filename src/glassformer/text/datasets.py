"""Named corpora, and where files are found.

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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from glassformer.errors import UserError

SCHEMES = ("https",)  # the only ones that are downloaded from, redirects included
TIMEOUT = 30  # seconds without a byte
CHUNK = 1 << 16


@dataclass(frozen=True)
class RemoteFile:
    path: str  # below a data folder; its first part is the corpus's name
    url: str | None  # None: published nowhere as this one file
    size: int
    sha256: str


@dataclass(frozen=True)
class Corpus:
    name: str
    title: str
    licence: str
    page: str
    files: tuple[RemoteFile, ...]
    note: str = ""


def _files(name: str, address: str | None, table: str) -> tuple[RemoteFile, ...]:
    """The files of a table of sha256, size and path, which is also the end of the address."""
    rows = [line.split() for line in table.strip().splitlines()]
    return tuple(RemoteFile(f"{name}/{path}", address and f"{address}/{path}", int(size), sha256) for sha256, size, path in rows)


MULTI30K = """
    958a82d4f1c596074c6ae403bd877ff4a34ff09e1a08db36ad0c1b146f57771a  557982 tok/train.lc.norm.tok.en.gz
    32f367bb30c948f5da0c3567a8b7d8c017ff6f938c73aa01a50fe68e99ad8fa3  609371 tok/train.lc.norm.tok.de.gz
    ad4bdfd8d91ac4325ec95f12406d06d6ca6b16ae976657b1e1a3899962268050   21336 tok/val.lc.norm.tok.en.gz
    39e083a21b23e878affd4c41b6bdc8af989d9c811a370f4553ee728fcd17dfee   23706 tok/val.lc.norm.tok.de.gz
    104edae553a842fb7d154b7a5a0447ffcbe5508393fd342cf4c6757e2b8cc505   20758 tok/test_2016_flickr.lc.norm.tok.en.gz
    8ad6b7da74a6b7d9a7dea3f14175325b5c64936445cbe31513601a13d6875e3b   21998 tok/test_2016_flickr.lc.norm.tok.de.gz
    d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f  568929 raw/train.en.gz
    726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6  637044 raw/train.de.gz
    14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28   21650 raw/val.en.gz
    f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a   24681 raw/val.de.gz
    611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9   21077 raw/test_2016_flickr.en.gz
    9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8   22890 raw/test_2016_flickr.de.gz
"""

TATOEBA_ZH_EN = """
    3e6a3d9f97d92fc0d9a6fa8788430eb8ed8778b1d72c4d8ba2ea26140bfafef8 3257603 train.tsv
    83f517d8735d1a150c39d4d6f60d5b9be7e6c76691b87eddf5e06cf117761451   73530 dev.tsv
"""

TINYSHAKESPEARE = """
    86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed 1115394 input.txt
"""

CORPORA: dict[str, Corpus] = {
    "multi30k": Corpus(
        name="multi30k",
        title="Multi30k task 1, English and German captions of photographs: train 29,000, val 1,014, test 1,000 pairs",
        licence="Flickr30k terms: research and education only",
        page="https://github.com/multi30k/dataset",
        files=_files("multi30k", "https://github.com/multi30k/dataset/raw/master/data/task1", MULTI30K),
        note="tok/ is lower-cased, normalised and tokenised; raw/ is as people write.",
    ),
    "tatoeba-zh-en": Corpus(
        name="tatoeba-zh-en",
        title="Tatoeba, short everyday sentences in English and simplified Chinese: train 47,002, dev 1,000 pairs",
        licence="CC BY 2.0 FR: name Tatoeba (https://tatoeba.org) with anything trained on it",
        page="https://tatoeba.org",
        files=_files("tatoeba-zh-en", None, TATOEBA_ZH_EN),
        note=(
            "These files have no address: they were merged from cmn-eng.zip of https://www.manythings.org/anki/, "
            "Tatoeba of OPUS (https://opus.nlpl.eu/Tatoeba) and the dev and test data of "
            "https://github.com/Helsinki-NLP/Tatoeba-Challenge, put into simplified characters, and rid of doubles and of "
            "every pair that shares a side with the test set of 2020-07-28. "
            "Any TSV of English TAB Chinese can be put in their place, with other scores."
        ),
    ),
    "tinyshakespeare": Corpus(
        name="tinyshakespeare",
        title="Tiny Shakespeare, 1,115,394 characters of his plays",
        licence="public domain",
        page="https://github.com/karpathy/char-rnn",
        files=_files(
            "tinyshakespeare", "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare", TINYSHAKESPEARE
        ),
    ),
}


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
