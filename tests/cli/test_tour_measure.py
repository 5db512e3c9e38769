"""What the tour asks of the engine, in real child processes with tiny models."""

from __future__ import annotations

import time

import pytest

from specview.tour import cases, measure
from specview.tour.measure import CostMeasurement, Search, found_before
from specview.tour.progress import state_folder

PATIENCE_S = 120


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIEW_STATE", str(tmp_path / "state"))


def polled(child):
    """What the child comes up with, or its failure."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := child.poll()) is None and not child.failed:
        assert time.monotonic() < deadline, "the child said nothing"
        time.sleep(0.1)
    return found


def test_the_cost_of_scoring_is_measured_and_nothing_is_left_behind(tiny_pair):
    child = CostMeasurement([*tiny_pair.options(), "--raw"])
    try:
        figures = polled(child)
    finally:
        child.close()
    assert figures.source == "here"
    assert figures.ratio > 0
    assert figures.several.positions == 5
    assert figures.device == tiny_pair.target.name
    assert not child._folder.exists()


def test_a_measurement_that_fails_says_why():
    child = CostMeasurement(["--temperature=-1"])
    try:
        assert polled(child) is None
    finally:
        child.close()
    assert child.failed.startswith("temperature must be")
    assert "Traceback" not in child.failed


def test_rounds_are_recorded_until_one_discards_the_next_token_and_that_is_kept(tiny_pair):
    assert found_before() is None
    child = Search([*tiny_pair.options(), "--raw", "--temperature", "0.2"])
    try:
        found = polled(child)
    finally:
        child.close()
    assert found is not None, child.failed
    case = cases.same(found)
    assert case is not None
    assert case.following is not None
    heir = cases.heir(case.round)
    assert heir is not None
    assert heir.candidate == case.following.committed[0][0]
    assert found.path.parent == state_folder()
    again = found_before()
    assert again is not None
    assert cases.same(again) == case


def test_a_kept_recording_that_is_damaged_is_not_used():
    path = state_folder() / measure.FOUND
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\0" + b"\0" * 200)
    assert found_before() is None
