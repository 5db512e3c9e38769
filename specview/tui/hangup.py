"""Noticing that the terminal is gone, also where no SIGHUP tells: then there is nobody to draw for."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable

LAST_RESORT_SECONDS = 3.0
HANGUP_EXIT_CODE = 129


def watch_terminal(gone: Callable[[], object]) -> None:
    """Call `gone`, in a thread, when the terminal that stdin reads from hangs up.

    Whatever is still written goes nowhere instead of failing, so that the app can end in its own way; if it cannot,
    the process ends all the same.
    """
    if sys.__stdin__ is None or not sys.__stdin__.isatty():
        return
    descriptor = sys.__stdin__.fileno()
    threading.Thread(target=_watch, args=(descriptor, gone), name="specview-terminal", daemon=True).start()


def _watch(descriptor: int, gone: Callable[[], object]) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # nothing but a hang-up or an error
    while not poll.poll():
        continue
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if os.isatty(number) or number == descriptor:
            os.dup2(nowhere, number)
    gone()
    time.sleep(LAST_RESORT_SECONDS)
    os._exit(HANGUP_EXIT_CODE)
