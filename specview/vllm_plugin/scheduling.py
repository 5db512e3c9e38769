"""Wraps the scheduler's accounting: what became of each request in a step, and when a request begins and ends."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from engine.round import StopReason
from specview.vllm_plugin.capture import StepCapture
from specview.vllm_plugin.log import Switch, logger
from specview.vllm_plugin.recorder import Recorder
from specview.vllm_plugin.settings import Settings
from specview.vllm_plugin.steps import Begin, RequestStep, Step
from specview.vllm_plugin.worker import ATTRIBUTE


@dataclass(frozen=True, slots=True)
class _Before:
    """A request as the step's output finds it. Its computed length already counts the steps under way."""

    request: Any
    tokens: int
    output_tokens: int
    computed: int
    in_flight: int
    stale: bool
    generated: int
    """Tokens that the sampler put out; vLLM cuts its own list of them at an end."""


def wrap_scheduler(module: ModuleType, switch: Switch, settings: Settings) -> None:
    scheduler_class = module.Scheduler

    def recorder_of(scheduler: Any) -> Recorder | None:
        return getattr(scheduler, ATTRIBUTE, None) if switch.on else None

    def init(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            with switch.guard("opening the trace"):
                if switch.on:
                    setattr(self, ATTRIBUTE, _open(self.vllm_config, switch, settings))

        return wrapper

    def schedule(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter_ns()
            output = original(self, *args, **kwargs)
            recorder = recorder_of(self)
            if recorder is not None:
                # Not on the output itself: that travels to the workers.
                recorder.scheduled_ns[id(output)] = begin
            return output

        return wrapper

    def update(original: Any) -> Any:
        def wrapper(self: Any, scheduler_output: Any, model_runner_output: Any) -> Any:
            recorder = recorder_of(self)
            if recorder is None:
                return original(self, scheduler_output, model_runner_output)
            before: dict[str, _Before] = {}
            arrived = time.perf_counter_ns()
            with switch.guard("reading the schedule"):
                before = _snapshot(self, scheduler_output, model_runner_output, settings)
            result = original(self, scheduler_output, model_runner_output)
            with switch.guard("reading the scheduler's accounting"):
                if before:
                    step = _step(recorder, scheduler_output, model_runner_output, before, arrived)
                    recorder.put(step)
                recorder.updated_ns = time.perf_counter_ns()
            return result

        return wrapper

    def finish(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            ended = original(self, *args, **kwargs)
            recorder = recorder_of(self)
            if recorder is not None:
                with switch.guard("reading aborted requests"):
                    recorder.put(_aborted(ended, settings))
            return ended

        return wrapper

    def shutdown(original: Any) -> Any:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = getattr(self, ATTRIBUTE, None)
            if recorder is not None:
                with switch.guard("closing the trace"):
                    recorder.close()
            return original(self, *args, **kwargs)

        return wrapper

    for name, make in (
        ("__init__", init), ("schedule", schedule), ("update_from_output", update), ("finish_requests", finish),
        ("shutdown", shutdown),
    ):  # fmt: skip
        original = getattr(scheduler_class, name)
        setattr(scheduler_class, name, functools.wraps(original)(make(original)))


def wrap_core(module: ModuleType, switch: Switch) -> None:
    """Close the trace before the workers are waited for: a server that is slow to go down is killed after 5 s."""
    original = module.EngineCore.shutdown

    def shutdown(self: Any) -> None:
        recorder = getattr(getattr(self, "scheduler", None), ATTRIBUTE, None)
        if recorder is not None:
            with switch.guard("closing the trace"):
                recorder.close()
        original(self)

    module.EngineCore.shutdown = functools.wraps(original)(shutdown)


def _open(config: Any, switch: Switch, settings: Settings) -> Recorder | None:
    if config.speculative_config is None:
        logger.info("specview: this engine does not decode speculatively; there is nothing to record.")
        return None
    if config.use_v2_model_runner:
        switch.off(
            "it does not know the sampler of vLLM's Model Runner V2; start vLLM with VLLM_USE_V2_MODEL_RUNNER=0."
        )
        return None
    return Recorder.of_engine(config, switch, settings)


def _snapshot(scheduler: Any, scheduler_output: Any, output: Any, settings: Settings) -> dict[str, _Before]:
    found = {}
    sampled, row = output.sampled_token_ids, output.req_id_to_index
    for name in scheduler_output.num_scheduled_tokens:
        request = scheduler.requests.get(name)
        # A request that ended while this step was under way gets nothing of it.
        if request is None or request.is_finished() or request.sampling_params is None or not settings.chosen(name):
            continue
        found[name] = _Before(
            request,
            request.num_tokens,
            request.num_output_tokens,
            request.num_computed_tokens,
            request.num_in_flight_tokens,
            request.num_stale_output_tokens > 0,
            len(sampled[row[name]]) if sampled and name in row else 0,
        )
    return found


def _step(recorder: Recorder, scheduled: Any, output: Any, before: dict[str, _Before], arrived: int) -> Step:
    capture: StepCapture | None = getattr(output, ATTRIBUTE, None)
    requests = []
    for name, was in before.items():
        request = was.request
        committed = tuple(request.output_token_ids[was.output_tokens :])
        written = scheduled.num_scheduled_tokens[name]
        kv_before = was.computed - was.in_flight
        requests.append(
            RequestStep(
                request_id=name,
                committed_before=was.tokens,
                generated=was.generated,
                committed=committed,
                scheduled_candidates=len(scheduled.scheduled_spec_decode_tokens.get(name, ())),
                target_kv_before=None if was.stale else kv_before,
                target_kv_written=None if was.stale else written,
                target_kv_after=None if was.stale else request.num_computed_tokens - request.num_in_flight_tokens,
                ended=_reason(request) if request.is_finished() else None,
                begin=_begin(request, was) if recorder.first_time(name) else None,
            )
        )
    begun = max(recorder.scheduled_ns.pop(id(scheduled), arrived), recorder.updated_ns)
    return Step(capture, tuple(requests), start_ns=begun, wall_ns=arrived - begun)


def _begin(request: Any, was: _Before) -> Begin:
    params = request.sampling_params
    return Begin(
        prompt_ids=tuple(request.all_token_ids[: was.tokens]),
        temperature=params.temperature,
        top_k=max(0, params.top_k),
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        logit_bias=dict(params.logit_bias or {}),
        stop=tuple([params.stop] if isinstance(params.stop, str) else params.stop or ()),
    )


def _reason(request: Any) -> StopReason:
    """Why the engine core ended a request. It stops at tokens; strings are found by the process that owns the text,
    which then aborts the request."""
    status = request.status.name
    if status == "FINISHED_STOPPED":
        return "eos" if request.stop_reason is None else "stop"
    return _REASONS.get(status, "failed")


_REASONS: dict[str, StopReason] = {
    "FINISHED_LENGTH_CAPPED": "length",
    "FINISHED_IGNORED": "length",
    "FINISHED_REPETITION": "stop",
    "FINISHED_ABORTED": "interrupted",
}


def _aborted(requests: Iterable[Any], settings: Settings) -> Step:
    ended = tuple((r.request_id, _reason(r)) for r in requests if settings.chosen(r.request_id))
    return Step(None, (), aborted=ended)
