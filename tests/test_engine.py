"""What was compiled and CTranslate2 give the answers of our own search, or say why not; what CTranslate2 was given is kept and
checked."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from command import ROOT, glassformer, in_its_own_process
from conftest import MODELS, SIZES, VARIANTS, bert, every_variant, gpt
from small_tasks import scramble

import glassformer as gf
from glassformer import store
from glassformer.engine import choice, kept, translator
from glassformer.engine.compiled import CompiledTranslator, fits
from glassformer.engine.continuer import FastContinuer
from glassformer.engine.continuer import obstacles as not_written
from glassformer.engine.translator import FastTranslator, obstacles
from glassformer.errors import UserError
from glassformer.interop import ctranslate2 as interop
from glassformer.interop.exporting import export_model
from glassformer.layers import compiled
from glassformer.options import BertOptions, DecodingOptions, GenerationOptions, PairData, Recipe, TextData, TokenizerOptions
from glassformer.tasks.continuer import Continuation
from glassformer.tasks.fill import Fill
from glassformer.tasks.language import Language
from glassformer.tasks.translate import Translate
from glassformer.text.tokenizer import Tokenizer

LINES = ["the owl sat on a tree", "and saw the moon by night", "an owl and a tree", "moon"]
TEXTS = [*LINES, "owl", "tree moon owl night night the a on", "", "saw"]
WORDS = TokenizerOptions(kind="word", vocabulary=40)
SENTENCES = [
    "Where is the station?",
    "I have never been to Paris, but my brother has.",
    "He asked me whether I was busy.",
    "It is raining again.",
    "Please don't touch the paintings.",
    "She has two cats and a very old dog.",
    "What time does the next train leave?",
    "If I had known that, I would have come earlier.",
    "No.",
    "My father taught me how to swim when I was six years old, in a cold lake behind our house.",
    "我今天很累。",
    "你能告诉我最近的医院在哪里吗？",
    "他昨天买了一辆新车。",
    "如果明天下雨，我们就待在家里。",
    "这本书比那本书有意思得多。",
    "她会说三种语言。",
    "别忘了带伞。",
    "我们从来没有见过这么大的鱼。",
    "老师问学生们为什么迟到了，可是没有一个人回答。",
    "谢谢！",
]

where_compiled = pytest.mark.skipif(
    compiled.library() is None, reason="nothing was compiled: there was no C compiler when Glassformer was installed"
)


@pytest.fixture(autouse=True)
def _a_cache_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastTranslator, "scored", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def small(folder: Path, seed: int = 3, **changes: Any) -> Translate:
    """A translator of random weights that never writes what may not be written, as no trained one does."""
    words = Tokenizer.train(LINES, WORDS)
    torch.manual_seed(seed)
    options = replace(SIZES, **{**changes, "output_bias": True})
    task = Translate(Recipe(model=options, data=PairData(max_length=20), tokenizer=WORDS), words, words)
    scramble(task.model)
    task.model.output.bias.data[: words.eos] = -30.0
    task.model.eval()
    task.save(folder)
    return task


def same(ours: Any, theirs: Any) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (one.source, one.to, one.text, one.ids) == (other.source, other.to, other.text, other.ids)
        assert one.score == pytest.approx(other.score, abs=1e-4)


@every_variant
def test_small_models_find_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    task = small(tmp_path / "model", **changes)
    if reasons := obstacles(task.recipe, DecodingOptions()):
        assert changes.get("scores") == "additive" or changes.get("value_width"), reasons
        return
    fast = FastTranslator(tmp_path / "model", task.recipe)
    for options in (
        DecodingOptions(beam=1),
        DecodingOptions(beam=5),
        DecodingOptions(beam=3, length_penalty=0.0, max_length=4),
        DecodingOptions(beam=2, length_penalty=0.6, max_length=1),
    ):
        same(task.translate_all(TEXTS, options=options), fast.translate_all(TEXTS, options=options))


@every_variant
def test_what_was_compiled_finds_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    """Also what CTranslate2 has no word for; but for additive scores."""
    task = small(tmp_path / "model", **changes)
    if not fits(task.recipe):
        assert changes.get("scores") == "additive" or compiled.library() is None
        return
    own = CompiledTranslator(tmp_path / "model", task.recipe)
    for options in (
        DecodingOptions(beam=1),
        DecodingOptions(beam=1, min_length=3, max_length=6),
        DecodingOptions(beam=5, nbest=3),
        DecodingOptions(beam=12, length_penalty=0.0, max_length=4),
        DecodingOptions(beam=2, length_penalty=50, max_length=1),
    ):
        same(task.translate_all(TEXTS, options=options), own.translate_all(TEXTS, options=options))


@where_compiled
@pytest.mark.parametrize("tie", ["output", "none"])
def test_compiled_it_has_two_vocabularies(tie: str, tmp_path: Path) -> None:
    options = replace(WORDS, shared=False)
    words, others = (Tokenizer.train(lines, options) for lines in (LINES, [*LINES, "un hibou sur un arbre"]))
    torch.manual_seed(3)
    recipe = Recipe(model=replace(SIZES, tie=tie), data=PairData(max_length=20), tokenizer=options)  # type: ignore[arg-type]
    task = Translate(recipe, words, others)
    scramble(task.model)
    task.model.eval()
    task.save(tmp_path / "model")
    same(task.translate_all(TEXTS), CompiledTranslator(tmp_path / "model", recipe).translate_all(TEXTS))


@where_compiled
def test_compiled_it_says_what_is_not_finite(tmp_path: Path) -> None:
    """As PyTorch does: all weights are finite, what they make is not."""
    task = small(tmp_path / "model")
    for weight in task.model.encoder.parameters():
        weight.data.fill_(3e38)
    task.save(tmp_path / "model")
    for each in (task, CompiledTranslator(tmp_path / "model", task.recipe)):
        with pytest.raises(UserError, match=r"Sentence 1: the model's numbers are not finite"):
            each.translate_all(["owl"], options=DecodingOptions(beam=1))


@where_compiled
def test_compiled_the_bundled_translator_finds_the_same() -> None:
    """Also of many words."""
    task, folder = gf.load("zh-en"), store.find_model("zh-en")
    own, texts = CompiledTranslator(folder, task.recipe), [*SENTENCES, " ".join(SENTENCES[:10])]
    for options in (DecodingOptions(beam=1), DecodingOptions(beam=5)):
        same(task.translate_all(texts, options=options), own.translate_all(texts, options=options))


@pytest.mark.parametrize("options", [DecodingOptions(beam=1), DecodingOptions(beam=2, max_length=3)])
def test_more_batches_than_are_begun_ahead(options: DecodingOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence each, two at a time; those that are searched again too."""
    monkeypatch.setattr(translator, "AHEAD", 1)
    task = small(tmp_path / "model", norm="pre")
    fast = FastTranslator(tmp_path / "model", task.recipe)
    told: list[int] = []
    found = fast.translate_all(TEXTS, options=options, batch_tokens=1, progress=told.append)
    same(task.translate_all(TEXTS, options=options), found)
    assert len(told) > 3 and sum(told) == sum(bool(text.strip()) for text in TEXTS)


@pytest.mark.parametrize(("seed", "bias"), [(10, 1), (12, 2), (13, 2), (0, 3), (9, 3)])
def test_some_have_ended_and_others_are_cut_off(seed: int, bias: int, tmp_path: Path) -> None:
    """Which of them wins is seen when those that were cut off have their end; a search that stops one token sooner loses some."""
    task = small(tmp_path / "model", seed, norm="pre")
    task.model.output.bias.data[task.target.eos] += bias
    task.save(tmp_path / "model")
    fast = FastTranslator(tmp_path / "model", task.recipe)
    for most in range(2, 7):
        options = DecodingOptions(beam=5, max_length=most)
        same(task.translate_all(TEXTS, options=options), fast.translate_all(TEXTS, options=options))


def test_all_that_ended_before_the_limit_is_the_same(tmp_path: Path) -> None:
    task = small(tmp_path / "model", norm="pre")
    task.model.output.bias.data[task.target.eos] += 2
    task.save(tmp_path / "model")
    options = DecodingOptions(beam=4, nbest=4)
    ours, theirs = (
        each.translate_all(TEXTS, options=options) for each in (task, FastTranslator(tmp_path / "model", task.recipe))
    )
    ended = [i for i, each in enumerate(ours) if all(len(h.ids) < 10 for h in each.nbest)]
    assert len(ended) > 3
    for i in ended:
        same(ours[i].nbest, theirs[i].nbest)


def test_a_beam_has_as_many_answers_as_it_is_wide(tmp_path: Path) -> None:
    task = small(tmp_path / "model", norm="pre")
    for each in (task, FastTranslator(tmp_path / "model", task.recipe)):
        answers = each.translate_all(TEXTS[:3], options=DecodingOptions(beam=2, nbest=9))
        assert [len(answer.nbest) for answer in answers] == [2, 2, 2]


def test_what_may_not_be_written_is_not(tmp_path: Path) -> None:
    task = small(tmp_path / "model")
    task.model.output.bias.data[: task.target.eos] = 3.0
    task.save(tmp_path / "model")
    fast = FastTranslator(tmp_path / "model", task.recipe)
    for beam in (1, 4):
        for each in fast.translate_all(TEXTS, options=DecodingOptions(beam=beam, nbest=beam)):
            assert not {task.target.pad, task.target.bos} & {id for h in each.nbest for id in h.ids}
    same(*(each.translate_all(TEXTS, options=DecodingOptions(beam=1)) for each in (task, fast)))


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Translate, FastTranslator]]:
    folder = store.find_model("zh-en")
    task = gf.load("zh-en")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield task, FastTranslator(folder, task.recipe)


def test_the_bundled_translator_finds_the_same(translators: tuple[Translate, FastTranslator]) -> None:
    task, fast = translators
    for beam in (1, 5):
        options = replace(task.recipe.decoding, beam=beam)
        same(task.translate_all(SENTENCES, options=options), fast.translate_all(SENTENCES, options=options))
        same([fast.translate(SENTENCES[1], options=options)], fast.translate_all(SENTENCES[1:2], options=options))


def test_quantised_it_says_nearly_the_same(translators: tuple[Translate, FastTranslator]) -> None:
    task, fast = translators
    small = FastTranslator(store.find_model("zh-en"), task.recipe, "int8")
    pairs = list(zip(fast.translate_all(SENTENCES), small.translate_all(SENTENCES), strict=True))
    assert sum(one.text == other.text for one, other in pairs) > len(pairs) / 2
    assert np.mean([abs(one.score - other.score) for one, other in pairs]) < 0.05


INTO_ENGLISH = """
import sys
from dataclasses import replace
from sacrebleu import corpus_bleu
from glassformer import config, store
from glassformer.engine.translator import FastTranslator

folder = store.find_model("zh-en")
recipe = config.read(folder / "recipe.toml")
english, chinese = zip(*(line.rstrip("\\n").split("\\t") for line in open(sys.argv[1], encoding="utf-8")))
for precision in ("float32", "int8"):
    answers = FastTranslator(folder, recipe, precision).translate_all(chinese, "en", replace(recipe.decoding, beam=1))
    print(corpus_bleu([answer.text for answer in answers], [english]).score)
"""


def test_quantised_it_translates_as_well() -> None:
    """Also where products are added in sixteen bits: weights up to 127 would lose 0.67 BLEU."""
    pairs = Path(os.environ.get("GLASSFORMER_DATA", "")) / "tatoeba-zh-en/dev.tsv"
    if not pairs.is_file():
        pytest.skip("the environment variable GLASSFORMER_DATA names no folder with tatoeba-zh-en/dev.tsv")
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-c", INTO_ENGLISH, str(pairs)]
    whole, small = map(float, subprocess.run(command, env=environment, check=True, capture_output=True).stdout.split())
    assert whole > 23.5 and small > whole - 0.3


# Language models


def teller(folder: Path, seed: int = 1, **changes: Any) -> Language:
    words = Tokenizer.train(LINES, WORDS)
    recipe = Recipe(task="language", model=replace(gpt().options, **changes), data=TextData(), tokenizer=WORDS)
    torch.manual_seed(seed)
    task = Language(recipe, words)
    scramble(task.model)
    task.model.eval()
    task.save(folder)
    return task


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("gpt")])
def test_language_models_write_the_same(name: str, tmp_path: Path) -> None:
    changes = dict(MODELS[name].keywords) if hasattr(MODELS[name], "keywords") else {}
    task = teller(tmp_path / "model", **changes)
    options = GenerationOptions(temperature=0.0, max_tokens=70)  # more than twice the window
    if reasons := not_written(task.recipe, options, seeded=True):
        assert changes.get("scores") == "additive" or changes.get("value_width"), reasons
        return
    fast = FastContinuer(tmp_path / "model", task.recipe)
    for prompt, samples in (("the owl", 1), ("", 2), ("moon by night and", 1)):
        told: list[tuple[int, str]] = []
        ours = task.generate(prompt, options, samples=samples)
        theirs = fast.generate(prompt, options, samples=samples, write=lambda sample, text: told.append((sample, text)))  # noqa: B023
        alike(ours, theirs)
        assert ["".join(text for sample, text in told if sample == i) for i in range(samples)] == [each.text for each in theirs]
    stop = ours[0].text[len(ours[0].text) // 2 :][:4]
    alike(task.generate(prompt, options, stop=[stop]), fast.generate(prompt, options, stop=[stop]))


def alike(ours: list[Continuation], theirs: list[Continuation]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert (one.text, one.ids, one.ended) == (other.text, other.ids, other.ended)
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


def test_it_draws_by_the_probabilities(tmp_path: Path) -> None:
    task = teller(tmp_path / "model")
    options = GenerationOptions(temperature=0.7, top_k=5, max_tokens=1)
    found = FastContinuer(tmp_path / "model", task.recipe).generate("the owl", options, samples=2000)
    ids = task.prompt_ids("the owl")
    logits = task.model.logits(task.model(torch.tensor([ids])))[0, -1].detach()
    top = logits.topk(5)
    wanted = dict(zip(top.indices.tolist(), (top.values / 0.7).softmax(-1).tolist(), strict=True))
    counts = {id: sum((each.ids or [task.tokenizer.eos])[0] == id for each in found) for id in wanted}
    assert sum(counts.values()) == len(found)
    chi_square = sum((counts[id] - 2000 * p) ** 2 / (2000 * p) for id, p in wanted.items())
    assert chi_square < 25  # 4 degrees of freedom: 99.995 % of fair draws stay below
    first = next(each for each in found if each.ids)
    assert first.log_probs[0] == pytest.approx(logits.log_softmax(-1)[first.ids[0]].item(), abs=1e-4)  # of the model itself


# The command


def test_the_command_answers_alike_by_either_engine(tmp_path: Path) -> None:
    small(tmp_path / "model")
    teller(tmp_path / "teller")
    told = [
        glassformer("translate", "-m", tmp_path / "model", "--engine", name, *LINES)
        for name in ("auto", "ctranslate2", "pytorch")
    ]
    assert told[0] == told[1] == told[2] and told[0].code == 0 and told[0].out.count("\n") == len(LINES)
    two = [
        glassformer("translate", "-m", tmp_path / "model", "--nbest", 2, "--engine", name, "owl").out for name in choice.ENGINES
    ]
    assert two[0] == two[1] == two[2] and two[0].count("\n") == 2
    written = [
        glassformer("generate", "-m", tmp_path / "teller", "--temperature", 0, "--engine", name, "the owl")
        for name in ("auto", "ctranslate2", "pytorch")
    ]
    assert written[0] == written[1] == written[2] and written[0].code == 0
    by_chance = glassformer("generate", "-m", tmp_path / "teller", "--engine", "ctranslate2", "-n", 3, "the owl")
    assert by_chance.code == 0 and by_chance.out.startswith("the owl")


def test_the_command_says_what_the_engine_cannot(tmp_path: Path) -> None:
    small(tmp_path / "model")
    small(tmp_path / "other", scores="additive", value_width=5)
    teller(tmp_path / "teller")
    for why, *options in (
        ("--show", "--show"),
        ("--json", "--json"),
        ("drawing by", "--seed", 3),
        ("a least length", "--min-length", 2),
        ("a length penalty", "--length-penalty", 50),
        ("a vocabulary twice as large", "--beam", 100),
    ):
        result = glassformer("translate", "-m", tmp_path / "model", "--engine", "ctranslate2", "owl", *options)
        assert result.code == 2 and why in result.err and result.out == "", result
        assert glassformer("translate", "-m", tmp_path / "model", "owl", *options).code == 0  # others do it
    result = glassformer("translate", "-m", tmp_path / "other", "--engine", "ctranslate2", "owl")
    assert result.code == 2 and "'additive'" in result.err and "values 5" in result.err
    assert glassformer("translate", "-m", tmp_path / "other", "owl").code == 0
    for why, *options in (
        ("a seed", "--seed", 1),
        ("repetition", "--repetition", 1.5),
        ("top-p", "--top-p", 0.5),
        ("a seed", "--json"),
    ):
        result = glassformer("generate", "-m", tmp_path / "teller", "--engine", "ctranslate2", "owl", *options)
        assert result.code == 2 and why in result.err, result
    result = glassformer("translate", "--engine", "onnx", "owl")
    assert result.code == 2 and "there are auto, pytorch, ctranslate2, ctranslate2-int8" in result.err


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path / "model")
    wanted = glassformer("translate", "-m", tmp_path / "model", "owl")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # as if it were not there
    monkeypatch.setattr(compiled, "library", lambda: None)
    assert glassformer("translate", "-m", tmp_path / "model", "owl") == wanted
    result = glassformer("translate", "-m", tmp_path / "model", "--engine", "ctranslate2", "owl")
    assert result.code == 2 and "pip install 'glassformer[ctranslate2]'" in result.err
    result = glassformer("export", tmp_path / "model", "--to", "ctranslate2", "--out", tmp_path / "out")
    assert result.code == 2 and "pip install 'glassformer[ctranslate2]'" in result.err


def test_torch_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')", encoding="utf-8")
    path = f"{tmp_path}:{ROOT / 'src'}"
    for _ in range(2):  # converted, and kept
        result = in_its_own_process("translate", "你好", "--engine", "ctranslate2", env={**os.environ, "PYTHONPATH": path})
        assert result.code == 0 and result.out.strip() and result.err == "", result


@where_compiled
def test_one_sentence_needs_neither_torch_nor_ctranslate2(tmp_path: Path) -> None:
    for name in ("torch", "ctranslate2"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')", encoding="utf-8")
    result = in_its_own_process("translate", "你好", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"})
    assert result.code == 0 and result.out.strip() and result.err == "", result


def test_where_nothing_was_compiled_others_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path / "model")
    wanted = glassformer("translate", "-m", tmp_path / "model", "--engine", "pytorch", "owl")
    monkeypatch.setattr(compiled, "library", lambda: None)
    for engine in ("auto", "pytorch"):
        assert glassformer("translate", "-m", tmp_path / "model", "--engine", engine, "owl") == wanted


def test_whoever_loads_a_model_is_gone_afterwards(tmp_path: Path) -> None:
    """With a team of OpenMP's threads that would stand in the way of those who compute."""
    task = small(tmp_path / "model")
    loader = kept.load(
        tmp_path / "model", task.recipe, (task.source, task.target), "float32", lambda path: threading.current_thread()
    )
    assert loader is not threading.main_thread() and not loader.is_alive()


@pytest.mark.parametrize("set_by_hand, mkl", [("", "0"), ("1", "1")])
def test_one_sentence_is_shared_by_products_that_can_be(set_by_hand: str, mkl: str) -> None:
    """The command, before CTranslate2 asks; on other processors than Intel's it never takes MKL by itself."""
    env = {**os.environ, "OMP_NUM_THREADS": "2", "CT2_VERBOSE": "1", **({"CT2_USE_MKL": set_by_hand} if set_by_hand else {})}
    result = in_its_own_process("translate", "--engine", "ctranslate2", "谢谢！", env=env)
    assert result.code == 0 and f"Use Intel MKL: {'true' if mkl == '1' else 'false'}" in result.err, result


def test_what_is_asked_for_one_sentence_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, str] = {}
    monkeypatch.setattr(kept, "cores", lambda: 64)
    monkeypatch.setattr(interop, "library", lambda: asked.update(os.environ))
    monkeypatch.delitem(sys.modules, "ctranslate2")
    before = dict(os.environ)
    assert kept.share("float32") == kept.SHARING
    assert asked["CT2_USE_MKL"] == "0" and "GOMP_SPINCOUNT" in asked and dict(os.environ) == before
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # a person's
    asked.clear()
    kept.share("float32")
    assert asked["CT2_USE_MKL"] == "0" and "GOMP_SPINCOUNT" not in asked
    asked.clear()
    assert kept.share("int8") == 1 and not asked


# What is kept


def entries() -> list[Path]:
    return sorted(kept.home().iterdir())


def test_a_model_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small(tmp_path / "model")
    wanted = FastTranslator(tmp_path / "model", task.recipe).translate_all(TEXTS)
    (entry,) = entries()
    with monkeypatch.context() as patch:
        patch.setattr(interop, "convert", None)
        same(wanted, FastTranslator(tmp_path / "model", task.recipe).translate_all(TEXTS))
    FastTranslator(tmp_path / "model", task.recipe, "int8")
    assert len(entries()) == 2
    other = small(tmp_path / "model", seed=4)  # trained on: its earlier entries go
    same(other.translate_all(TEXTS), FastTranslator(tmp_path / "model", other.recipe).translate_all(TEXTS))
    assert len(entries()) == 1 and entry not in entries()


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "list", "list and all", "empty"])
def test_damage_is_seen(tmp_path: Path, damage: str) -> None:
    task = small(tmp_path / "model")
    wanted = FastTranslator(tmp_path / "model", task.recipe).translate_all(TEXTS)
    (entry,) = entries()
    weights, about = entry / "model.bin", entry / kept.LIST
    data = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(data[:-100])
    elif damage == "changed":
        weights.write_bytes(data[:-50] + bytes(20) + data[-30:])
    elif damage == "missing":
        (entry / "shared_vocabulary.json").unlink()
    elif damage == "list":
        about.write_text("[]", encoding="utf-8")
    elif damage == "list and all":
        weights.write_bytes(b"nothing")
        told = json.loads(about.read_text(encoding="utf-8"))
        told["files"]["model.bin"] = kept._hash(weights)
        about.write_text(json.dumps(told), encoding="utf-8")
    else:
        for path in entry.iterdir():
            path.unlink()
    same(wanted, FastTranslator(tmp_path / "model", task.recipe).translate_all(TEXTS))
    assert entries() == [entry] and weights.read_bytes() == data  # made again


def test_where_nothing_can_be_kept_it_works_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small(tmp_path / "model")
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    same(task.translate_all(TEXTS), FastTranslator(tmp_path / "model", task.recipe).translate_all(TEXTS))


def test_interrupted_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small(tmp_path / "model")

    def interrupted(*arguments: Any) -> None:
        (arguments[4] / "model.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(interop, "convert", interrupted)
        FastTranslator(tmp_path / "model", task.recipe)
    assert entries() == []


def test_weights_that_do_not_fit_are_told_by_pytorch(tmp_path: Path) -> None:
    small(tmp_path / "model")
    recipe = tmp_path / "model" / "recipe.toml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("inner = 24", "inner = 28"), encoding="utf-8")
    result = glassformer("translate", "-m", tmp_path / "model", "owl")
    assert result.code == 2 and "does not fit this model" in result.err
    result = glassformer("translate", "-m", tmp_path / "model", "--engine", "ctranslate2", "owl")
    assert result.code == 2 and "encoder.0.ffn.w1.weight" in result.err


# Export


@pytest.mark.parametrize("precision", ["", "int8"])
def test_export(tmp_path: Path, precision: str) -> None:
    task = small(tmp_path / "model", norm="pre")
    told: list[str] = []
    export_model(str(tmp_path / "model"), "ctranslate2", tmp_path / "out", quantization=precision, report=told.append)
    assert precision or ("float32" in told[0] and "at most" in told[1])
    names = task.source.names()
    translator = ctranslate2.Translator(str(tmp_path / "out"))
    read = [names[id] for id in task.source_ids(task.source.encode("the owl"), "target")]
    result = translator.translate_batch([read], beam_size=1, max_decoding_length=16)[0]
    if not precision:
        assert result.hypotheses[0] == [names[id] for id in task.translate("the owl", options=DecodingOptions(beam=1)).ids][:16]
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (tmp_path / "model" / "tokenizer.json").read_bytes()
    with pytest.raises(UserError, match="is not empty"):
        export_model(str(tmp_path / "model"), "ctranslate2", tmp_path / "out")


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "positions": "sinusoidal"}, {"types": 0, "kv_heads": 2, "positions": "rotary"}]
)
def test_encoders_are_exported(tmp_path: Path, changes: dict[str, Any]) -> None:
    options: BertOptions = replace(bert().options, **changes)
    masked = replace(WORDS, mask="<mask>")
    words = Tokenizer.train(LINES, masked)
    task = Fill(Recipe(task="fill", model=options, data=TextData(), tokenizer=masked), words)
    scramble(task.model)
    task.model.eval()
    task.save(tmp_path / "model")
    told: list[str] = []
    export_model(str(tmp_path / "model"), "ctranslate2", tmp_path / "out", report=told.append)
    assert "States differ" in told[1] and "the head on them" in told[2]


def test_export_says_what_it_cannot(tmp_path: Path) -> None:
    small(tmp_path / "model", **VARIANTS["bahdanau"])
    with pytest.raises(UserError, match=r"5 wide and its values 3[\s\S]*'additive'"):
        export_model(str(tmp_path / "model"), "ctranslate2", tmp_path / "out")
    with pytest.raises(UserError, match="there are float32, int8"):
        export_model("zh-en", "ctranslate2", tmp_path / "out", quantization="int4")
    with pytest.raises(UserError, match="is for --to ctranslate2"):
        export_model("zh-en", "huggingface", tmp_path / "out", quantization="int8")
    with pytest.raises(UserError, match="no Transformer"):
        export_model("word-vectors", "ctranslate2", tmp_path / "out")
    assert not (tmp_path / "out").exists()
