"""Progress is kept in the user's state folder, whole or not at all."""

import json

import pytest

from specview.tour import progress
from specview.tour.progress import FILE, Progress, Solved, load, save
from specview.tour.questions import Attempt


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIEW_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_nothing_is_kept_before_the_first_answer(folder):
    assert load() == Progress()
    assert not folder.exists()


def test_what_is_saved_is_loaded(folder):
    kept = Progress({"chain": Solved(1), "mask": Solved(3)}, "stop")
    save(kept)
    assert load() == kept
    assert [p.name for p in folder.iterdir()] == [FILE]
    assert kept.first == 1


def test_the_first_right_answer_counts():
    once = Progress().after("chain", Attempt(verdict="right", tries=2))
    assert once.solved == {"chain": Solved(2)}
    assert once.after("chain", Attempt(verdict="right", tries=1)) == once
    assert once.after("mask", Attempt(verdict="wrong", tries=1)) == once


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"solved": 1, "at": "x"}', '{"solved": {"chain": "x"}, "at": 1}']
)
def test_a_file_that_is_not_ours_is_no_progress(folder, text):
    folder.mkdir()
    (folder / FILE).write_text(text)
    assert load() == Progress()


def test_unknown_stations_of_another_version_are_left_out(folder):
    folder.mkdir()
    (folder / FILE).write_text(json.dumps({"solved": {"chain": 1, "gone": 2}, "at": "gone"}))
    assert load() == Progress({"chain": Solved(1)})


def test_a_file_that_cannot_be_read_is_an_error(folder):
    (folder / FILE).mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        load()


def test_without_the_variable_the_platform_decides(monkeypatch):
    monkeypatch.delenv("SPECVIEW_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert progress.state_folder().parts[-1] == "specview"
