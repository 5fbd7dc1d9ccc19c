"""card.md: what a model is, for whoever finds its folder."""

from pathlib import Path

from glassformer.models.stack import parameters
from glassformer.options import BlockOptions, MLPOptions, Model, RnnOptions, TextCNNOptions, TransformerOptions, Word2VecOptions
from glassformer.store import title
from glassformer.training.checkpoints import Progress
from glassformer.training.work import Work


def write_card(run: Path, work: Work, progress: Progress) -> None:
    recipe = work.task.recipe
    lines = [
        f"# {run.name}: {title(recipe)}",
        "",
        f"- Model: {recipe.model.kind}, {_sizes(recipe.model)}; {parameters(work.task.model):,} parameters.",
        f"- Vocabulary: {recipe.tokenizer.kind}, at most {recipe.tokenizer.vocabulary:,} pieces.",
        f"- Data: {work.data}.",
        f"- Training: {progress.update:,} updates, {progress.tokens:,} tokens, {progress.seconds / 60:.1f} minutes on "
        f"{progress.threads} threads.",
    ]
    if recipe.start:
        lines.append(f"- Began with the weights of {Path(recipe.start).name}.")
    if progress.history:
        chosen = next((entry for entry in progress.history if entry["update"] == progress.best_update), progress.history[-1])
        scores = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in chosen.items() if key != "update")
        how = f" (greedy, the first {recipe.training.bleu_sentences} dev pairs)" if recipe.task == "translate" else ""
        lines.append(f"- Best validation, at update {chosen['update']:,}: {scores}{how}.")
    lines += ["- The recipe is in recipe.toml, the course of the training in log.jsonl.", ""]
    (run / "card.md").write_text("\n".join(lines), encoding="utf-8")


def _sizes(model: Model) -> str:
    if isinstance(model, Word2VecOptions):
        how = f"{model.negatives} negatives" if model.negatives else "full softmax"
        return f"{model.architecture}, width {model.width}, window {model.window}, {how}"
    if isinstance(model, RnnOptions):
        looks = f", {model.attention} attention" if model.attention != "none" else ""
        both = ", both directions" if model.bidirectional else ""
        return f"{model.cell}, {model.layers} layers, width {model.width}{both}{looks}"
    if isinstance(model, TextCNNOptions):
        return f"width {model.width}, {model.filters} filters of each size {', '.join(map(str, model.sizes))}"
    if isinstance(model, MLPOptions):
        return f"input {model.input}, inner width {model.inner}"
    assert isinstance(model, BlockOptions)
    if isinstance(model, TransformerOptions):
        layers = f"{model.encoder_layers}+{model.decoder_layers}"
    else:
        layers = str(getattr(model, "layers", ""))
    return f"{layers} layers, width {model.width}, {model.heads} heads, inner width {model.inner}"
