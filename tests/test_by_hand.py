"""Gradients written by hand are those that PyTorch finds by itself."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from glassformer.layers import blas, by_hand, products
from glassformer.layers.attention import Attention
from glassformer.layers.cross_entropy import linear_cross_entropy
from glassformer.layers.dropout import Dropout, drawing
from glassformer.layers.feedforward import FeedForward
from glassformer.layers.linear import Linear

B, T, S, D, H = 5, 7, 9, 24, 3
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()
PADDED = (torch.arange(S) < torch.tensor([9, 4, 1, 8, 9]).unsqueeze(1))[:, None, None, :]


@pytest.fixture(params=["by NumPy", "as PyTorch multiplies"], autouse=True)
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to multiply, on whatever processor."""
    if request.param == "by NumPy" and not blas.there():
        pytest.skip("this NumPy does not multiply with OpenBLAS")
    monkeypatch.setattr(products, "mkl_behind", lambda: request.param == "by NumPy")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


def used(monkeypatch: pytest.MonkeyPatch, name: str) -> list[bool]:
    """How often that function is called from here on."""
    calls: list[bool] = []
    real = getattr(by_hand, name)
    monkeypatch.setattr(by_hand, name, lambda *a, **k: (calls.append(True), real(*a, **k))[1])
    return calls


def both(module: nn.Module, run: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Answer and gradients by hand, and as PyTorch has them."""
    towards = [*inputs, *(p for p in module.parameters() if p.requires_grad)]
    found = []
    for hand in (True, False):
        if hand:
            with by_hand.switched_on():
                y = run()
        else:
            y = run()
        weighed = torch.linspace(-1, 1, y.numel()).view_as(y)
        found.append([y.detach(), *torch.autograd.grad((y * weighed).sum(), towards)])
    return found[0], found[1]


def same(hand: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(hand) == len(theirs)
    for a, b in zip(hand, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Linear(D, 40, bias), torch.randn(B, T, D, requires_grad=True)
    calls = used(monkeypatch, "linear")
    same(*both(layer, lambda: layer(x), (x,)))
    assert len(calls) == 1


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_a_feed_forward_network(activation: str) -> None:
    ffn, x = FeedForward(D, 50, activation=activation), torch.randn(B, T, D, requires_grad=True)
    same(*both(ffn, lambda: ffn(x), (x,)))


def test_what_dropout_leaves_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    dropout = Dropout(0.3)
    x, out = torch.randn(B, T, D, requires_grad=True), torch.randn(B, T, D, requires_grad=True)
    calls = used(monkeypatch, "add_kept")

    def run() -> Tensor:
        with drawing(3):
            return dropout.onto(x, out)

    hand, usual = both(dropout, run, (x, out))
    same(hand, usual)
    with drawing(3):
        torch.testing.assert_close(usual[0], x + dropout(out))
    assert len(calls) == 1 and 0.6 < (usual[0] != x).double().mean() < 0.8
    assert torch.equal(dropout.eval().onto(x, out), x + out)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", [None, CAUSAL], ids=["all", "causal"])
def test_attention_to_itself(mask: Tensor | None, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = Attention(D, H, bias=bias), torch.randn(B, T, D, requires_grad=True)
    calls = used(monkeypatch, "attend")
    same(*both(attention, lambda: attention(x, mask=mask)[0], (x,)))
    assert len(calls) == 1


def test_heads_of_another_width() -> None:
    attention, x = Attention(D, H, d_k=6, d_v=6), torch.randn(B, T, D, requires_grad=True)
    same(*both(attention, lambda: attention(x, mask=CAUSAL)[0], (x,)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", [None, PADDED], ids=["all", "padded"])
def test_attention_to_a_memory(mask: Tensor | None, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention(D, H, bias=bias)
    x, memory = torch.randn(B, T, D, requires_grad=True), torch.randn(B, S, D, requires_grad=True)
    calls = used(monkeypatch, "attend")
    same(*both(attention, lambda: attention(x, memory, mask=mask)[0], (x, memory)))
    assert len(calls) == 1


@pytest.mark.parametrize("options", [{"kv_heads": 1}, {"d_k": 5}, {"d_v": 4}, {"scores": "additive"}])
def test_attention_of_other_kinds_goes_the_usual_way(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    attention = Attention(D, H, **options)  # type: ignore[arg-type]
    if attention.w is not None:
        nn.init.normal_(attention.w)
    x = torch.randn(B, T, D, requires_grad=True)
    calls = used(monkeypatch, "attend")
    same(*both(attention, lambda: attention(x, mask=CAUSAL)[0], (x,)))
    assert not calls


def test_long_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = Attention(D, H), torch.randn(1, by_hand.SHORT + 1, D, requires_grad=True)
    calls = used(monkeypatch, "attend")
    same(*both(attention, lambda: attention(x)[0], (x,)))
    assert not calls


def test_keys_and_values_are_those_of_the_usual_way() -> None:
    attention, x = Attention(D, H), torch.randn(B, T, D)
    with by_hand.switched_on():
        _, found = attention(x)
    _, usual = attention(x)
    same([found.k, found.v], [usual.k, usual.v])


@pytest.mark.parametrize("frozen", ["q.weight", "k.bias", "v", "o", ""])
def test_what_is_frozen_has_no_gradient(frozen: str) -> None:
    attention, x = Attention(D, H), torch.randn(B, T, D, requires_grad=True)
    for name, parameter in attention.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen) if frozen else False)
    same(*both(attention, lambda: attention(x)[0], (x,)))


def test_double_precision_goes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Linear(D, 40).double(), torch.randn(B, D, dtype=torch.float64, requires_grad=True)
    calls = used(monkeypatch, "linear")
    same(*both(layer, lambda: layer(x), (x,)))
    assert not calls


def test_only_where_it_is_asked_for() -> None:
    x, seen = torch.zeros(1), []
    with by_hand.switched_on():
        other = threading.Thread(target=lambda: seen.append(by_hand.wanted(x)))
        other.start()
        other.join()
        assert by_hand.wanted(x)
    assert not by_hand.wanted(x)
    assert seen == [False]


def test_blocks_within_blocks() -> None:
    x = torch.zeros(1)
    with by_hand.switched_on():
        with by_hand.switched_on():
            pass
        assert by_hand.wanted(x)


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D)])
def test_nothing_at_all(shape: tuple[int, ...]) -> None:
    attention, x = Attention(D, H), torch.randn(shape, requires_grad=True)
    with by_hand.switched_on():
        z = attention(x)[0]
    gradients = torch.autograd.grad(z.sum(), [x, *attention.parameters()])
    assert gradients[0].shape == shape
    assert all((g == 0).all() for g in gradients)


def test_a_gradient_that_is_one_number_everywhere() -> None:
    made = torch.randn(B, T, 3 * D, requires_grad=True)
    found = torch.autograd.grad(by_hand.attend([made], None, H).sum(), made)[0]
    q, k, v = by_hand.heads_of([made], H)
    usual = torch.autograd.grad(nn.functional.scaled_dot_product_attention(q, k, v).sum(), made)[0]
    same([found], [usual])


def test_one_row_without_a_batch() -> None:
    layer, x = Linear(D, 40), torch.randn(D, requires_grad=True)
    same(*both(layer, lambda: layer(x), (x,)))


@pytest.mark.parametrize("x", [torch.randn(B, T, D), torch.randn(T, B, D).transpose(0, 1), torch.randn(1, 1, D).expand(B, T, D)])
def test_numbers_in_any_order_multiply_alike(x: Tensor) -> None:
    weight, y = torch.randn(30, D), torch.randn(30, B * T).t()
    torch.testing.assert_close(products.multiply(x, weight), x @ weight.t(), atol=1e-5, rtol=1e-5)
    found = products.sum_of_products(y, x.reshape(-1, D))
    torch.testing.assert_close(found, y.t() @ x.reshape(-1, D), atol=1e-4, rtol=1e-5)
    total = torch.ones_like(found)
    products.add_products(total, y, x.reshape(-1, D))
    torch.testing.assert_close(total, found + 1, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (1, 5, 1), (1, 5, 3), (4, 1, 3), (4, 5, 1), (0, 5, 3), (4, 0, 3), (4, 5, 0)])
def test_thin_matrices_and_none(m: int, k: int, n: int) -> None:
    for a in (torch.randn(m, k), torch.randn(k, m).t(), torch.randn(m, k + 2)[:, 1 : k + 1]):
        for b in (torch.randn(k, n), torch.randn(n, k).t(), torch.randn(k + 1, n)[1:]):
            torch.testing.assert_close(products.multiply(a, b.t(), torch.ones(n)), a @ b + 1)
            torch.testing.assert_close(products.sum_of_products(a.t(), b), a @ b)


def test_a_bias_stays_as_it_is() -> None:
    bias = torch.ones(3)
    products.multiply(torch.ones(1, 2), torch.ones(3, 2), bias)
    assert bias.tolist() == [1, 1, 1]


def test_a_product_that_would_leave_its_matrices_is_not_begun() -> None:
    a, to = torch.ones(4, 5), torch.ones(4, 3)
    for b in (torch.ones(4, 3), torch.ones(5, 2), torch.ones(5, 3, dtype=torch.float64)):
        with pytest.raises(AssertionError):
            blas.add_product(a, b, to)
    with pytest.raises(AssertionError):
        blas.add_product(a, torch.ones(5, 3), torch.ones(3, 4).t())


MEMORY = """
import os
from pathlib import Path
import torch
from glassformer.layers import by_hand, products
from glassformer.layers.cross_entropy import linear_cross_entropy
from glassformer.layers.linear import Linear

torch.set_num_threads(1)
products.mkl_behind = lambda: True
layer = Linear(128, 256)

def passes(counts):
    for rows in counts:
        with by_hand.switched_on():
            y = layer(torch.ones(rows, 128, requires_grad=True))
            linear_cross_entropy(y, layer.weight.t(), torch.zeros(rows, dtype=torch.long), 0.1)[0].backward()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

before = passes(range(600, 560, -1))
print(passes(range(560, 460, -1)) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("product", ["by NumPy"], indirect=True)
def test_new_numbers_of_rows_cost_no_memory() -> None:
    """Batches of a training hardly ever have the same number of rows. oneDNN makes a program for each and keeps it."""
    grown = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    assert float(grown) < 5


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_over_the_vocabulary(smoothing: float) -> None:
    n, vocabulary = 700, 300
    states, weight = torch.randn(n, D, requires_grad=True), torch.randn(vocabulary, D, requires_grad=True)
    targets = torch.randint(vocabulary, (n,))
    found, plain = linear_cross_entropy(states, weight, targets, smoothing)
    logits = states @ weight.t()
    usual = nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(found, usual, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(
        plain, nn.functional.cross_entropy(logits, targets, reduction="sum").detach(), rtol=1e-5, atol=1e-3
    )
    for a, b in zip(torch.autograd.grad(found, (states, weight)), torch.autograd.grad(usual, (states, weight)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_loss_of_what_is_as_good_as_impossible() -> None:
    """p of some labels is 0 in single precision, or loses digits; log p is not −∞."""
    states, weight = 10 * torch.randn(80, D), torch.randn(300, D)
    logits = states @ weight.t()
    targets = torch.cat((logits[:30].argmin(1), logits[30:60].argmax(1), torch.randint(300, (20,))))
    each = nn.functional.cross_entropy(logits.double(), targets, reduction="none")
    assert each.max() > 110 and ((each > 69) & (each < 104)).any() and each.min() < 1
    inputs = (states.requires_grad_(), weight.requires_grad_())
    loss, plain = linear_cross_entropy(*inputs, targets, 0.1)
    exact = states.double() @ weight.double().t()
    usual = nn.functional.cross_entropy(exact, targets, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(loss.double(), usual, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(plain.double(), nn.functional.cross_entropy(exact, targets, reduction="sum"), rtol=1e-5, atol=1e-3)
    for a, b in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(usual, inputs), strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-4)
