"""Imports of vLLM's and llama.cpp's logs: what they tell is kept, what they lack is empty, nonsense is refused."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.round import PhaseTimes
from specview.contract import check
from specview.errors import TraceError
from specview.importing.run import LONGEST_LINE, Form, bounded, import_log
from specview.summary import document, summarize
from specview.trace.reader import TraceReader


def imported(lines: list[Any], path: Path, form: Form | None = None) -> int:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return import_log(texts, "server.jsonl", path, form=form, force=True, progress=lambda _: None)


def response(drafted: list[int], accepted: list[int], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "choices": [{"index": 0, "finish_reason": "length", "message": {"content": "…"}}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29},
        "metrics": {
            "time_to_first_token_ms": 85.2,
            "speculative_decoding": {
                "mean_acceptance_length": 2.0,
                "num_spec_tokens": 3,
                "num_spec_steps": len(drafted),
                "per_step_drafted": drafted,
                "per_step_accepted": accepted,
            },
        },
        **more,
    }


def spec_round(pos: int, n: int, accepted: int, slot: int = 0, **verify: Any) -> dict[str, Any]:
    tokens = [
        {"pos": i, "id": 100 + i, "p": 0.5 + i / 100, "entropy": 0.25, "top_k": [[100 + i, 0.5], [7, 0.25]]}
        for i in range(n)
    ]
    return {
        "ts_ms": 1703001234567,
        "slot_id": slot,
        "prompt_pos": pos,
        "round_id": 42,
        "draft": {"n": n, "stop_reason": "p_min", "tokens": tokens},
        "verify": {"n_accepted": accepted, "rej_pos": accepted if accepted < n else -1, "target_id": 900, **verify},
        "timing": {"t_draft_us": 12500, "t_verify_us": 45000},
    }


def test_vllm_steps_become_rounds(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    second = response([3], [3], id="chatcmpl-2", choices=[{"finish_reason": "stop"}])
    assert imported([response([3, 3, 2], [1, 3, 0]), "", "data: " + json.dumps(second), "data: [DONE]"], path) == 4
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        assert (run.info.source, run.info.target, run.info.gamma) == ("vllm log", "meta-llama/Llama-3.1-8B-Instruct", 3)
        first, other = reader.sequences(run.id)
        assert (first.request_id, first.prompt_tokens, first.stop_reason) == ("chatcmpl-1", 20, "length")
        assert (other.request_id, other.stop_reason) == ("chatcmpl-2", "stop")
        rounds = reader.rounds(first.id, 0, 10)
        assert [(r.proposed, r.judged, r.accepted) for r in rounds] == [(3, None, 1), (3, None, 3), (2, None, 0)]
        assert [r.committed_after for r in rounds] == [22, 26, 27]
        assert [p.fate for p in rounds[0].positions] == [None, None, None]
        assert {r.correction_token for r in rounds} == {None}
        assert rounds[0].times == PhaseTimes()
        values = summarize(reader, run).values()
        assert values["acceptance_histogram"] == [1, 1, 0, 2]
        assert values["mean_acceptance_length"] == 2.75
        assert values["tokens_per_second"] is values["judged_acceptance_rate"] is None
        assert values["target_calls_per_token"] is None
        (report,) = check(reader)
        assert report.holds
        verdicts = {c.id: c.verdict for c in report.clauses}
        # γ and the number of candidates are in the log; all else would be the importer's own arithmetic.
        assert {id_ for id_, verdict in verdicts.items() if verdict != "not recorded"} == {"C1"}


def test_llama_cpp_rounds_keep_tokens_probabilities_and_clocks(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    lines = [spec_round(125, 3, 1), spec_round(127, 2, 2), spec_round(60, 1, 0, slot=1), spec_round(130, 1, 0)]
    assert imported(lines, path) == 4
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        assert run.info.source == "llama.cpp log"
        first, second = reader.sequences(run.id)
        assert (first.prompt_tokens, second.prompt_tokens) == (125, 60)
        assert (first.request_id, second.request_id) == ("slot 0", "slot 1")
        rounds = reader.rounds(first.id, 0, 10)
        assert [(r.index, r.committed_before, r.committed_after) for r in rounds] == [
            (0, 125, 127), (1, 127, 130), (2, 130, 131),
        ]  # fmt: skip
        r = rounds[0]
        assert r.candidates == (100, 101, 102)
        assert [p.draft_prob for p in r.positions] == [0.5, 0.51, 0.52]
        assert r.positions[0].draft_top == ((100, 0.5), (7, 0.25))
        assert r.positions[0].draft_entropy == 0.25
        assert {p.target_prob for p in r.positions} == {None}
        assert (r.correction_token, r.correction_kind, r.draft_stop) == (900, "correction", "p_min")
        assert rounds[1].correction_kind == "bonus"
        assert r.committed == ((100, "accepted"), (900, "correction"))
        assert (r.times.propose_ns, r.times.score_ns, r.times.round_ns) == (12_500_000, 45_000_000, None)
        assert [t.position for t in reader.tokens(first.id, 0, 999)] == list(range(125, 131))
        assert [p.fate for p in r.positions] == ["accepted", "rejected", "discarded"]
        (report,) = check(reader)
        assert report.holds
        verdicts = {c.id: c.verdict for c in report.clauses}
        assert {id_ for id_, verdict in verdicts.items() if verdict == "ok"} == {"C1", "C4", "C6"}
        assert verdicts["C14"] == "not recorded", "two clocks do not show what scoring costs beside a plain step"


def test_what_a_llama_cpp_log_leaves_out_is_not_worked_out(tmp_path: Path) -> None:
    lines = [spec_round(10, 3, 1, rej_pos=None, target_id=None), spec_round(12, 2, 2, rej_pos=None)]
    lines[0]["draft"]["tokens"] = []
    imported(lines, tmp_path / "t.db")
    with TraceReader(tmp_path / "t.db") as reader:
        rounds = reader.rounds(1, 0, 9)
        assert [r.judged for r in rounds] == [None, None]
        assert {p.fate for r in rounds for p in r.positions} == {None}
        (report,) = check(reader)
        assert {c.id: c.verdict for c in report.clauses}["C4"] == "not recorded"
        assert {c.id: c.verdict for c in report.clauses}["C6"] == "not recorded"


def test_a_correction_that_is_the_rejected_token_is_found_in_a_log(tmp_path: Path) -> None:
    imported([spec_round(10, 3, 1, target_id=101)], tmp_path / "t.db")
    with TraceReader(tmp_path / "t.db") as reader:
        assert {c.id for c in check(reader)[0].clauses if c.broken} == {"C6"}


@pytest.mark.parametrize(
    ("completion", "reason", "output", "cut"),
    [
        (9, "length", 8, None),
        (10, "length", 8, None),
        (8, "length", 7, "length"),
        (6, "stop", 5, "stop"),
        (8, None, 7, None),
    ],
)
def test_a_vllm_response_has_no_more_tokens_than_it_says(
    completion: int, reason: str | None, output: int, cut: str | None, tmp_path: Path
) -> None:
    """Two steps that accepted 3 and 3 commit 4 and 4; one more token came from the prefill."""
    usage = {"prompt_tokens": 20, "completion_tokens": completion}
    imported([response([3, 3], [3, 3], usage=usage, choices=[{"finish_reason": reason}])], tmp_path / "t.db")
    with TraceReader(tmp_path / "t.db") as reader:
        (run,) = reader.runs()
        assert summarize(reader, run).totals.num_output_tokens == output
        first, last = reader.rounds(1, 0, 9)
        assert (first.committed_after, first.cut, first.correction_kind) == (24, None, "bonus")
        assert (last.committed_after, last.cut) == (20 + output, cut)
        assert last.correction_kind == ("bonus" if output == 8 else None)
        assert check(reader)[0].holds


def test_a_jump_in_position_begins_a_new_sequence(tmp_path: Path) -> None:
    """llama.cpp logs no round without a draft, so what lies between is not known."""
    imported([spec_round(10, 2, 1), spec_round(12, 2, 2), spec_round(40, 2, 0), spec_round(5, 1, 1)], tmp_path / "t.db")
    with TraceReader(tmp_path / "t.db") as reader:
        assert [s.prompt_tokens for s in reader.sequences(1)] == [10, 40, 5]
        assert [reader.round_count(s.id) for s in reader.sequences(1)] == [2, 1, 1]


def test_a_log_that_contradicts_itself_breaks_a_clause(tmp_path: Path) -> None:
    imported([spec_round(10, 3, 1, rej_pos=2)], tmp_path / "t.db")
    imported_broken = response([2], [3])
    with TraceReader(tmp_path / "t.db") as reader:
        assert {c.id for c in check(reader)[0].clauses if c.broken} == {"C4"}
    imported([imported_broken], tmp_path / "v.db")
    with TraceReader(tmp_path / "v.db") as reader:
        assert "C4" in {c.id for c in check(reader)[0].clauses if c.broken}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no json", "line 2: it is no JSON object"),
        ("[1, 2]", "line 2: it is no JSON object"),
        ("[" * 100_000, "line 2: it is no JSON object"),
        (response([3], [1, 2]), "line 2: per_step_drafted has 1 steps and per_step_accepted 2"),
        (response([-1], [1]), r"line 2: per_step_drafted\[0\] is not a whole number"),
        (response([10**9], [1]), r"line 2: per_step_drafted\[0\] is not a whole number"),
        (response([3], [1.5]), r"line 2: per_step_accepted\[0\] is not a whole number"),  # type: ignore[list-item]
        ({"metrics": {"speculative_decoding": {"num_spec_steps": 3}}}, "line 2: there is no per_step_drafted"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_written(line: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        imported([response([3], [1]), line], tmp_path / "trace.db")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_log_without_rounds_is_refused(tmp_path: Path) -> None:
    for lines in ([], ["{}"], [{"choices": []}], ['{"metrics": null}'], [response([], [])]):
        with pytest.raises(TraceError, match="has no rounds in it"):
            imported(lines, tmp_path / "trace.db")
    assert list(tmp_path.iterdir()) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(field=st.sampled_from(["n", "stop_reason", "tokens", "n_accepted", "rej_pos", "target_id", "t_draft_us", "top_k",
                              "id", "p", "slot_id", "prompt_pos"]), value=JSON)  # fmt: skip
def test_any_value_in_any_field_is_imported_or_refused(
    field: str, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    line = spec_round(10, 2, 1)
    for part in (line, line["draft"], line["verify"], line["timing"], line["draft"]["tokens"][0]):
        if field in part:
            part[field] = value
    path = tmp_path_factory.mktemp("fields") / "t.db"
    with contextlib.suppress(TraceError):
        imported([line], path, "llama.cpp")
    if not path.exists():
        return  # refused, and nothing was written
    with TraceReader(path) as reader:
        check(reader)
        json.loads(document(summarize(reader, reader.runs()[0])))


def test_a_line_without_an_end_is_cut_and_refused(tmp_path: Path) -> None:
    """A device, or a file of another kind, may have no line end at all; memory must not follow it."""
    with Path("/dev/zero").open(encoding="utf-8") as endless:
        first = next(bounded(endless))
        assert len(first) == LONGEST_LINE + 1
    with pytest.raises(TraceError, match="line 1: it has more than 16,000,000 characters"):
        imported([first], tmp_path / "t.db")
    assert list(tmp_path.iterdir()) == []
    assert list(bounded(io.StringIO("a\nb"))) == ["a\n", "b"]
