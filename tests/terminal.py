"""A real terminal for tests: a tmux server of its own, driven with send-keys and read with capture-pane."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 60
"""How long a test waits for the screen to say something; shared machines can be very slow."""


class Terminal:
    """One tmux window with a shell in it."""

    def __init__(self, width: int, height: int, cwd: str) -> None:
        tmux = shutil.which("tmux")
        assert tmux, "the terminal tests need tmux; install it (apt install tmux, brew install tmux)"
        self._tmux = [tmux, "-L", f"specview-{uuid.uuid4().hex[:8]}", "-f", "/dev/null"]
        size = ["-x", str(width), "-y", str(height)]
        shell = "env PS1='ready$ ' TERM=tmux-256color COLORTERM=truecolor bash --norc --noprofile"
        self._run("new-session", "-d", *size, "-c", cwd, shell)
        self.wait_for("ready$")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout

    def type(self, command: str) -> None:
        """Type a line into the shell and press Enter."""
        self._run("send-keys", "-l", command)
        self._run("send-keys", "Enter")

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names: Right, Space, Escape, ?, q."""
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def screen(self, escapes: bool = False) -> str:
        """What a person sees now."""
        return self._run("capture-pane", "-p", *(["-e"] if escapes else []))

    def wait_until(self, holds: Callable[[str], bool], what: str) -> str:
        """Poll the screen until the condition holds, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(screen := self.screen()):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_S} s for {what}; the screen shows:\n{screen}")
            time.sleep(0.05)
        return screen

    def wait_for(self, text: str) -> str:
        return self.wait_until(lambda screen: text in screen, repr(text))

    def run(self, command: str) -> str:
        """Run a shell command and return what it printed, once the shell is ready again."""
        mark = uuid.uuid4().hex[:8]
        self.type(f"clear; {command}; echo done-{mark[:4]}''{mark[4:]}")
        screen = self.wait_for(f"done-{mark}")
        return screen.partition(f"done-{mark}")[0].rstrip("\n")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@contextmanager
def terminal(width: int = 120, height: int = 36, cwd: str = ".") -> Iterator[Terminal]:
    opened = Terminal(width, height, cwd)
    try:
        yield opened
    finally:
        opened.close()


def quoted(*words: object) -> str:
    return shlex.join(str(word) for word in words)
