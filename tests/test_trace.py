"""Looking inside: the same numbers, a name and a shape for each, edits that do what they say, threads that do not mix."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from conftest import (
    ANCESTORS,
    HEADS,
    LABELS,
    LLAMA,
    MODELS,
    READERS,
    SIZES,
    VOCABULARY,
    WORD2VEC,
    WRITERS,
    bert,
    close,
    every_model,
    every_variant,
    gpt,
    sentences,
    transformer,
)
from torch import Tensor

from glassformer.errors import UserError
from glassformer.models.bert import Bert, MaskedHead, PooledHead
from glassformer.models.gpt import GPT
from glassformer.models.transformer import Transformer
from glassformer.notation import TABLE, describe
from glassformer.trace import Edit, Trace, recording, traced

SOURCE, TARGET = 5, 3  # no other size is 3 or 5
Model = Transformer | GPT | Bert
Build = Callable[[], Model]


def run(model: Model, seed: int = 0, sources: tuple[int, ...] = (SOURCE,), targets: tuple[int, ...] = (TARGET,)) -> Tensor:
    """The logits of one pass over sentences of these lengths; a Bert takes the last two tokens for a second text."""
    source, target = sentences(*sources, seed=seed), sentences(*targets, seed=seed + 100)
    if isinstance(model, READERS):
        types = (torch.arange(source.size(1)) >= source.size(1) - 2).long().expand_as(source)
        return model.logits(model(source, types), source != 0)
    return model.logits(model(target) if isinstance(model, WRITERS) else model(source, target))


@torch.no_grad()
def look(model: Model, edits: dict[str, Edit] | None = None, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    with recording(model, edits) as tensors:
        return run(model, seed), tensors


@every_model
@torch.no_grad()
def test_traced_is_untraced(build: Build) -> None:
    model = build()
    lengths = {"sources": (7, 4, 1), "targets": (5, 5, 2)}
    plain = run(model, **lengths)
    with recording(model) as tensors:
        close(run(model, **lengths), plain)
    close(list(tensors.values())[-1], plain)  # what comes last is the answer
    assert not traced()


@every_variant
@torch.no_grad()
def test_a_traced_step_is_an_untraced_one(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    _, state = model.step(torch.tensor([1, 2]), model.start(sentences(4, 2)))
    plain, _ = model.step(torch.tensor([3, 4]), state)
    with recording(model) as tensors:
        close(model.step(torch.tensor([3, 4]), state)[0], plain)
    assert tensors["decoder.0.self.pattern"].shape == (2, model.options.heads, 1, 2)


@pytest.mark.parametrize("changes", [{}, LLAMA, {**LLAMA, "kv_heads": 2}, {"scores": "additive"}])
@torch.no_grad()
def test_a_traced_step_of_gpt_too(changes: dict[str, Any]) -> None:
    model = gpt(**changes)
    state = model.start(sentences(4, 4))
    plain, _ = model.step(torch.tensor([3, 4]), state)
    with recording(model) as tensors:
        close(model.step(torch.tensor([3, 4]), state)[0], plain)
    assert tensors["decoder.1.self.pattern"].shape == (2, 4, 1, 5)


def sizes(model: Model, path: str) -> dict[str, int]:
    """What the letters of the notation stand for in this tensor's pass."""
    o = model.options
    t = SOURCE if path.startswith("encoder") or isinstance(model, Bert) else TARGET
    return {
        "T": t,
        "S": SOURCE if ".cross." in path else t,
        "D": o.width,
        "H": o.heads,
        "K": o.kv_heads or o.heads,
        "d_k": o.key_width or o.width // o.heads,
        "d_v": o.value_width or o.width // o.heads,
        "F": o.inner,
        "V": LABELS if isinstance(model, Bert) and not isinstance(model.head, MaskedHead) else VOCABULARY,
        "1": 1,
    }


@every_model
def test_every_tensor_has_a_row_and_its_shape(build: Build) -> None:
    model = build()
    _, tensors = look(model)
    for path, x in Trace(tensors, source=[], target=[]).items():
        axes, letters = describe(path).shape.split(), sizes(model, path)
        if path == "logits" and isinstance(model, Bert) and isinstance(model.head, PooledHead):
            axes.remove("T")  # one answer for the whole text
        assert x.shape == tuple(letters[letter] for letter in axes), path


def test_no_row_is_unused_or_empty() -> None:
    used = {describe(path).name for build in (MODELS | ANCESTORS).values() for path in look(build())[1]}
    for build in WORD2VEC.values():
        model = build()
        with recording(model) as tensors:
            model.logits(model(sentences(SOURCE)))
        used |= {describe(path).name for path in tensors}
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


def test_the_other_kinds_have_the_same_names() -> None:
    """A block is a block: what Llama and BERT have is what a Transformer has, but for what is theirs alone."""
    known, llama, masked = (set(look(model)[1]) for model in (transformer(), gpt(**LLAMA), bert()))
    own = {f"decoder.{i}.{name}" for i in range(2) for name in ("ffn.gate", "norm1.rms", "norm3.rms")}
    last = {f"decoder.norm.{name}" for name in ("in", "rms", "scaled", "out")}
    assert llama - known == own | last
    assert {path for path in masked - known if path.startswith("encoder.")} == {
        "encoder.embed.type",
        *(f"encoder.embed.norm.{name}" for name in ("in", "mean", "deviation", "scaled", "out")),
    }
    assert {"head.in", "head.transformed", "head.norm.out"} <= masked
    assert {"head.in", "head.pooled", "head.dense"} <= set(look(bert("pooled"))[1])
    assert "head.in" in look(bert("token"))[1]


def test_an_unknown_path_has_no_row() -> None:
    with pytest.raises(UserError, match=r"encoder\.0\.self\.nonsense"):
        describe("encoder.0.self.nonsense")


@every_model
def test_attention_and_feed_forward_obey_their_equations(build: Build) -> None:
    model = build()
    o = model.options
    _, x = look(model)
    for at in [path.removesuffix(".pattern") for path in x if path.endswith(".pattern")]:
        k, v = (x[f"{at}.{name}"].repeat_interleave(o.heads // (o.kv_heads or o.heads), dim=1) for name in "kv")
        if o.scores == "dot":
            close(x[f"{at}.scores"], x[f"{at}.q"] @ k.transpose(-1, -2))
            close(x[f"{at}.scaled"], x[f"{at}.scores"] / math.sqrt(x[f"{at}.q"].size(-1)))
        close(x[f"{at}.pattern"], x[f"{at}.masked"].softmax(-1))
        close(x[f"{at}.z"], x[f"{at}.pattern"] @ v)
        close(x[f"{at}.out"], model.get_submodule(at).o(x[f"{at}.z"].transpose(1, 2).flatten(2)))
        if at.startswith("decoder") and at.endswith("self"):
            assert not x[f"{at}.pattern"].triu(1).any()  # the future gets no weight
        else:
            assert x[f"{at}.pattern"].all()  # nothing is padded, so everybody looks at everything
    for at in [path.removesuffix(".pre") for path in x if path.endswith(".ffn.pre")]:
        act = model.get_submodule(at).activation(x[f"{at}.pre"])
        close(x[f"{at}.act"], act * x[f"{at}.gate"] if o.activation == "swiglu" else act)
        close(x[f"{at}.out"], model.get_submodule(at).w2(x[f"{at}.act"]))


@every_model
def test_sums_and_norms_obey_their_equations(build: Build) -> None:
    model = build()
    o = model.options
    _, x = look(model)
    for at in [path.removesuffix(".scaled") for path in x if "norm" in path and path.endswith(".scaled")]:
        norm = model.get_submodule(at)
        if f"{at}.rms" in x:
            close(x[f"{at}.scaled"] * x[f"{at}.rms"], x[f"{at}.in"])
        else:
            close(x[f"{at}.scaled"] * x[f"{at}.deviation"] + x[f"{at}.mean"], x[f"{at}.in"])
        close(x[f"{at}.out"], x[f"{at}.scaled"] * norm.weight + (0.0 if getattr(norm, "bias", None) is None else norm.bias))
    for side in {path.split(".")[0] for path in x if ".embed." in path}:
        parts = [x[f"{side}.embed.{name}"] for name in ("token", "type", "position") if f"{side}.embed.{name}" in x]
        close(x[f"{side}.embed.sum"], sum(parts[1:], start=parts[0]))
        close(x[f"{side}.0.resid_pre"], x.get(f"{side}.embed.norm.out", x[f"{side}.embed.sum"]))
        close(x[f"{side}.1.resid_pre"], x[f"{side}.0.resid_post"])
        middle = x[f"{side}.0.resid_pre"] + x[f"{side}.0.self.out"]
        close(x[f"{side}.0.resid_mid"], x[f"{side}.0.norm1.out"] if o.norm == "post" else middle)
        last = x.get(f"{side}.0.resid_cross", x[f"{side}.0.resid_mid"]) + x[f"{side}.0.ffn.out"]
        close(x[f"{side}.0.resid_post"], x[f"{side}.0.norm3.out"] if o.norm == "post" else last)


@every_model
def test_the_answer_is_made_of_the_last_states(build: Build) -> None:
    model = build()
    found, x = look(model)
    side = "encoder" if isinstance(model, Bert) else "decoder"
    states = x[f"{side}.norm.out" if model.options.norm == "pre" else f"{side}.1.resid_post"]
    if not isinstance(model, Bert):
        return close(found, model.output(states))
    head = model.head
    close(x["head.in"], states)
    if isinstance(head, MaskedHead):
        close(x["head.transformed"], head.norm(head.activation(head.dense(states))))
        close(found, x["head.transformed"] @ model.encoder.embed.token.weight.T + head.output.bias)
    elif isinstance(head, PooledHead):
        close(x["head.pooled"], states[:, 0] if model.options.pooling == "first" else states.mean(1))
        close(x["head.dense"], torch.tanh(head.dense(x["head.pooled"])))
        close(found, head.output(x["head.dense"]))
    else:
        close(found, head.output(states))


@every_model
def test_an_edit_that_changes_nothing_changes_nothing(build: Build) -> None:
    model = build()
    plain, tensors = look(model)
    edited, again = look(model, {path: torch.clone for path in tensors})
    assert edited.equal(plain)
    assert all(again[path].equal(x) for path, x in tensors.items())


@pytest.mark.parametrize("name", ["transformer, paper", "gpt, llama with shared keys", *(f"bert, {head}" for head in HEADS)])
def test_every_tensor_can_be_edited(name: str) -> None:
    """Whatever is named is what the model goes on with: to change it changes the result, up to what softmax and norms cancel."""
    model = MODELS[name]()
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
