"""`specview capture -o run.db -- python my_script.py`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from specview.cli.capture import parse_program
from specview.trace.reader import TraceReader

ROOT = Path(__file__).parents[2]

GENERATE = f"""
import sys
sys.path.append({str(ROOT)!r})
import torch
torch.set_num_threads(1)
from tests.capture_pair import pair, prompt
target, draft = pair()
torch.manual_seed(0)
output = target.generate(prompt(), max_new_tokens=12, do_sample=True, temperature=0.5, top_k=0, assistant_model=draft)
"""


def capture(folder, *words, options=()):
    command = [sys.executable, "-P", "-m", "specview", "capture", "-o", "t.db", *options, "--", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_a_script_runs_as_ever_and_its_exit_code_passes_through(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").write_text("WHERE = 'beside the script'\n")
    (tmp_path / "scripts" / "engine.py").write_text("WHOSE = 'of the script'\n")  # as many training scripts have
    script = tmp_path / "scripts" / "generate.py"
    script.write_text(
        f"{GENERATE}\nimport beside, engine\nprint(__name__, __file__, sys.argv, beside.WHERE, engine.WHOSE)\n"
        "print(output[0].tolist())\nsys.exit(7)\n"
    )
    plain = subprocess.run(
        [sys.executable, "-P", "scripts/generate.py", "--x", "-o"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "No module named 'beside'" in plain.stderr  # -P: so that the next lines show that the runner adds the folder
    done = capture(tmp_path, sys.executable, "-u", "scripts/generate.py", "--x", "-o")
    assert done.returncode == 7, done.stderr
    facts, tokens = done.stdout.splitlines()
    assert facts == "__main__ scripts/generate.py ['scripts/generate.py', '--x', '-o'] beside the script of the script"
    assert "recorded into t.db" in done.stderr
    with TraceReader(tmp_path / "t.db") as reader:
        (run,) = reader.runs()
        (sequence,) = reader.sequences(run.id)
        recorded = [t.token for t in reader.tokens(sequence.id, 0, reader.token_count(sequence.id))]
    assert str(recorded) == tokens
    assert run.status == "failed"
    assert run.info.source == "transformers"

    # The trace is a trace like any other.
    def specview(*words):
        return subprocess.run(
            [sys.executable, "-P", "-m", "specview", *words], capture_output=True, text=True, cwd=tmp_path
        )

    checked = specview("check", "t.db")
    assert checked.returncode == 1
    assert "C1" in checked.stdout
    exported = specview("export", "t.db", "--level", "positions")
    assert exported.returncode == 0, exported.stderr
    assert "draft_deviation" in exported.stdout.splitlines()[0]
    assert specview("stats", "t.db").returncode == 0
    refused = capture(tmp_path, sys.executable, "scripts/generate.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "already exists" in refused.stderr


def test_a_module_that_raises(tmp_path):
    (tmp_path / "job.py").write_text(f"{GENERATE}\nraise LookupError('of the script')\n")
    done = capture(tmp_path, sys.executable, "-m", "job", "argument")
    assert done.returncode == 1
    assert "LookupError: of the script" in done.stderr
    with TraceReader(tmp_path / "t.db") as reader:
        (run,) = reader.runs()
        assert (run.status, run.message) == ("failed", "LookupError: of the script")
        (sequence,) = reader.sequences(run.id)
        assert sequence.stop_reason in ("eos", "length")


def test_control_c_reaches_the_script_and_keeps_what_was_recorded(tmp_path):
    (tmp_path / "forever.py").write_text(
        f"{GENERATE}\nprint('ready', flush=True)\n"
        "while True:\n    target.generate(prompt(), max_new_tokens=12, assistant_model=draft)\n"
    )
    command = [sys.executable, "-P", "-m", "specview", "capture", "-o", "t.db", "--", sys.executable, "forever.py"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["forever.py", "t.db"]
    with TraceReader(tmp_path / "t.db") as reader:
        first = reader.runs()[0]
        assert first.status == "interrupted"
        assert reader.sequence_count(first.id) >= 1


def test_a_script_without_assisted_generation_leaves_no_trace_and_is_told_so(tmp_path):
    script = tmp_path / "nothing.py"
    script.write_text("print('done')\n")
    done = capture(tmp_path, str(script))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "no assisted generation ran" in done.stderr
    assert "Traceback" not in done.stderr
    assert "recorded" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["nothing.py"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("python3", "a.py", "-m", "x"), ((), False, "a.py", ("-m", "x"))),
        (
            ("python3", "-u", "-W", "error", "-X", "dev", "a.py"),
            (("-u", "-W", "error", "-X", "dev"), False, "a.py", ()),
        ),
        (("python3", "-Werror", "-m", "pkg.mod", "--m"), (("-Werror",), True, "pkg.mod", ("--m",))),
    ],
)
def test_a_python_command_line_is_taken_apart(words, expected):
    program = parse_program(words)
    assert (program.flags, program.module, program.name, program.arguments) == expected
    assert Path(program.interpreter).is_absolute()


def test_a_script_alone_runs_in_our_own_python():
    assert parse_program(("a.py", "1")).interpreter == sys.executable


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("bash", "x.sh"), "no Python program"),
        (("python3", "-c", "pass"), "put the program into a file"),
        (("python3", "-"), "put the program into a file"),
        (("python3",), "name the script"),
        (("python3", "-m"), "put the program into a file"),
        (("python9.99", "a.py"), "there is no program python9.99"),
    ],
)
def test_what_cannot_be_captured_is_refused(words, sentence):
    with pytest.raises(click.UsageError, match=sentence):
        parse_program(words)


@pytest.mark.parametrize(
    ("options", "words", "sentence"),
    [
        ((), ("no-such-script.py",), "there is no script no-such-script.py"),
        (("--force", "--append"), (__file__,), "exclude each other"),
        ((), (), "Missing argument"),
    ],
)
def test_wrong_usage_is_one_sentence(tmp_path, options, words, sentence):
    done = capture(tmp_path, *words, options=options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
