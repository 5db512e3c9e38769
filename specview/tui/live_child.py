"""The child process that records while the screen watches: what the viewer needs of it, and no more."""

from __future__ import annotations

from typing import Protocol


class LiveChild(Protocol):
    """A running `specview record`. Every method returns at once and may be called from any thread."""

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""

    def read_log(self) -> list[str]:
        """The lines of its stderr that came since this was last asked."""

    def send_prompt(self, text: str) -> None:
        """Decode this prompt next, with the same models."""

    def stop(self) -> None:
        """Ask it to end; what it recorded is kept."""
