"""The parts around attention: positions, embedding, normalisation, feed-forward, dropout, and the loss."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from glassformer.layers.cross_entropy import CHUNK, linear_cross_entropy
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import Embedding
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.norm import LayerNorm, RMSNorm, normalisation
from glassformer.layers.positions import sinusoids
from glassformer.trace import recording

Bend = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("width", [1, 2, 7, 16])
def test_sinusoids_by_the_formula(width: int) -> None:
    table = sinusoids(40, width)
    for pos in range(40):
        for column in range(width):
            angle = pos / 10_000 ** (2 * (column // 2) / width)
            wanted = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[pos, column].item() == pytest.approx(wanted, abs=1e-6)


def test_every_position_is_its_own() -> None:
    table = sinusoids(2000, 64)
    distance = torch.cdist(table, table) + 10 * torch.eye(2000)
    assert distance.min() > 0.1


@settings(max_examples=30)
@given(pos=st.integers(0, 400), shift=st.integers(0, 100))
def test_a_shift_of_positions_is_a_rotation(pos: int, shift: int) -> None:
    """PE(pos + k) is the same linear function of PE(pos) for every pos: each pair turns by k · rate."""
    table = sinusoids(501, 16)
    for i in range(8):
        angle = shift / 10_000 ** (2 * i / 16)
        sin, cos = table[pos, 2 * i].item(), table[pos, 2 * i + 1].item()
        assert table[pos + shift, 2 * i].item() == pytest.approx(sin * math.cos(angle) + cos * math.sin(angle), abs=1e-5)
        assert table[pos + shift, 2 * i + 1].item() == pytest.approx(cos * math.cos(angle) - sin * math.sin(angle), abs=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_embedding_is_the_scaled_row_and_the_position(positions: str) -> None:
    embed = Embedding(9, 16, positions=positions, max_length=12, dropout=0.0)
    ids = torch.tensor([[3, 3, 8], [1, 2, 3]])
    found = embed(ids, start=4)
    for b in range(2):
        for t in range(3):
            wanted = embed.token.weight[ids[b, t]] * 4.0
            if positions == "sinusoidal":
                wanted = wanted + sinusoids(12, 16)[4 + t]
            elif positions == "learned":
                wanted = wanted + embed.position[4 + t]
            close(found[b, t], wanted)


def test_embedding_without_scale_with_types_and_a_norm() -> None:
    """BERT's: LayerNorm(E[id] + E_type[type] + position)."""
    embed = Embedding(9, 16, positions="learned", max_length=12, dropout=0.0, scale=False, types=2, norm=LayerNorm(16))
    nn.init.normal_(embed.norm.weight)
    ids, types = torch.tensor([[3, 3, 8], [1, 2, 3]]), torch.tensor([[0, 0, 1], [0, 1, 1]])
    found, untyped = embed(ids, 4, types), embed(ids, 4)
    for b in range(2):
        for t in range(3):
            wanted = embed.token.weight[ids[b, t]] + embed.position[4 + t]
            close(found[b, t], embed.norm(wanted + embed.types.weight[types[b, t]]))
            close(untyped[b, t], embed.norm(wanted + embed.types.weight[0]))  # no types are all the first


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-12, 0.3])
def test_normalisation_is_pytorchs(bias: bool, epsilon: float, look: bool) -> None:
    ours, theirs = LayerNorm(10, epsilon, bias), nn.LayerNorm(10, epsilon, bias=bias)
    for name in ("weight", "bias") if bias else ("weight",):
        nn.init.normal_(getattr(ours, name))
        getattr(theirs, name).data.copy_(getattr(ours, name))
    assert dict(ours.named_parameters()).keys() == dict(theirs.named_parameters()).keys()
    x = torch.randn(3, 4, 10) * 5 + 2
    x[0, 0] = 1.0  # no variance at all
    if look:
        with recording(ours):
            close(ours(x), theirs(x))
    else:
        close(ours(x), theirs(x))


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-6, 0.3])
def test_rms_normalisation_is_pytorchs(epsilon: float, look: bool) -> None:
    ours, theirs = RMSNorm(10, epsilon), nn.RMSNorm(10, epsilon)
    nn.init.normal_(ours.weight)
    theirs.weight.data.copy_(ours.weight)
    x = torch.randn(3, 4, 10) * 5 + 2
    x[0, 0] = 0.0  # nothing to divide by but ε
    upstream = torch.randn_like(x)

    def run(norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        out = norm(x)
        return out, torch.autograd.grad(out, norm.weight, upstream)[0]

    wanted = run(theirs)
    if look:
        with recording(ours):
            found = run(ours)
    else:
        found = run(ours)
    close(found[0], wanted[0])
    close(found[1], wanted[1], 1e-4)
    by_hand = x / (x.square().sum(-1, keepdim=True) / 10 + epsilon).sqrt() * ours.weight
    close(found[0], by_hand)


def test_the_norm_is_chosen_by_its_name() -> None:
    layer, bare, rms = (
        normalisation(*choice) for choice in (("layer", 6, 0.1, True), ("layer", 6, 0.1, False), ("rms", 6, 0.1, True))
    )
    assert isinstance(layer, LayerNorm) and layer.bias is not None
    assert isinstance(bare, LayerNorm) and bare.bias is None
    assert isinstance(rms, RMSNorm) and not hasattr(rms, "bias")
    assert layer.epsilon == bare.epsilon == rms.epsilon == 0.1


BENDS = {
    "relu": nn.ReLU(),
    "gelu": nn.GELU(),
    "gelu-tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("activation", "bend"), BENDS.items(), ids=BENDS)
def test_feed_forward_is_two_maps_with_a_bend_between(activation: str, bend: Bend, bias: bool, look: bool) -> None:
    ours = FeedForward(6, 14, activation=activation, bias=bias)
    x = torch.randn(2, 3, 6) * 3
    inner = bend(x @ ours.w1.weight.T + (ours.w1.bias if bias else 0))
    wanted = inner @ ours.w2.weight.T + (ours.w2.bias if bias else 0)
    if look:
        with recording(ours) as tensors:
            close(ours(x), wanted)
        close(tensors["act"], inner)
    else:
        close(ours(x), wanted)
    assert ours.w3 is None and len(list(ours.parameters())) == (4 if bias else 2)


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_swiglu_by_its_equation(bias: bool, look: bool) -> None:
    """(silu(x W₁) ⊙ x W₃) W₂, with silu(x) = x · σ(x): one number after another."""
    ours = FeedForward(4, 5, activation="swiglu", bias=bias)
    x = torch.randn(2, 3, 4) * 3
    if look:
        with recording(ours) as tensors:
            found = ours(x)
        close(tensors["act"], torch.sigmoid(tensors["pre"]) * tensors["pre"] * tensors["gate"])
    else:
        found = ours(x)
    for b in range(2):
        for t in range(3):
            wanted = ours.w2.bias.clone() if bias else torch.zeros(4)
            for f in range(5):
                pre = ours.w1.weight[f] @ x[b, t] + (ours.w1.bias[f] if bias else 0)
                gate = ours.w3.weight[f] @ x[b, t] + (ours.w3.bias[f] if bias else 0)
                wanted = wanted + pre / (1 + torch.exp(-pre)) * gate * ours.w2.weight[:, f]
            close(found[b, t], wanted)


class TestDropout:
    @pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.95])
    def test_drops_its_share_and_keeps_the_mean(self, p: float) -> None:
        x = torch.full((400, 501), 3.0)
        y = Dropout(p)(x)
        share = round(p * 256) / 256
        n = x.numel()
        assert (y == 0).float().mean().item() == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / n))
        assert y.unique().tolist() == pytest.approx([0.0, 3 / (1 - share)])
        assert y.mean().item() == pytest.approx(3.0, abs=5 * 3 * math.sqrt(share / (1 - share) / n))

    def test_neighbours_fall_independently(self) -> None:
        """The numbers of one draw of eight, and rows, do not fall together."""
        dropped = (Dropout(0.5)(torch.ones(20_000, 8)) == 0).float()
        joint = dropped.T @ dropped / 20_000
        wanted = torch.full((8, 8), 0.25) + 0.25 * torch.eye(8)
        close(joint, wanted, 0.02)

    def test_is_nothing_while_not_training_or_without_p(self) -> None:
        x = torch.randn(5, 5)
        assert Dropout(0.5).eval()(x) is x
        assert Dropout(0.0)(x) is x

    def test_follows_the_seed(self) -> None:
        drop, x = Dropout(0.3), torch.ones(7, 11)
        torch.manual_seed(5)
        first, second = drop(x), drop(x)
        torch.manual_seed(5)
        assert drop(x).equal(first)
        assert not second.equal(first)

    @pytest.mark.parametrize("shape", [(1,), (7,), (3, 3), (2, 3, 5)])
    def test_the_gradient_falls_where_the_number_fell(self, shape: tuple[int, ...]) -> None:
        x = (torch.rand(shape) + 1).requires_grad_()
        y = Dropout(0.5)(x)
        y.sum().backward()
        close(x.grad, (y / x).detach())

    def test_a_transposed_input(self) -> None:
        y = Dropout(0.5)(torch.ones(6, 40).T)
        assert y.shape == (40, 6)
        assert 0 < (y == 0).float().mean() < 1


class TestLinearCrossEntropy:
    SIZES = (1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 88)

    def inputs(self, n: int, dtype: torch.dtype = torch.float64):
        states = torch.randn(n, 6, dtype=dtype, requires_grad=True)
        weight = torch.randn(13, 6, dtype=dtype, requires_grad=True)
        return states, weight, torch.randint(13, (n,))

    @pytest.mark.parametrize("n", SIZES)
    @pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
    def test_value_and_gradients_are_pytorchs(self, n: int, smoothing: float) -> None:
        states, weight, targets = self.inputs(n)
        loss, plain = linear_cross_entropy(states, weight, targets, smoothing)
        (loss / 7).backward()
        found = (states.grad, weight.grad)
        states.grad = weight.grad = None
        logits = states @ weight.T
        wanted = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        (wanted / 7).backward()
        close(loss, wanted, 1e-9)
        close(plain, F.cross_entropy(logits, targets, reduction="sum"), 1e-9)
        close(found[0], states.grad, 1e-9)
        close(found[1], weight.grad, 1e-9)
        assert not plain.requires_grad

    @pytest.mark.parametrize("n", SIZES)
    @pytest.mark.parametrize("grad", [True, False])
    def test_a_bias_is_added_to_the_logits(self, n: int, grad: bool) -> None:
        states, weight, targets = self.inputs(n)
        bias = torch.randn(13, dtype=torch.float64, requires_grad=True)
        logits = states @ weight.T + bias
        wanted = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
        with torch.set_grad_enabled(grad):
            loss, plain = linear_cross_entropy(states, weight, targets, 0.1, bias=bias)
        close(loss, wanted.detach() if not grad else wanted, 1e-9)
        close(plain, F.cross_entropy(logits, targets, reduction="sum").detach(), 1e-9)
        if grad:
            found = torch.autograd.grad(loss / 7, (states, weight, bias))
            for x, y in zip(found, torch.autograd.grad(wanted / 7, (states, weight, bias)), strict=True):
                close(x, y, 1e-9)

    @pytest.mark.parametrize("n", SIZES)
    def test_without_gradients_it_is_the_same(self, n: int) -> None:
        states, weight, targets = self.inputs(n)
        wanted = linear_cross_entropy(states, weight, targets, 0.1)
        with torch.no_grad():
            found = linear_cross_entropy(states, weight, targets, 0.1)
        close(found[0], wanted[0].detach(), 1e-9)
        close(found[1], wanted[1], 1e-9)

    def test_a_matrix_tied_to_the_states_gets_both_gradients(self) -> None:
        """As with tied embeddings: the same matrix makes the states and the logits."""
        weight = torch.randn(13, 6, dtype=torch.float64, requires_grad=True)
        ids, targets = torch.randint(13, (300,)), torch.randint(13, (300,))
        linear_cross_entropy(weight[ids].tanh(), weight, targets, 0.1)[0].backward()
        found, weight.grad = weight.grad, None
        F.cross_entropy(weight[ids].tanh() @ weight.T, targets, label_smoothing=0.1, reduction="sum").backward()
        close(found, weight.grad, 1e-9)

    @pytest.mark.parametrize("grad", [True, False])
    def test_large_logits_stay_finite(self, grad: bool) -> None:
        states, weight, targets = self.inputs(300, torch.float32)
        with torch.set_grad_enabled(grad):
            loss, plain = linear_cross_entropy(states * 1000, weight, targets, 0.1)
        assert loss.isfinite() and plain.isfinite()

    def test_no_positions_cost_nothing(self) -> None:
        states, weight, targets = self.inputs(0)
        loss, plain = linear_cross_entropy(states, weight, targets, 0.1)
        loss.backward()
        assert loss == plain == 0 and (weight.grad == 0).all()
