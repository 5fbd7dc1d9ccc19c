"""The encoder–decoder: PyTorch's numbers, the paper's sizes, and what must change nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import SIZES, VOCABULARY, close, every_variant, sentences, transformer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.layers import without_modules
from glassformer.layers.attention import Attention
from glassformer.layers.block import Block
from glassformer.layers.trails import Trails
from glassformer.models.stack import State, parameters
from glassformer.models.transformer import Transformer
from glassformer.options import PRESETS, TransformerOptions

variants = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["post", "pre"]),
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary"]),
        "norm_kind": st.sampled_from(["layer", "rms"]),
        "activation": st.sampled_from(["relu", "gelu", "gelu-tanh", "silu", "swiglu"]),
        "bias": st.booleans(),
        "kv_heads": st.integers(0, 2),
        "scores": st.sampled_from(["dot", "additive"]),
        "key_width": st.sampled_from([0, 2, 6]),
        "value_width": st.sampled_from([0, 3, 10]),
        "tie": st.sampled_from(["all", "output", "none"]),
        "encoder_layers": st.integers(1, 2),
        "decoder_layers": st.integers(1, 2),
    }
).filter(lambda changes: (changes["positions"], changes["scores"]) != ("rotary", "additive"))


class TorchTransformer(nn.Module):
    """PyTorch's layers with our weights; only embeddings come from us."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        o = ours.options
        self.ours = ours
        shape = {"dropout": 0.0, "activation": o.activation, "batch_first": True, "norm_first": o.norm == "pre", "bias": o.bias}
        shape["layer_norm_eps"] = o.epsilon
        encoder = nn.TransformerEncoderLayer(o.width, o.heads, o.inner, **shape)
        decoder = nn.TransformerDecoderLayer(o.width, o.heads, o.inner, **shape)
        norms = [nn.LayerNorm(o.width, o.epsilon, bias=o.bias) if o.norm == "pre" else None for _ in range(2)]
        self.encoder = nn.TransformerEncoder(encoder, o.encoder_layers, norms[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, o.decoder_layers, norms[1])
        for theirs, stack in ((self.encoder, ours.encoder), (self.decoder, ours.decoder)):
            for i, layer in enumerate(theirs.layers):
                copy_block(stack.get_submodule(str(i)), layer)
            if theirs.norm is not None:
                theirs.norm.load_state_dict(stack.norm.state_dict())

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == 0
        future = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        memory = self.encoder(self.ours.encoder.embed(source), src_key_padding_mask=padding)
        embedded = self.ours.decoder.embed(target)
        return self.decoder(embedded, memory, tgt_mask=future, memory_key_padding_mask=padding)


def copy_block(ours: Block, theirs: nn.Module) -> None:
    copy_attention(ours.self, theirs.self_attn)
    norms = [ours.norm1, ours.norm3]
    if ours.cross is not None:
        copy_attention(ours.cross, theirs.multihead_attn)
        norms = [ours.norm1, ours.norm2, ours.norm3]
    for i, norm in enumerate(norms, start=1):
        getattr(theirs, f"norm{i}").load_state_dict(norm.state_dict())
    theirs.linear1.load_state_dict(ours.ffn.w1.state_dict())
    theirs.linear2.load_state_dict(ours.ffn.w2.state_dict())


@torch.no_grad()
def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
    if theirs.in_proj_bias is not None:
        theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
    theirs.out_proj.load_state_dict(ours.o.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("more", [{}, {"bias": False, "epsilon": 1e-2}], ids=["", "without biases"])
def test_states_and_gradients_are_pytorchs(norm: str, activation: str, positions: str, more: dict[str, Any]) -> None:
    ours = transformer(norm=norm, activation=activation, positions=positions, encoder_layers=3, **more)
    theirs = TorchTransformer(ours)
    source, target = sentences(7, 4, 1), sentences(5, 5, 5, seed=1)
    found, wanted = ours(source, target), theirs(source, target)
    close(found, wanted)

    close(ours.logits(found), wanted @ ours.output.weight.T)
    upstream = torch.randn_like(found)
    (wanted_grad,) = torch.autograd.grad(wanted, ours.encoder.embed.token.weight, upstream)
    (found_grad,) = torch.autograd.grad(found, ours.encoder.embed.token.weight, upstream)
    close(found_grad, wanted_grad, 1e-4)


@pytest.mark.parametrize(("preset", "paper"), [("base", 65e6), ("big", 213e6)])
def test_parameters_as_in_the_paper(preset: str, paper: float) -> None:
    with torch.device("meta"):
        model = Transformer(TransformerOptions(**PRESETS["transformer"][preset]), 37_000, 37_000)
    assert parameters(model) == pytest.approx(paper, rel=0.04)


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("output", 2), ("none", 3)])
def test_what_is_tied_is_one_matrix(tie: str, matrices: int) -> None:
    model = transformer(tie=tie)
    weights = [model.encoder.embed.token.weight, model.decoder.embed.token.weight, model.output.weight]
    assert len({id(weight) for weight in weights}) == matrices
    one = VOCABULARY * SIZES.width
    assert parameters(model) - parameters(transformer(tie="all")) == (matrices - 1) * one


def test_the_output_has_a_bias_if_it_is_asked_for() -> None:
    model = transformer(output_bias=True)
    states = model(sentences(4), sentences(3))
    close(model.logits(states), states @ model.decoder.embed.token.weight.T + model.output.bias)
    assert transformer().output.bias is None


def test_each_side_has_its_own_vocabulary() -> None:
    model = Transformer(replace(SIZES, tie="output"), 7, 13).eval()
    states = model(torch.tensor([[6, 6]]), torch.tensor([[12, 1, 12]]))
    assert model.logits(states).shape == (1, 3, 13)


def test_a_fresh_model_begins_near_the_uniform_guess() -> None:
    """The initial logits are of the order of 1, so the first loss is near log V, for shared weights too."""
    torch.manual_seed(0)
    model = Transformer(replace(SIZES, width=64, heads=4, inner=128), 500, 500).eval()
    source, target = torch.randint(1, 500, (8, 9)), torch.randint(1, 500, (8, 9))
    with torch.no_grad():
        logits = model.logits(model(source, target))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(1, 500, (72,)))
    assert loss.item() == pytest.approx(torch.tensor(500.0).log().item(), rel=0.15)


@settings(max_examples=25)
@given(changes=variants, seed=st.integers(0, 99), length=st.integers(2, 9), data=st.data())
@torch.no_grad()
def test_a_future_token_changes_nothing_before_it(changes: dict[str, Any], seed: int, length: int, data: st.DataObject) -> None:
    model = transformer(seed, **changes)
    at = data.draw(st.integers(1, length - 1))
    source, target = sentences(5, 3, seed=seed), sentences(length, length, seed=seed + 1)
    before = model(source, target)
    changed = target.clone()
    changed[:, at:] = changed[:, at:] % (VOCABULARY - 1) + 1  # every later token another one
    after = model(source, changed)
    assert after[:, :at].equal(before[:, :at])
    assert not torch.allclose(after[:, at], before[:, at])


@settings(max_examples=25)
@given(changes=variants, seed=st.integers(0, 99), lengths=st.lists(st.integers(1, 9), min_size=2, max_size=4))
@torch.no_grad()
def test_padding_and_neighbours_change_nothing(changes: dict[str, Any], seed: int, lengths: list[int]) -> None:
    model = transformer(seed, **changes)
    sources, targets = sentences(*lengths, seed=seed), sentences(*reversed(lengths), seed=seed + 1)
    together = model(sources, targets)
    for row, (s, t) in enumerate(zip(lengths, reversed(lengths), strict=True)):
        alone = model(sources[row : row + 1, :s], targets[row : row + 1, :t])
        close(together[row, :t], alone[0])


@pytest.mark.usefixtures("ways")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=variants, seed=st.integers(0, 99), length=st.integers(1, 8))
@torch.no_grad()
def test_step_by_step_is_all_at_once(changes: dict[str, Any], seed: int, length: int) -> None:
    model = transformer(seed, **changes)
    source, target = sentences(6, 3, 1, seed=seed), sentences(length, length, length, seed=seed + 1)
    whole = model.logits(model(source, target))
    state = model.start(source)
    for t in range(length):
        logits, state = model.step(target[:, t], state)
        close(logits, whole[:, t])
    assert state.length == length


@pytest.mark.usefixtures("ways")
@every_variant
@pytest.mark.parametrize("short", [3, 64])
@torch.no_grad()
def test_one_source_is_read_alike_short_or_long_padded_or_not(
    changes: dict[str, Any], short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single short source has a way of its own, which knows of no padding."""
    monkeypatch.setattr(without_modules, "SHORT", short)
    model = transformer(**changes)
    source = sentences(5)
    padded = torch.nn.functional.pad(source, (0, 2))
    target = sentences(4, seed=1)
    whole = model.logits(model(source, target))
    for each in (source, padded):
        state = model.start(each)
        for t in range(4):
            logits, state = model.step(target[:, t], state)
            close(logits, whole[:, t])


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("attention", ["encoder.0.self", "decoder.1.self", "decoder.0.cross"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_scores_may_be_far_apart(norm: str, attention: str) -> None:
    """So far that an exponential would overflow."""
    model = transformer(norm=norm)
    for letter in "qk":
        model.get_submodule(f"{attention}.{letter}").weight.mul_(40)
    source, target = sentences(5), sentences(4, seed=1)
    whole = model.logits(model(source, target))
    state = model.start(source)
    for t in range(4):
        logits, state = model.step(target[:, t], state)
        torch.testing.assert_close(logits, whole[:, t], rtol=1e-3, atol=1e-3)


def looked_up(state: State) -> list[Any]:
    """What each block has looked up in the source."""
    if state.cache is None:
        return [block.cross for block in state.blocks]
    sources = state.cache.sources
    return sources.both if isinstance(state.cache, Trails) else list(sources.known)


@pytest.mark.usefixtures("ways")
@every_variant
@torch.no_grad()
def test_a_state_is_a_value(changes: dict[str, Any]) -> None:
    """Stepping from a state leaves it as it was: two continuations do not disturb each other."""
    model = transformer(**changes)
    _, state = model.step(torch.tensor([1, 2]), model.start(sentences(4, 2)))
    first, onward = model.step(torch.tensor([3, 4]), state)
    other, _ = model.step(torch.tensor([9, 9]), state)
    again, _ = model.step(torch.tensor([3, 4]), state)
    assert again.equal(first) and not other.equal(first)
    assert (state.length, onward.length) == (1, 2)
    kept = [looked_up(each) for each in (state, onward)]
    assert all(a is b for a, b in zip(*kept, strict=True)) and kept[0]  # the source is looked up once


@pytest.mark.usefixtures("ways")
@every_variant
@torch.no_grad()
def test_a_reordered_state_goes_on_as_the_row_it_came_from(changes: dict[str, Any]) -> None:
    model = transformer(**changes)
    source, index = sentences(5, 3, 1), torch.tensor([2, 0, 0])
    _, state = model.step(torch.tensor([1, 2, 3]), model.start(source))
    wanted, _ = model.step(torch.tensor([4, 5, 6]), state)
    found, _ = model.step(torch.tensor([6, 4, 4]), state.reorder(index))
    close(found, wanted[index])


@pytest.mark.usefixtures("ways")
@every_variant
@torch.no_grad()
def test_rows_that_share_a_source_go_on_as_if_each_had_its_own(changes: dict[str, Any]) -> None:
    """As beams do; and rows of a source may leave, which leaves others with unequal shares."""
    model = transformer(**changes)
    sources = sentences(5, 3, 1)
    for index in ([0, 0, 1, 1, 2, 2], [0, 0, 2, 2], [0, 0, 1], [2, 0, 0, 2]):
        chosen = torch.tensor(index)
        ids = torch.arange(3, 3 + len(index))
        found, together = model.step(ids, model.start(sources).reorder(chosen))
        wanted, apart = model.step(ids, model.start(sources[chosen]))
        close(found, wanted)
        turned = torch.arange(len(index)).flip(0)
        found, _ = model.step(ids, together.reorder(turned))
        wanted, _ = model.step(ids, apart.reorder(turned))
        close(found, wanted)


@pytest.mark.usefixtures("ways")
@every_variant
@torch.no_grad()
def test_beams_of_one_source_go_on_alike_be_they_few_or_many(changes: dict[str, Any]) -> None:
    many = 20
    model = transformer(**changes)
    source, target = sentences(5), torch.randint(3, VOCABULARY, (many, 3), generator=torch.Generator().manual_seed(0))
    whole = model.logits(model(source.expand(len(target), -1), target))
    for counts in ((3, many, 2), (many, 5, 1)):
        state, rows = model.start(source), torch.zeros(1, dtype=torch.long)
        for t, count in enumerate(counts):
            index = torch.arange(count) % len(rows)
            rows = rows[index] if t else torch.arange(count)
            state = state.reorder(index)
            logits, state = model.step(target[rows, t], state)
            close(logits, whole[rows, t])


@torch.no_grad()
def test_a_step_knows_of_changed_weights() -> None:
    model = transformer()
    source, target = sentences(4), torch.tensor([[1]])
    for _ in range(2):
        close(model.step(target[0], model.start(source))[0], model.logits(model(source, target))[:, 0])
        for weight in model.parameters():
            weight.mul_(1.1)


def test_a_step_knows_of_an_update() -> None:
    """The fused optimiser changes weights and leaves their version as it was."""
    model = transformer()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    source, target = sentences(4), torch.tensor([[1]])
    for _ in range(2):
        model.eval()
        with torch.no_grad():
            close(model.step(target[0], model.start(source))[0], model.logits(model(source, target))[:, 0])
        model.train()
        model.logits(model(source, target)).sum().backward()
        optimiser.step()


@every_variant
def test_training_reaches_every_weight(changes: dict[str, Any]) -> None:
    model = transformer(**changes).train()
    loss = model.logits(model(sentences(5, 3), sentences(4, 4, seed=1))).square().sum()
    loss.backward()
    idle = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert not {name for name in idle if not name.endswith("k.bias")}  # softmax takes no notice of q · b_K


def test_dropout_works_only_while_training() -> None:
    model = transformer(dropout=0.5)
    source, target = sentences(5, 3), sentences(4, 4, seed=1)
    assert model(source, target).equal(model(source, target))
    model.train()
    assert not model(source, target).equal(model(source, target))
