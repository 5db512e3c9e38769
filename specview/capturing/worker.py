"""A thread that runs the instrument's tasks where a core is free, so that the generation does not wait for them."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

_WAITING = 4
"""Tasks that may wait before the generation is held back: each holds on to the scores of a few rounds."""

_PATIENCE_S = 0.001


def core_is_free() -> bool:
    """Whether torch leaves one of the process's cores alone.

    Where it does not, a second thread is worse than none: a parallel loop waits for its slowest part, and 3 ms taken
    from one core cost such loops 20.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return torch.get_num_threads() < cores


class Worker:
    """Runs tasks one after the other. After a task has failed, further ones are dropped; `failed` gets the error."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._broken = False
        # A SimpleQueue has no lock that the worker could hold while it waits for the interpreter.
        self._tasks: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, name="specview-capture", daemon=True)
        threads = torch.get_num_threads()
        self._thread.start()
        self._ready.wait()
        # The worker asked for one thread for itself. PyTorch also remembers the last number asked for as the default
        # of threads to come; that must stay what it was.
        torch.set_num_threads(threads)

    def put(self, task: Callable[..., None], *arguments: Any) -> None:
        """Run a task soon; waits where too much is waiting already. After `finish` nothing runs any more."""
        while self._tasks.qsize() >= _WAITING and self._thread.is_alive():
            time.sleep(_PATIENCE_S)
        self._tasks.put((task, arguments))

    def finish(self) -> None:
        """Wait until everything has run, and end the thread."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        torch.set_num_threads(1)
        self._ready.set()
        while (task := self._tasks.get()) is not None:
            if self._broken:
                continue
            run, arguments = task
            try:
                run(*arguments)
            except Exception as error:  # noqa: BLE001 - kept, and raised when the capture ends
                self._broken = True
                self._failed(error)
            del task, run, arguments  # the last observation must not outlive its round
