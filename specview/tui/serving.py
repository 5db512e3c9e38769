"""A web server on this machine that shows a trace in a browser, through textual-serve."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from aiohttp import web
from textual_serve.server import Server


class TraceServer(Server):
    """Answers on the loopback interface only, and to its own page only."""

    def __init__(self, trace: Path, host: str, port: int, say: Callable[[str], None]) -> None:
        # -P: a stranger's `engine` or `specview` in the current folder must not come first.
        command = shlex.join([sys.executable, "-P", "-m", "specview.tui.web", str(trace.resolve())])
        super().__init__(command, host=host, port=port, title=f"specview {trace.name}")
        self._say = say

    async def on_startup(self, app: web.Application) -> None:
        self._say(f"the trace is at {self.public_url}; Ctrl-C ends it.")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Refuse other pages: any site a person visits may open a socket to this machine."""
        origin = request.headers.get("Origin")
        if origin is not None and origin != self.public_url:
            raise web.HTTPForbidden(text="this socket answers to its own page only")
        return await super().handle_websocket(request)

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM.

        Raises:
            OSError: the port cannot be had.
        """
        loop = asyncio.new_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_exit)
        web.run_app(
            self._make_app(),
            host=self.host,
            port=self.port,
            handle_signals=False,
            loop=loop,
            print=None,
            access_log=None,
        )
