"""Closing a screen that may already be gone: two Enters can arrive before the first one has closed it."""

from __future__ import annotations

from typing import TypeVar

from textual.screen import Screen

Result = TypeVar("Result")


def close(screen: Screen[Result], result: Result | None = None) -> None:
    """Dismiss the screen with its result, if it is the one in front."""
    if screen.is_current:
        screen.dismiss(result)
