"""A translator as a whole: from text to text, to disk and back, and what it says of itself."""

import copy
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import SIZES, close, scramble
from safetensors.torch import load_file, save_file

import glassformer as gf
from glassformer.decoding.sampling import Sampling
from glassformer.errors import UserError
from glassformer.options import DecodingOptions, PairData, Recipe, TokenizerOptions
from glassformer.tasks.languages import guess
from glassformer.tasks.translate import Translate, pad
from glassformer.text.tokenizer import BOS, EOS, PAD, Tokenizer

LINES = ["The quick brown fox jumps.", "Machine learning is fun.", "机器学习很有趣。", "好久不见，你好。"] * 3
TEXTS = ["好久不见。", "Machine learning", "你", "The fox is quick, 机器 is fun."]
GREEDY = DecodingOptions(beam=1, max_length=8)
BEAM = DecodingOptions(beam=3, max_length=6)
DRAW = Sampling(temperature=1.5, top_k=50, top_p=0.95, seed=7)


def made(seed: int = 0, **changes: Any) -> Translate:
    """An untrained translator of Chinese and English, both ways."""
    recipe = Recipe(
        data=PairData(source="zh", target="en", both_ways=True, max_length=30),
        tokenizer=TokenizerOptions(vocabulary=300),
        model=replace(SIZES, max_length=40),
        decoding=BEAM,
    )
    recipe = replace(recipe, **changes)
    tags = ["<2zh>", "<2en>"] if recipe.data.both_ways else []
    source = Tokenizer.train(LINES, recipe.tokenizer, tags)
    target = source if recipe.tokenizer.shared else Tokenizer.train(LINES[:2], recipe.tokenizer)
    torch.manual_seed(seed)
    translator = Translate(recipe, source, target)
    scramble(translator.model)
    translator.model.eval()
    return translator


@pytest.fixture(scope="module")
def translator() -> Translate:
    return made()


@pytest.fixture(scope="module")
def one_way() -> Translate:
    """From one vocabulary into another, without tags."""
    data = PairData(source="de", target="en", max_length=30)
    tokenizer = TokenizerOptions(vocabulary=290, shared=False)
    return made(data=data, tokenizer=tokenizer, model=replace(SIZES, max_length=40, tie="output", norm="pre"))


# On disk


@pytest.mark.parametrize("which", ["translator", "one_way"])
def test_saved_and_loaded_it_translates_the_same(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before: Translate = request.getfixturevalue(which)
    before.save(tmp_path / "model")
    after = Translate.load(tmp_path / "model")
    assert after.recipe == before.recipe
    for sampling in (None, DRAW):
        assert after.translate_all(TEXTS, "en", sampling=sampling) == before.translate_all(TEXTS, "en", sampling=sampling)


def test_half_precision_is_half_the_size_and_nearly_the_same(translator: Translate, tmp_path: Path) -> None:
    translator.save(tmp_path / "full")
    translator.save(tmp_path / "half", torch.float16)
    full, half = (tmp_path / kind / "model.safetensors" for kind in ("full", "half"))
    assert half.stat().st_size < 0.6 * full.stat().st_size
    loaded = Translate.load(tmp_path / "half")
    assert next(loaded.model.parameters()).dtype == torch.float32
    ids = translator.translate(TEXTS[0]).ids
    close(loaded.trace(TEXTS[0], target=ids)["logits"], translator.trace(TEXTS[0], target=ids)["logits"], 0.02)


def test_a_tied_matrix_is_kept_once(translator: Translate, tmp_path: Path) -> None:
    translator.save(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert sum(name.endswith(("token.weight", "output.weight")) for name in names) == 1
    model = Translate.load(tmp_path).model
    assert model.output.weight is model.encoder.embed.token.weight


@pytest.fixture
def folder(translator: Translate, tmp_path: Path) -> Path:
    translator.save(tmp_path)
    return tmp_path


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(UserError) as caught:
        Translate.load(folder)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_file_cut_short_is_told(folder: Path, share: float) -> None:
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: int(len(data) * share)])
    refused(folder, "model.safetensors is not a whole safetensors file", "cut short")


def test_a_file_of_another_kind_is_told(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04" + random.Random(0).randbytes(4000))
    refused(folder, "is not a whole safetensors file")


@pytest.mark.parametrize("name", ["model.safetensors", "recipe.toml", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, "There is no", name)


def test_weights_of_another_recipe_are_listed_by_name(folder: Path) -> None:
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    del tensors["encoder.0.norm1.weight"]
    tensors["encoder.0.norm9.weight"] = torch.zeros(3)
    tensors["decoder.1.ffn.w1.bias"] = torch.zeros(5)
    save_file(tensors, weights)
    refused(
        folder,
        "missing: encoder.0.norm1.weight",
        "unexpected: encoder.0.norm9.weight",
        "shape of decoder.1.ffn.w1.bias: (5,), where the recipe says (24,)",
    )


def test_weights_of_a_smaller_model_are_refused(folder: Path) -> None:
    text = (folder / "recipe.toml").read_text()
    (folder / "recipe.toml").write_text(text.replace("decoder_layers = 2", "decoder_layers = 4"))
    refused(folder, "missing: decoder.2.self.q.weight", "more")  # more than can be read are counted


# Answers


@pytest.mark.parametrize("options", [GREEDY, BEAM])
@pytest.mark.parametrize("sampling", [None, DRAW])
def test_neighbours_change_no_translation(translator: Translate, options: DecodingOptions, sampling: Sampling | None) -> None:
    texts = [*TEXTS, "", *TEXTS[:2]]
    together = translator.translate_all(texts, None, options, sampling)
    small = translator.translate_all(texts, None, options, sampling, batch_tokens=20)
    for text, answer, other in zip(texts, together, small, strict=True):
        alone = translator.translate(text, None, options, sampling)
        assert alone.source == answer.source == text
        assert alone.ids == answer.ids == other.ids and alone.text == answer.text and alone.to == answer.to
        assert alone.log_probs == pytest.approx(answer.log_probs, abs=1e-4)


def test_a_beam_gives_its_n_best(translator: Translate) -> None:
    answer = translator.translate(TEXTS[0], options=replace(BEAM, nbest=3))
    assert len(answer.nbest) == 3
    assert len(translator.translate(TEXTS[0], options=BEAM).nbest) == 1
    assert answer.nbest[0] is answer and not any(each.others for each in answer.others)
    scores = [each.score for each in answer.nbest]
    assert scores == sorted(scores, reverse=True)


def test_seeds_decide_what_is_drawn(translator: Translate) -> None:
    first, again, other = (translator.translate_all(TEXTS, "en", GREEDY, replace(DRAW, seed=seed))[0].ids for seed in (1, 1, 2))
    assert first == again != other


def test_lengths_of_the_options_hold(translator: Translate) -> None:
    for options in (replace(GREEDY, min_length=4, max_length=5), replace(BEAM, min_length=4, max_length=5)):
        assert all(4 <= len(answer.ids) <= 5 for answer in translator.translate_all(TEXTS, "en", options))


def test_a_translation_ends_before_the_positions_do(translator: Translate) -> None:
    longest = translator.recipe.model.max_length
    answer = translator.translate("你", options=DecodingOptions(beam=2, min_length=500, max_length=500))
    assert len(answer.ids) == longest - 1


def test_special_tokens_are_never_written(translator: Translate) -> None:
    special = {PAD, BOS, EOS, translator.target.tag("<2en>"), translator.target.tag("<2zh>")}
    answers = translator.translate_all(TEXTS * 5, "en", replace(GREEDY, max_length=30), replace(DRAW, temperature=9.0, top_k=0))
    assert not special & {id for answer in answers for id in answer.ids}


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u3000"])
def test_nothing_is_translated_as_nothing(translator: Translate, blank: str) -> None:
    for sampling in (None, DRAW):
        answer = translator.translate(blank, sampling=sampling)
        assert (answer.source, answer.text, answer.ids) == (blank, "", [])
    assert translator.translate_all([]) == []
    assert json.loads(json.dumps(translator.explain(answer)))["translation"] == ""


def test_a_sentence_too_long_is_named_by_its_number(translator: Translate) -> None:
    long = "龘" * 40
    with pytest.raises(UserError, match=r"Sentence 2 is \d+ pieces long; this model reads at most 40"):
        translator.translate_all(["你", long], "en")
    with pytest.raises(UserError, match="Sentence 102 "):
        translator.translate_all(["你", long], "en", first=100)
    with pytest.raises(UserError, match="reads at most 40"):
        translator.trace(long, target=[5])


def test_a_sentence_just_short_enough_passes(translator: Translate) -> None:
    pieces = translator.recipe.model.max_length - 2  # the tag and the end are two more
    text = "~" * pieces
    assert len(translator.source.encode(text)) == pieces
    translator.translate(text, "en", GREEDY)
    with pytest.raises(UserError, match="41 pieces"):
        translator.translate(text + "~", "en", GREEDY)


# Directions


@pytest.mark.parametrize(
    ("text", "languages", "wanted"),
    [
        ("机器学习", ("zh", "en"), "zh"),
        ("machine learning", ("zh", "en"), "en"),
        ("我用 Python 学习", ("zh", "en"), "zh"),
        ("The word 好 means good", ("zh", "en"), "en"),
        ("𠀀𠀁", ("zh", "en"), "zh"),
        ("42", ("zh", "en"), "en"),
        ("42", ("en", "zh"), "en"),
        ("", ("zh", "en"), "en"),
        ("好 good", ("zh", "en"), "en"),
        ("!?", ("zh", "ru"), "zh"),
        ("Привет, world", ("ru", "zh"), "ru"),
        ("ひらがな", ("zh", "ja"), "ja"),
        ("私は学生です", ("zh", "ja"), "ja"),
        ("straße", ("de", "zh"), "de"),
        ("안녕 hello 안녕", ("en", "ko"), "ko"),
    ],
)
def test_the_language_is_told_by_the_script(text: str, languages: tuple[str, str], wanted: str) -> None:
    assert guess(text, languages) == wanted


def test_languages_written_alike_must_be_said() -> None:
    for languages in (("en", "de"), ("ru", "uk"), ("source", "target")):
        with pytest.raises(UserError, match=f"--to {languages[0]} or --to {languages[1]}"):
            guess("hello", languages)


def test_the_direction_is_the_other_language(translator: Translate, one_way: Translate) -> None:
    assert translator.direction("好") == "en"
    assert translator.direction("good") == "zh"
    assert translator.direction("好", "zh") == "zh"
    with pytest.raises(UserError, match="between zh and en; it knows no 'fr'"):
        translator.direction("好", "fr")
    assert one_way.direction("anything") == one_way.direction("好", "en") == "en"
    with pytest.raises(UserError, match="translates de into en, not into 'de'"):
        one_way.direction("x", "de")


def test_the_direction_is_told_by_a_tag(translator: Translate, one_way: Translate) -> None:
    tag = translator.source.tag("<2zh>")
    assert translator.source_ids([9, 8], "zh") == [tag, 9, 8, EOS]
    assert one_way.source_ids([9, 8], "en") == [9, 8, EOS]
    to_zh, to_en = (translator.translate("好 fox", to, GREEDY) for to in ("zh", "en"))
    assert to_zh.log_probs != to_en.log_probs


# Training


def test_a_batch_reads_from_bos_and_predicts_up_to_eos(one_way: Translate) -> None:
    batch = one_way.batch([([9, 8, EOS], [5, 6, 7]), ([4, EOS], [5])])
    assert batch.source.tolist() == [[9, 8, EOS], [4, EOS, PAD]]
    assert batch.target.tolist() == [[BOS, 5, 6, 7], [BOS, 5, PAD, PAD]]
    assert batch.labels.tolist() == [5, 6, 7, EOS, 5, EOS]
    assert batch.places.tolist() == [0, 1, 2, 3, 4, 5]


def test_pairs_turned_round_swap_sides_and_tag(translator: Translate) -> None:
    to_en, to_zh = translator.source.tag("<2en>"), translator.source.tag("<2zh>")
    batch = translator.training_batch([([9, 8], [7], False), ([9, 8], [7], True)], random.Random(0))
    assert batch.source.tolist() == [[to_en, 9, 8, EOS], [to_zh, 7, EOS, PAD]]
    assert batch.target.tolist() == [[BOS, 7, PAD], [BOS, 9, 8]]


@torch.no_grad()
def test_the_loss_is_that_of_every_real_token(translator: Translate) -> None:
    pairs = [([9, 8, 7, EOS], [5, 6, 7]), ([4, EOS], [5]), ([4, 4, EOS], [])]
    loss, nll = translator.loss(translator.batch(pairs), 0.1)
    wanted = wanted_nll = 0.0
    for source, target in pairs:
        logits = translator.model.logits(translator.model(torch.tensor([source]), torch.tensor([[BOS, *target]])))[0]
        labels = torch.tensor([*target, EOS])
        wanted += F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum").item()
        wanted_nll += F.cross_entropy(logits, labels, reduction="sum").item()
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    assert nll.item() == pytest.approx(wanted_nll, rel=1e-5)


def test_padding_fills_to_the_longest() -> None:
    assert pad([[1], [2, 3]], PAD).tolist() == [[1, PAD], [2, 3]]


# Looking inside


@pytest.mark.parametrize("options", [GREEDY, BEAM])
def test_the_trace_shows_the_numbers_of_the_translation(translator: Translate, options: DecodingOptions) -> None:
    for text in TEXTS:
        answer = translator.translate(text, options=options)
        trace = translator.trace(text, answer.to, target=answer.ids)
        steps = trace["logits"].log_softmax(-1).gather(1, torch.tensor([[*answer.ids, EOS]]).T).squeeze(1)
        assert steps.tolist() == pytest.approx(answer.log_probs, abs=1e-4)


@pytest.mark.parametrize("which", ["translator", "one_way"])
def test_labels_of_a_trace_match_its_tensors(which: str, request: pytest.FixtureRequest) -> None:
    translator: Translate = request.getfixturevalue(which)
    for text in (*TEXTS, ""):
        trace = translator.trace(text, "en")
        heads, target, source = trace["decoder.0.cross.pattern"].shape
        assert (heads, target, source) == (2, len(trace.target), len(trace.source))
        assert trace.target[0] == "<bos>" and trace.source[-1] == "<eos>"
        alignment = translator.alignment(trace)
        assert alignment.shape == (target, source)
        close(alignment.sum(1), torch.ones(target))


def test_a_trace_without_a_target_follows_the_translation(translator: Translate) -> None:
    answer = translator.translate(TEXTS[0])
    assert translator.trace(TEXTS[0]).target == ["<bos>", *translator.target.spell(answer.ids)]


def test_edits_reach_the_trace(translator: Translate) -> None:
    plain = translator.trace("你好", target=[9, 9])
    edited = translator.trace("你好", target=[9, 9], edits={"encoder.0.self.pattern": torch.zeros_like})
    assert not edited["encoder.0.self.z"].any()
    assert not torch.allclose(edited["logits"], plain["logits"])
    with pytest.raises(UserError, match="no tensor 'nonsense'"):
        translator.trace("你好", target=[9], edits={"nonsense": torch.clone})


def test_an_explanation_is_json_whose_parts_agree(translator: Translate) -> None:
    for sampling in (None, DRAW):
        for answer in translator.translate_all(TEXTS, None, replace(BEAM, nbest=2), sampling):
            told = json.loads(json.dumps(translator.explain(answer), allow_nan=False, ensure_ascii=False))
            assert told["source"] == answer.source and told["to"] == answer.to and told["translation"] == answer.text
            assert [token["id"] for token in told["target_tokens"]] == [*answer.ids, EOS]
            assert sum(token["log_prob"] for token in told["target_tokens"]) == pytest.approx(sum(answer.log_probs))
            assert len(told["nbest"]) == (1 if sampling else 2)
            alignment = told["alignment"]
            assert alignment["rows"] == [token["text"] for token in told["target_tokens"]]
            assert len(alignment["columns"]) == len(told["source_tokens"]) + 2  # the tag and the end
            assert {len(row) for row in alignment["weights"]} == {len(alignment["columns"])}
            assert len(alignment["weights"]) == len(alignment["rows"])
            for piece in told["source_tokens"]:
                assert piece["text"].strip() in answer.source


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["zh-en", "zh-en-lstm"])
def test_numbers_of_other_precisions_translate_too(name: str, dtype: torch.dtype) -> None:
    task = gf.load(name)
    texts = ["I like tea.", "My brother is taller than me."]
    wanted = [answer.text for answer in task.translate_all(texts)]
    task.model.to(dtype)
    for beam in (1, 5):
        found = [answer.text for answer in task.translate_all(texts, options=DecodingOptions(beam=beam))]
        assert all(found) and (beam == 1 or dtype != torch.float64 or found == wanted)


def test_a_model_that_has_translated_is_copied_and_saved(translator: Translate, tmp_path: Path) -> None:
    options = replace(BEAM, nbest=3)
    wanted = translator.translate(TEXTS[0], options=options)
    other = copy.deepcopy(translator)
    torch.save(translator.model, tmp_path / "model.pt")
    assert other.translate(TEXTS[0], options=options) == wanted
    other.model = torch.load(tmp_path / "model.pt", weights_only=False)
    assert other.translate(TEXTS[0], options=options) == wanted


def test_a_state_goes_on_outside_inference_mode(translator: Translate) -> None:
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        _, state = translator.model.step(torch.tensor([5]), translator.model.start(ids))
        wanted, _ = translator.model.step(torch.tensor([6]), state)
    with torch.no_grad():
        found, _ = translator.model.step(torch.tensor([6]), state)
    assert found.equal(wanted)


@pytest.mark.parametrize(
    ("options", "sampling"), [(BEAM, None), (DecodingOptions(beam=1), None), (BEAM, Sampling())], ids=["beam", "greedy", "drawn"]
)
def test_a_model_that_computes_no_numbers_is_told(
    translator: Translate, options: DecodingOptions, sampling: Sampling | None
) -> None:
    broken = copy.deepcopy(translator)
    with torch.no_grad():
        broken.model.output.weight.fill_(math.nan)
    with pytest.raises(UserError, match="Sentence 1: the model's numbers are not finite"):
        broken.translate(TEXTS[0], options=options, sampling=sampling)
