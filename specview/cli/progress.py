"""A progress bar on stderr for work over many rounds; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int], None]
"""Is told how many more are done."""


@contextmanager
def counting(label: str, total: int | None, *, shown: bool = True) -> Iterator[Progress]:
    """A bar from 0 to `total` (None: not known) that goes away when it is done."""
    if not shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    # rich is imported here: a short `stats` into a pipe does not need it
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def working(label: str) -> Iterator[None]:
    """A spinner on stderr for work whose end is not known; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True, markup=False, highlight=False).status(label):
        yield
