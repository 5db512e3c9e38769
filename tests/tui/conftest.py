"""Every test of the screen has a state folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import synthetic, tour_traces
from tests.tour_traces import Told

OTHER = (Told((11, 12, 13), 1, 14), Told((15, 16, 17), 2, 4), Told((5, 6, 7), 3, 8), Told((9, 10, 11), 0, 12))


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SPECVIEW_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The traces that the tour is tried on, by kind."""
    folder = tmp_path_factory.mktemp("tour")
    synthetic.write(folder / "synthetic.db", 30, seed=3)
    return {
        "lesson": Path(__file__).parents[2] / "traces" / "lesson.db",
        "mixed": tour_traces.write(folder / "mixed.db"),
        "greedy": tour_traces.write(folder / "greedy.db", greedy=True),
        "other": tour_traces.write(folder / "other.db", OTHER),
        "synthetic": folder / "synthetic.db",
    }
