"""The wraps around vLLM's sampler and scheduler, tried on an engine of its shape."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from engine.round import RunInfo  # noqa: E402
from specview.contract import check  # noqa: E402
from specview.trace.reader import TraceReader  # noqa: E402
from specview.vllm_plugin import files, scheduling, signatures, worker  # noqa: E402
from specview.vllm_plugin.log import Switch  # noqa: E402
from specview.vllm_plugin.recorder import Recorder  # noqa: E402
from specview.vllm_plugin.settings import Settings  # noqa: E402
from tests.unit import fake_vllm  # noqa: E402
from tests.unit.test_vllm_trace import Words  # noqa: E402

INFO = RunInfo("", source="vllm", draft="d", target="t", gamma=fake_vllm.GAMMA, vocab_size=fake_vllm.VOCAB)


def wrapped(monkeypatch, path, *, share=1.0, garbage=False):
    """(modules with the wraps around them, the switch)"""
    switch, settings = Switch(), Settings(path, share, 4)
    made = fake_vllm.modules(garbage)
    assert all(signatures.difference(module) is None for module in made.values())
    worker.wrap_sampler(made[signatures.SAMPLER], switch)
    worker.wrap_top_k_top_p(made[signatures.TOPK_TOPP], switch)
    worker.wrap_rejection(made[signatures.REJECTION], switch)
    worker.wrap_runner(made[signatures.RUNNER], switch, settings)
    worker.wrap_proposer(made[signatures.PROPOSER], switch)
    scheduling.wrap_scheduler(made[signatures.SCHEDULER], switch, settings)
    scheduling.wrap_core(made[signatures.CORE], switch)

    def of_engine(config, switch, settings):
        return Recorder(INFO, Words(), files.claim(settings.path, 0), switch)

    monkeypatch.setattr(Recorder, "of_engine", of_engine)
    return made, switch


def decode(engine):
    """Requests with different settings, starting and ending at different times; their outputs."""
    requests = [
        engine.add("random", [1, 2, 3], temperature=0.9, max_tokens=30),
        engine.add("greedy", [4], temperature=0.0, max_tokens=11),
    ]
    for _ in range(3):
        engine.step()
    requests += [
        engine.add("top-k", [5, 6], temperature=1.3, top_k=4, max_tokens=25),
        engine.add("top-p", [7, 8, 9], top_p=0.7, max_tokens=25),
        engine.add("gone", [10], max_tokens=1000),
    ]
    while set(engine.scheduler.requests) - {"gone"}:
        engine.step()
    if "gone" in engine.scheduler.requests:
        engine.scheduler.finish_requests(["gone"], "FINISHED_ABORTED")
    engine.scheduler.shutdown()
    return {request.request_id: request.output_token_ids for request in requests}


def violated(path):
    with TraceReader(path) as reader:
        return {clause.id for report in check(reader) for clause in report.clauses if clause.violations}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_recorded_is_what_was_decoded(monkeypatch, tmp_path, dtype):
    path = tmp_path / "run.db"
    made, switch = wrapped(monkeypatch, path)
    torch.manual_seed(1)
    outputs = decode(fake_vllm.Engine(made, dtype))
    assert switch.on
    assert not violated(path)
    with TraceReader(path) as reader:
        for run in reader.runs():
            for sequence in reader.sequences(run.id):
                tokens = reader.tokens(sequence.id, sequence.prompt_tokens, reader.token_count(sequence.id))
                assert [t.token for t in tokens] == outputs.pop(sequence.request_id)
                assert sequence.stop_reason == (
                    "eos" if tokens[-1].token == fake_vllm.EOS
                    else "interrupted" if sequence.request_id == "gone" else "length"
                )  # fmt: skip
                rounds = reader.rounds(sequence.id, 0, 100)
                positions = [p for r in rounds for p in r.positions]
                assert all(p.target_deviation is not None and p.target_deviation < 1e-6 for p in positions)
                assert all(r.times.score_ns is not None and r.times.round_ns is not None for r in rounds)
    assert not outputs


def test_the_instrument_draws_nothing(monkeypatch, tmp_path):
    made, _ = wrapped(monkeypatch, tmp_path / "run.db")
    torch.manual_seed(2)
    watched = decode(fake_vllm.Engine(made))
    torch.manual_seed(2)
    assert decode(fake_vllm.Engine(fake_vllm.modules())) == watched


def test_garbage_temperatures_are_named_at_their_candidates(monkeypatch, tmp_path):
    path = tmp_path / "run.db"
    made, _ = wrapped(monkeypatch, path, garbage=True)
    engine = fake_vllm.Engine(made)
    engine.add("random", [1], max_tokens=12)
    for _ in range(4):
        engine.step()
    engine.scheduler.shutdown()
    assert violated(path) == {"C1"}
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        (report,) = check(reader)
        (c1,) = [clause for clause in report.clauses if clause.id == "C1"]
    assert {v.position for v in c1.violations} == {2}
    assert run.info.sampling.temperature == 1.0


def test_a_share_of_the_requests(monkeypatch, tmp_path):
    path = tmp_path / "run.db"
    made, switch = wrapped(monkeypatch, path, share=0.5)
    engine = fake_vllm.Engine(made)
    names = [f"request-{i}" for i in range(12)]
    for i, name in enumerate(names):
        engine.add(name, [i], temperature=0.8, max_tokens=9)
    while engine.scheduler.requests:
        engine.step()
    engine.scheduler.shutdown()
    with TraceReader(path) as reader:
        (run,) = reader.runs()
        recorded = {s.request_id for s in reader.sequences(run.id)}
        sequence = reader.sequences(run.id)[0]
        assert all(r.positions for r in reader.rounds(sequence.id, 0, 10))
    assert recorded == {name for name in names if Settings(path, 0.5).chosen(name)}
    assert switch.on
    assert not violated(path)


def test_the_trace_is_closed_before_the_engine_waits_for_anything(monkeypatch, tmp_path):
    path = tmp_path / "run.db"
    made, _ = wrapped(monkeypatch, path)
    engine = fake_vllm.Engine(made)
    engine.add("random", [1])
    engine.step()
    core = made[signatures.CORE].EngineCore()
    core.scheduler = engine.scheduler

    def killed(self):
        raise SystemExit

    monkeypatch.setattr(type(engine.scheduler), "shutdown", killed)
    with pytest.raises(SystemExit):
        core.shutdown()
    with TraceReader(path) as reader:
        assert [run.status for run in reader.runs()] == ["interrupted"]


def test_what_vllm_samples_outside_of_a_step_is_not_recorded(monkeypatch, tmp_path):
    made, switch = wrapped(monkeypatch, tmp_path / "run.db")
    engine = fake_vllm.Engine(made)
    engine.add("random", [1])
    scheduled = engine.scheduler.schedule()
    engine.runner.execute_model(scheduled)
    engine.runner.sampler(engine.runner.logits, engine.runner.input_batch.sampling_metadata)  # as warm-up does
    assert switch.on
    engine.scheduler.shutdown()
    with TraceReader(tmp_path / "run.db") as reader:
        assert [reader.sequence_count(run.id) for run in reader.runs()] == [0]


def test_an_error_in_the_instrument_does_not_reach_vllm(monkeypatch, tmp_path, caplog):
    made, switch = wrapped(monkeypatch, tmp_path / "run.db")
    engine = fake_vllm.Engine(made)
    request = engine.add("random", [1], max_tokens=1000)
    engine.step()

    def fail(*arguments):
        raise RuntimeError("no memory")

    monkeypatch.setattr("specview.vllm_plugin.tap.pack", fail)
    before = request.num_tokens
    engine.step()
    engine.step()
    assert request.num_tokens >= before + 2
    assert not switch.on
    assert [m for m in caplog.messages if "no memory" in m] == [caplog.messages[-1]]
    engine.scheduler.shutdown()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"speculative_config": None, "use_v2_model_runner": False}, "there is nothing to record"),
        ({"speculative_config": object(), "use_v2_model_runner": True}, "VLLM_USE_V2_MODEL_RUNNER=0"),
    ],
)
def test_engines_that_cannot_be_watched_are_told_so_and_leave_no_file(monkeypatch, tmp_path, caplog, config, told):
    made, _ = wrapped(monkeypatch, tmp_path / "run.db")
    with caplog.at_level("INFO", "vllm.specview"):
        made[signatures.SCHEDULER].Scheduler(type("Config", (), config))
    assert [told in message for message in caplog.messages] == [True]
    assert not list(tmp_path.iterdir())
