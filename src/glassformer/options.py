"""What a recipe may say: its sections as frozen dataclasses, with what each key is if nothing is said."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal


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

    @property
    def head_widths(self) -> tuple[int, int]:
        """d_k and d_v of one head."""
        return self.key_width or self.width // self.heads, self.value_width or self.width // self.heads


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
    nbest: int = number(1, low=1, high=1000)  # how many answers are wanted

    @property
    def wanted(self) -> int:
        """A beam has as many answers as it is wide."""
        return min(self.nbest, self.beam)


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
