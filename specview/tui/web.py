"""The replay as textual-serve runs it: one process a browser tab, its screen on stdout in Textual's web protocol."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from specview.tui.app import SpecviewApp

PATIENCE_S = 5.0
"""For the app to end by itself; it only reads."""


def end_with_the_server(stdin: int) -> None:
    """Wait until nobody holds the other end of stdin any more, and end this process: a server that was killed tells no
    tab, and Textual goes on without input."""
    hang_up = select.poll()
    hang_up.register(stdin, 0)  # asks for nothing but what is always told: that the other end is gone
    hang_up.poll()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    os._exit(0)


if __name__ == "__main__":
    if hasattr(select, "poll"):
        threading.Thread(target=end_with_the_server, args=[sys.stdin.fileno()], name="hang-up", daemon=True).start()
    SpecviewApp(Path(sys.argv[1])).run()
