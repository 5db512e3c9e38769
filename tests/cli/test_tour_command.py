"""`specview tour` on the command line, and in a real terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specview.cli.tour import LESSON, lesson_trace
from specview.errors import TraceError
from specview.tour.cases import kv_full, kv_rejected, phases, same, tempting
from specview.tour.catalogue import Catalogue
from specview.tour.costs import recorded
from specview.tour.stations import stations
from specview.tour.survey import survey
from specview.trace.reader import TraceReader
from tests import tour_traces
from tests.terminal import quoted, terminal

ROOT = Path(__file__).parents[2]
SPECVIEW = Path(sys.executable).with_name("specview")


def test_without_a_terminal_it_says_so_in_one_sentence(specview):
    result = specview("tour")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert "needs a terminal" in result.err


@pytest.mark.parametrize("words", [["--lang", "fr"], ["--station", "0"], ["--station", "15"]])
def test_wrong_usage_is_refused(specview, words):
    assert specview("tour", *words).code == 2


def test_the_lesson_s_trace_is_small_real_and_has_a_round_for_every_station():
    path = ROOT / LESSON
    assert path.stat().st_size < 1_000_000
    found = survey(path)
    assert found.run.info.source == "engine"
    assert found.run.status == "finished"
    assert all((phases(found), tempting(found), same(found), kv_rejected(found), kv_full(found)))
    assert not [s.key for s in stations(found, recorded(found)) if s.missing]


def test_the_lesson_s_trace_obeys_the_contract(specview):
    assert specview("check", LESSON).code == 0


def test_the_lesson_s_trace_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lesson_trace().resolve() == ROOT / "traces" / "lesson.db"


def test_where_there_is_no_trace_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("specview.cli.tour.LESSON", Path("traces") / "nothing.db")
    with pytest.raises(TraceError, match="specview record"):
        lesson_trace()


def test_the_tour_loads_no_torch():
    code = "import specview.cli.tour, specview.tui.tour.app, sys; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


def test_it_runs_where_torch_is_not_installed(tmp_path):
    """An interpreter that refuses to import torch and its kin stands for one that has none."""
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not installed')")
    (tmp_path / "transformers.py").write_text("raise ImportError('transformers is not installed')")
    code = (
        "import sys; from pathlib import Path; import specview.tui.tour.app; from specview.tour.survey import survey;"
        "from specview.tour.stations import stations; from specview.tour.costs import recorded;"
        "found = survey(Path(sys.argv[1])); asked = stations(found, recorded(found));"
        "print(sum(station.question is not None for station in asked))"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code, ROOT / LESSON], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "13"


@pytest.mark.terminal
def test_in_a_terminal_by_keys_alone(tmp_path):
    trace = tour_traces.write(tmp_path / "run.db")
    with terminal(80, 24, cwd=str(tmp_path)) as window:
        mode = window.run("stty -g")
        window.type(
            f"NO_COLOR=1 SPECVIEW_STATE={tmp_path / 'state'} LC_ALL=C.UTF-8 "
            + quoted(SPECVIEW, "tour", trace, "--station", "7", "--lang", "zh")
        )
        window.wait_for(Catalogue("zh").text("stop.title"))
        window.press("l")
        window.wait_for(Catalogue("en").text("stop.title"))
        window.press("Enter")
        window.wait_for(Catalogue("en").text("wrong"))
        window.press("Down", "Down", "Enter")
        window.wait_for(Catalogue("en").text("right"))
        window.press("Right")
        window.wait_for("Round 2 ·")
        window.press("q")
        window.wait_for("ready$")
        assert window.run("stty -g") == mode
    assert (tmp_path / "state" / "tour.json").exists()
    with TraceReader(trace) as reader:
        assert reader.runs()[0].status == "finished"
