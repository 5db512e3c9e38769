"""`specview record` in a child process: how `live` runs a pair without sharing its interpreter with the screen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue

from specview.recording.prompts import to_json_line
from specview.recording.settings import Prompt

LOG_LINES = 2000
GRACE_S = 1.5
"""How long a child may take to close its trace before it is killed; `q` promises 2 s in all."""


class RecordingChild:
    """A `specview record` that takes prompts on its stdin, one JSON line each, and keeps its models loaded.

    All methods are safe to call from any thread, and none but `wait` blocks.
    """

    def __init__(self, arguments: list[str], output: Path) -> None:
        # -P: the current folder must not come first on the child's path, a stranger's `engine` may live there.
        # A session of its own: the terminal's Ctrl-C and hang-up go to the screen, which then stops the child.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "specview", "record", *arguments, "--prompt-file=-", f"--output={output}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._last_line = ""
        self._lock = threading.Lock()
        self._stopped = False
        self._reader = threading.Thread(target=self._read_stderr, name="child-stderr", daemon=True)
        self._reader.start()
        self._prompts: SimpleQueue[Prompt] = SimpleQueue()
        threading.Thread(target=self._feed_stdin, name="child-stdin", daemon=True).start()

    @property
    def last_line(self) -> str:
        """The last line that the child wrote to stderr: its own sentence about what went wrong, if it failed."""
        return self._last_line

    @property
    def stopped(self) -> bool:
        """Whether we asked the child to end."""
        return self._stopped

    def poll(self) -> int | None:
        """The exit code, or None while the child runs."""
        return self._process.poll()

    def read_log(self) -> list[str]:
        """The lines of stderr since the last call."""
        with self._lock:
            lines = list(self._log)
            self._log.clear()
        return lines

    def send_prompt(self, text: str) -> None:
        """Decode this text next. A child that has ended takes none."""
        self.send(Prompt(text))

    def send(self, prompt: Prompt) -> None:
        """Decode this prompt next."""
        self._prompts.put(prompt)

    def stop(self) -> None:
        """Ask the child to end: it finishes the round it is in, and closes its trace."""
        if self._stopped or self.poll() is not None:
            return
        self._stopped = True
        self._process.send_signal(signal.SIGTERM)

    def wait(self, grace: float = GRACE_S) -> int:
        """Stop the child, kill it where it does not listen for `grace` seconds, and return its exit code."""
        self.stop()
        deadline = time.monotonic() + grace
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=1)
        return self._process.returncode

    def _feed_stdin(self) -> None:
        """Write the prompts in order; the pipe is small, so a thread waits for the child to read them."""
        assert self._process.stdin is not None
        try:
            while True:
                self._process.stdin.write(to_json_line(self._prompts.get()).encode())
                self._process.stdin.flush()
        except BrokenPipeError:
            return  # the child has ended; `poll` and the log say why

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            line = raw.decode("utf-8", errors="replace").rstrip()
            if line:
                self._last_line = line
                with self._lock:
                    self._log.append(line)
