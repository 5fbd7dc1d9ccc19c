"""The command as a person or a pipe uses it. Standard output is for answers alone."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import Learned, glassformer, in_its_own_process, process, small

from glassformer import store
from glassformer.commands.common import answer_all
from glassformer.text import synthetic

# What a line of a file may hold that other programs take for the end of a line.
ODD = "c a t\n\n   \na\x0bb c\nd\u2028e\x85f\x1cg\nx\ry z\r\n\ufeffq\n\t\nz y x"

COMMANDS = [
    "train",
    "translate",
    "generate",
    "fill",
    "classify",
    "tag",
    "compare",
    "vectors",
    "evaluate",
    "models",
    "import",
    "export",
    "data",
]


@pytest.fixture
def model(learned: Learned) -> Path:
    return learned.run


def sentences(count: int) -> tuple[str, list[str]]:
    pairs = list(synthetic.pairs("reverse", count, 7))
    return "".join(source + "\n" for source, _ in pairs), [target for _, target in pairs]


class TestTranslate:
    def test_answers_alone_on_standard_output(self, model):
        result = glassformer("translate", "-m", model, "c a t", "d o g")
        assert (result.code, result.out, result.err) == (0, "t a c\ng o d\n", "")

    def test_one_line_for_each_line(self, model, tmp_path):
        """Empty lines stay empty lines; only a newline ends a line."""
        (tmp_path / "in.txt").write_bytes(ODD.encode())
        by_file = glassformer("translate", "-m", model, "--input", tmp_path / "in.txt")
        lines = by_file.out.split("\n")
        assert len(lines) == len(ODD.split("\n")) + 1 and lines[-1] == ""
        assert (lines[0], lines[1], lines[2], lines[7], lines[8]) == ("t a c", "", "", "", "x y z")
        assert all(lines[i] for i in (3, 4, 5, 6))
        assert len(by_file.out.splitlines()) == 9, "an answer holds what others take for the end of a line"
        for arguments in ((), ("-",), ("--input", "-")):
            assert glassformer("translate", "-m", model, *arguments, stdin=ODD).out == by_file.out

    def test_no_input_no_output(self, model, tmp_path):
        assert glassformer("translate", "-m", model, stdin="").out == ""
        result = glassformer("translate", "-m", model, "-o", tmp_path / "out.txt", stdin="")
        assert result.code == 0 and (tmp_path / "out.txt").read_text() == ""
        assert glassformer("translate", "-m", model, "").out == "\n"

    def test_a_byte_order_mark_is_no_text(self, model, tmp_path):
        (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbfc a t\r\nd o g\r\n")
        assert glassformer("translate", "-m", model, "-i", tmp_path / "in.txt").out == "t a c\ng o d\n"
        assert glassformer("translate", "-m", model, stdin=b"\xef\xbb\xbfc a t\r\nd o g\r\n").out == "t a c\ng o d\n"

    def test_more_lines_than_are_read_at_once(self, model):
        text, targets = sentences(600)
        answers = glassformer("translate", "-m", model, stdin=text).out.splitlines()
        assert len(answers) == 600
        assert sum(answer == target for answer, target in zip(answers, targets, strict=True)) >= 594

    def test_neighbours_change_nothing(self, model):
        text, _ = sentences(40)
        together = glassformer("translate", "-m", model, "--beam", 3, stdin=text).out.splitlines()
        assert [
            glassformer("translate", "-m", model, "--beam", 3, line).out.strip() for line in text.splitlines()[:5]
        ] == together[:5]

    def test_show_writes_to_standard_error_alone(self, model):
        plain, shown = (
            glassformer("translate", "-m", model, *more, stdin="c a t\n\n[red]b[/] \x1b[31m\n") for more in ((), ("--show",))
        )
        assert shown.out == plain.out
        assert "source  c | a | t | <eos>" in shown.err and "target  t | a | c | <eos>" in shown.err
        assert "[red]b[/]" in shown.err, "text is not markup"

    def test_json(self, model):
        result = glassformer("translate", "-m", model, "--json", "--nbest", 3, "--show", stdin="c a t\n\nz\u2028y\n")
        lines = result.out.split("\n")
        assert len(lines) == 4 and lines[-1] == ""
        cat, empty, odd = map(json.loads, lines[:-1])
        assert (cat["source"], cat["translation"], cat["to"]) == ("c a t", "t a c", "target")
        assert [token["text"] for token in cat["source_tokens"]] == ["c", "a", "t"]
        assert [(token["start"], token["end"]) for token in cat["source_tokens"]] == [(0, 1), (2, 3), (4, 5)]
        assert [token["text"] for token in cat["target_tokens"]] == ["t", "a", "c", "<eos>"]
        assert cat["score"] == pytest.approx(sum(token["log_prob"] for token in cat["target_tokens"]) / 4, abs=1e-5)
        assert len(cat["nbest"]) == 3 and cat["nbest"][0]["translation"] == "t a c"
        assert [each["score"] for each in cat["nbest"]] == sorted((each["score"] for each in cat["nbest"]), reverse=True)
        alignment = cat["alignment"]
        assert (alignment["rows"], alignment["columns"]) == (["t", "a", "c", "<eos>"], ["c", "a", "t", "<eos>"])
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in alignment["weights"])
        assert (empty["translation"], empty["alignment"], empty["source_tokens"]) == ("", None, [])
        assert odd["source"] == "z\u2028y"

    def test_nbest(self, model):
        lines = [
            line.split("\t") for line in glassformer("translate", "-m", model, "--nbest", 2, "c a t", "", "a").out.splitlines()
        ]
        assert [line[0] for line in lines] == ["1", "1", "2", "3", "3"]
        assert lines[0][2] == "t a c" and float(lines[0][1]) > float(lines[1][1])
        assert lines[2][2] == ""

    def test_a_seed_is_repeatable_and_another_differs(self, model):
        def drawn(seed: int, text: str) -> list[str]:
            return glassformer("translate", "-m", model, "--temperature", 3, "--seed", seed, stdin=text).out.splitlines()

        text, _ = sentences(20)
        assert drawn(1, text) == drawn(1, text) != drawn(2, text)
        assert drawn(1, text)[5:6] == drawn(1, text.splitlines()[5]), "a sentence draws the same alone"

    def test_drawing_from_one_token_is_greedy(self, model):
        text, _ = sentences(5)
        greedy = glassformer("translate", "-m", model, "--beam", 1, stdin=text).out
        for one in (("--top-k", 1), ("--temperature", 0), ("--top-p", 0)):
            assert glassformer("translate", "-m", model, *one, stdin=text).out == greedy, one

    def test_lengths(self, model):
        assert len(glassformer("translate", "-m", model, "--max-length", 2, "a b c d").out.split()) == 2
        assert len(glassformer("translate", "-m", model, "--min-length", 6, "a b c d").out.split()) >= 6


class TestOutput:
    def test_writes_a_file_and_nothing_else(self, model, tmp_path):
        result = glassformer("translate", "-m", model, "c a t", "-o", tmp_path / "out.txt")
        assert (result.out, (tmp_path / "out.txt").read_text()) == ("", "t a c\n")

    def test_an_existing_file_needs_force(self, model, tmp_path):
        path = tmp_path / "out.txt"
        path.write_text("precious")
        result = glassformer("translate", "-m", model, "c a t", "-o", path)
        assert result.code == 2 and "exists; --force replaces it" in result.err
        assert path.read_text() == "precious"
        assert glassformer("translate", "-m", model, "c a t", "-o", path, "--force").code == 0
        assert path.read_text() == "t a c\n"

    @pytest.mark.parametrize(
        "mistake",
        [("-m", "nowhere"), ("--input", "nowhere.txt"), ("--to", "klingon"), ("--nbest", "5", "--beam", "2"), ("x " * 200,)],
    )
    def test_a_mistake_costs_no_file_though_forced(self, model, tmp_path, mistake):
        """The old answers are there until there are new ones."""
        path = tmp_path / "out.txt"
        path.write_text("precious")
        text = () if "--input" in mistake or len(mistake) == 1 else ("c a t",)
        result = glassformer("translate", "-m", model, *text, "-o", path, "--force", *mistake)
        assert result.code == 2, result.err
        assert path.read_text() == "precious"

    def test_the_input_is_not_written_over(self, model, tmp_path):
        path = tmp_path / "in.txt"
        path.write_text("c a t\n")
        (tmp_path / "link.txt").symlink_to(path)
        for name in ("in.txt", "link.txt"):
            result = glassformer("translate", "-m", model, "-i", path, "-o", tmp_path / name, "--force")
            assert result.code == 2 and "is the input" in result.err
        assert path.read_text() == "c a t\n"

    def test_a_device_may_be_written_to(self, model):
        assert glassformer("translate", "-m", model, "c a t", "-o", os.devnull).code == 0
        assert glassformer("translate", "-m", model, "c a t", "-o", "-").out == "t a c\n"

    def test_a_full_disk(self, model):
        result = glassformer("translate", "-m", model, "c a t", "-o", "/dev/full")
        assert result.code == 2 and "No space left" in result.err and "Traceback" not in result.err

    @pytest.mark.parametrize("path", ["no/such/folder/out.txt", "."])
    def test_no_place_for_a_file(self, model, tmp_path, monkeypatch, path):
        monkeypatch.chdir(tmp_path)
        result = glassformer("translate", "-m", model, "c a t", "-o", path)
        assert result.code == 2 and "folder" in result.err and "Traceback" not in result.err


class TestProcesses:
    """What needs real pipes and real signals."""

    def test_a_reader_that_has_enough(self, model, tmp_path):
        """`glassformer translate … | head -1`"""
        (tmp_path / "in.txt").write_text(sentences(1000)[0])
        child = process("translate", "-m", model, "-i", tmp_path / "in.txt")
        assert child.stdout.readline() == sentences(1)[1][0] + "\n"
        child.stdout.close()
        assert child.stderr.read() == ""
        child.wait(timeout=60)

    def test_interrupted(self, model):
        heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 (tests in the background ignore it)
        child = process("translate", "-m", model, stdin=subprocess.PIPE, preexec_fn=heard)
        self.until_asleep(child.pid)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out) == (130, "")
        assert "Traceback" not in err

    def test_interrupted_with_some_answers_written(self, tmp_path, capsys):
        def solve(lines, done, advance):
            if done:
                raise KeyboardInterrupt
            return lines

        with pytest.raises(SystemExit) as stopped:
            answer_all(iter("abc"), 2, tmp_path / "out", "", solve, lambda out, answer, number: print(number, answer, file=out))
        assert stopped.value.code == 130 and (tmp_path / "out").read_text() == "1 a\n2 b\n"
        assert f"interrupted; 2 answers are in {tmp_path / 'out'}." in capsys.readouterr().err

    def until_asleep(self, pid: int) -> None:
        """Until the child has imported everything and waits for its standard input."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if "pipe_read" in Path(f"/proc/{pid}/wchan").read_text() or "read" in self.call(pid):
                return
            time.sleep(0.2)
        time.sleep(5)

    def call(self, pid: int) -> str:
        try:
            return "read" if Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ") else ""  # read(0, …) of x86-64
        except OSError:
            return ""

    def test_without_standard_input(self, model):
        close = {"stdin": None, "preexec_fn": lambda: os.close(0)}
        assert in_its_own_process("translate", "-m", model, "c a t", **close).out == "t a c\n"

    def test_two_trainings_at_once(self, model, tmp_path):
        """The lock is the system's: it is there while a training is, and gone when it was killed."""
        run = shutil.copytree(model, tmp_path / "run")
        first = process("train", run, "--set", "training.updates=100000")
        while "Going on from update" not in (line := first.stderr.readline()):
            assert line, "it ended by itself"
        second = glassformer("train", run)
        first.kill()
        first.wait()
        assert second.code == 2 and "Another training is at work" in second.err
        assert glassformer("train", run, "--set", "training.updates=1").code == 0


class TestEvaluate:
    def test_scores_with_signatures(self, model):
        result = glassformer("evaluate", "-m", model, "--limit", 40)
        assert result.code == 0, result.err
        assert "into target, 40 pairs" in result.out
        bleu, chrf = (line for line in result.out.splitlines() if "version:" in line)
        assert "BLEU" in bleu and "|tok:13a|" in bleu and float(bleu.split()[1]) > 95
        assert "chrF" in chrf and float(chrf.split()[1]) > 95
        assert "loss" in result.out and "perplexity" in result.out

    def test_json_and_translations_of_own_pairs(self, model, tmp_path):
        data = tmp_path / "pairs.tsv"
        data.write_text("".join(f"{source}\t{target}\n" for source, target in synthetic.pairs("reverse", 12, 5)))
        result = glassformer("evaluate", "-m", model, "--data", data, "--json", "-o", tmp_path / "out.txt", "--tokenize", "none")
        scores = json.loads(result.out)
        assert scores["pairs"] == 12 and "|tok:none|" in scores["BLEU"]["signature"]
        answers = (tmp_path / "out.txt").read_text().splitlines()
        assert len(answers) == 12
        from sacrebleu.metrics.bleu import BLEU  # what anybody else would compute from the file

        targets = [target for _, target in synthetic.pairs("reverse", 12, 5)]
        assert scores["BLEU"]["value"] == pytest.approx(BLEU(tokenize="none").corpus_score(answers, [targets]).score)

    def test_a_mistake_costs_no_file(self, model, tmp_path):
        (tmp_path / "out.txt").write_text("precious")
        result = glassformer("evaluate", "-m", model, "--data", "nowhere.tsv", "-o", tmp_path / "out.txt", "--force")
        assert result.code == 2 and "nowhere.tsv" in result.err
        assert glassformer("evaluate", "-m", model, "-o", tmp_path / "out.txt").code == 2
        assert (tmp_path / "out.txt").read_text() == "precious"


class TestModels:
    def test_lists_what_was_trained_here(self, model, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(store, "BUNDLED", tmp_path / "bundled")
        result = glassformer("models")
        assert (result.code, result.out) == (0, "") and "none is in runs" in result.err
        shutil.copytree(model, tmp_path / "runs" / "backwards")
        (tmp_path / "runs" / "broken").mkdir()
        (tmp_path / "runs" / "broken" / "model.safetensors").touch()
        (tmp_path / "runs" / "broken" / "recipe.toml").write_text("task =")
        result = glassformer("models")
        assert result.code == 0
        assert result.out.startswith("runs/backwards\ttranslate\tsource → target\ttransformer\t") and result.out.count("\n") == 1
        assert "broken" in result.err

    @pytest.mark.parametrize(("task", "title"), [("classify", "classify, labels.tsv"), ("language", "texts.txt")])
    def test_says_what_they_were_trained_on(self, tmp_path, monkeypatch, task, title):
        """A file near the recipe is known by its whole path; its name is enough here."""
        assert glassformer(*small(tmp_path, task, "training.updates=1")).code == 0
        (tmp_path / "here" / "runs").mkdir(parents=True)
        (tmp_path / "run").rename(tmp_path / "here" / "runs" / "mine")
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.setattr(store, "BUNDLED", tmp_path / "bundled")
        kind = "gpt" if task == "language" else "bert"
        assert glassformer("models").out.startswith(f"runs/mine\t{task}\t{title}\t{kind}\t")
        assert f": {title}\n" in Path("runs/mine/card.md").read_text(encoding="utf-8")

    def test_missing_ones_say_what_exists(self, model, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        shutil.copytree(model, tmp_path / "runs" / "backwards")
        result = glassformer("translate", "-m", "runs/backward", "x")
        assert result.code == 2 and "Did you mean runs/backwards?" in result.err
        (tmp_path / "runs" / "half" / "checkpoints").mkdir(parents=True)
        assert "has not finished" in glassformer("translate", "-m", "runs/half", "x").err
        assert "folder without a model" in glassformer("translate", "-m", tmp_path, "x").err
        assert "is a file" in glassformer("translate", "-m", "runs/backwards/model.safetensors", "x").err


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["tranlsate"], "No such command"),
            (["translate", "--bean", "3"], "No such option"),
            (["translate", "--beam", "many"], "--beam"),
            (["translate", "--beam", "-1"], "--beam"),
            (["translate", "--top-p", "1.5", "x"], "--top-p"),
            (["translate", "--temperature", "nan", "x"], "--temperature"),
            (["translate", "--temperature", "inf", "x"], "--temperature"),
            (["translate", "x", "--input", "in.txt"], "not both"),
            (["translate", "x", "--nbest", "2", "--seed", "1"], "--nbest"),
            (["translate", "x", "--beam", "2", "--top-k", "1"], "choose one"),
            (["evaluate", "--tokenize", "icu"], "there are auto, 13a"),
            (["train"], "recipe"),
            (["data", "get", "multi3k"], "Did you mean multi30k?"),
            (["fill", "x"], "--model"),
            (["compare", "x", "y"], "--model"),
            (["compare", "-m", "nowhere", "x", "y", "z"], "two texts; found 3"),
            (["generate", "--repetition", "0.5", "x"], "--repetition"),
            (["generate", "x", "--input", "in.txt"], "not both"),
            (["classify", "--top", "0", "x"], "--top"),
            (["train", "recipes/reverse.toml", "--from", "nowhere"], "There is no model 'nowhere'"),
        ],
    )
    def test_a_mistake_in_typing(self, arguments, words):
        result = glassformer(*arguments)
        assert (result.code, result.out) == (2, "")
        assert words in result.err and "Traceback" not in result.err

    @pytest.mark.parametrize("arguments", [["--help"], ["translate", "-h"], ["train", "--help"], ["data", "list"]])
    def test_help_goes_to_standard_output(self, arguments):
        result = glassformer(*arguments)
        assert result.code == 0 and result.out and not result.err

    def test_every_command_has_help(self):
        told = glassformer("--help").out
        for command in COMMANDS:
            result = glassformer(command, "--help")
            assert command in told and result.code == 0 and "Usage: glassformer" in result.out and not result.err, command

    @pytest.mark.parametrize("command", ["generate", "fill", "classify", "tag", "compare"])
    def test_a_model_for_another_command(self, model, command):
        result = glassformer(command, "-m", model, "c a t", *(["d o g"] if command == "compare" else []))
        assert (result.code, result.out) == (2, "") and "Traceback" not in result.err
        assert f"The model {model} is for the command `glassformer translate`, not for this one." in result.err

    def test_nothing_at_all_shows_the_help(self):
        result = glassformer()
        assert "translate" in result.out + result.err and "Traceback" not in result.err

    def test_help_does_not_wait_for_torch(self):
        code = "import sys, glassformer.cli; sys.exit('torch' in sys.modules)"
        assert (
            subprocess.run(
                [os.sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "src"}, cwd=Path(__file__).parent.parent
            ).returncode
            == 0
        )
