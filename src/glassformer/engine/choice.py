"""Which engine answers: PyTorch, or another that gives the same answers and starts without torch: what was compiled, or
CTranslate2 where it is installed."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.errors import UserError
from glassformer.options import DecodingOptions, GenerationOptions, Recipe

if TYPE_CHECKING:
    from glassformer.engine.continuer import FastContinuer
    from glassformer.engine.translator import FastTranslator
    from glassformer.tasks.continuer import Continuer
    from glassformer.tasks.translator import Translator

ENGINES = {"auto": "", "pytorch": "", "ctranslate2": "float32", "ctranslate2-int8": "int8"}  # and what CTranslate2 computes with

LARGE = 100_000_000  # bytes of weights: those of a larger model are not kept twice, as they would be


def check(engine: str) -> None:
    if engine not in ENGINES:
        raise UserError(f"--engine {engine!r} is not known; there are {', '.join(ENGINES)}.")
    if ENGINES[engine] and not _there():
        from glassformer.interop.ctranslate2 import library

        library()  # says how to get it


def translator(
    folder: Path, recipe: Recipe, options: DecodingOptions, engine: str, asked: list[str], *, many: bool = True
) -> "Translator":
    """One that translates as the options say; `asked` is what only PyTorch can do of what was asked for,
    `many` whether several sentences are expected at a time."""
    if engine == "auto" and not asked and _compiled(folder, recipe) and (found := _compiled_translator(folder, recipe)):
        return found
    if found := _fast_translator(folder, recipe, options, engine, asked, many=many):
        return found
    from glassformer.tasks.translate import Translate

    return Translate.load(folder)


def continuer(
    folder: Path, recipe: Recipe, options: GenerationOptions, engine: str, asked: list[str], *, seeded: bool
) -> "Continuer":
    """One that goes on with texts as the options say; `asked` as above."""
    if found := _fast_continuer(folder, recipe, options, engine, asked, seeded=seeded):
        return found
    from glassformer.tasks.language import Language

    return Language.load(folder)


def beside(folder: Path, recipe: Recipe, engine: str) -> "Translator | Continuer | None":
    """What finds the answers of a model that PyTorch then looks into; none if that finds them itself."""
    try:
        if recipe.task == "translate":
            if engine == "auto" and _compiled(folder, recipe):
                return None  # PyTorch decodes by the same code, up to bare.SMALL
            return _fast_translator(folder, recipe, recipe.decoding, engine, [], many=True)
        if recipe.task == "language":
            return _fast_continuer(folder, recipe, GenerationOptions(temperature=0.0), engine, [], seeded=False, threads=1)
    except UserError:  # it cannot serve this model: others it may
        pass
    return None


def _compiled(folder: Path, recipe: Recipe) -> bool:
    from glassformer.engine.compiled import fits

    return fits(recipe) and (folder / "model.safetensors").stat().st_size <= LARGE


def _compiled_translator(folder: Path, recipe: Recipe) -> "Translator | None":
    from glassformer.arrays import Unfit
    from glassformer.engine.compiled import CompiledTranslator

    try:
        return CompiledTranslator(folder, recipe)
    except (Unfit, UserError):  # PyTorch tells of it at length
        return None


def _fast_translator(
    folder: Path, recipe: Recipe, options: DecodingOptions, engine: str, asked: list[str], *, many: bool
) -> "FastTranslator | None":
    if not _wanted(engine):
        return None
    from glassformer.engine.translator import FastTranslator, obstacles

    made = partial(FastTranslator, many=many)
    found: FastTranslator | None = _fast(made, folder, recipe, engine, [*asked, *obstacles(recipe, options)])
    if found and 2 * options.beam > found.target.size:
        _refuse(engine, [f"a beam of {options.beam}, which needs a vocabulary twice as large"])
        return None
    return found


def _fast_continuer(
    folder: Path, recipe: Recipe, options: GenerationOptions, engine: str, asked: list[str], *, seeded: bool, threads: int = 0
) -> "FastContinuer | None":
    if not _wanted(engine):
        return None
    from glassformer.engine.continuer import FastContinuer, obstacles

    found: FastContinuer | None = _fast(
        partial(FastContinuer, threads=threads), folder, recipe, engine, [*asked, *obstacles(recipe, options, seeded=seeded)]
    )
    return found


def _wanted(engine: str) -> bool:
    return bool(ENGINES[engine]) or (engine == "auto" and _there())


def _there() -> bool:
    """Not imported: that is left to whoever knows what for."""
    return find_spec("ctranslate2") is not None


def _fast(kind: Any, folder: Path, recipe: Recipe, engine: str, reasons: list[str]) -> Any:
    """The model in CTranslate2; or none, if PyTorch is to have it."""
    from glassformer.arrays import Unfit

    if reasons:
        _refuse(engine, reasons)
        return None
    try:
        return kind(folder, recipe, ENGINES[engine] or "float32")
    except UserError:
        if engine != "auto":
            raise
    except (Unfit, RuntimeError, ValueError) as error:  # weights that do not fit: PyTorch tells of them at length
        _refuse(engine, [str(error)])
    return None


def _refuse(engine: str, reasons: list[str]) -> None:
    if engine != "auto":
        listed = "\n  ".join(reasons)
        raise UserError(f"--engine {engine} cannot serve this:\n  {listed}\nWithout --engine it is left to PyTorch.")
