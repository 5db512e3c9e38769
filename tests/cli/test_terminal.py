"""`live` and `replay` in a real terminal: what only tmux can show."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specview.trace.reader import TraceReader
from tests.terminal import Terminal, quoted, terminal

pytestmark = pytest.mark.terminal

SPECVIEW = Path(sys.executable).with_name("specview")


@pytest.fixture
def window(tmp_path):
    with terminal(120, 36, cwd=str(tmp_path)) as opened:
        yield opened


@pytest.fixture(scope="module")
def trace(tmp_path_factory, tiny_pair) -> Path:
    out = tmp_path_factory.mktemp("trace") / "run.db"
    words = [*tiny_pair.options(), "--raw", "--prompt", "hello", "--max-new-tokens", "40", "--baseline-tokens", "4"]
    subprocess.run([SPECVIEW, "record", *words, "-o", out], check=True, capture_output=True)
    return out


def stty(window: Terminal) -> str:
    return window.run("stty -g")


def status_of(path: Path) -> str:
    with TraceReader(path) as reader:
        return reader.runs()[-1].status


def test_replay_steps_plays_helps_and_leaves_the_terminal_as_it_was(window, trace):
    before, mode = stty(window), trace.read_bytes()
    window.type(quoted(SPECVIEW, "replay", trace))
    window.wait_for("round 1/")
    window.press("Right")
    window.wait_for("round 2/")
    window.press("Left")
    window.wait_for("round 1/")
    window.press("Space")
    window.wait_until(lambda screen: "round 1/" not in screen, "playback to move on")
    window.press("?")
    window.wait_for("previous round")
    window.press("Escape")
    window.press("End")
    with TraceReader(trace) as reader:
        rounds = reader.round_count(reader.sequences(reader.runs()[0].id)[0].id)
    window.wait_for(f"round {rounds}/{rounds}")
    window.press("q")
    window.wait_for("ready$")
    assert stty(window) == before
    assert trace.read_bytes() == mode
    assert [p.name for p in trace.parent.iterdir()] == [trace.name]


def test_a_terminal_of_16_colours_keeps_draft_target_and_verdicts_apart(window, trace):
    window.type(f"env -u COLORTERM TERM=xterm {quoted(SPECVIEW, 'replay', trace)}")
    window.wait_for("Output")
    window.press("Home")  # it may have been left elsewhere by the test before, which the program remembers
    window.wait_for("round 1/")
    window.wait_until(lambda _: "\x1b[35m" in window.screen(escapes=True), "the draft's magenta")
    drawn = window.screen(escapes=True)
    assert "\x1b[36m" in drawn, "the target's cyan"
    assert "\x1b[40m" not in drawn, "the terminal keeps its own background"
    window.press("q")
    window.wait_for("ready$")


def test_live_shows_the_run_and_q_leaves_a_finished_trace(window, tiny_pair, tmp_path):
    before = stty(window)
    words = [*tiny_pair.options(), "--raw", "--prompt", "hello", "--max-new-tokens", "40", "--baseline-tokens", "4"]
    window.type(quoted(SPECVIEW, "live", *words, "-o", "live.db"))
    window.wait_for("Output")
    window.wait_until(lambda screen: "accepted" in screen and "hello" in screen, "the first round")
    window.press("q")
    window.wait_for("the trace is in live.db")
    assert stty(window) == before
    assert [p.name for p in tmp_path.iterdir()] == ["live.db"]
    assert status_of(tmp_path / "live.db") in {"finished", "interrupted"}
    assert subprocess.run([SPECVIEW, "check", tmp_path / "live.db"], capture_output=True).returncode == 0


def test_live_says_why_a_pair_cannot_run(window, tiny_pair, tmp_path):
    words = ["--target", tiny_pair.target, "--draft", tiny_pair.stranger]
    window.type(quoted(SPECVIEW, "live", *words, "-o", "live.db"))
    window.wait_for("different tokenizers")
    window.press("q")
    window.wait_for("ready$")
    assert "different tokenizers" in window.screen()
    assert window.run("echo code-$?").endswith("code-0")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_screen_takes_its_child_along(window, tiny_pair, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "go on"}\n' * 5000)
    words = [*tiny_pair.options(), "--raw", "--prompt-file", prompts, "--baseline-tokens", "0"]
    window.type(quoted(SPECVIEW, "live", *words, "-o", "live.db"))
    window.wait_for("accepted")
    (screen,) = processes("live.db", "live")
    os.kill(screen, signal.SIGTERM)
    window.wait_for("ready$")
    window.wait_until(lambda _: not processes("live.db", "record"), "the child to end")
    assert status_of(tmp_path / "live.db") == "interrupted"


def processes(mark: str, command: str) -> list[int]:
    """Pids of `specview COMMAND` processes whose command line holds the mark."""
    listed = subprocess.run(["ps", "-eww", "-o", "pid,args"], check=True, capture_output=True, text=True).stdout
    return [
        int(line.split()[0])
        for line in listed.splitlines()
        if mark in line and f"specview {command} " in line.replace("-m specview", "specview") and "bash" not in line
    ]
