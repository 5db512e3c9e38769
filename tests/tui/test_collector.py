"""The garbage collector waits for a pause, and painting leaves it nothing to do."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.style import Style

from specview.tui import collector
from specview.tui.collector import Collector
from specview.tui.ink import InkStrip, strip
from tests import synthetic
from tests.tui.driving import press, running


class Cycle:
    """Garbage that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def waiting() -> Iterator[Collector]:
    opened = Collector()
    yield opened
    opened.close()


def test_nothing_is_collected_while_objects_come_quickly(waiting: Collector) -> None:
    gone = weakref.ref(Cycle())
    kept = [[] for _ in range(collector.WORTH + collector.QUIET)]  # type: ignore[var-annotated]
    assert not waiting.tick(), "that many new objects mean that the screen is busy"
    assert gone() is not None
    assert waiting.tick(), "and none since then, that it rests"
    assert gone() is None
    assert not waiting.tick(), "nothing is left to look at"
    del kept


def test_much_garbage_is_not_left_lying(waiting: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "OVERDUE", 1_000)
    gone = weakref.ref(Cycle())
    kept = [[] for _ in range(2_000)]  # type: ignore[var-annotated]
    assert waiting.tick()
    assert gone() is None
    del kept


def test_pythons_own_rules_come_back() -> None:
    assert gc.isenabled()
    opened = Collector()
    assert not gc.isenabled()
    opened.close()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_line_cut_to_its_width_is_itself() -> None:
    line = strip([("text", Style(color="red"))], 20, Style())
    assert isinstance(line, InkStrip)
    (whole,) = line.divide([20])
    assert whole is line
    assert [part.text for part in line.divide([4, 20])] == ["text", " " * 16]


async def test_stepping_leaves_no_cycles(tmp_path: Path) -> None:
    trace = tmp_path / "run.db"
    synthetic.write(trace, 300, seed=1)
    async with running(trace, (100, 30)) as (_app, pilot):
        await press(pilot, *["right"] * 3)
        gc.collect()
        gc.disable()
        try:
            gc.set_debug(gc.DEBUG_SAVEALL)
            await press(pilot, *["pagedown"] * 20)
            gc.collect()
            strips = [o for o in gc.garbage if isinstance(o, InkStrip)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert not strips
