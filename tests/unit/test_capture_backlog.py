"""Rounds wait for each other, and may be analysed aside; nothing of that shows in what is recorded."""

import dataclasses
import threading
import time

import pytest
import torch

import specview
from specview.capturing import CaptureError, backlog, session, worker
from specview.capturing.backlog import Backlog
from tests.capture_pair import pair, prompt
from tests.capture_traces import everything
from tests.unit.test_capture_settings import observation

torch.set_num_threads(1)

CALL = {"max_new_tokens": 60, "do_sample": True, "temperature": 0.8, "top_k": 30, "eos_token_id": None}


@pytest.fixture(params=[True, False], ids=["worker", "between rounds"])
def aside(request, monkeypatch):
    """Whether there is a free core, decided here and not by the machine."""
    monkeypatch.setattr(session, "core_is_free", lambda: request.param)
    return request.param


def without_times(round_):
    return dataclasses.replace(round_, times=None)


def recorded(path, **arguments):
    target, draft = pair()
    torch.manual_seed(0)
    with specview.capture(path):
        output = target.generate(prompt(), **CALL, assistant_model=draft, **arguments)
    ((_, _, rounds, tokens),) = everything(path)
    assert [t.token for t in tokens] == output[0].tolist()
    return [without_times(r) for r in rounds]


def test_what_is_recorded_does_not_depend_on_who_analyses_it_and_how_many_at_once(tmp_path, aside, monkeypatch):
    several = recorded(tmp_path / "several.db")
    monkeypatch.setattr(backlog, "ROUNDS", 1)
    assert several == recorded(tmp_path / "one.db")
    assert len(several) > backlog.ROUNDS


def test_rounds_are_analysed_by_the_thread_that_was_chosen(tmp_path, aside, monkeypatch):
    to_rounds, threads = session.to_rounds, set()

    def noting(*arguments):
        threads.add((threading.current_thread().name == "specview-capture", torch.get_num_threads()))
        return to_rounds(*arguments)

    monkeypatch.setattr(session, "to_rounds", noting)
    recorded(tmp_path / "t.db")
    assert threads == {(aside, 1)}


def test_a_slow_instrument_holds_the_generation_back_and_loses_nothing(tmp_path, aside, monkeypatch):
    calls, to_rounds = [], session.to_rounds

    def slow(rounds, *arguments):
        calls.extend(rounds)
        time.sleep(0.01 * len(rounds))
        return to_rounds(rounds, *arguments)

    monkeypatch.setattr(session, "to_rounds", slow)
    monkeypatch.setattr(worker, "_WAITING", 1)
    assert len(recorded(tmp_path / "t.db")) == len(calls)


def test_rounds_that_still_wait_when_the_block_ends_are_written(tmp_path, aside, monkeypatch):
    monkeypatch.setattr(backlog, "ROUNDS", 1000)
    monkeypatch.setattr(backlog, "PATIENCE_NS", 10**15)
    target, draft = pair()
    inside, leave, lengths = threading.Event(), threading.Event(), []

    def stop(input_ids, scores, **_):
        lengths.append(input_ids.shape[1])
        if len(lengths) == 6:
            inside.set()
            assert leave.wait(60)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    thread = threading.Thread(
        target=lambda: target.generate(prompt(), **CALL, assistant_model=draft, stopping_criteria=[stop])
    )
    with specview.capture(tmp_path / "t.db"):
        thread.start()
        assert inside.wait(60)
    leave.set()
    thread.join()
    ((_, sequence, rounds, _),) = everything(tmp_path / "t.db")
    assert sequence.stop_reason == "interrupted"
    # The sixth is not complete: where the draft rolls its cache back to shows in the next proposal.
    assert [r.committed_after for r in rounds] == lengths[:5]


def test_an_error_in_what_still_waited_is_told(tmp_path, aside, monkeypatch):
    monkeypatch.setattr(backlog, "ROUNDS", 1000)
    monkeypatch.setattr(backlog, "PATIENCE_NS", 10**15)
    monkeypatch.setattr(session, "to_rounds", lambda *_: 1 / 0)
    with pytest.raises(CaptureError, match="stopped early: ZeroDivisionError"):
        recorded(tmp_path / "t.db")


def test_a_round_that_cannot_be_analysed_takes_none_of_those_before_it_along(tmp_path, aside, monkeypatch):
    monkeypatch.setattr(backlog, "ROUNDS", 1000)
    monkeypatch.setattr(backlog, "PATIENCE_NS", 10**15)
    to_rounds = session.to_rounds

    def broken(rounds, *arguments):
        if any(seen.index == 5 for seen in rounds):
            raise ZeroDivisionError
        return to_rounds(rounds, *arguments)

    monkeypatch.setattr(session, "to_rounds", broken)
    with pytest.raises(CaptureError, match="stopped early: ZeroDivisionError"):
        recorded(tmp_path / "t.db")
    ((_, _, rounds, _),) = everything(tmp_path / "t.db")
    assert [one.index for one in rounds] == [0, 1, 2, 3, 4]


def test_a_bunch_is_full_by_number_by_size_or_by_time(monkeypatch):
    seen = observation()
    few = Backlog()
    assert [few.add(seen) for _ in range(backlog.ROUNDS)] == [False] * (backlog.ROUNDS - 1) + [True]
    assert few.take() == [seen] * backlog.ROUNDS
    assert few.take() == []
    assert not few.add(seen)

    monkeypatch.setattr(backlog, "BYTES", 3 * seen.nbytes)
    small = Backlog()
    assert [small.add(seen) for _ in range(3)] == [False, False, True]

    slow = dataclasses.replace(seen, times=dataclasses.replace(seen.times, round_ns=backlog.PATIENCE_NS + 1))
    assert Backlog().add(slow)


def test_a_core_is_free_where_torch_takes_fewer_than_there_are(monkeypatch):
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    for threads, free in ((1, True), (2, False), (3, False)):
        monkeypatch.setattr(worker.torch, "get_num_threads", lambda threads=threads: threads)
        assert worker.core_is_free() == free
