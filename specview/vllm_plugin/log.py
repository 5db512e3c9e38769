"""The plugin's voice: one line each, in vLLM's own log, never an exception into vLLM."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from specview.text import showable

logger = logging.getLogger("vllm.specview")


class Switch:
    """Whether this process records. It goes off for good at the first thing that is not as expected."""

    def __init__(self) -> None:
        self.on = True

    def off(self, why: str) -> None:
        """Stop recording, and say why, once."""
        if self.on:
            self.on = False
            logger.warning("specview: %s Nothing is recorded from here on; vLLM is not affected.", showable(why))

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Whatever goes wrong in the instrument stays in the instrument: it is told, and recording stops."""
        try:
            yield
        except Exception as error:  # a debugger must not take down the server that it watches
            reason = " ".join(str(error).split())
            logger.debug("specview: traceback", exc_info=True)
            self.off(f"{what} failed: {type(error).__name__}: {reason}.")
