"""`specview replay` and `compare` as commands: without a terminal, with bad input, and what reaches a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.synthetic import write
from tests.tui import hostile

SPECVIEW = Path(sys.executable).with_name("specview")
PATIENCE_S = 60


def test_without_a_terminal_the_summary_is_printed_and_no_escape_code(
    specview: Callable[..., Result], tmp_path: Path
) -> None:
    write(tmp_path / "run.db", 20)
    result = specview("replay", tmp_path / "run.db")
    assert result.code == 0
    assert "num_rounds" in result.out
    assert "\x1b" not in result.out
    assert result.err == ""


def test_without_a_trace_the_newest_is_opened(
    specview: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces").mkdir()
    write(tmp_path / "traces" / "old.db", 7)
    write(tmp_path / "traces" / "new.db", 9)
    os.utime(tmp_path / "traces" / "old.db", (1, 1))
    assert re.search(r"num_rounds\s+9", specview("replay").out)


def test_bad_input_is_one_sentence(
    specview: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("no database at all", "utf-8")
    write(tmp_path / "run.db", 3)
    for words, said in (
        (("replay",), "no trace in traces"),
        (("replay", "missing.db"), "missing.db"),
        (("replay", "text.db"), "text.db"),
        (("replay", "run.db", "--speed", "0"), "--speed"),
        (("compare", "run.db", "missing.db"), "missing.db"),
        (("compare", "run.db", "run.db", "--run", "9"), "has no run 9; it has 1"),
        (("serve", "missing.db"), "missing.db"),
    ):
        result = specview(*words)
        assert result.code == 2, words
        assert result.out == ""
        assert said in result.err
        assert len(result.err.splitlines()) == 1, result.err


def test_compare_prints_a_table(specview: Callable[..., Result], tmp_path: Path) -> None:
    write(tmp_path / "a.db", 20, seed=1)
    write(tmp_path / "b.db", 20, seed=2)
    result = specview("compare", tmp_path / "a.db", tmp_path / "b.db")
    assert result.code == 0
    assert "part at output token" in result.out
    assert "top-2 margin of the target there" in result.out
    assert "draft_acceptance_rate" in result.out
    assert "\x1b" not in result.out
    same = specview("compare", tmp_path / "a.db", tmp_path / "a.db")
    assert "the outputs agree on all" in same.out


class Pty:
    """The replay on a terminal of our own, whose every byte we see."""

    def __init__(self, *words: object, environment: dict[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
        self.process = subprocess.Popen(
            [str(SPECVIEW), *map(str, words)],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | (environment or {}),
        )  # fmt: skip
        os.close(slave)
        self.written = b""

    def read(self, seconds: float = 0.05) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                return
            if not data:
                return
            self.written += data

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.written:
            assert time.monotonic() < deadline, f"no {text!r} in {self.written[-2000:]!r}"
            self.read()

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> tuple[int, str]:
        """Exit code and what was said after the screen, once the process has ended by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self.read()
        self.read()
        after = self.written.rpartition(ALT_SCREEN_OFF)[2]
        return self.process.returncode, MEANT.sub(b"", after).decode().strip()


ALT_SCREEN_ON, ALT_SCREEN_OFF, CURSOR_ON = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def restored(written: bytes) -> bool:
    return written.rfind(ALT_SCREEN_OFF) > written.rfind(ALT_SCREEN_ON) and CURSOR_ON in written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_restores_the_terminal(tmp_path: Path, number: signal.Signals) -> None:
    write(tmp_path / "run.db", 20)
    screen = Pty("replay", tmp_path / "run.db")
    screen.wait_for("1/20")
    screen.process.send_signal(number)
    code, err = screen.end()
    assert restored(screen.written)
    assert code == 130
    assert "Traceback" not in err


def test_ctrl_c_and_q_restore_the_terminal(tmp_path: Path) -> None:
    write(tmp_path / "run.db", 20)
    for key in ("\x03", "q"):
        screen = Pty("replay", tmp_path / "run.db")
        screen.wait_for("1/20")
        screen.send(key)
        code, err = screen.end()
        assert restored(screen.written)
        assert (code, err) == (0, "")


def test_a_lost_terminal_ends_it(tmp_path: Path) -> None:
    write(tmp_path / "run.db", 20)
    screen = Pty("replay", tmp_path / "run.db")
    screen.wait_for("1/20")
    os.close(screen.master)
    assert screen.process.wait(PATIENCE_S) is not None


# What Textual itself sends: modes, cursor moves, colours, synchronised output, and the questions it asks a terminal.
MEANT = re.compile(
    rb"\x1b\[[?>=<]?[0-9;:]*[A-Za-z]|\x1b\[\?[0-9;]+\$p|\x1b\[[0-9;]* q|\x1b\]22;[a-z-]*(?:\x07|\x1b\\)"
    rb"|\x1b[=>]|\x1b\[>[0-9]+u"
)


def test_no_byte_of_a_model_commands_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    hostile.write(path, 30)
    screen = Pty("replay", path)
    screen.wait_for("1/30")
    for key in ("\x1b[C", "\x1b[C", "\x1b[1;2C", "\x1b[F", "s", "\x1b", "t", "\x1b", "?", "\x1b", "q"):
        screen.send(key)
        screen.read(0.4)
    code, _ = screen.end()
    assert code == 0
    rest = MEANT.sub(b"", screen.written)
    assert b"\x1b" not in rest, rest[max(0, rest.index(b"\x1b") - 40) :][:100]
    text = rest.decode("utf-8")
    controls = {c for c in text if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0} - {"\r", "\n"}
    assert not controls, controls
    assert not {c for c in text if c in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200d\ufe0f"}
    # Nothing that a token spells is among the sequences that were sent.
    assert b"\x1b[2J" not in screen.written.partition(ALT_SCREEN_ON)[2]
    assert b"\x1b]0;x" not in screen.written
    assert b"\x1b[31m" not in screen.written


def test_no_color_sends_no_colour(tmp_path: Path) -> None:
    write(tmp_path / "run.db", 20)
    screen = Pty("replay", tmp_path / "run.db", environment={"NO_COLOR": "1"})
    screen.wait_for("1/20")
    screen.send("\x1b[F")
    screen.wait_for("20/20")
    screen.send("q")
    assert screen.end() == (0, "")
    for parameters in re.findall(rb"\x1b\[([0-9;]*)m", screen.written):
        numbers = [int(n) for n in parameters.split(b";") if n]
        assert not [n for n in numbers if 30 <= n <= 38 or 40 <= n <= 48 or n >= 90], parameters
