"""Attention against PyTorch's own and against plain loops over its formulas."""

import math

import pytest
import torch
from conftest import close, scramble
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.layers import masks
from glassformer.layers.attention import Attention
from glassformer.layers.positions import Rotary
from glassformer.trace import recording

B, T, S, D, H = 3, 5, 7, 12, 3
LENGTHS = (7, 4, 1)  # real keys of each row of the batch
LOOKS = [False, True]  # through the fused kernel, or step by step


def made(**options) -> Attention:
    attention = Attention(D, H, **options)
    if attention.w is not None:
        nn.init.normal_(attention.w)
    scramble(attention)
    return attention


def run(attention: Attention, *args, look: bool, **kwargs) -> tuple[Tensor, dict[str, Tensor]]:
    if not look:
        return attention(*args, **kwargs)[0], {}
    with recording(attention) as tensors:
        return attention(*args, **kwargs)[0], tensors


def torch_attention(ours: Attention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(D, H, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
        theirs.out_proj.weight.copy_(ours.o.weight)
        theirs.out_proj.bias.copy_(ours.o.bias)
    return theirs


def key_padding(size: int) -> Tensor:
    """True where a key is real (B, S)."""
    return torch.arange(size) < torch.tensor(LENGTHS).unsqueeze(1)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("padded", [False, True])
def test_cross_attention_is_pytorchs(padded: bool, look: bool) -> None:
    ours = made()
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    real = key_padding(S) if padded else torch.ones(B, S, dtype=torch.bool)
    wanted, weights = torch_attention(ours)(x, memory, memory, key_padding_mask=~real, average_attn_weights=False)
    found, tensors = run(ours, x, memory, mask=real[:, None, None, :] if padded else None, look=look)
    close(found, wanted)
    if look:
        close(tensors["pattern"], weights)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", ["none", "causal", "padding", "both"])
def test_self_attention_is_pytorchs(kind: str, look: bool) -> None:
    ours = made()
    x = torch.randn(B, S, D)
    causal = masks.causal(S) if kind in ("causal", "both") else None
    real = key_padding(S) if kind in ("padding", "both") else None
    mask = causal
    if real is not None:
        mask = real[:, None, None, :] if causal is None else causal & real[:, None, None, :]
    wanted, weights = torch_attention(ours)(
        x,
        x,
        x,
        key_padding_mask=None if real is None else ~real,
        attn_mask=None if causal is None else ~causal,
        average_attn_weights=False,
    )
    found, tensors = run(ours, x, mask=mask, look=look)
    close(found, wanted)
    if look:
        close(tensors["pattern"], weights)


def test_gradients_are_pytorchs() -> None:
    ours = made()
    theirs = torch_attention(ours)
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    ours(x, memory)[0].square().sum().backward()
    theirs(x, memory, memory)[0].square().sum().backward()
    wanted = theirs.in_proj_weight.grad.chunk(3)
    for projection, grad in zip((ours.q, ours.k, ours.v), wanted, strict=True):
        close(projection.weight.grad, grad, 1e-4)


def by_loop(attention: Attention, x: Tensor, memory: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(score(q, k)) v for every query, key and number, one at a time."""
    d_k, d_v = attention.d_k, attention.d_v
    q, k, v = attention.q(x).tolist(), attention.k(memory).tolist(), attention.v(memory).tolist()
    rows, keys = range(x.size(1)), range(memory.size(1))
    z = torch.zeros(B, x.size(1), H * d_v)
    weights = torch.zeros(B, H, x.size(1), memory.size(1))
    for b in range(B):
        for h in range(H):
            for t in rows:
                scores = {}
                for s in (s for s in keys if real[b, s]):
                    pairs = [(q[b][t][h * d_k + i], k[b][s][h * d_k + i]) for i in range(d_k)]
                    if attention.w is None:
                        scores[s] = sum(a * c for a, c in pairs) / math.sqrt(d_k)
                    else:
                        w = attention.w[h, 0, 0].tolist()
                        scores[s] = sum(w[i] * math.tanh(a + c) for i, (a, c) in enumerate(pairs))
                total = sum(math.exp(score) for score in scores.values())
                for s, score in scores.items():
                    weights[b, h, t, s] = math.exp(score) / total
                    for i in range(d_v):
                        z[b, t, h * d_v + i] += weights[b, h, t, s] * v[b][s][h * d_v + i]
    return attention.o(z), weights


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("scores", ["dot", "additive"])
@pytest.mark.parametrize(("d_k", "d_v"), [(0, 0), (6, 2), (2, 7)])
@torch.no_grad()
def test_scores_and_widths_by_the_formula(d_k: int, d_v: int, scores: str, look: bool) -> None:
    attention = made(d_k=d_k, d_v=d_v, scores=scores)
    x, memory, real = torch.randn(B, T, D), torch.randn(B, S, D), key_padding(S)
    wanted, weights = by_loop(attention, x, memory, real)
    found, tensors = run(attention, x, memory, mask=real[:, None, None, :], look=look)
    close(found, wanted)
    if look:
        pattern = tensors["pattern"]
        close(pattern, weights)
        assert (pattern.masked_fill(real[:, None, None, :], 0.0) == 0).all()  # padding gets nothing, not merely little
        close(pattern.sum(-1), torch.ones(B, H, T))


@pytest.mark.parametrize("options", [{}, {"d_k": 6, "d_v": 2}, {"scores": "additive"}, {"rotary": Rotary(20, 4)}])
@torch.no_grad()
def test_keys_and_values_kept_between_steps_give_the_same(options: dict) -> None:
    attention = made(**options)
    x = torch.randn(B, T, D)
    whole, _ = attention(x, mask=masks.causal(T))
    state = None
    for t in range(T):
        out, state = attention(x[:, t : t + 1], state=state)
        close(out, whole[:, t : t + 1])
    assert state.length == T


def test_reordered_keys_and_values_follow_the_index() -> None:
    _, known = made()(torch.randn(B, T, D))
    moved = known.reorder(torch.tensor([2, 0, 0, 1]))
    assert moved.k.equal(known.k[[2, 0, 0, 1]]) and moved.v.equal(known.v[[2, 0, 0, 1]])


@settings(max_examples=40)
@given(a=st.integers(0, 200), b=st.integers(0, 200), shift=st.integers(0, 300), half=st.integers(1, 16))
def test_rotated_products_depend_on_the_distance_alone(a: int, b: int, shift: int, half: int) -> None:
    rotary = Rotary(512, 2 * half)
    q, k = torch.randn(2, 1, 1, 1, 2 * half).unbind(0)
    here = (rotary(q, a) * rotary(k, b)).sum()
    there = (rotary(q, a + shift) * rotary(k, b + shift)).sum()
    close(here, there, 1e-4)
    close(rotary(q, a).norm(), q.norm())  # a turn keeps lengths


def test_rotation_by_the_formula() -> None:
    d_k, start = 6, 3
    x = torch.randn(2, H, T, d_k)
    found = Rotary(20, d_k)(x, start)
    for t in range(T):
        for i in range(d_k // 2):
            angle = (start + t) / 10_000 ** (2 * i / d_k)
            a, b = x[:, :, t, i], x[:, :, t, i + d_k // 2]
            close(found[:, :, t, i], a * math.cos(angle) - b * math.sin(angle))
            close(found[:, :, t, i + d_k // 2], a * math.sin(angle) + b * math.cos(angle))


def test_masks_say_who_may_look() -> None:
    ids = torch.tensor([[5, 6, 0], [7, 0, 0]])
    assert masks.padding(ids, 0).tolist() == [[[[True, True, False]]], [[[True, False, False]]]]
    assert masks.padding(ids[:, :1], 0) is None  # all may look
    assert masks.causal(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
