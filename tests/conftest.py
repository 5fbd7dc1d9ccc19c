"""Small models of all kinds that several tests look at, in every variant a recipe can ask for."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from chromium import browser, explorer, server, tab  # noqa: F401 (fixtures)
from command import learned  # noqa: F401 (a fixture)
from hypothesis import settings
from small_tasks import scramble
from torch import Tensor, nn

from glassformer.layers import compiled
from glassformer.models import readers
from glassformer.models.bert import Bert, MaskedHead, PooledHead, TokenHead
from glassformer.models.gpt import GPT
from glassformer.models.mlp import MLP
from glassformer.models.rnn import RecurrentLanguage, RecurrentReader, RecurrentTranslator
from glassformer.models.textcnn import TextCNN
from glassformer.models.transformer import Transformer
from glassformer.models.word2vec import Word2Vec
from glassformer.options import (
    BertOptions,
    GPTOptions,
    MLPOptions,
    RnnOptions,
    TextCNNOptions,
    TransformerOptions,
    Word2VecOptions,
)

settings.register_profile("glassformer", deadline=None)  # a busy machine is not a bug
settings.load_profile("glassformer")

# The longest come first, so that no worker is left alone with one at the end; what one of them trains, others then find.
FIRST = (
    "test_page_use.py",
    "test_training.py",
    "test_page.py",
    "test_readme.py",
    "test_page_export.py",
    "test_page_learn.py",
    "test_page_gates.py",
    "test_benchmarks.py",
    "test_page_training.py",
    "test_resume.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        name = item.path.name
        return FIRST.index(name) if name in FIRST else len(FIRST) + (not name.startswith("test_page"))

    items.sort(key=rank)


@pytest.fixture(params=["compiled", "pytorch"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through a model that nobody looks into."""
    if request.param == "pytorch":
        monkeypatch.setattr(compiled, "library", lambda: None)
    elif compiled.library() is None:
        pytest.skip("nothing was compiled: there was no C compiler when Glassformer was installed")


VOCABULARY = 11
SIZES = TransformerOptions(width=16, heads=2, inner=24, encoder_layers=2, decoder_layers=2, dropout=0.0, max_length=32)
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary"},
    "additive": {"scores": "additive"},
    "gelu": {"activation": "gelu"},
    "widths": {"key_width": 6, "value_width": 10},
    "untied": {"tie": "none"},
    "modern": {"norm": "pre", "positions": "rotary", "activation": "gelu", "key_width": 6, "value_width": 10, "tie": "output"},
    "bahdanau": {"norm": "pre", "positions": "learned", "scores": "additive", "key_width": 5, "value_width": 3},
    "shared keys": {"kv_heads": 1, "value_width": 5},
    "keys shared by two": {"heads": 4, "kv_heads": 2},
    "without biases": {"bias": False, "activation": "silu"},
    "marian": {"output_bias": True, "activation": "silu", "epsilon": 1e-3},
    "llama": {"norm": "pre", "norm_kind": "rms", "positions": "rotary", "activation": "swiglu", "bias": False, "kv_heads": 1},
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def transformer(seed: int = 0, **changes: Any) -> Transformer:
    """A small model whose every weight is random: biases, γ and β too, or an error in them would not show."""
    torch.manual_seed(seed)
    model = Transformer(replace(SIZES, **changes), VOCABULARY, VOCABULARY)
    scramble(model)
    return model.eval()


LABELS = 7  # no other size is 7, so that no shape is right by chance
GPT_SIZES = GPTOptions(layers=2, width=24, heads=4, inner=20, dropout=0.0, max_length=32)
BERT_SIZES = BertOptions(layers=2, width=24, heads=4, inner=20, dropout=0.0, max_length=32)
LLAMA: dict[str, Any] = {"norm_kind": "rms", "positions": "rotary", "activation": "swiglu", "bias": False}
HEADS: dict[str, Callable[[BertOptions], nn.Module]] = {
    "masked": lambda options: MaskedHead(options, VOCABULARY),
    "pooled": lambda options: PooledHead(options, LABELS),
    "token": lambda options: TokenHead(options, LABELS),
}


def gpt(seed: int = 0, **changes: Any) -> GPT:
    torch.manual_seed(seed)
    model = GPT(replace(GPT_SIZES, **changes), VOCABULARY)
    scramble(model)
    return model.eval()


def bert(head: str = "masked", seed: int = 0, **changes: Any) -> Bert:
    torch.manual_seed(seed)
    options = replace(BERT_SIZES, **changes)
    model = Bert(options, VOCABULARY, HEADS[head](options))
    scramble(model)
    return model.eval()


MODELS: dict[str, Callable[..., Transformer | GPT | Bert]] = {
    **{f"transformer, {name}": partial(transformer, **changes) for name, changes in VARIANTS.items()},
    "gpt": gpt,
    "gpt, llama": partial(gpt, **LLAMA, tie=False),
    "gpt, llama with shared keys": partial(gpt, **LLAMA, kv_heads=2, key_width=8, value_width=5),
    "gpt, all heads share one key": partial(gpt, kv_heads=1),
    "gpt, post-norm": partial(gpt, norm="post", positions="sinusoidal", activation="relu"),
    "gpt, additive": partial(gpt, scores="additive", key_width=5, value_width=3),
    "gpt, additive with shared keys": partial(gpt, scores="additive", kv_heads=2),
    **{f"bert, {head}": partial(bert, head) for head in HEADS},
    "bert, mean pooled": partial(bert, "pooled", pooling="mean"),
    "bert, pre-norm": partial(bert, norm="pre", positions="sinusoidal"),
    "bert, without types": partial(bert, "token", types=0),
    "bert, modern": partial(bert, "pooled", **LLAMA, norm="pre", kv_heads=2),
}
every_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)


RNN_SIZES = RnnOptions(layers=2, width=16, dropout=0.0, max_length=32)
CELLS = ("plain", "lstm", "gru")


def rnn(seed: int = 0, **changes: Any) -> RecurrentTranslator:
    torch.manual_seed(seed)
    model = RecurrentTranslator(replace(RNN_SIZES, **changes), VOCABULARY, VOCABULARY)
    scramble(model)
    return model.eval()


def rnn_language(seed: int = 0, **changes: Any) -> RecurrentLanguage:
    torch.manual_seed(seed)
    model = RecurrentLanguage(replace(RNN_SIZES, **changes), VOCABULARY)
    scramble(model)
    return model.eval()


def reader(options: Any, each: bool = False, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = (readers.each_token if each else readers.pooled)(options, VOCABULARY, LABELS, 0)
    scramble(model)
    for name, x in model.named_buffers():
        if name.endswith(("norm.mean", "norm.variance")):
            x.add_(torch.rand_like(x))
    return model.eval()


TRANSLATORS: dict[str, dict[str, Any]] = {
    f"{cell}, {attention}{', both ways' if both else ''}": {"cell": cell, "attention": attention, "bidirectional": both}
    for cell in CELLS
    for attention in ("none", "dot", "additive")
    for both in (False, True)
}
CNN_SIZES = TextCNNOptions(width=16, filters=6, sizes=(1, 2, 4), dropout=0.0, max_length=32)
MLP_SIZES = MLPOptions(width=16, inner=20, buckets=37, ngrams=3, dropout=0.0, max_length=32)
ANCESTORS: dict[str, Callable[..., Any]] = {
    **{f"rnn, {name}": partial(rnn, **changes) for name, changes in TRANSLATORS.items()},
    "rnn, one layer": partial(rnn, layers=1, attention="additive", key_width=5, tie="none"),
    **{f"rnn, language, {cell}": partial(rnn_language, cell=cell) for cell in CELLS},
    **{
        f"rnn, {pooling} pooled": partial(reader, replace(RNN_SIZES, pooling=pooling, bidirectional=pooling != "mean"))
        for pooling in ("last", "mean", "max")
    },
    "rnn, tags": partial(reader, replace(RNN_SIZES, cell="gru", bidirectional=True), each=True),
    "textcnn": partial(reader, CNN_SIZES),
    "textcnn, mean": partial(reader, replace(CNN_SIZES, pooling="mean", activation="gelu")),
    **{f"mlp, {input}": partial(reader, replace(MLP_SIZES, input=input)) for input in ("one-hot", "bag", "ngrams", "vectors")},
}
every_ancestor = pytest.mark.parametrize("build", ANCESTORS.values(), ids=ANCESTORS)
READERS = Bert | RecurrentReader | TextCNN | MLP  # read one text; the others write
WRITERS = GPT | RecurrentLanguage  # read nothing but what they write


WORDS = ["<pad>", "the", "owl", "sat", "on", "a", "tree", "and", "saw", "night", "moon"]  # VOCABULARY of them


def word2vec(seed: int = 0, **changes: Any) -> Word2Vec:
    """Two matrices over VOCABULARY words."""
    torch.manual_seed(seed)
    sizes = Word2VecOptions(width=6, window=2, negatives=3, buckets=20)
    model = Word2Vec(replace(sizes, **changes), WORDS)
    scramble(model)
    return model.eval()


WORD2VEC: dict[str, Callable[..., Word2Vec]] = {
    "skip-gram": word2vec,
    "cbow": partial(word2vec, architecture="cbow"),
    "cbow, mean": partial(word2vec, architecture="cbow", context="mean"),
    "skip-gram, n-grams": partial(word2vec, ngrams=(3, 4)),
}


def sentences(*lengths: int, seed: int = 0) -> Tensor:
    """Random ids (B, longest), filled up with the padding 0."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(1, VOCABULARY, (len(lengths), max(lengths)), generator=draw)
    return rows.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1), 0)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is converted for CTranslate2 is not kept where the user's own is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
