"""Recurrent layers and models against PyTorch's own and against loops over the formulas."""

import math
from typing import Any

import pytest
import torch
from conftest import (
    ANCESTORS,
    CELLS,
    LABELS,
    MLP_SIZES,
    READERS,
    RNN_SIZES,
    TRANSLATORS,
    VOCABULARY,
    WRITERS,
    close,
    every_ancestor,
    reader,
    rnn,
    rnn_language,
    sentences,
)
from test_trace import SOURCE, TARGET, Build, look, run
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glassformer.decoding import search
from glassformer.decoding.sampling import Sampling
from glassformer.decoding.state import Limits
from glassformer.errors import UserError
from glassformer.layers.recurrent import Attending, Bidirectional, Recurrent
from glassformer.models.mlp import MLP
from glassformer.models.textcnn import TextCNN
from glassformer.notation import describe
from glassformer.trace import Trace, recording

THEIRS = {"plain": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
LENGTHS = torch.tensor([5, 2, 4])
every_translator = pytest.mark.parametrize("changes", TRANSLATORS.values(), ids=TRANSLATORS)


def twins(cell: str, both: bool) -> tuple[Any, Any]:
    """Our layer and PyTorch's with the same random weights."""
    ours = Bidirectional(cell, 6, 8) if both else Recurrent(cell, 6, 4)
    theirs = THEIRS[cell](6, 4, batch_first=True, bidirectional=both)
    sides = [(ours.ahead, ""), (ours.back, "_reverse")] if both else [(ours, "")]
    with torch.no_grad():
        for side, suffix in sides:
            for weight, name in zip(side.weights, ("weight_ih", "weight_hh", "bias_ih", "bias_hh"), strict=True):
                weight.add_(torch.randn_like(weight) * 0.3)
                getattr(theirs, f"{name}_l0{suffix}").copy_(weight)
    return ours, theirs


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_cells_are_pytorchs(cell: str, both: bool, packed: bool, traced: bool) -> None:
    ours, theirs = twins(cell, both)
    x = torch.randn(3, 5, 6)
    wanted, last = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False) if packed else x)
    wanted = pad_packed_sequence(wanted, batch_first=True)[0] if packed else wanted
    real = torch.arange(5) < LENGTHS.unsqueeze(1) if packed else None
    if traced:
        with recording(ours):
            found, state = ours(x, real)
    else:
        found, state = ours(x, real)
    h, c = last if cell == "lstm" else (last, None)
    close(found, wanted)
    close(state.h, torch.cat(list(h), dim=-1))
    if c is not None:
        close(state.c, torch.cat(list(c), dim=-1))


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_a_state_to_begin_with_is_pytorchs(cell: str) -> None:
    ours, theirs = twins(cell, False)
    x = torch.randn(3, 5, 6)
    _, middle = ours(x[:, :2])
    given = (middle.h[None], middle.c[None]) if middle.c is not None else middle.h[None]
    wanted, _ = theirs(x[:, 2:], given)
    close(ours(x[:, 2:], state=middle)[0], wanted)
    with recording(ours) as tensors:
        close(ours(x[:, 2:], state=middle)[0], wanted)
    assert tensors["start_h"].equal(middle.h)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_are_pytorchs(cell: str, both: bool) -> None:
    ours, theirs = twins(cell, both)
    x = torch.randn(3, 5, 6)
    real = torch.arange(5) < LENGTHS.unsqueeze(1)
    ours(x, real)[0].sum().backward()
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    pad_packed_sequence(theirs(packed)[0], batch_first=True)[0].sum().backward()
    for side, suffix in [(ours.ahead, ""), (ours.back, "_reverse")] if both else [(ours, "")]:
        close(side.w_x.grad, getattr(theirs, f"weight_ih_l0{suffix}").grad, 1e-4)
        close(side.w_h.grad, getattr(theirs, f"weight_hh_l0{suffix}").grad, 1e-4)


@torch.no_grad()
def test_additive_attention_is_the_formula() -> None:
    """s = wᵀ tanh(W_q q + W_k k), a loop over every query and key; no weight beyond the text."""
    model = rnn(layers=1, attention="additive", key_width=5, bidirectional=True)
    source, target = sentences(6, 3), sentences(4, 4, seed=1)
    with recording(model) as x:
        model(source, target)
    layer = model.decoder.get_submodule("0")
    assert isinstance(layer, Attending)
    cross, hidden, memory = layer.cross, x["decoder.0.hidden"], x["encoder.0.joined"]
    assert cross.w is not None
    w = cross.w.flatten()
    for row, length in enumerate((6, 3)):
        for t in range(4):
            query = cross.q(hidden[row, t])
            scores = torch.stack([w @ torch.tanh(query + cross.k(memory[row, s])) for s in range(length)])
            weights = scores.exp() / scores.exp().sum()
            close(x["decoder.0.cross.scores"][row, 0, t, :length], scores)
            close(x["decoder.0.cross.pattern"][row, 0, t, :length], weights)
            context = sum((weights[s] * cross.v(memory[row, s]) for s in range(length)), start=torch.zeros(16))
            close(x["decoder.0.cross.z"][row, 0, t], context)
            close(x["decoder.0.combine.out"][row, t], torch.tanh(layer.combine.w(hidden[row, t]) + cross.o(context)))


@pytest.mark.parametrize("attention", ["dot", "additive"])
@torch.no_grad()
def test_weights_sum_to_one_over_real_positions_only(attention: str) -> None:
    model = rnn(attention=attention, bidirectional=True)
    with recording(model) as x:
        model(sentences(7, 2, 5), sentences(3, 3, 3, seed=1))
    pattern = x["decoder.1.cross.pattern"][:, 0]
    close(pattern.sum(-1), torch.ones(3, 3))
    for row, length in enumerate((7, 2, 5)):
        assert bool((pattern[row, :, :length] > 0).all()) and not bool(pattern[row, :, length:].any())


@every_ancestor
@torch.no_grad()
def test_traced_is_untraced(build: Build) -> None:
    model = build()
    lengths = {"sources": (7, 4, 1), "targets": (5, 5, 2)}
    plain = run(model, **lengths)
    with recording(model) as tensors:
        close(run(model, **lengths), plain)
    close(list(tensors.values())[-1], plain)


@every_ancestor
@torch.no_grad()
def test_padding_changes_nothing(build: Build) -> None:
    model = build()
    if isinstance(model, WRITERS):
        return close(model(sentences(5, 3))[1, :3], model(sentences(5, 3)[1:, :3])[0])
    source, target = sentences(7, 3), sentences(4, 4, seed=1)
    if isinstance(model, READERS):
        whole = model(source)
        alone = model(source[1:, :3])
        return close(_answers(model, whole, source != 0)[1], _answers(model, alone, source[1:, :3] != 0)[0])
    return close(model(source, target)[1], model(source[1:, :3], target[1:])[0])


def _answers(model: Any, states: Tensor, real: Tensor) -> Tensor:
    found = model.logits(states, real)
    return found[:, :3] if found.dim() == 3 else found


@every_ancestor
def test_every_tensor_has_a_row_and_its_shape(build: Build) -> None:
    model = build()
    o = model.options
    _, tensors = look(model)
    for path, x in Trace(tensors, source=[], target=[]).items():
        reads = path.startswith("encoder") or isinstance(model, READERS)
        t = SOURCE if reads else TARGET
        halved = ".ahead." in path or ".back." in path
        letters = {
            **{"T": t, "S": SOURCE if ".cross." in path else t, "1": 1, "H": 1, "K": 1, "D": o.width},
            **{"V": LABELS if isinstance(model, READERS) else VOCABULARY},
            "U": o.width // 2 if halved else o.width,
            "d_k": getattr(o, "key_width", 0) or o.width,
            "d_v": o.width,
            "F": o.inner if isinstance(model, MLP) else getattr(o, "filters", 0),
            "N": model.encoder.size if isinstance(model, MLP) else 0,
        }
        if isinstance(model, TextCNN) and path.startswith("head."):
            letters["D"] = o.filters * len(o.sizes)
        if path == "ffn.out":
            letters["D"] = LABELS
        axes = describe(path).shape.split()
        axes = axes[len(axes) - x.dim() :]  # one answer for the whole text has no T
        assert x.shape == tuple(letters[letter] for letter in axes), path


@pytest.mark.parametrize("name", ["rnn, lstm, additive, both ways", "rnn, gru, dot", "rnn, plain, none", "textcnn", "rnn, tags"])
def test_every_tensor_can_be_edited(name: str) -> None:
    """Of a state that is made step by step too: what an edit gives is what the next step goes on with."""
    model = ANCESTORS[name]()
    plain, tensors = look(model)
    same, again = look(model, {path: torch.clone for path in tensors})
    assert same.equal(plain) and all(again[path].equal(x) for path, x in tensors.items())
    for path in tensors:
        bump = torch.linspace(0.5, 1.5, tensors[path].numel()).view_as(tensors[path])
        edited, _ = look(model, {path: lambda x, bump=bump: x * bump})
        assert not torch.allclose(edited, plain), path


def test_an_edited_step_is_carried_on() -> None:
    """With the forget gate shut at the third token, nothing before it is left in the cell state."""
    model = rnn(cell="lstm", layers=1)

    def shut(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, 2] = 0.0
        return x

    _, x = look(model, {"encoder.0.gate_f": shut})
    close(x["encoder.0.cell"][:, 2], x["encoder.0.gate_i"][:, 2] * x["encoder.0.candidate"][:, 2])
    again = x["encoder.0.gate_f"][:, 3] * x["encoder.0.cell"][:, 2] + x["encoder.0.gate_i"][:, 3] * x["encoder.0.candidate"][:, 3]
    close(x["encoder.0.cell"][:, 3], again)

    def shut_in_place(x: Tensor) -> Tensor:
        x[:, 2] = 0.0
        return x

    _, y = look(model, {"encoder.0.gate_f": shut_in_place})
    assert all(y[name].equal(x[name]) for name in x)


@pytest.mark.parametrize("name", ["encoder.0.gate_f", "encoder.0.hidden", "decoder.0.start_h", "decoder.0.combine.out"])
@pytest.mark.parametrize(
    ("edit", "gave"),
    [
        (lambda x: x[:, :1], r"one of \[\d"),
        (lambda x: x[0], r"one of \[\d"),
        (lambda x: x.double(), "torch.float64"),
        (lambda x: None, "NoneType"),
        (lambda x: 0.0, "float"),
    ],
)
def test_an_edit_that_gives_another_shape_is_told(name: str, edit: Any, gave: str) -> None:
    with pytest.raises(
        UserError, match=rf"The edit of '{name}' must return a tensor like .* torch.float32; it returned .*{gave}"
    ):
        look(rnn(cell="lstm", layers=1, attention="dot"), {name: edit})


# -- decoding, by the code that the Transformer has


@every_translator
@torch.no_grad()
def test_steps_are_the_whole_pass(changes: dict[str, Any]) -> None:
    model = rnn(**changes)
    source, target = sentences(7, 3, 5), sentences(4, 4, 4, seed=1)
    wanted = model.logits(model(source, target))
    state = model.start(source)
    for t in range(4):
        logits, state = model.step(target[:, t], state)
        close(logits, wanted[:, t])
        turned = torch.tensor([2, 0, 1])
        state, target, wanted = state.reorder(turned), target[turned], wanted[turned]


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_steps_of_a_language_model_are_the_whole_pass(cell: str) -> None:
    model = rnn_language(cell=cell)
    ids = sentences(6, 6)
    wanted = model.logits(model(ids))
    state = model.start(ids[:, :2])
    for t in range(2, 6):
        logits, state = model.step(ids[:, t], state)
        close(logits, wanted[:, t])
    close(model.step(ids[:, 0], model.start(ids[:, :0]))[0], wanted[:, 0])


@every_translator
def test_greedy_beam_and_sampling(changes: dict[str, Any]) -> None:
    """The best of a beam of one is the greedy one; a beam never scores below it; a seed repeats; rows do not mix."""
    model = rnn(**changes)
    source = sentences(6, 3, 5)
    limits = Limits(1, 2, [6, 4, 5], banned=(0, 1))
    greedy = search.greedy(model, model.start(source), limits, length_penalty=0.0)
    for width in (1, 4):
        found = search.beam(model, model.start(source), limits, width=width, length_penalty=0.0)
        for one, best in zip(greedy, (each[0] for each in found), strict=True):
            assert best.ids == one.ids if width == 1 else best.score >= one.score - 1e-5
    for row, one in enumerate(greedy):
        length = int((source[row] != 0).sum())
        alone = search.greedy(
            model, model.start(source[row : row + 1, :length]), Limits(1, 2, [limits.max_lengths[row]], banned=(0, 1))
        )
        assert alone[0].ids == one.ids
    drawn = [
        [h.ids for h in search.sample(model, model.start(source), limits, seeds=[seed, seed, seed], sampling=Sampling())]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_log_probs_of_a_beam_are_the_whole_passs() -> None:
    model = rnn(attention="additive", bidirectional=True)
    source = sentences(6)
    best = search.beam(model, model.start(source), Limits(1, 2, [6], banned=(0, 1)), width=4)[0][0]
    with torch.no_grad():
        log_p = model.logits(model(source, torch.tensor([[1, *best.ids]])))[0].log_softmax(-1)
    wanted = log_p.gather(1, torch.tensor([*best.ids, 2]).unsqueeze(1)).squeeze(1)
    close(torch.tensor(best.log_probs), wanted, 1e-4)


# -- what the readers make of a text


@pytest.mark.parametrize("input", ["one-hot", "bag"])
@torch.no_grad()
def test_counts_are_counts(input: str) -> None:
    model = reader(MLP_SIZES.__class__(**{**vars(MLP_SIZES), "input": input}))
    found = model(torch.tensor([[4, 2, 4, 0, 0], [3, 3, 3, 5, 1]]))
    wanted = torch.zeros(2, VOCABULARY)
    for row, ids in enumerate(([4, 2, 4], [3, 3, 3, 5, 1])):
        for id in ids:
            wanted[row, id] = 1 if input == "one-hot" else wanted[row, id] + 1
    assert found.equal(wanted)


@torch.no_grad()
def test_ngrams_keep_some_order() -> None:
    model = reader(MLP_SIZES.__class__(**{**vars(MLP_SIZES), "input": "ngrams", "buckets": 4093}))
    one, other, once = (model(torch.tensor([ids])) for ids in ([4, 2, 3], [3, 2, 4], [4]))
    assert one.sum() == 6 and once.sum() == 1  # 3 single pieces, 2 pairs, 1 triple
    assert not one.equal(other)


def test_batch_norm_is_pytorchs() -> None:
    """Over real tokens: as if the padding were not there, while training and after it."""
    from glassformer.layers.convolution import BatchNorm

    ours, theirs = BatchNorm(6), nn.BatchNorm1d(6)
    x = torch.randn(3, 5, 6)
    real = torch.arange(5) < LENGTHS.unsqueeze(1)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        close(ours(x, real)[real], theirs(x[real]))
    assert not ours(x, real)[~real].any()
    close(ours.mean, theirs.running_mean)
    close(ours.variance, theirs.running_var)


@torch.no_grad()
def test_convolution_is_pytorchs() -> None:
    from glassformer.layers.convolution import Convolution

    ours, theirs = Convolution(8, 6, 3, activation="relu").eval(), nn.Conv1d(8, 6, 3, padding=1)
    theirs.weight.copy_(ours.w.weight.view(6, 3, 8).transpose(1, 2))
    theirs.bias.copy_(ours.w.bias)
    x = torch.randn(2, 5, 8)
    wanted = theirs(x.transpose(1, 2)).transpose(1, 2) / math.sqrt(1 + 1e-5)
    close(ours(x, torch.ones(2, 5, dtype=torch.bool)), wanted.relu())


def test_dropout_and_one_layer_train() -> None:
    """A gradient reaches every weight."""
    for name, build in ANCESTORS.items():
        model = build().train()
        run(model).square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters()), name
    assert RNN_SIZES.dropout == 0
