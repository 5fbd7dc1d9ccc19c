"""card.md: what a model is, for whoever finds its folder."""

from pathlib import Path

from glassformer.models.transformer import parameters
from glassformer.tasks.translate import Translate
from glassformer.text.batches import Prepared
from glassformer.training.checkpoints import Progress


def write_card(run: Path, task: Translate, corpus: Prepared, progress: Progress) -> None:
    recipe = task.recipe
    data, model = recipe.data, recipe.model
    arrow = "⇄" if data.both_ways else "→"
    lines = [
        f"# {run.name}: {data.source} {arrow} {data.target}",
        "",
        f"- Model: {model.kind}, {model.encoder_layers}+{model.decoder_layers} layers, width {model.width}, {model.heads} heads, "
        f"inner width {model.inner}; {parameters(task.model):,} parameters.",
        f"- Vocabulary: {recipe.tokenizer.kind}, {task.source.size:,} pieces"
        + ("." if recipe.tokenizer.shared else f" (source), {task.target.size:,} (target)."),
        f"- Data: {', '.join(data.train)}: {corpus.about['pairs']:,} pairs, {corpus.about['skipped']:,} left out as too long.",
        f"- Training: {progress.update:,} updates, {progress.tokens:,} target tokens, {progress.seconds / 60:.1f} minutes on "
        f"{progress.threads} threads.",
    ]
    if progress.history:
        chosen = next((entry for entry in progress.history if entry["update"] == progress.best_update), progress.history[-1])
        scores = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in chosen.items() if key != "update")
        lines.append(
            f"- Best validation, at update {chosen['update']:,}: {scores} "
            f"(greedy, the first {recipe.training.bleu_sentences} dev pairs)."
        )
    lines += ["- The recipe is in recipe.toml, the course of the training in log.jsonl.", ""]
    (run / "card.md").write_text("\n".join(lines), encoding="utf-8")
