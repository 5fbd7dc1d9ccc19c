"""Traces of every task: what they say of tokens and answers, how they are kept, what edits do to them; searches as trees."""

import json
import math
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import small_tasks
import torch
from conftest import close
from safetensors.torch import load_file, save_file
from small_tasks import TEXTS
from test_decoding import Oracle, limits_for, same

import glassformer as gf
from glassformer import answers
from glassformer.decoding import search, tree
from glassformer.edits import ForceToken, HeadOff, NoMask, NoScale, apply
from glassformer.errors import UserError
from glassformer.layers.attention import Attention
from glassformer.options import DecodingOptions
from glassformer.tasks import tokens
from glassformer.tasks.language import Language
from glassformer.tasks.translate import Translate
from glassformer.trace import Token, TooLarge, Trace, at_most

every_task = pytest.mark.parametrize("name", small_tasks.DATA)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    return {name: gf.load(small_tasks.make(folder / name, name)) for name in small_tasks.DATA}


def look(made: dict[str, Any], name: str) -> tuple[Any, Trace]:
    return made[name], made[name].trace(*TEXTS[name])


def attentions(task: Any) -> list[str]:
    return [path for path, module in task.model.named_modules() if isinstance(module, Attention)]


# What is read


@every_task
def test_tokens_cover_their_characters(made: dict[str, Any], name: str) -> None:
    _, trace = look(made, name)
    text = TEXTS[name][0]
    read = trace.source_tokens or trace.target_tokens
    end = next((i for i, token in enumerate(read) if token.text == "<eos>"), len(read))
    covered = [token for token in read[:end] if token.start is not None]
    assert all(token.text == text[token.start : token.end].lstrip(" ") for token in covered if token.text.strip())
    assert {i for token in covered for i in range(token.start, token.end)} >= {i for i, c in enumerate(text) if c != " "}
    assert all(token.special == (token.start is None or token.text == "[MASK]") for token in read)


def test_what_is_written_covers_its_own_text(made: dict[str, Any]) -> None:
    task, trace = look(made, "translate")
    text = task.translate(*TEXTS["translate"]).text
    assert "".join(text[t.start : t.end] for t in trace.target_tokens[1:]) == text  # pieces of one character would repeat it
    task = made["language"]
    trace = task.trace("the cat", max_tokens=5)
    more = trace.target_tokens[4:]
    whole = "the cat" + task.tokenizer.decode([token.id for token in more])
    assert len(more) == 5 and more[0].start == 7 and more[-1].end == len(whole)


def test_spans_count_as_decoding_does(made: dict[str, Any]) -> None:
    """Also of bytes that make no character, and of characters in several pieces."""
    tokenizer = made["translate"].target
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        ids = torch.randint(0, tokenizer.size, (6,), generator=draw).tolist()
        text = tokenizer.decode(ids)
        spans = [span for span in tokens.spans(tokenizer, ids) if span]
        assert [span[0] for span in spans] == sorted(span[0] for span in spans)
        assert (spans[0][0], spans[-1][1]) == (0, len(text)) if spans else not text
        assert all(b[0] in (a[1], a[1] - 1) for a, b in pairwise(spans))


@every_task
@torch.inference_mode()
def test_traced_answers_are_untraced_ones(made: dict[str, Any], name: str) -> None:
    task, trace = look(made, name)
    answer = answers.answer(task, trace)
    if name == "translate":
        found = task.translate(*TEXTS[name])
        assert answer["text"] == found.text and answer["ids"] == found.ids
        steps = answers.output(trace).log_softmax(-1).gather(1, torch.tensor([[*found.ids, task.target.eos]]).T).squeeze(1)
        close(steps, torch.tensor(found.log_probs))
    elif name == "language":
        plain = task.model.logits(task.model(torch.tensor([task.prompt_ids(*TEXTS[name])])))
        close(trace["logits"], plain[0])
        greedy = task.trace(*TEXTS[name], max_tokens=1)
        assert greedy.target_tokens[-1].id == answer["next"][0]["id"] == int(plain[0, -1].argmax())
    elif name == "fill":
        found = task.fill(*TEXTS[name])
        assert answer["text"] == found.text
        for ours, theirs in zip(answer["candidates"], found.gaps, strict=True):
            assert [each["id"] for each in ours] == [each.id for each in theirs]
            assert [each["p"] for each in ours] == pytest.approx([each.probability for each in theirs], abs=1e-5)
    elif name == "tag":
        assert [tuple(word.values()) for word in answer["words"]] == [
            (word.text, word.label, pytest.approx(word.probability, abs=1e-5), word.start, word.end)
            for word in task.tag_all(TEXTS[name])[0].words
        ]
    elif name == "score":
        assert answer["score"] == pytest.approx(task.score_all([TEXTS[name]])[0], abs=1e-5)
    else:
        found = task.classify_all([TEXTS[name]])[0]
        assert answer["label"] == found.label and list(answer["labels"]) == list(found.probabilities)
        assert answer["labels"] == pytest.approx(found.probabilities, abs=1e-5)


@every_task
def test_log_probs_are_of_what_was_read(made: dict[str, Any], name: str) -> None:
    task, trace = look(made, name)
    found = answers.log_probs(task, trace)
    assert len(found) == len(trace.target_tokens)
    for i, token in enumerate(trace.target_tokens[1:], start=1):
        assert found[i] == pytest.approx(trace["logits"][i - 1].log_softmax(-1)[token.id].item())


def test_a_target_outside_the_vocabulary(made: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="the id 99999; this vocabulary has 0 to"):
        made["translate"].trace("好", target=[5, 99999])


def test_two_texts_or_one(made: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="reads two texts; found 1"):
        made["compare"].trace("one")
    with pytest.raises(UserError, match="reads one text; found 2"):
        made["classify"].trace("one", "two")


# Kept and printed


@every_task
def test_saved_and_loaded(made: dict[str, Any], name: str, tmp_path: Path) -> None:
    _, trace = look(made, name)
    trace.save(tmp_path / "trace")
    again = Trace.load(tmp_path / "trace")
    assert list(again) == list(trace) and all(again[path].equal(x) for path, x in trace.items())
    assert again.source_tokens == trace.source_tokens and again.target_tokens == trace.target_tokens
    assert again.types == trace.types and again.about == trace.about and again.edited == trace.edited
    assert sorted(path.name for path in (tmp_path / "trace").iterdir()) == ["tensors.safetensors", "trace.json"]


def _change(folder: Path, **changes: Any) -> None:
    words = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps(words | changes))


def _tensors(folder: Path, **changes: Any) -> None:
    found = load_file(folder / "tensors.safetensors")
    save_file({name: x for name, x in (found | changes).items() if x is not None}, folder / "tensors.safetensors")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "trace.json").unlink(), "no saved trace"),
        (lambda f: (f / "trace.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "trace.json").write_text("[]"), "does not describe a trace"),
        (lambda f: _change(f, format="other"), "format is not"),
        (lambda f: _change(f, types=["a"]), "types is not a list of ints"),
        (lambda f: _change(f, source=[{"text": "a"}]), "source is not a list of Tokens"),
        (lambda f: _change(f, target=[asdict(Token("a", 1, 3, 2))]), "target is not a list of Tokens"),
        (lambda f: _change(f, about=[]), "about is not an object"),
        (lambda f: _change(f, source=[]), "0 tokens"),
        (lambda f: (f / "tensors.safetensors").write_bytes(b"x"), "not a whole safetensors file"),
        (lambda f: _tensors(f, logits=None), "missing: logits"),
        (lambda f: _tensors(f, nonsense=torch.ones(1)), "unexpected: nonsense"),
        (lambda f: _tensors(f, logits=torch.ones(3, 3)), "shape of logits"),
        (lambda f: _tensors(f, logits=torch.ones(3).long()), "logits is torch.int64"),
        (lambda f: _tensors(f, logits=load_file(f / "tensors.safetensors")["logits"] * math.nan), "not all numbers: logits"),
    ],
)
def test_a_saved_trace_is_checked(made: dict[str, Any], tmp_path: Path, spoil: Any, message: str) -> None:
    look(made, "translate")[1].save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(UserError, match=message):
        Trace.load(tmp_path)


def test_tables(made: dict[str, Any]) -> None:
    _, trace = look(made, "translate")
    one = trace.table("decoder.0.self.masked", head=2, rows=3, columns=2)
    title, head, names, first, *_, last = one.split("\n")
    assert (
        title.startswith("decoder.0.self.masked  masked scores")
        and head == "head 2"
        and names.split() == ["<bos>", names.split()[1]]
    )
    assert first.split() == ["<bos>", f"{trace['decoder.0.self.masked'][2, 0, 0].item():.4f}", "−∞"]
    assert last == f"… {len(trace.target) - 3} more rows and {len(trace.target) - 2} more columns"
    assert repr(one) == str(one)
    whole = trace.table("encoder.0.self.pattern", rows=100, columns=100)
    assert whole.count("head ") == 4 and "more" not in whole
    assert "草" in trace.table("encoder.embed.sum") and "草" not in trace.table("decoder.embed.sum")
    assert "joy" not in look(made, "classify")[1].table("head.pooled")
    with pytest.raises(UserError, match="heads 0 to 3; there is no head 4"):
        trace.table("encoder.0.self.q", head=4)
    with pytest.raises(UserError, match="has no heads"):
        trace.table("encoder.0.ffn.act", head=0)


def test_a_trace_may_be_too_large(made: dict[str, Any]) -> None:
    task, trace = look(made, "translate")
    with at_most(trace.nbytes // 2), pytest.raises(TooLarge, match="Shorten the text"):
        task.trace(*TEXTS["translate"])
    with at_most(trace.nbytes):
        assert len(task.trace(*TEXTS["translate"])) == len(trace)


# Edits


@every_task
def test_no_edit_changes_nothing(made: dict[str, Any], name: str) -> None:
    task, trace = look(made, name)
    edited = apply(task, trace, [])
    assert edited.same and all(change.before == change.after for change in edited.changes)
    assert all(edited.trace[path].equal(x) for path, x in trace.items())
    assert len(edited.changes) == {"translate": len(trace.target), "language": len(trace.target), "fill": 2, "tag": 7}.get(
        name, 1
    )


@every_task
def test_edits_that_change_nothing_change_nothing(made: dict[str, Any], name: str) -> None:
    """A mask lifted where there is none, a token forced that is there, a head switched off that adds nothing anyway."""
    task, trace = look(made, name)
    path = attentions(task)[-1]  # of a decoder the cross-attention, which has no mask
    read = trace.target_tokens or trace.source_tokens
    edits: list[Any] = [ForceToken(i, token.id) for i, token in enumerate(read)]
    edits += [NoMask(path) for path in attentions(task) if not path.startswith("decoder") or path.endswith("cross")]
    assert apply(task, trace, edits).same
    weight = task.model.get_submodule(path).o.weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[:, :4] = 0  # all that reads head 0, which is 4 wide
        trace = task.trace(*TEXTS[name])
        assert apply(task, trace, [HeadOff(path, 0)]).same
        assert not apply(task, trace, [HeadOff(path, 1)]).same
    finally:
        with torch.no_grad():
            weight.copy_(kept)


@every_task
def test_edits_do_what_they_say(made: dict[str, Any], name: str) -> None:
    task, trace = look(made, name)
    path = attentions(task)[0]
    off = apply(task, trace, [HeadOff(path, 1), HeadOff(path, 3)])
    assert not off.trace[f"{path}.z"][[1, 3]].any()
    assert off.trace[f"{path}.z"][[0, 2]].equal(trace[f"{path}.z"][[0, 2]])
    assert off.trace[f"{path}.pattern"].equal(trace[f"{path}.pattern"])
    unscaled = apply(task, trace, [NoScale(path)])
    assert unscaled.trace[f"{path}.scaled"].equal(trace[f"{path}.scores"])
    for edited in (off, unscaled):
        assert not edited.same and any(change.before != change.after for change in edited.changes)
        for old, new, change in zip(
            answers.predictions(task, trace), answers.predictions(task, edited.trace), edited.changes, strict=True
        ):
            if name != "score":
                assert sum(each["p"] for each in change.top_before) <= 1 + 1e-6
                assert change.before in old.probabilities.tolist() and change.after in new.probabilities.tolist()
    together = apply(task, trace, [NoMask(path), NoScale(path)])
    assert together.trace[f"{path}.masked"].equal(trace[f"{path}.scores"])


def test_without_a_mask_the_future_is_seen(made: dict[str, Any]) -> None:
    task, trace = look(made, "language")
    edited = apply(task, trace, [NoMask(path) for path in attentions(task)])
    assert (edited.trace["decoder.0.self.pattern"] > 0).all() and not edited.same
    assert edited.changes[-1].before != edited.changes[-1].after


def test_a_forced_token_changes_what_comes_after_it(made: dict[str, Any]) -> None:
    task = made["translate"]
    trace = task.trace("I like the cat.", "zh", target=[40, 41, 42])
    edited = apply(task, trace, [ForceToken(2, 50)])
    assert [token.id for token in edited.trace.target_tokens] == [task.target.bos, 40, 50, 42]
    first, second, third, end = edited.changes
    assert (first.before, second.before) == (first.after, second.after)  # of the forced token itself, which is asked about
    assert second.token == answers.piece(task.target, 50) and second.position == 2
    assert third.before != third.after and end.token == "<eos>" and end.position == 4
    text = answers.answer(task, edited.trace)["text"]
    assert [token.end for token in edited.trace.target_tokens[1:]] == [
        span[1] for span in tokens.spans(task.target, [40, 50, 42])
    ]
    assert edited.trace.target_tokens[-1].end == len(text)


def test_a_forced_token_of_a_text(made: dict[str, Any]) -> None:
    task, trace = look(made, "fill")
    gap = next(i for i, token in enumerate(trace.source_tokens) if token.text == "[MASK]")
    edited = apply(task, trace, [ForceToken(gap, 40)])
    assert len(edited.changes) == 1  # the other gap
    assert edited.trace.source_tokens[gap].start == trace.source_tokens[gap].start


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (HeadOff("encoder.0.self", 4), "heads 0 to 3; there is no head 4"),
        (HeadOff("encoder.0", 0), "no attention 'encoder.0'. There are: encoder.0.self"),
        (NoMask("encoder.0.ffn"), "no attention 'encoder.0.ffn'"),
        (NoScale(""), "no attention ''"),
        (ForceToken(99, 5), "99 is none of them"),
        (ForceToken(1, 99999), "99999 is none of them"),
        (ForceToken(1, 0), "Padding is not a token"),
    ],
)
def test_edits_that_cannot_be(made: dict[str, Any], edit: Any, message: str) -> None:
    task, trace = look(made, "translate")
    with pytest.raises(UserError, match=message):
        apply(task, trace, [edit])


# Searches as trees


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_watched_search_finds_the_same(width: int, penalty: float) -> None:
    for seed in range(12):
        model, limits = Oracle(6, seed), limits_for([0, 3, 5])
        plain = search.beam(model, model.start(range(3)), limits, width=width, length_penalty=penalty)
        with tree.watching() as trees:
            found = search.beam(model, model.start(range(3)), limits, width=width, length_penalty=penalty)
            if width == 1:
                greedy = search.greedy(model, model.start(range(3)), limits, length_penalty=penalty)
        assert found == plain
        if width == 1:
            same(greedy, search.greedy(model, model.start(range(3)), limits, length_penalty=penalty))
        for hypotheses, grown in zip(found, trees, strict=False):
            _check(grown, width)
            for hypothesis in hypotheses:
                path = grown.path(hypothesis.ids)
                nodes = [next(n for n in nodes if n.number == number) for nodes, number in zip(grown.rounds, path, strict=False)]
                assert [node.log_prob for node in nodes] == pytest.approx(hypothesis.log_probs)
                assert nodes[-1].score == pytest.approx(hypothesis.score) and nodes[-1].fate == "finished"
    assert not tree.watched()


def _check(grown: tree.Tree, width: int) -> None:
    """Totals add up along the branches, and no round keeps more than it may."""
    known = {0: 0.0}
    alive = {0}
    for number, nodes in enumerate(grown.rounds):
        assert 0 < len(nodes) <= 2 * width
        assert [node.rank for node in nodes] == list(range(1, len(nodes) + 1))
        assert all(a.total >= b.total for a, b in pairwise(nodes))
        for node in nodes:
            assert node.parent in alive and node.total == pytest.approx(known[node.parent] + node.log_prob, abs=1e-5)
            assert node.fate in ("kept", "pruned", "finished") and node.why
            known[node.number] = node.total
        alive = {node.number for node in nodes if node.fate == "kept"}
        assert len(alive) <= width and (alive or number == len(grown.rounds) - 1)
    assert not alive  # whatever had not ended has lost


def test_the_tree_of_a_translation(made: dict[str, Any]) -> None:
    task: Translate = made["translate"]
    options = DecodingOptions(beam=4, max_length=6, nbest=4)
    with tree.watching() as trees:
        answer = task.translate("I like the cat.", "zh", options)
    assert len(trees) == 1 and answer == task.translate("I like the cat.", "zh", options)
    assert [len(trees[0].path(each.ids)) for each in answer.nbest] == [len(each.ids) + 1 for each in answer.nbest]


def test_a_language_model_goes_on_only_while_there_is_room(made: dict[str, Any]) -> None:
    task: Language = made["language"]
    assert len(task.trace("the cat", max_tokens=200).target_tokens) <= task.window
    assert [token.text for token in task.trace("").target_tokens] == ["<bos>"]
