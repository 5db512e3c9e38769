"""What every app of ours does alike: our themes, no colour where none is wanted, an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from textual.app import App
from textual.reactive import Reactive
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import Widget

from specview.tui.collector import TICK_SECONDS, Collector
from specview.tui.hangup import watch_terminal
from specview.tui.themes import ANSI_THEME, BY_NAME, DEFAULT_THEME, THEMES, textual_theme
from specview.tui.widgets.canvas import Canvas
from specview.tui.widgets.scroll import ScrollCanvas


class MainScreen(Screen[None]):
    """The screen under all others. A widget that gains or loses the focus paints itself; the rest stays as it is."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class BaseApp(App[None]):
    """Registers the themes, ends on signals as on `q`, and keeps what broke for whoever ran it."""

    TITLE = "specview"

    def __init__(self) -> None:
        no_color = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if no_color else None)
        for colours in THEMES:
            self.register_theme(textual_theme(colours))
        self.theme = ANSI_THEME if no_color else DEFAULT_THEME
        self.failure: Exception | None = None
        """What ended the app, if it was not the person."""
        self.ended_by_signal = False
        self.farewell: str | None = None
        """A sentence for stderr once the terminal is restored."""
        self._collector: Collector | None = None

    def get_default_screen(self) -> Screen[None]:
        return MainScreen(id="_default")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our variables in themes that are not ours, which the palette offers as well."""
        return textual_theme(BY_NAME[DEFAULT_THEME]).variables

    def on_load(self) -> None:
        self.theme_changed_signal.subscribe(self, self.recolour)

    def on_ready(self) -> None:
        if not self.is_headless:
            self._collector = Collector()
            self.set_interval(TICK_SECONDS, self._collector.tick)

    def on_unmount(self) -> None:
        if self._collector is not None:
            self._collector.close()

    def watch_signals(self) -> None:
        """SIGTERM, SIGHUP, an interrupt from outside and a lost terminal end the app like `q` does."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            # Not in the main thread (a test, a server): then the signals are not ours to watch.
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._signalled)
        if not self.is_headless and not self.is_web:
            watch_terminal(lambda: loop.call_soon_threadsafe(self._signalled))

    def before_end(self) -> None:
        """Called before the app ends, whatever ends it."""

    def recolour(self, _: Theme) -> None:
        """Draw everything in the theme now in force."""
        for screen in self.screen_stack:
            for canvas in screen.query(Canvas):
                canvas.recolour()
            for scroll in screen.query(ScrollCanvas):
                scroll.recolour()

    def _signalled(self) -> None:
        self.ended_by_signal = True
        self.before_end()
        self.exit()

    def _fatal_error(self) -> None:
        """An exception in a widget: leave the screen; whoever ran the app says it in a sentence."""
        self.failure = self._exception
        self.before_end()
        self._close_messages_no_wait()
