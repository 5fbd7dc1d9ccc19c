"""What no single key of a recipe can be blamed for: whether its sections go together."""

from glassformer.errors import UserError
from glassformer.options import (
    BlockOptions,
    FilmOptions,
    LabelData,
    PairData,
    Recipe,
    RnnOptions,
    TagData,
    TextCNNOptions,
    TextData,
    TokenizerOptions,
    TrainingOptions,
    TransformerOptions,
    Word2VecOptions,
    WordData,
)


def check_together(recipe: Recipe, where: str) -> None:
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
