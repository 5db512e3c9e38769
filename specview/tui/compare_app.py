"""The comparison on its own, as `specview compare` shows it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.worker import get_current_worker

from specview.errors import TraceError
from specview.tui.base import BaseApp
from specview.tui.model.compare import Comparison, load_comparison
from specview.tui.screens.compare import CompareScreen


class CompareApp(BaseApp):
    """Ends when its one screen is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "quit", "quit", show=False, priority=True)]

    def __init__(
        self, comparison: Comparison, left: Path, left_run: int | None, right: Path, right_run: int | None
    ) -> None:
        super().__init__()
        self._first: Comparison | None = comparison
        self._load = partial(load_comparison, left, left_run, right, right_run)
        self._screen = CompareScreen(self._compare)

    def on_mount(self) -> None:
        self.push_screen(self._screen, lambda _: self.exit())

    def _compare(self, index: int) -> None:
        if self._first is not None:
            self._screen.show(self._first)
            self._first = None
        else:
            self._read(index)

    @work(thread=True, exclusive=True)
    def _read(self, index: int) -> None:
        worker = get_current_worker()
        try:
            comparison = self._load(index)
        except TraceError as error:
            self.farewell = str(error)
            self.call_from_thread(self.exit)
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._screen.show, comparison)
