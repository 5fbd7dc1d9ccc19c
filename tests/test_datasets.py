import hashlib
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from glassformer.errors import UserError
from glassformer.text import datasets
from glassformer.text.corpora import CORPORA, Corpus, RemoteFile
from glassformer.text.datasets import cache_dir, download, find


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """An empty machine: a current folder, a cache, and no settings of the one that runs the tests."""
    for variable in ("GLASSFORMER_DATA", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestFind:
    def test_the_order_of_folders(self, machine, monkeypatch):
        monkeypatch.setenv("GLASSFORMER_DATA", str(machine / "variable"))
        folders = [machine / "flag", ".", machine / "recipes", machine / "variable", "data", machine / "cache/glassformer/data"]
        for folder in reversed(folders):  # each hides those after it
            expected = put(Path(folder) / "sub/pairs.tsv")
            assert find("sub/pairs.tsv", data_dir=machine / "flag", near=machine / "recipes") == expected

    def test_absolute_and_home(self, machine, monkeypatch):
        monkeypatch.setenv("HOME", str(machine))
        path = put(machine / "mine.tsv")
        assert find(str(path)) == path
        assert find("~/mine.tsv") == path
        with pytest.raises(UserError, match=r"no file /nowhere/mine\.tsv\. Check the path"):
            find("/nowhere/mine.tsv")

    def test_a_file_behind_a_folder_of_that_name(self, machine):
        (machine / "here/pairs.tsv").mkdir()
        with pytest.raises(UserError, match=r"'pairs.tsv' is a folder: .*here/pairs\.tsv\. Name a file in it"):
            find("pairs.tsv")
        assert find("pairs.tsv", data_dir=put(machine / "data/pairs.tsv").parent) == machine / "data/pairs.tsv"

    @pytest.mark.parametrize("name", ["no\0thing.tsv", "x" * 5000 + ".tsv", "~nobody-of-that-name/x.tsv"])
    def test_impossible_names_are_missing(self, name):
        with pytest.raises(UserError, match="There is no file"):
            find(name)

    def test_missing_lists_the_folders(self, machine, monkeypatch):
        monkeypatch.setenv("GLASSFORMER_DATA", str(machine / "variable"))
        with pytest.raises(UserError) as caught:
            find("mine.tsv", data_dir=machine / "flag", near=machine / "recipes")
        message = str(caught.value)
        looked = ["flag", "here", "recipes", "variable", "here/data", "cache/glassformer/data"]
        assert "There is no file mine.tsv. Looked in:\n" + "\n".join(f"  {machine / folder}" for folder in looked) in message
        assert "--data-dir" in message
        assert "GLASSFORMER_DATA" in message

    def test_missing_of_a_known_corpus(self, machine):
        file = CORPORA["multi30k"].files[0]
        with pytest.raises(UserError) as caught:
            find(file.path)
        for part in (
            f"{file.url} ({file.size:,} bytes, sha256 {file.sha256})",
            "Licence: Flickr30k terms",
            f"belongs at {machine / 'cache/glassformer/data' / file.path}",
            "glassformer data get multi30k",
        ):
            assert part in str(caught.value)

    def test_missing_of_a_corpus_without_an_address(self):
        with pytest.raises(UserError) as caught:
            find("tatoeba-zh-en/train.tsv")
        message = str(caught.value)
        for part in (
            "CC BY 2.0 FR",
            "manythings.org/anki/",
            "opus.nlpl.eu/Tatoeba",
            "English TAB Chinese",
            "other scores",
            "3,257,603",
        ):
            assert part in message
        assert "data get" not in message  # it would fail

    def test_a_file_the_corpus_does_not_have(self):
        with pytest.raises(UserError, match=r"tatoeba-zh-en has these files: tatoeba-zh-en/train\.tsv, tatoeba-zh-en/dev\.tsv"):
            find("tatoeba-zh-en/test.tsv")


def test_cache_dir(machine, monkeypatch):
    assert cache_dir() == machine / "cache/glassformer/data"
    monkeypatch.setenv("HOME", str(machine))
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_dir() == machine / ".cache/glassformer/data"


@pytest.mark.parametrize("corpus", CORPORA.values(), ids=CORPORA)
def test_the_table_is_sound(corpus):
    assert CORPORA[corpus.name] is corpus
    assert len({file.path for file in corpus.files}) == len(corpus.files) > 0
    for file in corpus.files:
        assert file.path.split("/")[0] == corpus.name
        assert file.url is None or (file.url.startswith("https://") and file.url.endswith(file.path.split("/")[-1]))
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0
    assert corpus.licence and corpus.title and corpus.page.startswith("https://")


def test_only_https_is_downloaded_from():
    assert datasets.SCHEMES == ("https",)


CONTENT = {"/a.txt": b"alpha\n" * 30_000, "/b.txt": b"beta\n"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        elif self.path == "/cut.txt":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"alpha\n")
        elif self.path in CONTENT:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CONTENT[self.path])
        else:
            self.send_error(404)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    """Its address; plain http is allowed to it, since a test has no certificate."""
    monkeypatch.setattr(datasets, "SCHEMES", ("http",))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.asked = []
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield http
        http.shutdown()
        thread.join()


@pytest.fixture
def publish(monkeypatch, server):
    """Enter a corpus "tiny" of files given as path → (address on the server, bytes it should have)."""

    def enter(files: dict[str, tuple[str, bytes]]) -> None:
        base = f"http://127.0.0.1:{server.server_port}"
        remote = tuple(
            RemoteFile(path, address if "://" in address[:8] else base + address, len(data), hashlib.sha256(data).hexdigest())
            for path, (address, data) in files.items()
        )
        monkeypatch.setitem(CORPORA, "tiny", Corpus("tiny", "a tiny corpus", "public domain", "https://example.org", remote))

    return enter


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


def failure(folder: Path, name: str = "tiny") -> str:
    with pytest.raises(UserError) as caught:
        download(name, folder)
    return str(caught.value)


class TestDownload:
    def test_files_arrive_and_are_found(self, publish, machine):
        publish({"tiny/sub/a.txt": ("/a.txt", CONTENT["/a.txt"]), "tiny/b.txt": ("/b.txt", CONTENT["/b.txt"])})
        told: list[tuple[int, int]] = []
        paths = download("tiny", cache_dir(), lambda done, total: told.append((done, total)))
        assert [path.read_bytes() for path in paths] == [CONTENT["/a.txt"], CONTENT["/b.txt"]]
        assert sorted(files_in(machine)) == sorted(paths)
        assert find("tiny/sub/a.txt") == paths[0]
        total = len(CONTENT["/a.txt"]) + len(CONTENT["/b.txt"])
        assert told[-1] == (total, total)
        assert len(told) > 2
        assert told == sorted(told)

    def test_right_files_are_kept(self, publish, server, tmp_path):
        publish({"tiny/a.txt": ("/a.txt", CONTENT["/a.txt"]), "tiny/b.txt": ("/b.txt", CONTENT["/b.txt"])})
        download("tiny", tmp_path)
        (tmp_path / "tiny/a.txt").unlink()
        told: list[int] = []
        download("tiny", tmp_path, lambda done, total: told.append(total - done))
        assert server.asked == ["/a.txt", "/b.txt", "/a.txt"]
        assert told[-1] == 0

    def test_other_files_are_not_overwritten(self, publish, server, tmp_path):
        publish({"tiny/a.txt": ("/a.txt", CONTENT["/a.txt"]), "tiny/b.txt": ("/b.txt", b"beta\n")})
        put(tmp_path / "tiny/a.txt", "mine")
        put(tmp_path / "tiny/b.txt", "mine\n")  # the right size
        message = failure(tmp_path)
        assert f"not the published ones of tiny: {tmp_path}/tiny/a.txt, {tmp_path}/tiny/b.txt" in message
        assert "move them away" in message
        assert (tmp_path / "tiny/a.txt").read_text() == "mine"
        assert server.asked == []

    def test_wrong_hash_leaves_nothing(self, publish, machine):
        publish({"tiny/b.txt": ("/b.txt", b"gamma")})  # the size is right
        message = failure(cache_dir())
        assert hashlib.sha256(b"beta\n").hexdigest() in message
        assert hashlib.sha256(b"gamma").hexdigest() in message
        assert "Nothing was kept" in message
        assert files_in(machine) == []

    def test_longer_than_declared(self, publish, machine):
        publish({"tiny/a.txt": ("/a.txt", b"alpha\n")})
        assert "longer than the 6 bytes it should have" in failure(cache_dir())
        assert files_in(machine) == []

    @pytest.mark.parametrize("address", ["/b.txt", "/cut.txt"])
    def test_shorter_than_declared(self, publish, machine, address):
        publish({"tiny/b.txt": (address, b"x" * 1000)})
        assert re.search("ended after [56] of 1,000 bytes", failure(cache_dir()))
        assert files_in(machine) == []

    def test_an_interruption_leaves_nothing(self, publish, machine):
        publish({"tiny/a.txt": ("/a.txt", CONTENT["/a.txt"])})

        def interrupt(done: int, total: int) -> None:
            assert any(path.name.endswith(".part") for path in files_in(machine))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            download("tiny", cache_dir(), interrupt)
        assert files_in(machine) == []

    def test_the_server_does_not_have_it(self, publish, machine):
        publish({"tiny/a.txt": ("/gone.txt", b"alpha")})
        message = failure(cache_dir())
        assert "/gone.txt cannot be downloaded: the server answered 404 Not Found" in message
        assert f"to be put at {cache_dir() / 'tiny/a.txt'}" in message
        assert files_in(machine) == []

    def test_no_network(self, publish, machine):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            publish({"tiny/a.txt": (f"http://127.0.0.1:{free.getsockname()[1]}/a.txt", b"alpha")})
            message = failure(cache_dir())
        assert "cannot be downloaded" in message
        assert "refused" in message
        assert "Check the network" in message
        assert hashlib.sha256(b"alpha").hexdigest() in message
        assert files_in(machine) == []

    def test_redirects_are_followed(self, publish, tmp_path):
        publish({"tiny/b.txt": ("/to//b.txt", b"beta\n")})
        assert download("tiny", tmp_path)[0].read_bytes() == b"beta\n"

    def test_only_safe_addresses(self, publish, server, tmp_path):
        secret = put(tmp_path / "secret", "beta\n")
        publish({"tiny/b.txt": (f"/to/ftp://127.0.0.1:{server.server_port}/b.txt", b"beta\n")})
        assert f"ftp://127.0.0.1:{server.server_port}/b.txt is not downloaded" in failure(tmp_path)
        publish({"tiny/b.txt": (secret.as_uri(), b"beta\n")})
        assert "is not downloaded: only addresses that begin with http:// are allowed" in failure(tmp_path)

    def test_plain_http_is_refused(self, publish, server, monkeypatch, tmp_path):
        publish({"tiny/b.txt": ("/b.txt", b"beta\n")})
        monkeypatch.setattr(datasets, "SCHEMES", ("https",))
        assert "only addresses that begin with https:// are allowed" in failure(tmp_path)
        assert server.asked == []

    @pytest.mark.parametrize("path", ["../b.txt", "tiny/../../b.txt", "tiny/../b.txt", "/tmp/b.txt", "link/b.txt"])
    def test_nothing_is_written_outside(self, publish, server, machine, path):
        publish({path: ("/b.txt", b"beta\n")})
        (machine / "folder").mkdir()
        (machine / "folder/link").symlink_to(machine / "here")
        assert "would be written outside of" in failure(machine / "folder")
        assert server.asked == []

    def test_a_folder_that_cannot_be_written(self, publish, machine):
        publish({"tiny/b.txt": ("/b.txt", b"beta\n")})
        put(machine / "folder/tiny", "a file in the way")
        assert "cannot be written" in failure(machine / "folder")
        assert files_in(machine) == [machine / "folder/tiny"]

    def test_a_folder_in_the_place_of_a_file(self, publish, tmp_path):
        publish({"tiny/b.txt": ("/b.txt", b"beta\n")})
        (tmp_path / "tiny/b.txt").mkdir(parents=True)
        assert "tiny/b.txt" in failure(tmp_path)

    def test_unknown_name(self, tmp_path):
        message = failure(tmp_path, "multi30")
        assert "There is no corpus 'multi30'; there are multi30k, tatoeba-zh-en, tinyshakespeare" in message
        assert "Did you mean multi30k?" in message
        assert "Did you mean" not in failure(tmp_path, "zzz")

    def test_no_address(self, tmp_path):
        for content in (None, "stand-in\t替身\n"):  # a person's own file in its place does not change the answer
            if content:
                put(tmp_path / "tatoeba-zh-en/train.tsv", content)
            message = failure(tmp_path, "tatoeba-zh-en")
            assert "tatoeba-zh-en cannot be downloaded" in message
            assert "no address" in message
            assert "manythings.org/anki/" in message
