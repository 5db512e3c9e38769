"""Calls recorded from real vLLM engines become traces: whole, faithful, and checked."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from engine.round import RunInfo, VocabEntry
from specview.contract import check
from specview.trace.reader import TraceReader
from specview.vllm_plugin import files, recorder
from specview.vllm_plugin.log import Switch
from specview.vllm_plugin.recorder import Recorder
from specview.vllm_plugin.steps import Begin, RequestStep, Step
from tests.unit import vllm_calls

INFO = RunInfo("", source="vllm", draft="d", target="t", proposer="draft-model", gamma=3, vocab_size=320)


class Words:
    """A vocabulary of numbers."""

    def entries(self, ids):
        return [VocabEntry(i, self.data([i])) for i in sorted(ids)]

    def data(self, ids):
        return b"".join(b"<%d>" % i for i in ids)

    def text(self, ids):
        return self.data(ids).decode()


def record(path, steps, device="cpu"):
    """The trace of these steps, closed."""
    switch = Switch()
    writing = Recorder(replace(INFO, device=device), Words(), files.claim(path, 0), switch)
    for step in steps:
        for request in step.requests:
            assert writing.first_time(request.request_id) == (request.begin is not None)
        writing.put(step)
    writing.close()
    writing.close()
    assert switch.on
    return path


def checked(path):
    with TraceReader(path) as reader:
        return [{clause.id: clause for clause in report.clauses} for report in check(reader)]


@pytest.fixture(params=["cpu", "cuda"])  # recorded between two steps, or beside them
def mixed(tmp_path, request):
    return record(tmp_path / "mixed.db", vllm_calls.load("vllm_mixed"), request.param)


def test_a_mixed_batch_holds_every_clause_it_can_show(mixed):
    runs = checked(mixed)
    assert len(runs) == 3
    for clauses in runs:
        assert not [name for name, clause in clauses.items() if clause.violations]
    for name in ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C11", "C13"):
        assert sum(clauses[name].checked for clauses in runs), name


def test_requests_end_as_they_ended(mixed):
    with TraceReader(mixed) as reader:
        reasons = {s.request_id[:2]: s.stop_reason for run in reader.runs() for s in reader.sequences(run.id)}
        assert all(run.status == "finished" for run in reader.runs())
    assert reasons == {"r0": "length", "r1": "stop", "r2": "length", "go": "interrupted"}


def test_the_output_is_the_scheduler_s_and_every_token_has_its_word(mixed):
    committed = {}
    for step in vllm_calls.load("vllm_mixed"):
        for request in step.requests:
            committed.setdefault(request.request_id, []).extend(request.committed)
    with TraceReader(mixed) as reader:
        for run in reader.runs():
            for sequence in reader.sequences(run.id):
                tokens = reader.tokens(sequence.id, 0, reader.token_count(sequence.id))
                assert [t.token for t in tokens[sequence.prompt_tokens :]] == committed[sequence.request_id]
                words = reader.vocab(run.id, {t.token for t in tokens})
                assert all(words[t.token].data == b"<%d>" % t.token for t in tokens)
                assert sequence.prompt == "".join(f"<{t.token}>" for t in tokens[: sequence.prompt_tokens])


def test_what_a_greedy_request_of_a_random_batch_shows(mixed):
    with TraceReader(mixed) as reader:
        (run,) = [run for run in reader.runs() if run.info.sampling.greedy]
        (sequence,) = reader.sequences(run.id)
        rounds = reader.rounds(sequence.id, 0, 100)
    candidates = [p for r in rounds for p in r.positions if p.candidate is not None]
    assert all(p.u is None for p in candidates)
    assert all(p.overlap == (p.rank == 1) for p in candidates)
    assert all((p.fate in ("accepted", "cut")) == (p.rank == 1) for p in candidates if p.fate != "discarded")


def test_broken_distributions_are_named_at_the_round_where_they_start(tmp_path):
    (clauses,) = checked(record(tmp_path / "broken.db", vllm_calls.load("vllm_broken")))
    found = clauses["C1"].violations
    assert found
    assert min(v.round for v in found) == 1  # round 0 reads the prompt: nothing was drafted
    assert all(v.position <= 3 for v in found)
    assert not clauses["C3"].violations


def request(name="a-1", **changes):
    return RequestStep(**{"request_id": name, "committed_before": 4, "generated": 1, "committed": (7,)} | changes)


def test_a_step_whose_sampling_was_not_seen_still_counts(tmp_path):
    steps = [
        Step(None, (request(begin=Begin((1, 2, 3, 4), 1.0)),), 0, 1000),
        Step(None, (request(committed_before=5, generated=3, committed=(8, 9, 10), scheduled_candidates=3),), 0, 1000),
        Step(None, (request(committed_before=8, generated=4, committed=(1,), scheduled_candidates=3, ended="eos"),)),
    ]
    with TraceReader(record(tmp_path / "run.db", steps)) as reader:
        (run,) = reader.runs()
        (sequence,) = reader.sequences(run.id)
        rounds = reader.rounds(sequence.id, 0, 10)
    assert [(r.proposed, r.accepted, r.cut, r.correction_kind) for r in rounds] == [
        (0, 0, None, "target"),
        (3, 2, None, "correction"),
        (3, 3, "eos", None),
    ]
    assert sequence.stop_reason == "eos"


def test_a_stop_string_turns_an_abort_into_a_stop(tmp_path):
    steps = [
        Step(None, (request("a", begin=Begin((1, 2, 3, 4), 0.0, stop=("7><8",))),)),
        Step(None, (request("b", begin=Begin((1, 2, 3, 4), 0.0, stop=("never",))),)),
        Step(None, (request("a", committed_before=5, committed=(8,)),)),
        Step(None, (), aborted=(("a", "interrupted"), ("b", "interrupted"), ("unknown", "interrupted"))),
    ]
    with TraceReader(record(tmp_path / "run.db", steps)) as reader:
        (run,) = reader.runs()
        assert [s.stop_reason for s in reader.sequences(run.id)] == ["stop", "interrupted"]


def test_prompts_read_in_chunks_count_as_prefill(tmp_path):
    steps = [
        Step(None, (request(generated=0, committed=(), begin=Begin((1, 2, 3, 4), 1.0)),), 0, 500),
        Step(None, (request(generated=0, committed=()),), 0, 700),
        Step(None, (request(target_kv_before=2, target_kv_written=2, target_kv_after=4),), 0, 900),
    ]
    with TraceReader(record(tmp_path / "run.db", steps)) as reader:
        (run,) = reader.runs()
        (sequence,) = reader.sequences(run.id)
        (first,) = reader.rounds(sequence.id, 0, 10)
    assert (sequence.target_prefill_calls, sequence.target_prefill_ns) == (2, 1200)
    # What of the step was the prompt's and what the round's, vLLM does not say.
    assert (first.target_kv_before, first.target_kv_written, first.target_kv_after) == (None, None, 4)


def test_an_engine_that_goes_down_leaves_its_open_requests_interrupted(tmp_path):
    path = record(tmp_path / "run.db", [Step(None, (request(begin=Begin((1, 2, 3, 4), 1.0)),))])
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        (sequence,) = reader.sequences(run.id)
    assert (run.status, sequence.stop_reason) == ("interrupted", "interrupted")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_recorder_that_fails_lets_the_engine_go_on(tmp_path, monkeypatch, caplog, device):
    monkeypatch.setattr(recorder, "QUEUE_LIMIT", 4)
    switch = Switch()
    path = tmp_path / "run.db"
    writing = Recorder(replace(INFO, device=device), Words(), files.claim(path, 0), switch)
    writing.put(Step(None, (request(begin=Begin((1, 2, 3, 4), temperature=-1.0)),)))
    for _ in range(20):
        writing.put(Step(None, (request(),)))
    writing.close()
    assert not switch.on
    assert len([message for message in caplog.messages if "recording failed" in message]) == 1
    with TraceReader(path) as reader:
        assert [run.status for run in reader.runs()] == ["failed"]


def test_on_a_processor_no_thread_takes_a_core_to_record(tmp_path):
    before = set(threading.enumerate())
    writing = Recorder(replace(INFO, device="cpu"), Words(), files.claim(tmp_path / "run.db", 0), Switch())
    started = {thread.name for thread in set(threading.enumerate()) - before}
    writing.close()
    assert started == {"trace-writer"}
