"""`glassformer explore --export`: what is in the folder, and what is refused before or after work was done."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import glassformer
from small_tasks import TEXTS, make

import glassformer as gf
from glassformer import store
from glassformer.explain import Explainer
from glassformer.server import export as exporting
from glassformer.server import page
from glassformer.server.export import bare

TEXT = TEXTS["classify"][0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "small", "classify")


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "deep" / "folder"
    result = glassformer("explore", "--export", folder, "--model", model, "--text", TEXT)
    assert result.code == 0, result.err
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert f"{size / 1e6:.1f} MB" in result.out and f"python -m http.server --directory {folder}" in result.out
    return folder


def unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def test_the_folder_has_every_number_and_every_cell(exported: Path, model: Path) -> None:
    manifest = json.loads((exported / "export/manifest.json").read_text("utf-8"))
    task = gf.load(model)
    trace = task.trace(TEXT)
    explainer = Explainer(task.model, trace)
    assert manifest["ask"] == {"model": "small", "text": TEXT, "second": None, "to": None, "max_tokens": 0}
    for name, x in trace.items():
        about = manifest["arrays"][f"tensor/{name}"]
        flat = np.frombuffer(unpacked(exported / f"export/arrays/{about['file']}.0.bin"), "<f4")
        assert about["shape"] == list(x.shape) and np.array_equal(flat, x.numpy().ravel())
        files = sorted((exported / "export/cells").glob(f"{name}.[0-9]*.bin"), key=lambda path: int(path.name.split(".")[-2]))
        cells = [cell for path in files for cell in json.loads(unpacked(path))]
        assert len(cells) == x.numel()
        last = explainer.cell(name, [size - 1 for size in x.shape])
        assert cells[-1] == json.loads(json.dumps(bare(last, set())))
    page_files = {path.relative_to(page.FOLDER) for path in page.FOLDER.rglob("*") if path.is_file()}
    assert page_files < {path.relative_to(exported) for path in exported.rglob("*")}


def test_the_page_is_marked_and_loads_nothing_from_elsewhere(exported: Path) -> None:
    index = (exported / "index.html").read_text("utf-8")
    assert '<meta name="glassformer-export"' in index and "default-src 'none'" in index and "python -m http.server" in index
    assert 'src="/' not in index and 'href="/' not in index  # so it works under any path


@pytest.mark.parametrize("name", [folder.name for folder in store.bundled() if folder.name != "word-vectors"])
def test_references_lead_to_the_operands(name: str) -> None:
    """What a cell of a bundled model names in an export has the values that it was explained with."""
    task = gf.load(name)
    trace = task.trace(
        {"intents": "call me a taxi", "tagger": "Time flies."}.get(name, "我喜欢吃草莓。" if "zh" in name else "Oh")
    )
    explainer, weights = Explainer(task.model, trace), set[str]()
    found = dict(task.model.named_parameters(remove_duplicate=False)) | dict(task.model.named_buffers(remove_duplicate=False))
    checked = 0
    for traced, x in trace.items():
        cell = explainer.cell(traced, [size // 2 for size in x.shape])
        told = bare(cell, weights)[1]
        for full, reference in zip(operands(cell.terms), operands(told), strict=True):
            assert set(reference) == {"name", "index", "weight"}
            whole = found[reference["name"]].detach() if reference["weight"] else trace[reference["name"]]
            part = whole[tuple(slice(None) if i is None else i for i in reference["index"])]
            assert part.flatten().tolist() == (full["values"] if None in full["index"] else [full["value"]])
            checked += 1
    assert checked > len(trace) / 2 and weights


def operands(term: Any) -> list[dict[str, Any]]:
    if isinstance(term, list):
        return [each for one in term for each in operands(one)]
    if not isinstance(term, dict):
        return []
    return [term] if "index" in term else [each for one in term.values() for each in operands(one)]


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    folder = make(tmp_path / "model", "translate", tie="all")
    assert glassformer("explore", "--export", tmp_path / "out", "-m", folder, "--text", "好").code == 0
    arrays = json.loads((tmp_path / "out/export/manifest.json").read_text())["arrays"]
    assert arrays["weight/output.weight"]["file"] == arrays["weight/encoder.embed.token.weight"]["file"]


# -- refusals


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--text", TEXT, "--model", "no-such"], "There is no model 'no-such'"),
        (["--text", "cat " * 2000], "8,000 characters long; at most 4,000"),
        (["--text", "the cat " * 20], "the model has 48 positions"),
        (["--text", "  "], "The text is empty"),
        (["--text", TEXT, "--to", "en"], "'to' is for models that translate"),
        (["--text", TEXT, "--second", "x"], "reads one text"),
        ([], '--text "…"'),
        (["tagger", "--text", TEXT], "An export is of one model; 2 were given"),
        (["--text", "cat \udcff"], "not valid UTF-8: character 5"),
        (["--text", TEXT, "--port", "9000"], "--port is of the page while it is served"),
        (["--text", TEXT, "--no-browser"], "--no-browser is of the page while it is served"),
    ],
)
def test_a_mistake_costs_nothing(model: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    usual = [] if "--model" in arguments else ["--model", model]
    result = glassformer("explore", "--export", tmp_path / "out", *usual, *arguments)
    assert result.code == 2 and said in result.err and "Traceback" not in result.err, result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", [["--text", "x"], ["--second", "x"], ["--to", "en"], ["--model", "zh-en"], ["--force"]])
def test_options_of_an_export_alone(option: list[str]) -> None:
    result = glassformer("explore", *option)
    assert result.code == 2 and f"{option[0]} goes with --export" in result.err


def test_word_vectors_have_no_pass_to_export(tmp_path: Path) -> None:
    result = glassformer("explore", "--export", tmp_path / "out", "--model", "word-vectors", "--text", "cat")
    assert result.code == 2 and "which read none" in result.err and not list(tmp_path.iterdir())


def test_nothing_is_written_over(model: Path, tmp_path: Path) -> None:
    command = ["explore", "--model", model, "--text", "cat", "--export"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    for force in ([], ["--force"]):
        result = glassformer(*command, tmp_path / "mine", *force)
        assert result.code == 2 and "not empty, and no earlier export" in result.err
    result = glassformer(*command, tmp_path / "mine/letter.txt")
    assert result.code == 2 and "is a file" in result.err
    result = glassformer(*command, tmp_path / "mine/letter.txt/below")
    assert result.code == 2 and "cannot be written" in result.err and "Traceback" not in result.err
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "letter.txt"] and (
        tmp_path / "mine/letter.txt"
    ).read_text() == "dear"


def test_files_of_others_in_an_export_are_not_lost(model: Path, tmp_path: Path) -> None:
    command = ["explore", "--model", model, "--text", "cat", "--force", "--export"]
    (tmp_path / "mine/export").mkdir(parents=True)
    (tmp_path / "mine/export/manifest.json").write_text('{"mine": 1}')
    result = glassformer(*command, tmp_path / "mine")
    assert result.code == 2 and "no earlier export" in result.err
    assert glassformer(*command, tmp_path / "out").code == 0
    (tmp_path / "out/CNAME").write_text("example.org")
    result = glassformer(*command, tmp_path / "out")
    assert result.code == 2 and "more than an export in it (CNAME)" in result.err
    assert (tmp_path / "out/CNAME").read_text() == "example.org" and (tmp_path / "out/index.html").exists()


def test_into_the_folder_one_stands_in(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert glassformer("explore", "--model", model, "--text", "cat", "--export", ".").code == 0
    assert Path("index.html").is_file() and Path("export/manifest.json").is_file()


def test_an_earlier_export_stays_until_the_new_one_is_whole(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["explore", "--model", model, "--export", tmp_path / "out", "--text"]
    (tmp_path / "out").mkdir()  # an empty folder is as good as none
    assert glassformer(*command, "cat").code == 0
    again = glassformer(*command, "mat")
    assert again.code == 2 and "--force replaces it" in again.err
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "bare", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert glassformer(*command, "mat", "--force").code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    manifest = tmp_path / "out/export/manifest.json"
    assert json.loads(manifest.read_text())["ask"]["text"] == "cat"
    assert glassformer(*command, "mat", "--force").code == 0
    assert json.loads(manifest.read_text())["ask"]["text"] == "mat" and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_pass_that_is_too_large(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MOST", 1000)
    result = glassformer("explore", "--export", tmp_path / "out", "--model", model, "--text", TEXT)
    assert result.code == 2 and "1,000 are allowed" in result.err and not list(tmp_path.iterdir())


def test_the_page_has_to_be_built(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "FOLDER", tmp_path / "nowhere")
    result = glassformer("explore", "--export", tmp_path / "out", "--model", model, "--text", TEXT)
    assert result.code == 2 and "npm run build" in result.err
