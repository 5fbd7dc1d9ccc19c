"""Draws docs/demo.svg: what `make demo` shows, by the bundled model."""

import io
from pathlib import Path

from rich.console import Console

import glassformer as gf
from glassformer.heatmap import show_translation

SENTENCES = ("我喜欢吃草莓。", "He went to the hospital yesterday.")


def main() -> None:
    console = Console(record=True, file=io.StringIO(), width=96, force_terminal=True, color_system="truecolor", highlight=False)
    model = gf.load("zh-en")
    for sentence in SENTENCES:
        answer = model.translate(sentence)
        console.print(f"{sentence}  →  {answer.text}", markup=False, style="bold")
        show_translation(console, model, answer)
        console.print()
    console.save_svg(str(Path(__file__).with_name("demo.svg")), title="make demo")


if __name__ == "__main__":
    main()
