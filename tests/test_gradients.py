"""Parts of a batch, each on its own core, give the gradient of the whole."""

import random
from typing import Any

import pytest
import torch
from small_tasks import make

from glassformer.tasks import registry
from glassformer.tasks.batch import Rows
from glassformer.training import gradients
from glassformer.training.gradients import Gradients

TASKS = ("translate", "language", "fill", "classify", "tag", "compare", "score")


def batch_of(task: Any, name: str) -> Rows:
    rng = random.Random(1)
    ids = [[rng.randrange(8, 40) for _ in range(rng.randrange(3, 9))] for _ in range(7)]
    if name == "translate":
        return task.batch([(task.source_ids(a, task.languages[1]), a[::-1]) for a in ids])
    if name == "language":
        from glassformer.tasks.language import Batch

        window = torch.randint(8, 40, (7, 9))
        return Batch(window[:, :-1], window[:, 1:].flatten())
    rows = [task.around(each, each[:2] if name in ("compare", "score") else None) for each in ids]
    places = None
    if name in ("fill", "tag"):
        places = [[1, 2] for _ in ids]
    count = sum(map(len, places)) if places else len(ids)
    labels = [0.5] * count if name == "score" else [i % 2 for i in range(count)]
    return task.gather(rows, labels, places)


@pytest.mark.parametrize("name", TASKS)
def test_parts_add_up(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "SMALL", 0)
    task = registry.load(make(tmp_path / name, name))
    batch = batch_of(task, name)
    count = len(batch.labels)
    found = []
    for threads in (1, 2, 3, 9):
        task.model.zero_grad()
        one = Gradients(task, 0.1, threads)
        nll = one.add(batch, count)
        one.close()
        found.append((nll, [p.grad.clone() for p in task.model.parameters() if p.grad is not None]))
    for nll, grads in found[1:]:
        assert nll == pytest.approx(found[0][0], rel=1e-5)
        for a, b in zip(found[0][1], grads, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


LSTM = {"kind": "rnn", "cell": "lstm", "width": 16, "max_length": 48}


@pytest.mark.parametrize("name", ["translate", "language"])
def test_the_two_biases_of_an_lstm_have_gradients_of_their_own(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "SMALL", 0)
    task = registry.load(make(tmp_path / name, name, **LSTM))
    batch, found = batch_of(task, name), []
    for threads in (1, 2):
        task.model.zero_grad()
        one = Gradients(task, 0.1, threads)
        one.add(batch, 10)
        one.add(batch, 10)  # as with training.accumulate
        one.close()
        given = [p.grad for p in task.model.parameters() if p.grad is not None]
        assert len({g.data_ptr() for g in given}) == len(given)
        found.append([g.clone() for g in given])
    task.model.zero_grad()
    (2 * task.loss(batch, 0.1)[0] / 10).backward()
    found.append([p.grad for p in task.model.parameters() if p.grad is not None])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_batch_norm_has_the_whole_batch(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "SMALL", 0)
    task = registry.load(make(tmp_path / "t", "classify", kind="textcnn", width=16, filters=4, max_length=48))
    task.model.train()
    batch, found = batch_of(task, "classify"), []
    kept = {name: x.clone() for name, x in task.model.state_dict().items()}
    for threads in (1, 3):
        torch.manual_seed(5)  # of dropout
        task.model.load_state_dict(kept)
        task.model.zero_grad()
        one = Gradients(task, 0.0, threads)
        one.add(batch, 7)
        one.close()
        found.append([*(p.grad.clone() for p in task.model.parameters()), *(x.clone() for x in task.model.buffers())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_dropout_does_not_depend_on_who_is_faster(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "SMALL", 0)
    task: Any = registry.load(make(tmp_path / "t", "translate"))
    for module in task.model.modules():
        if hasattr(module, "dropped"):
            module.dropped = 64
    task.model.train()
    batch, runs = batch_of(task, "translate"), []
    for _ in range(3):
        torch.manual_seed(5)
        task.model.zero_grad()
        one = Gradients(task, 0.1, 2)
        one.add(batch, 10)
        one.close()
        runs.append([p.grad.clone() for p in task.model.parameters()])
    assert all(torch.equal(a, b) for other in runs[1:] for a, b in zip(runs[0], other, strict=True))
    torch.manual_seed(6)
    task.model.zero_grad()
    one = Gradients(task, 0.1, 2)
    one.add(batch, 10)
    one.close()
    assert not all(torch.equal(a, p.grad) for a, p in zip(runs[0], task.model.parameters(), strict=True))
