"""Calls that a real vLLM engine made to the recorder, as JSON: read here, written by `tests/vllm/record_calls.py`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specview.vllm_plugin.capture import StepCapture
from specview.vllm_plugin.steps import Begin, RequestStep, Step

FOLDER = Path(__file__).parent / "data"
FLAGS = (
    "request_ids", "drafted", "top", "one_hot", "drew_uniforms", "deviation_of_candidates", "deviation_of_last",
    "draft_deviation", "start_ns",
)  # fmt: skip


def to_json(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {"start_ns": step.start_ns, "wall_ns": step.wall_ns, "aborted": step.aborted}
    found["requests"] = [asdict(request) for request in step.requests]
    if step.capture is not None:
        found["capture"] = {name: getattr(step.capture, name) for name in FLAGS}
        found["capture"] |= {"matrix": step.capture.matrix(), "times": step.capture.times()}
    return found


def from_json(found: dict[str, Any]) -> Step:
    capture = None
    if "capture" in found:
        seen = dict(found["capture"])
        matrix, times = seen.pop("matrix"), seen.pop("times")
        seen["request_ids"], seen["drafted"] = tuple(seen["request_ids"]), tuple(seen["drafted"])
        capture = StepCapture(**seen, fetch=lambda: (matrix, times))
    requests = []
    for request in found["requests"]:
        begin = request.pop("begin")
        if begin is not None:
            bias = {int(token): value for token, value in (begin.pop("logit_bias") or {}).items()}
            begin |= {"prompt_ids": tuple(begin["prompt_ids"]), "stop": tuple(begin["stop"])}
            begin = Begin(**begin, logit_bias=bias)
        requests.append(RequestStep(**request | {"committed": tuple(request["committed"])}, begin=begin))
    aborted = tuple((name, reason) for name, reason in found["aborted"])
    return Step(capture, tuple(requests), found["start_ns"], found["wall_ns"], aborted)


def load(name: str) -> list[Step]:
    """The steps of one recording."""
    return [from_json(found) for found in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))]
