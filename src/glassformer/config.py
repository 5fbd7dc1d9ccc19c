"""Recipes: everything that decides a run, as frozen dataclasses ⇄ TOML.

A recipe is read from a file, changed by dotted overrides (`training.updates=2000`), checked once, and saved whole in the run
folder. Every key is checked by name, type and range, so a misspelt one is an error that names the nearest.
"""

import dataclasses
import difflib
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from glassformer.errors import UserError


def number(default: Any, *, low: float | None = None, high: float | None = None) -> Any:
    """A field whose value must lie in [low, high]."""
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True)
class PairData:
    """Where sentence pairs come from.

    A corpus is a path (`pairs.tsv`, `pairs.jsonl`, each also `.gz`), two aligned files written with braces
    (`train.{en,de}.gz`), or `synthetic:NAME`.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    source: str = "source"  # language names: JSONL keys, target tags, and sacreBLEU's choice of tokenizer
    target: str = "target"
    columns: tuple[int, ...] = (1, 2)  # of a TSV: which hold the source and the target
    both_ways: bool = False  # one model for both directions, told apart by a target tag such as <2en>
    bleu: Literal["auto", "13a", "zh", "char", "intl", "none"] = "auto"  # sacreBLEU's tokenizer; auto: by target language
    max_length: int = number(128, low=1)  # longer training pairs (in pieces) are left out, and counted


@dataclass(frozen=True)
class TextData:
    """Where plain text comes from: `.txt`, or a column of `.tsv`, `.csv` or `.jsonl`, each also `.gz`."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    columns: tuple[int | str, ...] = ("text",)  # of a table: numbers counted from 1, or names in its first line; JSONL keys
    documents: Literal["line", "file"] = "line"  # what ends with an end mark: every line, or the file alone
    dev_share: float = number(0.0, low=0.0, high=0.5)  # without data.dev: the last part of the training text, set aside


@dataclass(frozen=True)
class LabelData:
    """Where labelled texts come from: `.tsv`, `.csv`, `.jsonl`, `.json#KEY` (a list of rows), SST `.txt` trees, each also `.gz`.

    The last of `columns` holds the label, those before it the text, or the two texts to compare.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    columns: tuple[int | str, ...] = ("text", "label")  # numbers counted from 1, or names in the first line; JSONL keys
    relabel: tuple[str, ...] = ()  # such as "0=negative"; "2=" leaves the examples of label 2 out
    score: bool = False  # task compare: the label is a number to be predicted, such as relatedness, not a class
    phrases: bool = False  # of SST trees in training: every phrase is an example, not the sentence alone
    dev_share: float = number(0.0, low=0.0, high=0.5)  # without data.dev: the last part of the training examples, set aside
    max_length: int = number(256, low=1)  # longer training texts (in pieces) are left out, and counted


@dataclass(frozen=True)
class TagData:
    """Where sentences with a label for each word come from: `.conllu`, or columns of words and labels (`.conll`, `.iob2`, `.bio`,
    `.tsv`, `.txt`) with an empty line between sentences, each also `.gz`."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()  # of the word and its label; none: 2 and 4 (UPOS) of CoNLL-U, else the first and the last
    scheme: Literal["auto", "none", "bio", "bmes"] = "auto"  # how labels make up spans; auto: told by the labels
    dev_share: float = number(0.0, low=0.0, high=0.5)
    max_length: int = number(256, low=1)


@dataclass(frozen=True)
class WordData:
    """Where the text comes from that word vectors are learned from, and how it is made words of.

    Files as in TextData; several columns of a table, such as a sentence and its translation, are read as one document.
    """

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()  # tests of word vectors: word TAB word TAB score, or analogies in fours
    test: tuple[str, ...] = ()
    columns: tuple[int | str, ...] = ("text",)
    documents: Literal["line", "file"] = "line"  # contexts do not reach over the end of one
    split: Literal["words", "spaces"] = "words"  # runs of letters and digits; or whatever stands between spaces
    segment: int = number(0, low=0, high=1_000_000)  # Chinese is cut into words, at most so many, learned from the text
    stop_words: tuple[str, ...] = ()  # left out: "english", "chinese", or words
    stemming: str = ""  # a language of the Snowball stemmers, such as "english" or "porter"
    min_count: int = number(1, low=1)  # rarer words are left out


@dataclass(frozen=True)
class TokenizerOptions:
    kind: Literal["bpe", "unigram", "word", "character", "imported"] = "bpe"
    vocabulary: int = number(8000, low=16, high=1_000_000)
    shared: bool = True  # one vocabulary for both sides, or one each
    lowercase: bool = False
    split_han: bool = False  # every Chinese character is a word of its own
    punctuation: Literal["keep", "split", "drop"] = "keep"  # of kind word: marks at the edge of a word, as in `end.`
    dropout: float = number(0.0, low=0.0, high=0.9)  # BPE-dropout on the source while training
    pad: str = "<pad>"  # the names of the special tokens; an imported vocabulary has its own, or none
    bos: str = "<bos>"
    eos: str = "<eos>"
    unk: str = "<unk>"
    mask: str = ""


@dataclass(frozen=True)
class BlockOptions:
    """What the three families share: the block and the numbers that size it."""

    width: int = number(512, low=1, high=1 << 16)  # D, the paper's d_model
    heads: int = number(8, low=1, high=1 << 12)  # H
    kv_heads: int = number(0, low=0, high=1 << 12)  # heads of keys and values, each shared by H / kv_heads queries; 0 means H
    key_width: int = number(0, low=0, high=1 << 16)  # d_k of one head; 0 means D / H
    value_width: int = number(0, low=0, high=1 << 16)  # d_v of one head; 0 means D / H
    inner: int = number(2048, low=1, high=1 << 18)  # F, the paper's d_ff
    norm: Literal["post", "pre"] = "post"
    norm_kind: Literal["layer", "rms"] = "layer"
    epsilon: float = number(1e-5, low=0.0, high=1.0)  # of the normalisation
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    rotary_base: float = number(10_000.0, low=1.0)
    scores: Literal["dot", "additive"] = "dot"
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "relu"
    bias: bool = True  # of attention, feed-forward and LayerNorm
    dropout: float = number(0.1, low=0.0, high=0.95)
    max_length: int = number(512, low=2, high=1 << 20)  # positions


@dataclass(frozen=True)
class TransformerOptions(BlockOptions):
    """The encoder–decoder of "Attention Is All You Need"; the defaults are its `base`."""

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = number(6, low=1, high=1000)
    decoder_layers: int = number(6, low=1, high=1000)
    tie: Literal["all", "output", "none"] = "all"  # which share the vocabulary matrix: embeddings and output, target only, none
    output_bias: bool = False


@dataclass(frozen=True)
class GPTOptions(BlockOptions):
    """A decoder alone; the defaults are GPT-2's smallest."""

    kind: Literal["gpt"] = "gpt"
    layers: int = number(12, low=1, high=1000)
    width: int = number(768, low=1, high=1 << 16)
    heads: int = number(12, low=1, high=1 << 12)
    inner: int = number(3072, low=1, high=1 << 18)
    norm: Literal["post", "pre"] = "pre"
    positions: Literal["sinusoidal", "learned", "rotary"] = "learned"
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "gelu-tanh"
    max_length: int = number(1024, low=2, high=1 << 20)  # the window
    tie: bool = True  # the embedding is also the output matrix


@dataclass(frozen=True)
class BertOptions(BlockOptions):
    """An encoder alone; the defaults are BERT's `base`."""

    kind: Literal["bert"] = "bert"
    layers: int = number(12, low=1, high=1000)
    width: int = number(768, low=1, high=1 << 16)
    heads: int = number(12, low=1, high=1 << 12)
    inner: int = number(3072, low=1, high=1 << 18)
    epsilon: float = number(1e-12, low=0.0, high=1.0)
    positions: Literal["sinusoidal", "learned", "rotary"] = "learned"
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "gelu"
    types: int = number(2, low=0, high=1 << 10)  # token types: which of two texts a token belongs to; 0 for none
    pooling: Literal["first", "mean"] = "first"  # one vector for a text: that of its first token, or the mean of all


@dataclass(frozen=True)
class RnnOptions:
    """Recurrent layers: a translator's encoder and decoder, a language model, or a reader with a head."""

    kind: Literal["rnn"] = "rnn"
    cell: Literal["plain", "lstm", "gru"] = "lstm"
    layers: int = number(1, low=1, high=100)  # of a translator: of its encoder, and as many of its decoder
    width: int = number(256, low=1, high=1 << 16)  # D, of embeddings and states; a direction of two has half of it
    bidirectional: bool = False  # whether what is read is also read from its end: an encoder, never a language model
    attention: Literal["none", "dot", "additive"] = "none"  # task translate: none is a fixed context, the encoder's last state
    key_width: int = number(0, low=0, high=1 << 16)  # d_k of the attention; 0 means D
    pooling: Literal["last", "mean", "max"] = "last"  # task classify: what each direction ended in, or the mean or most of all
    tie: Literal["all", "output", "none"] = "output"  # which share the vocabulary matrix, as a Transformer's
    dropout: float = number(0.2, low=0.0, high=0.95)
    max_length: int = number(512, low=2, high=1 << 20)


@dataclass(frozen=True)
class TextCNNOptions:
    """Convolution, batch norm, activation, pooling, dropout (Kim 2014, and a batch norm)."""

    kind: Literal["textcnn"] = "textcnn"
    width: int = number(128, low=1, high=1 << 16)  # D, of embeddings
    filters: int = number(100, low=1, high=1 << 16)  # F, of each size
    sizes: tuple[int, ...] = (3, 4, 5)  # how many neighbouring tokens a filter answers to
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"
    pooling: Literal["max", "mean"] = "max"
    dropout: float = number(0.5, low=0.0, high=0.95)
    max_length: int = number(512, low=2, high=1 << 20)


@dataclass(frozen=True)
class MLPOptions:
    """One inner layer over a text's features."""

    kind: Literal["mlp"] = "mlp"
    input: Literal["one-hot", "bag", "ngrams", "vectors"] = "bag"
    ngrams: int = number(2, low=1, high=10)  # input ngrams: the longest
    buckets: int = number(16_384, low=2, high=1 << 24)  # … and in how many they are counted
    width: int = number(128, low=1, high=1 << 16)  # D, of vectors
    inner: int = number(128, low=1, high=1 << 18)  # F
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"
    dropout: float = number(0.2, low=0.0, high=0.95)
    max_length: int = number(512, low=2, high=1 << 20)


@dataclass(frozen=True)
class Word2VecOptions:
    """Two matrices, no bias, no activation: a word from its context (CBOW), or the context from a word (skip-gram)."""

    kind: Literal["word2vec"] = "word2vec"
    architecture: Literal["skip-gram", "cbow"] = "skip-gram"
    width: int = number(100, low=1, high=1 << 16)  # D
    window: int = number(5, low=1, high=1000)  # words on either side, at most
    shrink: bool = True  # each window is drawn between 1 and `window` words, so that nearer words count more
    context: Literal["sum", "mean"] = "sum"  # of CBOW: what the context's vectors make together
    negatives: int = number(5, low=0, high=1000)  # drawn words for every real one; 0: the softmax over the whole vocabulary
    power: float = number(0.75, low=0.0, high=1.0)  # a word is drawn by its count to this power
    subsample: float = number(1e-3, low=0.0, high=1.0)  # t: frequent words are left out by chance; 0 keeps them all
    ngrams: tuple[int, ...] = ()  # fastText's idea: a word is also its character n-grams of these lengths, such as [3, 6]
    buckets: int = number(100_000, low=1, high=100_000_000)  # rows that the n-grams share
    output: bool = True  # the second matrix; a file of vectors has the first alone
    max_length: int = number(512, low=2, high=1 << 20)  # words of a text that is looked into


@dataclass(frozen=True)
class TrainingOptions:
    updates: int = number(10_000, low=1)
    batch_tokens: int = number(4096, low=1)  # positions on the larger side of a batch, padding included
    accumulate: int = number(1, low=1)  # batches per update
    rate: float = number(1e-3, low=0.0)  # the peak learning rate
    rates: dict[str, float] = field(default_factory=dict)  # for parts of the model, times `rate`: {encoder = 0.1}
    freeze: tuple[str, ...] = ()  # parts that are not trained: "encoder.embed", "encoder.0"
    optimiser: Literal["adamw", "sgd"] = "adamw"  # sgd: plain steps of `rate` for every label, as word2vec makes them
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant"] = "inverse-sqrt"
    warmup: int = number(1000, low=0)
    betas: tuple[float, ...] = (0.9, 0.98)
    epsilon: float = number(1e-9, low=0.0)
    weight_decay: float = number(0.0, low=0.0)
    label_smoothing: float = number(0.1, low=0.0, high=0.99)
    mask: float = number(0.15, low=0.01, high=0.9)  # task fill: the share of pieces to be guessed
    clip: float = number(1.0, low=0.0)  # largest gradient norm, of word2vec that of every single row; 0 switches it off
    ema: float = number(0.0, low=0.0, high=0.99999)  # moving average of the weights; 0 switches it off
    average: int = number(1, low=1)  # mean of the last N checkpoints; 1 means the best one
    save_every: int = number(500, low=1)
    validate_every: int = number(500, low=1)
    bleu_sentences: int = number(500, low=0)  # task translate: of the dev set, translated at each validation; 0 for loss alone
    patience: int = number(0, low=0)  # validations without a better score before stopping; 0 for never
    log_every: int = number(50, low=1)
    threads: int = number(0, low=0)  # 0 means one per core


@dataclass(frozen=True)
class DecodingOptions:
    beam: int = number(5, low=1, high=1000)
    length_penalty: float = number(1.0, low=0.0)  # α: the score is the log-probability ÷ lengthᵅ
    min_length: int = number(0, low=0)
    max_length: int = number(0, low=0)  # 0 means twice the source and ten more


@dataclass(frozen=True)
class GenerationOptions:
    """How text is gone on with."""

    temperature: float = number(1.0, low=0.0)  # 0 is greedy
    top_k: int = number(0, low=0)
    top_p: float = number(1.0, low=0.0, high=1.0)
    repetition: float = number(1.0, low=1.0)  # logits of tokens written before are divided by this (multiplied, if negative)
    max_tokens: int = number(200, low=1)


@dataclass(frozen=True)
class FilmOptions:
    """What is looked at while the model learns: a frame holds its answers to the probes, and where every head looked.

    A probe is a text; of task translate a text, a tab and its translation, which every frame reads, so that frames compare; of
    task compare two texts and a tab between them.
    """

    probes: tuple[str, ...] = ()  # none: no film
    frames: int = number(30, low=2, high=120)  # from the fresh weights to the last update, closer together at the beginning


Data = PairData | TextData | LabelData | TagData | WordData
BlockModel = TransformerOptions | GPTOptions | BertOptions
Model = BlockModel | RnnOptions | TextCNNOptions | MLPOptions | Word2VecOptions

MODELS: dict[str, type[Model]] = {
    "transformer": TransformerOptions,
    "gpt": GPTOptions,
    "bert": BertOptions,
    "rnn": RnnOptions,
    "textcnn": TextCNNOptions,
    "mlp": MLPOptions,
    "word2vec": Word2VecOptions,
}
DATA: dict[str, type[Data]] = {
    "translate": PairData,
    "language": TextData,
    "fill": TextData,
    "classify": LabelData,
    "tag": TagData,
    "compare": LabelData,
    "vectors": WordData,
}
SERVED_BY = {  # the models that can serve a task, the usual one first
    "translate": ("transformer", "rnn"),
    "language": ("gpt", "rnn"),
    "fill": ("bert",),
    "classify": ("bert", "rnn", "textcnn", "mlp"),
    "tag": ("bert", "rnn"),
    "compare": ("bert",),
    "vectors": ("word2vec",),
}
USUAL: dict[str, dict[str, dict[str, Any]]] = {  # what a task's recipe need not say, where that differs from the rest
    "vectors": {
        "tokenizer": {"kind": "word", "vocabulary": 200_000},
        "training": {
            "optimiser": "sgd",
            "batch_tokens": 512,
            "rate": 0.025,
            "warmup": 0,
            "schedule": "linear",
            "label_smoothing": 0.0,
            "clip": 40.0,
            "log_every": 500,
            "save_every": 5000,
            "validate_every": 5000,
        },
    },
}


def usual_training(task: str) -> TrainingOptions:
    """What training is like if a task's recipe says nothing of it."""
    return dataclasses.replace(TrainingOptions(), **USUAL.get(task, {}).get("training", {}))


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "base": {},
        "big": {"width": 1024, "heads": 16, "inner": 4096, "dropout": 0.3},
        "small": {"width": 256, "heads": 4, "inner": 1024, "encoder_layers": 3, "decoder_layers": 3},
        "tiny": {"width": 128, "heads": 4, "inner": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
    },
    "gpt": {
        "gpt2": {},
        "llama": {
            "norm_kind": "rms",
            "positions": "rotary",
            "activation": "swiglu",
            "bias": False,
            "tie": False,
            "dropout": 0.0,
        },
    },
    "bert": {
        "base": {},
        "small": {"width": 256, "heads": 4, "inner": 1024, "layers": 4},
        "tiny": {"width": 128, "heads": 2, "inner": 512, "layers": 2},
    },
    "rnn": {"base": {}},
    "textcnn": {"base": {}},
    "mlp": {"base": {}},
    "word2vec": {
        "skip-gram": {},
        "cbow": {"architecture": "cbow"},
        "fasttext": {"ngrams": (3, 6)},
    },
}


@dataclass(frozen=True)
class Recipe:
    task: Literal["translate", "language", "fill", "classify", "tag", "compare", "vectors"] = "translate"
    seed: int = number(1, low=0, high=2**31 - 1)
    start: str = ""  # the model whose vocabulary, sizes and weights (but for the head) it begins with: --from
    data: Data = PairData()
    tokenizer: TokenizerOptions = TokenizerOptions()
    model: Model = TransformerOptions()
    training: TrainingOptions = TrainingOptions()
    decoding: DecodingOptions = DecodingOptions()
    generation: GenerationOptions = GenerationOptions()
    film: FilmOptions = FilmOptions()


def read(path: Path, overrides: list[str] | None = None, base: Recipe | None = None) -> Recipe:
    """The recipe in a TOML file, with `key.path=value` overrides applied; vocabulary and model as in `base`, if there is one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"There is no recipe {path}. A recipe is a TOML file such as recipes/reverse.toml.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The recipe {path} cannot be read: {error}") from None
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise UserError(f"The recipe {path} is not valid TOML: {error}") from None
    for override in overrides or []:
        _apply(tree, override)
    if base:
        _take_over(tree, base, str(path))
    return from_dict(tree, str(path))


FREE = {"dropout", "pooling", "preset"}  # what a recipe may say of a model it starts from


def _take_over(tree: dict[str, Any], base: Recipe, where: str) -> None:
    """Puts the vocabulary and the sizes of `base` into a recipe that starts from it."""
    for section, known in (("tokenizer", base.tokenizer), ("model", base.model)):
        given, theirs = tree.get(section, {}), dataclasses.asdict(known)
        if not isinstance(given, dict):
            continue  # told with everything else
        for key, value in given.items():
            if key in theirs and key not in FREE and value != theirs[key]:
                raise UserError(
                    f"{where}: {section}.{key} is {value!r}, but the model it starts from has {theirs[key]!r}. "
                    f"Leave [{section}] out, but for {_listed(sorted(FREE - {'preset'}))}."
                )
        tree[section] = theirs | given  # a key that does not exist is told with everything else


def from_dict(tree: dict[str, Any], where: str = "recipe") -> Recipe:
    """A checked recipe from nested dicts; the task decides which keys [data] has, `model.kind` which [model] has, and
    `model.preset` fills in the sizes that are not given."""
    tree = {key: dict(value) if isinstance(value, dict) else value for key, value in tree.items()}
    task = _convert("task", tree.get("task", "translate"), get_type_hints(Recipe)["task"], where)
    model = tree.setdefault("model", {})
    if not isinstance(model, dict):
        raise UserError(f"{where}: model is a section of keys, not {model!r}.")
    kind = model.setdefault("kind", SERVED_BY[task][0])
    if kind not in SERVED_BY[task]:
        raise UserError(f"{where}: model.kind is {kind!r}; the task {task!r} is served by {_listed(SERVED_BY[task])}.")
    if "preset" in model:
        preset = model.pop("preset")
        if not isinstance(preset, str) or preset not in PRESETS[kind]:
            raise UserError(f"{where}: model.preset is {preset!r}; for {kind} there are {_listed(PRESETS[kind])}.")
        tree["model"] = {**PRESETS[kind][preset], **model}
    tree.setdefault("data", {})
    if task == "fill" and not tree.get("start") and isinstance(tree.setdefault("tokenizer", {}), dict):
        tree["tokenizer"].setdefault("mask", "<mask>")
    for section, values in USUAL.get(task, {}).items():
        given = tree.get(section, {})
        tree[section] = {**values, **given} if isinstance(given, dict) else given  # told with everything else
    recipe: Recipe = _build(Recipe, tree, where, "", {"data": DATA[task], "model": MODELS[kind]})
    _check_together(recipe, where)
    return recipe


def to_toml(recipe: Recipe) -> str:
    return tomli_w.dumps(dataclasses.asdict(recipe))


def _check_together(recipe: Recipe, where: str) -> None:
    """What no single key can be blamed for."""
    model, data = recipe.model, recipe.data
    if isinstance(model, BlockOptions):
        _check_block(model, where)
    if isinstance(model, RnnOptions):
        _check_rnn(model, recipe.task, where)
    if isinstance(model, TextCNNOptions) and (
        not model.sizes or min(model.sizes) < 1 or len(set(model.sizes)) < len(model.sizes)
    ):
        raise UserError(
            f"{where}: model.sizes takes different whole numbers of tokens, such as [3, 4, 5]; found {list(model.sizes)}."
        )
    if isinstance(model, Word2VecOptions):
        _check_word2vec(model, recipe.training, where)
    if isinstance(model, TransformerOptions | RnnOptions) and model.tie == "all" and not recipe.tokenizer.shared:
        raise UserError(f"{where}: model.tie = 'all' needs tokenizer.shared = true; use tie = 'output' or 'none'.")
    if isinstance(data, PairData):
        _check_pairs(data, recipe.tokenizer, where)
    elif not recipe.tokenizer.shared:
        raise UserError(f"{where}: tokenizer.shared = false parts source from target, which only translation has.")
    if isinstance(data, WordData):
        _check_words(data, recipe.tokenizer, where)
    if isinstance(data, TextData | WordData) and not data.columns:
        raise UserError(f"{where}: data.columns names the columns that hold the text; it is empty.")
    if isinstance(data, LabelData):
        wanted = 3 if recipe.task == "compare" else 2
        if len(data.columns) != wanted:
            what = "two texts and a label" if wanted == 3 else "a text and a label"
            raise UserError(f"{where}: data.columns takes {wanted} columns, {what}, not {list(data.columns)}.")
        if data.score and recipe.task != "compare":
            raise UserError(f"{where}: data.score = true is for the task 'compare'; this is {recipe.task!r}.")
    if isinstance(data, TagData) and len(data.columns) not in (0, 2):
        raise UserError(f"{where}: data.columns takes two columns, of the words and the labels, not {list(data.columns)}.")
    if len(recipe.training.betas) != 2 or not all(0 <= beta < 1 for beta in recipe.training.betas):
        raise UserError(f"{where}: training.betas takes two numbers in [0, 1), not {list(recipe.training.betas)}.")
    if any(not 0 <= rate <= 1e6 for rate in recipe.training.rates.values()):
        raise UserError(f"{where}: training.rates are factors of training.rate, at least 0, not {recipe.training.rates}.")
    if recipe.training.ema and recipe.training.average > 1:
        raise UserError(f"{where}: training.ema and training.average > 1 are two ways to one end; choose one.")
    _check_film(recipe.film, recipe.task, where)
    if 0 < recipe.decoding.max_length < recipe.decoding.min_length:
        raise UserError(f"{where}: decoding.min_length is more than decoding.max_length.")
    if isinstance(data, PairData | LabelData | TagData) and data.max_length + 2 > model.max_length:
        raise UserError(
            f"{where}: data.max_length {data.max_length} (and two marks) does not fit into model.max_length {model.max_length}."
        )


def _check_block(model: BlockOptions, where: str) -> None:
    if not (model.key_width and model.value_width) and model.width % model.heads:
        raise UserError(
            f"{where}: model.width {model.width} does not divide into model.heads {model.heads}; "
            "choose a multiple, or give model.key_width and model.value_width."
        )
    if model.kv_heads and model.heads % model.kv_heads:
        raise UserError(f"{where}: model.heads {model.heads} does not divide into model.kv_heads {model.kv_heads}.")
    if model.positions == "rotary" and (model.key_width or model.width // model.heads) % 2:
        raise UserError(f"{where}: rotary positions turn pairs of numbers, so the width of a head must be even.")
    if model.positions == "rotary" and model.scores == "additive":
        raise UserError(f"{where}: rotary positions act on dot products; use model.scores = 'dot' with them.")


def _check_rnn(model: RnnOptions, task: str, where: str) -> None:
    if model.attention != "none" and task != "translate":
        raise UserError(f"{where}: model.attention looks from one text at another, which only the task 'translate' has.")
    if model.bidirectional and task == "language":
        raise UserError(f"{where}: a language model foresees what comes next, so it cannot read from the end: no bidirectional.")
    if model.bidirectional and model.width % 2:
        raise UserError(f"{where}: with model.bidirectional each direction has half of model.width; {model.width} is odd.")


def _check_word2vec(model: Word2VecOptions, training: TrainingOptions, where: str) -> None:
    ngrams = model.ngrams
    if ngrams and (len(ngrams) != 2 or not 1 <= ngrams[0] <= ngrams[1] <= 100):
        raise UserError(f"{where}: model.ngrams takes the least and the largest length, such as [3, 6], not {list(ngrams)}.")
    if training.optimiser != "sgd" or training.ema:
        raise UserError(
            f"{where}: a word2vec model changes only the rows that a batch has read, which needs training.optimiser = 'sgd' "
            f"and training.ema = 0; found {training.optimiser!r} and {training.ema}."
        )


def _check_words(data: WordData, tokenizer: TokenizerOptions, where: str) -> None:
    if tokenizer.kind in ("word", "imported"):
        return
    for name in ("stop_words", "stemming", "segment"):
        if getattr(data, name):
            raise UserError(f"{where}: data.{name} needs words: tokenizer.kind = 'word', not {tokenizer.kind!r}.")


def _check_pairs(data: PairData, tokenizer: TokenizerOptions, where: str) -> None:
    if data.both_ways and not tokenizer.shared:
        raise UserError(f"{where}: data.both_ways needs tokenizer.shared = true.")
    if data.both_ways and data.source == data.target:
        raise UserError(
            f"{where}: data.both_ways needs two language names; data.source and data.target are both {data.source!r}."
        )
    if len(data.columns) != 2 or min(data.columns) < 1:
        raise UserError(f"{where}: data.columns takes two column numbers counted from 1, not {list(data.columns)}.")


MOST_PROBES = 16


def _check_film(film: FilmOptions, task: str, where: str) -> None:
    if film.probes and task == "vectors":
        raise UserError(f"{where}: film.probes are texts that a model reads whole; word vectors read none. Leave [film] out.")
    if len(film.probes) > MOST_PROBES:
        raise UserError(f"{where}: film.probes are {len(film.probes)}; at most {MOST_PROBES} are looked at. Choose some of them.")
    second = {"translate": "its translation", "compare": "the second text"}.get(task)
    wanted = f"a text, a tab and {second}" if second else "one text without tabs"
    for probe in film.probes:
        parts = probe.split("\t")
        if len(parts) != (2 if second else 1) or not all(part.strip() for part in parts):
            raise UserError(f"{where}: a probe of the task {task!r} is {wanted}; found {probe!r} in film.probes.")


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, such as training.updates=2000; found {override!r}.")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        value = raw.strip()  # an unquoted word is a string
    *parents, leaf = key.strip().split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise UserError(f"--set {override}: {parent} is not a section.")
    tree[leaf] = value


def _build(cls: Any, tree: Any, where: str, prefix: str, chosen: dict[str, type] | None = None) -> Any:
    """`chosen` is the class of those sections that have several."""
    if not isinstance(tree, dict):
        raise UserError(f"{where}: {prefix.rstrip('.')} is a section of keys, not {tree!r}.")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    hints = {**get_type_hints(cls), **(chosen or {})}
    values = {}
    for key, value in tree.items():
        name = prefix + key
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
            hint = f"did you mean {prefix + near[0]}?" if near else f"known here: {_listed(fields)}."
            raise UserError(f"{where}: there is no key {name}; {hint}")
        if dataclasses.is_dataclass(hints[key]):
            values[key] = _build(hints[key], value, where, name + ".")
        else:
            values[key] = _convert(name, value, hints[key], where)
            _check_range(name, values[key], fields[key].metadata, where)
    return cls(**values)


def _convert(name: str, value: Any, hint: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if value in get_args(hint):
            return value
        near = difflib.get_close_matches(str(value), [str(a) for a in get_args(hint)], n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"{where}: {name} is {value!r}; allowed: {_listed(get_args(hint))}.{guess}")
    if origin is tuple:
        items = list(value) if isinstance(value, list | tuple) else [value]  # one may stand for a list of one
        return tuple(_convert(name, item, get_args(hint)[0], where) for item in items)
    if origin is dict:
        if not isinstance(value, dict):
            raise UserError(f"{where}: {name} takes names with numbers, such as {{encoder = 0.1}}; found {value!r}.")
        return {key: _convert(f"{name}.{key}", item, get_args(hint)[1], where) for key, item in value.items()}
    if origin is UnionType:
        if type(value) in get_args(hint):
            return value
        raise UserError(f"{where}: {name} takes {' or '.join(_kind(each) for each in get_args(hint))}; found {value!r}.")
    if hint is float and type(value) is int and abs(value) < 1 << 60:
        return float(value)
    if type(value) is not hint:
        raise UserError(f"{where}: {name} takes {_kind(hint)}; found {value!r}.")
    return value


def _check_range(name: str, value: Any, bounds: Any, where: str) -> None:
    if isinstance(value, float) and math.isinf(value):
        raise UserError(f"{where}: {name} is {value}; it must be a finite number.")
    low, high = bounds.get("low"), bounds.get("high")
    if (low is not None and not value >= low) or (high is not None and not value <= high):  # "not >=" also refuses nan
        allowed = " and ".join(
            words
            for words in (f"at least {low}" if low is not None else "", f"at most {high}" if high is not None else "")
            if words
        )
        raise UserError(f"{where}: {name} is {value}; it must be {allowed}.")


def _kind(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text in quotes"}
    return names.get(hint, str(hint))


def _listed(names: Any) -> str:
    return ", ".join(str(name) for name in names)
