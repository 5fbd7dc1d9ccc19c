"""Looking inside: the same numbers, a name and a shape for each, edits that do what they say, threads that do not mix."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from conftest import SIZES, VARIANTS, VOCABULARY, close, every_variant, sentences, transformer
from torch import Tensor

from glassformer.errors import UserError
from glassformer.models.transformer import Transformer
from glassformer.notation import TABLE, describe
from glassformer.trace import Edit, Trace, recording, traced

SOURCE, TARGET = 5, 3


def run(model: Transformer, seed: int = 0) -> Tensor:
    return model.logits(model(sentences(SOURCE, seed=seed), sentences(TARGET, seed=seed + 100)))


@torch.no_grad()
def look(model: Transformer, edits: dict[str, Edit] | None = None, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    with recording(model, edits) as tensors:
        return run(model, seed), tensors


@every_variant
@torch.no_grad()
def test_traced_is_untraced(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    source, target = sentences(7, 4, 1), sentences(5, 5, 2, seed=1)
    plain = model.logits(model(source, target))
    with recording(model) as tensors:
        close(model.logits(model(source, target)), plain)
    close(tensors["logits"], plain)
    assert not traced()


@every_variant
@torch.no_grad()
def test_a_traced_step_is_an_untraced_one(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    _, state = model.step(torch.tensor([1, 2]), model.start(sentences(4, 2)))
    plain, _ = model.step(torch.tensor([3, 4]), state)
    with recording(model) as tensors:
        close(model.step(torch.tensor([3, 4]), state)[0], plain)
    assert tensors["decoder.0.self.pattern"].shape == (2, 2, 1, 2)


def sizes(model: Transformer, path: str) -> dict[str, int]:
    """What the letters of the notation stand for in this tensor's pass."""
    o = model.options
    t = SOURCE if path.startswith("encoder") else TARGET
    return {
        "T": t,
        "S": SOURCE if ".cross." in path else t,
        "D": o.width,
        "H": o.heads,
        "d_k": o.key_width or o.width // o.heads,
        "d_v": o.value_width or o.width // o.heads,
        "F": o.inner,
        "V": VOCABULARY,
        "1": 1,
    }


@every_variant
def test_every_tensor_has_a_row_and_its_shape(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    _, tensors = look(model)
    for path, x in Trace(tensors, source=[], target=[]).items():
        row, letters = describe(path), sizes(model, path)
        assert x.shape == tuple(letters[letter] for letter in row.shape.split()), path


def test_no_row_is_unused_or_empty() -> None:
    used = {describe(path).name for changes in VARIANTS.values() for path in look(transformer(**changes))[1]}
    assert used == set(TABLE)
    for name, row in TABLE.items():
        assert name == row.name and all((row.shape, row.equation, row.english, row.chinese))


def test_every_block_has_the_names_of_the_design() -> None:
    _, tensors = look(transformer())
    names = ["q", "k", "v", "scores", "scaled", "masked", "pattern", "z", "out"]
    wanted = {f"encoder.{i}.self.{name}" for i in range(2) for name in names}
    wanted |= {f"decoder.{i}.{kind}.{name}" for i in range(2) for kind in ("self", "cross") for name in names}
    wanted |= {f"{side}.{i}.resid_{at}" for side in ("encoder", "decoder") for i in range(2) for at in ("pre", "mid", "post")}
    wanted |= {f"{side}.embed.{name}" for side in ("encoder", "decoder") for name in ("token", "position", "sum")}
    wanted |= {f"{side}.{i}.ffn.{name}" for side in ("encoder", "decoder") for i in range(2) for name in ("pre", "act", "out")}
    assert wanted | {"logits", "decoder.1.resid_cross", "encoder.0.norm1.mean", "encoder.1.norm3.out"} <= set(tensors)


def test_an_unknown_path_has_no_row() -> None:
    with pytest.raises(UserError, match=r"encoder\.0\.self\.nonsense"):
        describe("encoder.0.self.nonsense")


@every_variant
def test_the_named_numbers_obey_their_equations(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    _, x = look(model)
    for at in ("encoder.1.self", "decoder.1.self", "decoder.0.cross"):
        if model.options.scores == "dot":
            close(x[f"{at}.scores"], x[f"{at}.q"] @ x[f"{at}.k"].transpose(-1, -2))
            close(x[f"{at}.scaled"], x[f"{at}.scores"] / math.sqrt(x[f"{at}.q"].size(-1)))
        close(x[f"{at}.pattern"], x[f"{at}.masked"].softmax(-1))
        close(x[f"{at}.z"], x[f"{at}.pattern"] @ x[f"{at}.v"])
        attention = model.get_submodule(at)
        close(x[f"{at}.out"], attention.o(x[f"{at}.z"].transpose(1, 2).flatten(2)))
    assert not x["decoder.0.self.pattern"].triu(1).any()  # the future gets no weight
    close(x["encoder.0.norm1.scaled"] * x["encoder.0.norm1.deviation"] + x["encoder.0.norm1.mean"], x["encoder.0.norm1.in"])
    embed = x["encoder.embed.token"]
    close(x["encoder.embed.sum"], embed + x["encoder.embed.position"] if "encoder.embed.position" in x else embed)
    close(x["encoder.0.resid_pre"], x["encoder.embed.sum"])
    close(x["encoder.1.resid_pre"], x["encoder.0.resid_post"])
    middle = x["encoder.0.resid_pre"] + x["encoder.0.self.out"]
    close(x["encoder.0.resid_mid"], x["encoder.0.norm1.out"] if model.options.norm == "post" else middle)
    close(x["logits"], x["decoder.norm.out" if model.options.norm == "pre" else "decoder.1.resid_post"] @ model.output.weight.T)


@every_variant
def test_an_edit_that_changes_nothing_changes_nothing(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    plain, tensors = look(model)
    edited, again = look(model, {path: torch.clone for path in tensors})
    assert edited.equal(plain)
    assert all(again[path].equal(x) for path, x in tensors.items())


def test_every_tensor_can_be_edited() -> None:
    """Whatever is named is what the model goes on with: to change it changes the result, up to what softmax and norms cancel."""
    model = transformer()
    plain, tensors = look(model)
    for path in tensors:
        bump = torch.linspace(0.5, 1.5, tensors[path].numel()).view_as(tensors[path])
        edited, _ = look(model, {path: lambda x, bump=bump: x * bump})
        assert not torch.allclose(edited, plain), path


def test_a_head_switched_off_adds_nothing() -> None:
    model = transformer()

    def off(pattern: Tensor) -> Tensor:
        pattern = pattern.clone()
        pattern[:, 1] = 0.0
        return pattern

    plain, before = look(model)
    edited, after = look(model, {"decoder.0.cross.pattern": off})
    assert not torch.allclose(edited, plain)
    assert not after["decoder.0.cross.z"][:, 1].any()
    close(after["decoder.0.cross.z"][:, 0], before["decoder.0.cross.z"][:, 0])
    assert after["decoder.0.self.out"].equal(before["decoder.0.self.out"])  # nothing before it is touched
    assert run(model).equal(run(model)) and torch.allclose(run(model), plain, atol=1e-5)  # nor anything afterwards


def test_a_patched_value_carries_one_sentence_into_another() -> None:
    """With the encoder's result of A, B is translated as A."""
    model = transformer()
    wanted, known = look(model, seed=1)
    with torch.no_grad(), recording(model, {"encoder.1.resid_post": lambda x: known["encoder.1.resid_post"]}):
        found = model.logits(model(sentences(SOURCE, seed=2), sentences(TARGET, seed=101)))
    close(found, wanted)


def test_an_edit_of_nothing_known_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"encoder\.0\.self\.patern.*nearest: encoder\.0\.self\.pattern"):
        look(transformer(), {"encoder.0.self.patern": lambda x: x})


def test_after_an_error_nobody_looks() -> None:
    model = transformer()
    with pytest.raises(ZeroDivisionError), recording(model):
        raise ZeroDivisionError
    assert not traced()


def test_another_model_may_run_meanwhile() -> None:
    """As when an edit asks a second model for its value."""
    model, other = transformer(1), transformer(2)
    plain, tensors = look(model)
    with torch.no_grad(), recording(model) as again:
        close(run(other), look(other)[0])
        close(run(model), plain)
    assert again.keys() == tensors.keys() and again["logits"].equal(tensors["logits"])


def test_a_trace_is_a_mapping_that_helps_with_names() -> None:
    trace = Trace(look(transformer())[1], source=["a"], target=["b"])
    assert trace["decoder.1.cross.pattern"].shape == (SIZES.heads, TARGET, SOURCE)
    assert "logits" in trace and "nonsense" not in trace and len(list(trace)) == len(trace)
    with pytest.raises(KeyError, match=r"decoder\.1\.cross\.pattern"):
        trace["decoder.1.cross.paterns"]


def test_what_is_recorded_holds_no_graph() -> None:
    model = transformer()
    with recording(model) as tensors:
        run(model).sum().backward()
    assert not any(x.requires_grad for x in tensors.values())
    assert model.output.weight.grad is not None


def test_threads_do_not_mix() -> None:
    """Two threads meet inside every block of their passes; a third passes through meanwhile and is not recorded."""
    model = transformer()
    wanted = {seed: look(model, seed=seed)[1] for seed in (1, 2)}
    barrier = threading.Barrier(2, timeout=200)

    def wait(x: Tensor) -> Tensor:
        barrier.wait()
        return x

    def together(seed: int) -> dict[str, Tensor]:
        return look(model, {path: wait for path in wanted[1] if path.endswith(("resid_pre", "resid_post"))}, seed)[1]

    def unseen(seed: int) -> bool:
        with torch.no_grad():
            return all(not traced() and run(model, seed).isfinite().all() for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        first, second, third = pool.submit(together, 1), pool.submit(together, 2), pool.submit(unseen, 3)
        for seed, found in ((1, first.result()), (2, second.result())):
            assert found.keys() == wanted[seed].keys()
            assert all(x.equal(wanted[seed][path]) for path, x in found.items())
        assert third.result()
