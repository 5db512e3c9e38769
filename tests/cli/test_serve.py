"""`specview serve`: the same app in a browser, on this machine only."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.synthetic import write

SPECVIEW = Path(sys.executable).with_name("specview")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 90


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a served trace of 30 rounds."""
    write(tmp_path / "run.db", 30)
    port = _free_port()
    server = subprocess.Popen(
        [SPECVIEW, "serve", tmp_path / "run.db", f"--port={port}"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        assert f"http://localhost:{port}" in server.stderr.readline()
        yield f"http://localhost:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


async def _until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(PATIENCE_S * 20):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


class Received:
    """Everything the app has drawn, as bytes that came through the socket."""

    def __init__(self) -> None:
        self.data = b""

    def shows(self, text: str) -> Callable[[], bool]:
        return lambda: text.encode() in self.data


async def test_the_socket_brings_the_screen_and_takes_keys(served: str) -> None:
    received = Received()
    address = served.replace("http", "ws") + "/ws?width=120&height=36"
    async with aiohttp.ClientSession() as session, session.ws_connect(address, origin=served) as socket_:

        async def read() -> None:
            async for message in socket_:
                if message.type == aiohttp.WSMsgType.BINARY:
                    received.data += message.data

        reading = asyncio.create_task(read())
        await _until(received.shows("Output"), "the screen")
        await _until(received.shows("1/30"), "the first round")
        await socket_.send_str(json.dumps(["stdin", "\x1b[C"]))
        await _until(received.shows("2/30"), "the next round")
        reading.cancel()


async def test_the_page_names_no_address_but_its_own(served: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(served) as answer:
        assert answer.status == 200
        page = await answer.text()
    own = served.removeprefix("http://")
    named = re.findall(r"""(?:https?:|wss?:|["'(])//([^/"'\s)]+)""", page)
    assert own in named
    assert set(named) == {own}


async def test_other_pages_are_refused(served: str) -> None:
    address = served.replace("http", "ws") + "/ws?width=80&height=24"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(address, origin="http://elsewhere.example")
        assert refused.value.status == 403


def test_a_port_in_use_is_one_sentence(specview: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path / "run.db", 3)
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = subprocess.run(
            [SPECVIEW, "serve", tmp_path / "run.db", f"--port={port}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert result.returncode == 2
    assert result.stdout == ""
    assert f"port {port} cannot be used" in result.stderr
    assert len(result.stderr.splitlines()) == 1


class Browser:
    """A page of a headless Chromium, spoken to through its debugging socket."""

    def __init__(self, socket_: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket_
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.received = Received()
        self.asked: list[str] = []
        """Every address that the page asked for."""
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, PATIENCE_S)

    async def picture(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])

    async def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    async def click(self, x: int, y: int) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event.get("result", {}))
            elif event.get("method") == "Network.requestWillBeSent":
                self.asked.append(event["params"]["request"]["url"])
            elif event.get("method") == "Network.webSocketFrameReceived":
                frame = event["params"]["response"]
                if frame["opcode"] == 2:
                    self.received.data += base64.b64decode(frame["payloadData"])


@asynccontextmanager
async def _browser(binary: str, profile: Path) -> AsyncIterator[Browser]:
    port = _free_port()
    process = subprocess.Popen(
        [binary, "--headless", "--no-sandbox", "--disable-gpu", f"--remote-debugging-port={port}",
         f"--user-data-dir={profile}", "--window-size=1400,900", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            page = await _page(session, port)
            async with session.ws_connect(page, max_msg_size=0) as socket_:
                yield Browser(socket_)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


async def _page(session: aiohttp.ClientSession, port: int) -> str:
    for _ in range(PATIENCE_S * 10):
        try:
            async with session.get(f"http://localhost:{port}/json/list") as answer:
                pages = [p for p in await answer.json() if p["type"] == "page"]
                if pages:
                    return str(pages[0]["webSocketDebuggerUrl"])
        except aiohttp.ClientConnectionError:
            pass  # it is still starting
        await asyncio.sleep(0.1)
    raise AssertionError("the browser does not answer")


BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

if BROWSER is not None:  # without one, the socket test above stands for it

    async def test_a_real_browser_shows_the_screen_and_a_key_works(served: str, tmp_path: Path) -> None:
        assert BROWSER is not None
        async with _browser(BROWSER, tmp_path / "profile") as page:
            await page.call("Network.enable")
            await page.call("Page.enable")
            await page.call("Page.navigate", url=served)
            await _until(page.received.shows("1/30"), "the screen in the browser")
            await asyncio.sleep(1)
            # The terminal takes keys once it has the focus; the first line answers to no click.
            await page.click(200, 8)
            before = await page.picture()
            await page.press("ArrowRight", 39)
            await _until(page.received.shows("2/30"), "the next round in the browser")
            for _ in range(100):
                after = await page.picture()
                if after != before:
                    break
                await asyncio.sleep(0.1)
            assert after != before, "the page paints what the key did"
            assert len(page.asked) > 2
            assert [url for url in page.asked if not url.startswith((served, "data:"))] == []


def test_a_tab_whose_server_was_killed_ends(tmp_path):
    write(tmp_path / "run.db", 30)
    driver = {"TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver"}
    command = [sys.executable, "-P", "-m", "specview.tui.web", tmp_path / "run.db"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | driver
    ) as tab:
        try:
            assert tab.stdout is not None
            assert tab.stdout.readline() == b"__GANGLION__\n"
            tab.communicate(timeout=PATIENCE_S)  # closes stdin, as the kernel does for a server that is no more
        finally:
            tab.kill()
    assert tab.returncode == 0
