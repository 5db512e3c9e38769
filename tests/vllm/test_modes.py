"""Ways to run an engine that change who samples and when: the trace stays what vLLM did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.vllm.conftest import Outcome
from tests.vllm.test_engine import assert_faithful, broken, prompt

Run = Callable[..., Outcome]
Ways = dict[str, dict[str, Any]]


def greedy_requests(count: int) -> list[dict[str, Any]]:
    params = {"temperature": 0.0, "max_tokens": 16, "ignore_eos": True}
    return [{"id": f"r{i}", "prompt_ids": prompt(i, 12) * 2, "params": params, "at_step": i} for i in range(count)]


def test_drafts_of_different_lengths_share_a_step(run_engine: Run, speculative: Ways) -> None:
    """Some requests have nothing to look up yet, some find a candidate or two, some all three."""
    outcome = run_engine(speculative["n-gram"], greedy_requests(6))
    assert_faithful(outcome)
    assert not broken(outcome.trace)
    started: dict[int, set[int]] = {}
    for _, _, rounds, _ in outcome.recorded().values():
        for one in rounds:
            started.setdefault(one.times.start_ns or 0, set()).add(one.proposed)
    assert any(len(lengths) > 1 for lengths in started.values())


def test_asynchronous_scheduling_asked_for(run_engine: Run, speculative: Ways) -> None:
    outcome = run_engine(
        speculative["greedy draft"],
        greedy_requests(4),
        engine={"async_scheduling": True},
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )
    assert_faithful(outcome)
    assert not broken(outcome.trace)
