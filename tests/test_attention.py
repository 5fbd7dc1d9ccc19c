"""Attention against PyTorch's own and against plain loops over its formulas."""

import math

import numpy as np
import pytest
import torch
from conftest import close
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tasks import scramble
from torch import Tensor, nn

from glassformer.layers import masks
from glassformer.layers import trails as in_c
from glassformer.layers.attention import Attention, KeyValues
from glassformer.layers.cache import Cache, Sources
from glassformer.layers.positions import Rotary
from glassformer.layers.trails import Trails
from glassformer.layers.without_modules import blocks_of
from glassformer.trace import recording

B, T, S, D, H = 3, 5, 7, 12, 3
GROUPED = 6  # query heads, where 1, 2 or 3 heads of keys and values serve them
LENGTHS = (7, 4, 1)  # real keys of each row of the batch
LOOKS = [False, True]  # through the fused kernel, or step by step


def made(heads: int = H, **options) -> Attention:
    attention = Attention(D, heads, **options)
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


def repeated(grouped: Attention) -> Attention:
    """Attention with as many keys as queries that looks up the same: every head of keys and values as often as it is shared."""
    heads, group = grouped.heads, grouped.heads // grouped.kv_heads
    options = {"scores": "dot" if grouped.w is None else "additive", "bias": grouped.q.bias is not None}
    plain = made(heads, d_k=grouped.d_k, d_v=grouped.d_v, rotary=grouped.rotary, **options)
    plain.load_state_dict(
        grouped.state_dict()
        | {
            f"{name}.{kind}": x.unflatten(0, (grouped.kv_heads, -1)).repeat_interleave(group, dim=0).flatten(0, 1)
            for name in "kv"
            for kind, x in grouped.get_submodule(name).named_parameters()
        }
    )
    return plain


class TestSharedKeys:
    """Fewer heads of keys and values than of queries (Ainslie et al. 2023)."""

    shared = pytest.mark.parametrize("kv_heads", [1, 2, 3])
    looks = pytest.mark.parametrize("look", LOOKS)

    @looks
    @shared
    @pytest.mark.parametrize(
        "options", [{}, {"d_k": 4, "d_v": 3}, {"scores": "additive"}, {"bias": False}, {"rotary": Rotary(20, 2)}]
    )
    @pytest.mark.parametrize("kind", ["none", "causal", "padding", "both", "one row"])
    def test_is_attention_with_repeated_keys(self, kv_heads: int, options: dict, kind: str, look: bool) -> None:
        grouped = made(GROUPED, kv_heads=kv_heads, **options)
        plain = repeated(grouped)
        x = torch.randn(B, S, D)
        real = key_padding(S)[:, None, None, :]
        mask = {
            "none": None,
            "causal": masks.causal(S),
            "padding": real,
            "both": masks.causal(S) & real,
            "one row": masks.causal(S)[3:4],
        }[kind]
        wanted, _ = plain(x, mask=mask)
        found, tensors = run(grouped, x, mask=mask, look=look)
        close(found, wanted)
        if look:
            assert tensors["k"].shape == (B, kv_heads, S, grouped.d_k) and tensors["v"].shape == (B, kv_heads, S, grouped.d_v)
            assert tensors["pattern"].shape == (B, GROUPED, S, S)

    @looks
    @shared
    def test_across(self, kv_heads: int, look: bool) -> None:
        grouped = made(GROUPED, kv_heads=kv_heads)
        x, memory, mask = torch.randn(B, T, D), torch.randn(B, S, D), key_padding(S)[:, None, None, :]
        close(run(grouped, x, memory, mask=mask, look=look)[0], repeated(grouped)(x, memory, mask=mask)[0])

    @shared
    def test_gradients_too(self, kv_heads: int) -> None:
        """The gradient of a shared head is the sum over those it stands for."""
        grouped = made(GROUPED, kv_heads=kv_heads)
        plain = repeated(grouped)
        x, group = torch.randn(B, S, D), GROUPED // kv_heads
        for attention in (grouped, plain):
            attention(x, mask=masks.causal(S))[0].square().sum().backward()
        close(grouped.q.weight.grad, plain.q.weight.grad, 1e-4)
        for name in "kv":
            wanted = plain.get_submodule(name).weight.grad.unflatten(0, (kv_heads, group, -1)).sum(1).flatten(0, 1)
            close(grouped.get_submodule(name).weight.grad, wanted, 1e-4)

    @shared
    @torch.no_grad()
    def test_fewer_are_kept_between_steps(self, kv_heads: int) -> None:
        attention = made(GROUPED, kv_heads=kv_heads, rotary=Rotary(20, 2))
        x = torch.randn(B, T, D)
        whole, _ = attention(x, mask=masks.causal(T))
        out, state = attention(x[:, :2], mask=masks.causal(2))
        close(out, whole[:, :2])
        for t in range(2, T):
            out, state = attention(x[:, t : t + 1], state=state)
            close(out, whole[:, t : t + 1])
        assert state.k.shape == (B, kv_heads, T, 2)

    def test_none_said_is_one_for_each(self) -> None:
        assert made().kv_heads == made(kv_heads=0).kv_heads == H


def some(length: int, seed: int) -> KeyValues:
    draw = torch.Generator().manual_seed(seed)
    return KeyValues(torch.randn(2, 3, length, 4, generator=draw), torch.randn(2, 3, length, 5, generator=draw))


def joined(parts: list[KeyValues]) -> KeyValues:
    return KeyValues(torch.cat([part.k for part in parts], dim=2), torch.cat([part.v for part in parts], dim=2))


def equal(one: KeyValues, other: KeyValues) -> bool:
    return one.k.equal(other.k) and one.v.equal(other.v)


class TestKeptKeys:
    """What anybody holds never changes, whoever goes on from it."""

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
    def test_lengthened_is_concatenated(self, mode) -> None:
        with mode():
            parts = [some(length, seed) for seed, length in enumerate([3, 1, 1, 40, 1, 2])]
            state = parts[0]
            for i, part in enumerate(parts[1:], start=2):
                state = state.extend(part)
                assert equal(state, joined(parts[:i])) and state.length == sum(each.length for each in parts[:i])

    def test_gradients_go_through_all_of_it(self) -> None:
        first, second = (KeyValues(x.k.requires_grad_(), x.v.requires_grad_()) for x in (some(2, 0), some(3, 1)))
        long = first.extend(second)
        (long.k.sum() + long.v.square().sum()).backward()
        assert first.k.grad.eq(1).all() and second.k.grad.eq(1).all()
        close(second.v.grad, 2 * second.v.detach())

    @torch.no_grad()
    def test_attention_goes_on_twice_from_one_state(self) -> None:
        attention = made()
        begun, one, other = (torch.randn(B, n, D) for n in (3, 2, 2))
        _, state = attention(begun, mask=masks.causal(3))
        for path in (one, other, one):
            whole, _ = attention(torch.cat((begun, path), dim=1), mask=masks.causal(5))
            going = state
            for t in range(2):
                out, going = attention(path[:, t : t + 1], state=going)
                close(out, whole[:, 3 + t : 4 + t])


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
    assert masks.causal(2, 3).tolist() == [
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]  # after 3 earlier ones


def beside(known: KeyValues) -> NDArray[np.float32]:
    """Keys beside values, as C has them."""
    found: NDArray[np.float32] = torch.cat((known.k, known.v), dim=-1).numpy()
    return found


def cached(length: int, trails: bool = False) -> Cache | Trails:
    """Of three blocks."""
    known = [some(length, 100 + i) for i in range(3)]
    return Trails.beginning(np.stack([beside(each) for each in known]), length, None) if trails else Cache.of(known, None)


def gone_on(cache: Cache | Trails, seed: int) -> Cache | Trails:
    """With a token more, which is written as blocks would, or as what was compiled."""
    more = cache.longer()
    if isinstance(more, Trails):
        for i, both in enumerate(more.room.both):
            both[: len(more.slots), :, more.length - 1] = beside(some(1, 3 * seed + i))[:, :, 0]
        return more
    for i, (slot, k, v) in enumerate(more.places()):
        new = some(1, 3 * seed + i)
        slot.copy_(torch.cat((new.k, new.v), dim=-1).squeeze(2))
        assert k[:, :, -1:].equal(new.k) and v[:, :, -1:].equal(new.v)
    return more


def one_by_one(cache: Cache | Trails) -> list[KeyValues]:
    d_k = some(1, 0).k.size(3)
    return [block.own for block in (blocks_of(cache, d_k) if isinstance(cache, Trails) else cache.blocks())]


both_kinds = pytest.mark.parametrize("trails", [False, True], ids=["cache", "trails"])


class TestCache:
    """All blocks in one tensor, written in place where that disturbs nobody; what anybody holds never changes."""

    @both_kinds
    @torch.inference_mode()
    def test_begins_with_what_there_was(self, trails: bool) -> None:
        for length in (0, 4):
            assert all(equal(one, some(length, 100 + i)) for i, one in enumerate(one_by_one(cached(length, trails))))

    @both_kinds
    @torch.inference_mode()
    def test_nothing_is_copied_while_there_is_room(self, trails: bool) -> None:
        cache = gone_on(cached(3, trails), 0)
        places = set()
        for seed in range(30):
            cache = gone_on(cache, seed)
            both = cache.room.both
            places.add(both.ctypes.data if isinstance(both, np.ndarray) else both.data_ptr())
        assert len(places) == 1 and cache.length == 34

    @both_kinds
    @settings(max_examples=60)
    @given(turns=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 3), st.booleans()), max_size=30), begun=st.integers(0, 40))
    @torch.inference_mode()
    def test_whoever_goes_on_from_wherever(self, turns: list[tuple[int, int, bool]], begun: int, trails: bool) -> None:
        """Each turn goes on from any earlier cache, perhaps with its rows in another order. All stay what they were."""
        index = torch.tensor([1, 1])
        caches, wanted = [cached(begun, trails)], [one_by_one(cached(begun))]
        for turn, (which, count, moved) in enumerate(turns):
            cache, right = caches[which % len(caches)], wanted[which % len(caches)]
            if moved:
                cache = cache.reorder(index.numpy()) if isinstance(cache, Trails) else cache.reorder(index, None)
                right = [each.reorder(index) for each in right]
            for n in range(count):
                seed = 10 * turn + n
                cache = gone_on(cache, seed)
                right = [joined([each, some(1, 3 * seed + i)]) for i, each in enumerate(right)]
            caches.append(cache)
            wanted.append(right)
        for cache, right in zip(caches, wanted, strict=True):
            assert all(equal(one, other) for one, other in zip(one_by_one(cache), right, strict=True))

    @torch.inference_mode()
    def test_sources_are_reordered_too(self) -> None:
        bias = torch.arange(2.0).view(2, 1, 1, 1)
        cache = Cache.of([some(2, 0)], Sources((some(4, 1),), bias))
        moved = cache.reorder(torch.tensor([1, 0]), torch.tensor([1]))
        assert moved.sources is not None and moved.sources.bias is not None
        assert equal(moved.sources.known[0], some(4, 1).reorder(torch.tensor([1]))) and moved.sources.bias.flatten().tolist() == [
            1.0
        ]
        assert equal(moved.blocks()[0].own, some(2, 0).reorder(torch.tensor([1, 0])))

    @torch.inference_mode()
    def test_trails_know_which_source_is_whose(self) -> None:
        sources = in_c.Sources([np.ascontiguousarray(beside(some(4, 1)).transpose(0, 2, 1, 3))], None)
        trails = Trails.beginning(beside(some(2, 0))[None], 2, sources)
        moved = trails.reorder(np.array([1, 1, 0]))
        assert moved.sources is trails.sources and moved.looked_at.tolist() == [1, 1, 0]
        (block,) = blocks_of(moved, some(4, 1).k.size(3))
        assert block.cross is not None
        assert equal(block.cross, some(4, 1).reorder(torch.tensor([1, 1, 0])))
        assert equal(block.own, some(2, 0).reorder(torch.tensor([1, 1, 0])))
