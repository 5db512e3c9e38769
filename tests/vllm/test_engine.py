"""Real vLLM engines with tiny random models: what the trace says is what vLLM did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specview.contract import RunReport, check
from specview.trace.reader import TraceReader
from tests.vllm.conftest import Outcome

Run = Callable[..., Outcome]
Ways = dict[str, dict[str, Any]]

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 1.0, "max_tokens": 24, "seed": 1, "ignore_eos": True},
    {"temperature": 0.0, "max_tokens": 24},
    {"temperature": 0.7, "top_p": 0.9, "max_tokens": 30, "seed": 2},
    {"temperature": 0.8, "top_k": 8, "max_tokens": 17, "seed": 3},
    {"temperature": 1.2, "top_k": 20, "top_p": 0.8, "max_tokens": 20, "seed": 4},
    {"temperature": 1.0, "repetition_penalty": 1.2, "presence_penalty": 0.3, "max_tokens": 20, "seed": 5},
]


def prompt(number: int, length: int) -> list[int]:
    """Printable ASCII letters."""
    return [(7 * number + j * j) % 94 for j in range(length)]


def reports(trace: Path) -> list[RunReport]:
    with TraceReader(trace) as reader:
        return check(reader)


def broken(trace: Path) -> set[str]:
    return {clause.id for report in reports(trace) for clause in report.clauses if clause.violations}


def assert_faithful(outcome: Outcome) -> None:
    """Tokens and step-by-step counts in the trace are vLLM's own."""
    recorded = outcome.recorded()
    for name, result in outcome.requests.items():
        _, _, rounds, tokens = recorded[name]
        metrics = result["metrics"]
        if metrics is None:  # aborted by the client, who had seen at least this much
            assert tokens[: len(result["tokens"])] == result["tokens"]
            continue
        assert tokens == result["tokens"]
        steps = [(r.proposed, r.accepted) for r in rounds if r.proposed]
        assert steps == list(zip(metrics["per_step_drafted"], metrics["per_step_accepted"], strict=True))


@pytest.fixture(scope="module")
def mixed_requests() -> list[dict[str, Any]]:
    """Different settings and prompts in one batch, starting one after the other; one is aborted."""
    requests = [
        {"id": f"r{i}", "prompt_ids": prompt(i, 8 + 5 * i) * 2, "params": params, "at_step": i}
        for i, params in enumerate(SETTINGS)
    ]
    aborted = {"temperature": 1.0, "max_tokens": 60, "seed": 9, "ignore_eos": True}
    return [*requests, {"id": "gone", "prompt_ids": prompt(0, 16), "params": aborted, "abort_after": 9}]


@pytest.fixture(scope="module")
def mixed(run_engine: Run, speculative: Ways, mixed_requests: list[dict[str, Any]]) -> Outcome:
    return run_engine(speculative["drawn draft"], mixed_requests, environment={"SPECVIEW_TOP": "3"})


def test_a_mixed_batch_is_recorded_as_it_was(mixed: Outcome) -> None:
    assert_faithful(mixed)
    assert not broken(mixed.trace)


def test_each_configuration_has_a_run_of_its_own(mixed: Outcome) -> None:
    recorded = mixed.recorded()
    for i, params in enumerate(SETTINGS):
        sampling = recorded[f"r{i}"][0].info.sampling
        assert sampling is not None
        assert sampling.temperature == params["temperature"]
        assert sampling.top_p == params.get("top_p", 1.0)
        assert sampling.top_k == params.get("top_k", 0)
        assert sampling.repetition_penalty == params.get("repetition_penalty", 1.0)
    assert recorded["gone"][0].id == recorded["r0"][0].id


def test_every_distribution_is_measured_and_agrees_with_its_logits(mixed: Outcome) -> None:
    recorded = mixed.recorded()
    for name, (run, _, rounds, _) in recorded.items():
        sampling = run.info.sampling
        assert sampling is not None
        candidates = [p for r in rounds for p in r.positions if p.candidate is not None]
        assert candidates
        assert all(0 < len(p.target_top) <= 3 for r in rounds for p in r.positions), name
        assert all(p.target_deviation is not None for p in candidates), name
        # vLLM proposes without a distribution while every request of the batch is greedy.
        assert any(p.draft_deviation is not None for p in candidates), name
        assert all(p.draft_prob is not None and p.draft_prob > 0 for p in candidates), name
        assert all((p.u is not None) == (p.fate != "discarded" and not sampling.greedy) for p in candidates), name


def test_recording_changes_no_token(
    mixed: Outcome, run_engine: Run, speculative: Ways, mixed_requests: list[dict[str, Any]]
) -> None:
    plain = run_engine(speculative["drawn draft"], mixed_requests, record=False)
    assert not plain.trace.exists()
    for name, result in plain.requests.items():
        assert result["tokens"] == mixed.requests[name]["tokens"], name


def test_an_aborted_request_is_interrupted(mixed: Outcome) -> None:
    reasons = {name: sequence.stop_reason for name, (_, sequence, _, _) in mixed.recorded().items()}
    assert reasons.pop("gone") == "interrupted"
    expected = {name: r["finish_reason"] for name, r in mixed.requests.items() if name != "gone"}
    assert {name: "stop" if reason == "eos" else reason for name, reason in reasons.items()} == expected


@pytest.fixture(scope="module")
def endings(run_engine: Run, speculative: Ways) -> Outcome:
    """Greedy requests that end in every way, with n-grams, in the CPU build as it is."""
    requests = []
    for i in range(4):
        letters = {"stop": [chr(c) for c in range(ord("a"), ord("z") + 1)]}
        for kind, params in (("token", {"stop_token_ids": list(range(0, 120, 3))}), ("string", letters), ("eos", {})):
            params = {"temperature": 0.0, "max_tokens": 60} | params
            requests.append({"id": f"{kind}{i}", "prompt_ids": prompt(i, 20 + i) * 2, "params": params, "at_step": i})
    return run_engine(speculative["greedy draft"], requests, expand_correctly=False)


def test_every_way_to_end_is_told(endings: Outcome) -> None:
    assert_faithful_to_engine(endings)
    assert not broken(endings.trace)
    recorded = endings.recorded()
    cuts = set()
    for name, result in endings.requests.items():
        _, sequence, rounds, tokens = recorded[name]
        expected = result["finish_reason"]
        if expected == "stop":
            expected = "eos" if tokens[-1] == 256 else "stop"
        assert sequence.stop_reason == expected, name
        cuts |= {r.cut for r in rounds}
    assert cuts >= {"stop", "length"}


def assert_faithful_to_engine(outcome: Outcome) -> None:
    """A stop string is found behind the engine's back: the engine may be ahead of what the client was given."""
    recorded = outcome.recorded()
    for name, result in outcome.requests.items():
        _, _, rounds, tokens = recorded[name]
        assert tokens[: len(result["tokens"])] == result["tokens"], name
        if result["metrics"] is not None:
            steps = [(r.proposed, r.accepted) for r in rounds if r.proposed]
            metrics = result["metrics"]
            assert steps == list(zip(metrics["per_step_drafted"], metrics["per_step_accepted"], strict=True)), name


def test_the_garbage_temperatures_of_the_cpu_build_are_named_where_they_start(
    run_engine: Run, speculative: Ways
) -> None:
    params = {"temperature": 1.0, "max_tokens": 16, "ignore_eos": True}
    requests = [{"id": f"r{i}", "prompt_ids": prompt(i, 20) * 2, "params": params} for i in range(2)]
    outcome = run_engine(speculative["greedy draft"], requests, expand_correctly=False)
    assert_faithful(outcome)
    for _, _, rounds, _ in outcome.recorded().values():
        # The position after the candidates is sampled elsewhere, and right.
        assert all(r.positions[-1].target_deviation < 1e-5 for r in rounds)
    (report,) = reports(outcome.trace)
    clauses = {clause.id: clause for clause in report.clauses}
    assert clauses["C1"].violations
    assert all(not clauses[name].violations for name in ("C3", "C4", "C5", "C8", "C9", "C11", "C13"))


def test_preempted_requests_go_on_where_they_were(run_engine: Run, speculative: Ways) -> None:
    requests = [
        {
            "id": f"r{i}",
            "prompt_ids": prompt(i, 30),
            "params": {"temperature": (0.0, 1.0, 0.8)[i % 3], "max_tokens": 70, "ignore_eos": True},
        }
        for i in range(4)
    ]
    cramped = {
        "num_gpu_blocks_override": 9,
        "block_size": 32,
        "enable_prefix_caching": False,
        "max_num_batched_tokens": 64,
        "max_model_len": 128,
    }
    outcome = run_engine(speculative["greedy draft"], requests, engine=cramped)
    assert outcome.preempted
    assert_faithful(outcome)
    assert not broken(outcome.trace)
    recorded = outcome.recorded()
    assert any(sequence.target_prefill_calls for _, sequence, _, _ in recorded.values())  # in chunks


def test_two_tensor_parallel_workers_and_a_share_of_the_requests(run_engine: Run, speculative: Ways) -> None:
    params = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}
    requests = [{"id": f"r{i}", "prompt_ids": prompt(i, 12) * 2, "params": params} for i in range(8)]
    outcome = run_engine(
        speculative["n-gram"],
        requests,
        engine={"tensor_parallel_size": 2},
        environment={
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "0|1",
            "SPECVIEW_SAMPLE": "0.5",
        },
    )
    recorded = outcome.recorded()
    assert 0 < len(recorded) < len(requests)
    for name, (_, _, rounds, tokens) in recorded.items():
        assert tokens == outcome.requests[name]["tokens"]
        assert all(r.positions for r in rounds)  # what the workers measured has arrived
    assert not broken(outcome.trace)
    assert [p.name for p in outcome.trace.parent.glob("*.db")] == ["run.db"]  # one engine core, one file


def test_a_second_engine_adds_a_run_to_a_trace_that_is_there(
    run_engine: Run, speculative: Ways, tmp_path: Path
) -> None:
    trace = tmp_path / "run.db"
    params = {"temperature": 0.0, "max_tokens": 8}
    for name in ("first", "second"):
        run_engine(speculative["n-gram"], [{"id": name, "prompt_ids": prompt(1, 20), "params": params}], trace=trace)
    with TraceReader(trace) as reader:
        runs = reader.runs()
    assert [run.status for run in runs] == ["finished", "finished"]
    assert len({run.info.uuid for run in runs}) == 2
