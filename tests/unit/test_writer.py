"""The writer and the reader: what goes in comes out, ranges are ranges, and nothing is overwritten unasked."""

from __future__ import annotations

import math
import random
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.round import Cost, PhaseTimes, Position, Round, RunInfo, Sampling, Sequence, VocabEntry
from specview.errors import TraceError
from specview.summary import settings
from specview.trace import process
from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter
from tests import synthetic


def info(**facts: object) -> RunInfo:
    return replace(synthetic.run_info(random.Random(3)), **facts)  # type: ignore[arg-type]


def full_round() -> Round:
    """A round in which every field holds something of its own."""
    positions = (
        Position(
            1, 5, 0.1, 0.2, 0.3, "accepted", 0.4, 0.5, 0.6, 7, ((5, 0.125), (6, 0.0625)), ((7, 0.5),), None, 0.0, 1e-9
        ),
        Position(2, 8, 0.1, 0.2, 0.3, "cut", 0.4, 0.5, 0.6, 2, ((8, 0.125),), (), 1, 0.5, 0.25),
        Position(3, target_entropy=2.5, target_top=((9, 1.0),), target_deviation=0.0),
    )  # fmt: skip
    return Round(
        0, 4, 2, 2, 2, 3, 4, ((5, "accepted"),), positions, 9, "bonus", 0.11, 0.12, 0.13, 0.14, True, "eos", "n_max",
        2, 3, 3, 4, 5, 6, 1, 2, PhaseTimes(10, 20, 30, 40, 50, 60, 300),
    )  # fmt: skip


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    facts = info(
        sampling=Sampling(0.7, 40, 0.9, 0.05, 1.1, 0.5, -0.5, {5: -100.0, 7: 2.5}),
        stop=("\n\n", "停"),
        chat=True,
        draft="models/ドラフト",
        versions={"torch": "2.13.0"},
        seed=-3,
    )
    seq = Sequence(0, "Why?\x1b[2J 天", (5, 6, 7), 11, 22, 1, "request-1")
    with TraceWriter(path) as writer:
        assert writer.begin_run(RunInfo(facts.uuid)) == 1
        writer.update_info(facts)
        writer.set_status("running", "decoding")
        handle = writer.begin_sequence(seq)
        writer.set_baseline(12.5, 3, (1, 2, 3), handle)
        writer.add_costs([Cost(1, 100, 10, 64), Cost(5, 120, None, None)])
        writer.add_round(handle, full_round())
        writer.add_vocab([VocabEntry(5, b"\xe5\xa4"), VocabEntry(9, b"<eos>", True), VocabEntry(5, b"other")])
        writer.add_vocab([VocabEntry(5, b"again")])
        writer.end_sequence(handle, "eos")
        writer.close("finished", "done")
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        assert run.info == facts
        assert (run.status, run.message) == ("finished", "done")
        assert (run.baseline_ms_per_token, run.baseline_tokens) == (12.5, 3)
        assert run.created.endswith("Z")
        assert run.finished is not None
        assert run.finished >= run.created
        (sequence,) = reader.sequences(run.id)
        assert sequence.prompt == seq.prompt
        assert (sequence.index, sequence.request_id, sequence.prompt_tokens) == (0, "request-1", 3)
        assert (sequence.target_prefill_ns, sequence.draft_prefill_ns, sequence.target_prefill_calls) == (11, 22, 1)
        assert sequence.baseline_ids == (1, 2, 3)
        assert sequence.stop_reason == "eos"
        assert reader.rounds(sequence.id, 0, 10) == [full_round()]
        assert reader.rounds(sequence.id, 0, 10, positions=False) == [replace(full_round(), positions=())]
        assert reader.costs(run.id) == [Cost(1, 100, 10, 64), Cost(5, 120, None, None)]
        assert reader.vocab(run.id, [5, 9, 77]) == {
            5: VocabEntry(5, b"\xe5\xa4"),
            9: VocabEntry(9, b"<eos>", special=True),
        }
        assert [(t.token, t.origin, t.round_index) for t in reader.tokens(sequence.id, 0, 99)] == [
            (5, "prompt", None), (6, "prompt", None), (7, "prompt", None), (5, "accepted", 0),
        ]  # fmt: skip
        assert reader.token_count(sequence.id) == 4


def test_probabilities_come_back_to_the_last_bit_and_nan_stays(tmp_path: Path) -> None:
    values = [synthetic.f32(random.Random(i).random()) for i in range(40)] + [5e-324, 1.0, 0.0, math.inf]
    r = Round(
        0, 99, len(values), None, 0, 0, 1,
        positions=tuple(Position(i, 5, v, v, v, target_top=((1, v), (2, math.nan))) for i, v in enumerate(values, 1)),
        residual_mass=math.nan, correction_prob=math.nan,
    )  # fmt: skip
    r = replace(r, positions=(*r.positions, Position(len(values) + 1, overlap=math.nan)))
    with TraceWriter(tmp_path / "trace.db") as writer:
        writer.begin_run(info())
        sequence = writer.begin_sequence(synthetic.prompt())
        writer.add_round(sequence, r)
        writer.set_baseline(math.nan, 1, ())
    with TraceReader(tmp_path / "trace.db") as reader:
        (back,) = reader.rounds(sequence, 0, 1)
        assert [p.u for p in back.positions[:-1]] == values
        assert [p.draft_prob for p in back.positions[:-1]] == values
        assert math.isnan(back.positions[-1].overlap or 0)
        assert math.isnan(back.residual_mass or 0)
        assert math.isnan(back.correction_prob or 0)
        assert math.isnan(back.positions[0].target_top[1][1])
        assert back.positions[0].target_top[0][1] == pytest.approx(values[0], rel=1e-5)
        assert math.isnan(reader.runs()[0].baseline_ms_per_token or 0)


def test_rounds_come_by_range(tmp_path: Path) -> None:
    rounds = list(synthetic.rounds(700, pool=50))
    with TraceWriter(tmp_path / "trace.db") as writer:
        writer.begin_run(info())
        first, second = writer.begin_sequence(synthetic.prompt(0)), writer.begin_sequence(synthetic.prompt(1))
        for r in rounds:  # two sequences at once: their rows lie mixed in the file
            writer.add_round(first, r)
            if r.index % 3 == 0:
                writer.add_round(second, replace(r, index=r.index // 3))
    with TraceReader(tmp_path / "trace.db") as reader:
        assert reader.sequence_count(1) == 2
        assert [s.index for s in reader.sequences(1, 1)] == [1]
        assert [s.index for s in reader.sequences(1, 0, 1)] == [0]
        assert reader.round_count(first) == 700
        assert reader.run_round_count(1) == 700 + 234
        for start, stop in ((0, 700), (0, 1), (699, 800), (123, 456), (500, 500), (900, 1000)):
            assert _without_tops(reader.rounds(first, start, stop)) == _without_tops(rounds[start:stop])
        assert [r.positions for r in _without_tops(reader.rounds(second, 5, 9))] == [
            r.positions for r in _without_tops(rounds[15:27:3])
        ]
        tokens = reader.tokens(first, 0, 10_000)
        assert [t.position for t in tokens] == list(range(reader.token_count(first)))
        assert [t.token for t in tokens[12:]] == [token for r in rounds for token, _ in r.committed]


def _without_tops(rounds: list[Round]) -> list[Round]:
    """Alternatives are kept to six digits; everything else is exact."""
    return [replace(r, positions=tuple(replace(p, draft_top=(), target_top=()) for p in r.positions)) for r in rounds]


def test_an_existing_file_is_never_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    synthetic.write(path, 3)
    before = path.read_bytes()
    with pytest.raises(TraceError, match=r"already exists.*--force"):
        TraceWriter(path)
    assert path.read_bytes() == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TraceError, match="already exists"):
        TraceWriter(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(TraceError, match="not a regular file"):
        TraceWriter(tmp_path, force=True)


def test_a_path_that_leads_nowhere_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraceError, match="a part of the path is a file"):
        TraceWriter(tmp_path / "file" / "trace.db")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_force_replaces_and_discard_brings_back(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    synthetic.write(path, 3)
    before = path.read_bytes()
    writer = TraceWriter(path, force=True)
    writer.begin_run(info())
    writer.discard()
    assert path.read_bytes() == before
    synthetic.write(path, 5, force=True)
    with TraceReader(path) as reader:
        assert reader.run_round_count(1) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["trace.db"]


def test_discard_leaves_nothing(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "new" / "trace.db")
    writer.begin_run(info())
    writer.set_status("loading", "reading weights")
    writer.discard()
    writer.discard()
    assert list((tmp_path / "new").iterdir()) == []


def test_append_adds_a_run_and_its_discard_takes_it_away(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    synthetic.write(path, 4, seed=1)
    writer = TraceWriter(path, append=True)
    assert writer.begin_run(info(uuid="second")) == 2
    sequence = writer.begin_sequence(synthetic.prompt())
    for r in synthetic.rounds(6, pool=20):
        writer.add_round(sequence, r)
    writer.add_vocab(synthetic.vocab()[:9])
    writer.close("finished")
    with TraceReader(path) as reader:
        assert [run.info.uuid for run in reader.runs()][1] == "second"
        assert [reader.run_round_count(run.id) for run in reader.runs()] == [4, 6]
        assert [reader.totals(run.id).num_rounds for run in reader.runs()] == [4, 6]
    again = TraceWriter(path, append=True)
    again.begin_run(info(uuid="third"))
    sequence = again.begin_sequence(synthetic.prompt())
    again.add_round(sequence, full_round())
    time.sleep(0.1)
    again.discard()
    with TraceReader(path) as reader:
        assert [reader.run_round_count(run.id) for run in reader.runs()] == [4, 6]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sequences").fetchone() == (2,)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_append_refuses_what_is_no_trace_or_is_being_written(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"SQLite format 3\x00" + bytes(500))
    with pytest.raises(TraceError):
        TraceWriter(tmp_path / "other.db", append=True)
    writer = TraceWriter(tmp_path / "trace.db")
    writer.begin_run(info())
    writer.set_status("running")
    while not _runs(tmp_path / "trace.db"):
        time.sleep(0.01)
    for how in ({"append": True}, {"force": True}):
        with pytest.raises(TraceError, match="being written by process"):
            TraceWriter(tmp_path / "trace.db", **how)
    writer.close("finished")


def _runs(path: Path) -> int:
    with TraceReader(path) as reader:
        return len(reader.runs())


def test_a_closed_trace_is_one_file_without_a_log(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "trace.db", 300)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.db"]
    connection = sqlite3.connect(tmp_path / "trace.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_broken_round_is_reported_at_the_next_call(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.db")
    writer.begin_run(info())
    sequence = writer.begin_sequence(synthetic.prompt())
    writer.add_round(sequence, replace(full_round(), proposed=object()))  # type: ignore[arg-type]

    def go_on() -> None:
        for _ in range(500):
            writer.set_status("running")
            time.sleep(0.01)

    with pytest.raises(TraceError, match="could not be written"):
        go_on()
    with pytest.raises(TraceError, match="could not be written"):
        writer.close("finished")
    with TraceReader(tmp_path / "trace.db") as reader:
        assert reader.runs() == [] or reader.runs()[0].status == "failed"


def test_a_round_after_its_sequence_ended_is_reported(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.db")
    writer.begin_run(info())
    sequence = writer.begin_sequence(synthetic.prompt())
    writer.end_sequence(sequence, "length")
    writer.add_round(sequence, full_round())
    with pytest.raises(TraceError, match="could not be written"):
        writer.close("finished")


def test_an_exception_in_the_block_ends_the_run_as_what_it_was(tmp_path: Path) -> None:
    for error, status in ((KeyboardInterrupt(), "interrupted"), (RuntimeError("the GPU fell off"), "failed")):
        path = tmp_path / f"{status}.db"
        with pytest.raises(type(error)), TraceWriter(path) as writer:  # noqa: PT012
            writer.begin_run(info())
            raise error
        with TraceReader(path) as reader:
            (run,) = reader.runs()
            assert run.status == status
            assert run.message == (None if status == "interrupted" else "the GPU fell off")


def test_lone_surrogates_in_a_prompt_are_kept_as_escapes(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace.db") as writer:
        writer.begin_run(info())
        writer.begin_sequence(Sequence(0, "a\ud800b", (5,)))
    with TraceReader(tmp_path / "trace.db") as reader:
        assert reader.sequences(1)[0].prompt == "a\\ud800b"


def test_lone_surrogates_anywhere_do_not_stop_the_writer(tmp_path: Path) -> None:
    odd, kept = "a\ud800b", "a\\ud800b"
    with TraceWriter(tmp_path / "trace.db") as writer:
        writer.begin_run(info(draft=odd, target=odd, device_name=odd, stop=(odd,), versions={odd: odd}))
        writer.set_status("running", odd)
        writer.add_round(writer.begin_sequence(synthetic.prompt()), replace(full_round(), draft_stop=odd))
        writer.close("finished", odd)
    with TraceReader(tmp_path / "trace.db") as reader:
        (run,) = reader.runs()
        assert (run.info.draft, run.info.target, run.info.device_name, run.message) == (kept,) * 4
        assert (run.info.stop, run.info.versions) == ((kept,), {kept: kept})
        assert reader.rounds(1, 0, 9)[0].draft_stop == kept


def test_a_bias_that_forbids_a_token_is_valid_json_and_comes_back(tmp_path: Path) -> None:
    bias = {5: -math.inf, 7: math.inf, 9: -2.5}
    with TraceWriter(tmp_path / "trace.db") as writer:
        writer.begin_run(info(sampling=Sampling(logit_bias=bias)))
        writer.close("finished")
    with TraceReader(tmp_path / "trace.db") as reader:
        (run,) = reader.runs()
        assert run.info.sampling is not None
        assert run.info.sampling.logit_bias == bias
        assert reader.number("SELECT json_valid(logit_bias) FROM runs") == 1
        assert reader.number("SELECT json_extract(logit_bias, '$.\"5\"') = '-inf' FROM runs") == 1
        assert settings(run)["logit_bias"] == {"5": "-inf", "7": "inf", "9": -2.5}


def test_a_writer_that_is_gone_is_told_from_one_that_lives() -> None:
    mark = process.current()
    assert process.alive(mark)
    assert not process.alive(replace(mark, host="elsewhere"))
    assert not process.alive(replace(mark, pid=2**22 + 5))
    assert not process.alive(replace(mark, pid=None))
    assert not process.alive(replace(mark, pid=2**70))
    if mark.start is not None:
        assert not process.alive(replace(mark, start="another boot:1")), "the pid was given to another process"


def test_a_writer_told_to_settle_has_written_what_waited(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    with TraceWriter(path, gather_seconds=3600) as writer:
        writer.begin_run(info())
        handle = writer.begin_sequence(Sequence(0, "Why?", (5, 6, 7)))
        for settled in (1, 2):
            writer.add_round(handle, replace(full_round(), index=settled - 1))
            writer.settle(60)
            with TraceReader(path) as reader:
                assert reader.round_count(handle) == settled
    writer.settle(60)  # closed: nothing waits
