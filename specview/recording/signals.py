"""Ending a run on SIGINT, SIGTERM or SIGHUP without losing a committed round."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP


class Stop:
    """Whether the run should end. While `patient`, a first signal only sets the flag, so that the loop ends between
    two rounds; otherwise, and at a second signal, it raises KeyboardInterrupt where the program stands."""

    def __init__(self) -> None:
        self.requested = False
        self.patient = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if again or not self.patient:
            raise KeyboardInterrupt

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Inside, one signal is a request; on leaving, a request that nobody acted on stays readable."""
        self.patient = True
        try:
            yield
        finally:
            self.patient = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Install the handlers for the block, and put the previous ones back."""
    stop = Stop()
    previous = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
