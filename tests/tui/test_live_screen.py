"""Following a trace that another process writes, with a stand-in for that process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.round import Round
from specview.trace.writer import TraceWriter
from specview.tui.app import SpecviewApp
from tests import synthetic
from tests.tui.driving import press, running, screen, until


class StandIn:
    """A child that does what a test tells it."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.log: list[str] = []
        self.prompts: list[str] = []
        self.stopped = False

    def poll(self) -> int | None:
        return self.code

    def read_log(self) -> list[str]:
        lines, self.log = self.log, []
        return lines

    def send_prompt(self, text: str) -> None:
        self.prompts.append(text)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def rounds() -> list[Round]:
    return list(synthetic.rounds(40))


async def test_a_run_is_watched_from_loading_to_its_end(tmp_path: Path, rounds: list[Round]) -> None:
    path, child = tmp_path / "live.db", StandIn()
    app = SpecviewApp(path, follow=True, child=child)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: "Starting" in screen(app), pilot)
        child.log.append("a warning of a library")
        await until(lambda: "a warning of a library" in screen(app), pilot)
        with TraceWriter(path) as writer:
            writer.begin_run(synthetic.run_info(random.Random(1)))
            writer.set_status("loading", "converting weights 45 %")
            await until(lambda: "converting weights 45 %" in screen(app), pilot)
            assert "Loading" in screen(app)
            assert "█" in screen(app)
            writer.add_vocab(synthetic.vocab())
            writer.set_status("running")
            handle = writer.begin_sequence(synthetic.prompt())
            for round_ in rounds[:5]:
                writer.add_round(handle, round_)
            await until(lambda: "round 5/5" in screen(app), pilot)
            assert "LIVE" in screen(app)
            assert "Starting" not in screen(app)
            await pilot.press("left")
            await until(lambda: "round 4/5" in screen(app), pilot)
            for round_ in rounds[5:10]:
                writer.add_round(handle, round_)
            await until(lambda: "round 4/10" in screen(app), pilot)
            await pilot.press("end")
            for round_ in rounds[10:]:
                writer.add_round(handle, round_)
            await until(lambda: "round 40/40" in screen(app), pilot)
            await pilot.press("i")
            await pilot.press(*"more", "enter")
            await until(lambda: child.prompts == ["more"], pilot)
            writer.end_sequence(handle, "length")
            second = writer.begin_sequence(synthetic.prompt(1))
            writer.add_round(second, rounds[0])
            await until(lambda: "prompt 2/2" in screen(app) and "round 1/1" in screen(app), pilot)
        child.code = 0
        await until(lambda: "LIVE" not in screen(app), pilot)
        await pilot.press("q")
    assert child.stopped
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["live.db"]


async def test_a_child_that_fails_says_its_last_sentence(tmp_path: Path) -> None:
    child = StandIn()
    app = SpecviewApp(tmp_path / "never.db", follow=True, child=child)
    async with app.run_test(size=(100, 30)) as pilot:
        child.log.append("specview: no such model: [/x]\x1b[2J; check the name.")
        child.code = 2
        await until(lambda: "no such model: [/x]␛[2J; check the name." in screen(app), pilot)
        await pilot.press("q")


async def test_the_log_opens_and_closes(tmp_path: Path) -> None:
    path, child = tmp_path / "run.db", StandIn()
    synthetic.write(path, 5)
    async with running(path, (100, 30), follow=True, child=child) as (app, pilot):
        child.log += ["one", "two"]
        await pilot.press("l")
        await until(lambda: "Log" in screen(app) and "two" in screen(app), pilot)
        await pilot.press("l")
        await until(lambda: "two" not in screen(app), pilot)


async def test_a_recorded_run_takes_no_prompt(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "run.db", 5)
    async with running(tmp_path / "run.db", (100, 30)) as (app, pilot):
        await press(pilot, "i")
        assert "a prompt needs a live run" in screen(app)


async def test_following_an_idle_trace_draws_nothing(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "run.db", 5)
    async with running(tmp_path / "run.db", (100, 30), follow=True) as (app, _):
        await until_quiet(app)
        snapshot = app.view.snapshot
        await asyncio.sleep(0.6)
        assert app.view.snapshot is snapshot


async def until_quiet(app: SpecviewApp) -> None:
    before = None
    while before is not app.view:
        before = app.view
        await asyncio.sleep(0.3)


async def test_an_exception_in_a_widget_ends_the_app_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specview.tui.widgets.kv import KvPane

    synthetic.write(tmp_path / "run.db", 5)
    child = StandIn()

    def broken(*_: object) -> None:
        raise RuntimeError("a widget broke")

    app = SpecviewApp(tmp_path / "run.db", follow=True, child=child)
    with pytest.raises(RuntimeError, match="a widget broke"):
        await _break(app, lambda: monkeypatch.setattr(KvPane, "draw_view", broken))
    assert isinstance(app.failure, RuntimeError)
    assert child.stopped


async def _break(app: SpecviewApp, sabotage: Callable[[], None]) -> None:
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: app.view.snapshot.round is not None, pilot)
        sabotage()
        await pilot.press("left")
        await asyncio.sleep(1)


async def test_a_file_that_is_put_in_place_of_another_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with TraceWriter(path) as writer:
        writer.close("finished")
    app = SpecviewApp(path, follow=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await asyncio.sleep(0.3)
        synthetic.write(tmp_path / "new.db", 5)
        (tmp_path / "new.db").replace(path)
        await until(lambda: "round 5/5" in screen(app), pilot)
        synthetic.write(tmp_path / "newer.db", 7)
        (tmp_path / "newer.db").replace(path)
        await until(lambda: "round 7/7" in screen(app), pilot)
