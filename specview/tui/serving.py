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

PAGE = Path(__file__).with_name("page")
"""The page's template; textual-serve's own would ask the internet for a font."""


class TraceServer(Server):
    """Answers on the loopback interface only, and to its own page only."""

    def __init__(self, trace: Path, host: str, port: int, say: Callable[[str], None]) -> None:
        # -P: a stranger's `engine` or `specview` in the current folder must not come first.
        command = shlex.join([sys.executable, "-P", "-m", "specview.tui.web", str(trace.resolve())])
        super().__init__(command, host=host, port=port, title=f"specview {trace.name}", templates_path=PAGE)
        self._say = say

    async def on_startup(self, app: web.Application) -> None:
        """Nothing yet: the address is told once somebody listens there."""

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
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        runner = web.AppRunner(await self._make_app(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self.port).start()
            self._say(f"the trace is at {self.public_url}; Ctrl-C ends it.")
            await ended.wait()
        finally:
            await runner.cleanup()
