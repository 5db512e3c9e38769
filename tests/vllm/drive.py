"""Runs one vLLM engine in a process of its own: `python drive.py JOB.json RESULT.json`.

A job names the engine's arguments and the requests: when each is added (`at_step`), its prompt's token ids, its
sampling parameters, and after how many tokens the client aborts it, if it does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def expand_correctly() -> None:
    """Give this process's vLLM the row expansion that its CPU build gets wrong: a trace of it must then be clean."""
    import torch
    from vllm.v1.sample import rejection_sampler

    def expand(x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0) -> Any:
        counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
        return torch.where(x == replace_from, replace_to, x).repeat_interleave(counts, output_size=num_tokens)

    rejection_sampler.expand_batch_to_tokens = expand


def count_preemptions() -> list[str]:
    """The requests that this process's scheduler preempts, as it does so."""
    from vllm.v1.core.sched.scheduler import Scheduler

    preempted: list[str] = []
    original = Scheduler._preempt_request

    def preempt(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.request_id)
        original(self, request, *args, **kwargs)

    Scheduler._preempt_request = preempt
    return preempted


def run(job: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    if job.get("expand_correctly", True):
        expand_correctly()
    preempted = count_preemptions()
    engine = LLM(**job["engine"]).llm_engine
    waiting = sorted(job["requests"], key=lambda r: r.get("at_step", 0))
    abort_after = {r["id"]: r["abort_after"] for r in waiting if "abort_after" in r}
    results: dict[str, Any] = {}
    step = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and waiting[0].get("at_step", 0) <= step:
            request = waiting.pop(0)
            prompt = {"prompt_token_ids": request["prompt_ids"]}
            engine.add_request(request["id"], prompt, SamplingParams(**request["params"]))
        for output in engine.step():
            completion = output.outputs[0]
            metrics = completion.spec_decode_metrics
            results[output.request_id] = {
                "tokens": list(completion.token_ids),
                "text": completion.text,
                "finish_reason": completion.finish_reason,
                "metrics": None if metrics is None else metrics.to_dict(),
            }
            if len(completion.token_ids) >= abort_after.get(output.request_id, sys.maxsize):
                engine.abort_request([output.request_id])
                del abort_after[output.request_id]
        step += 1
    engine.engine_core.shutdown()
    return {"requests": results, "preempted": preempted}


if __name__ == "__main__":
    job_path, result_path = map(Path, sys.argv[1:])
    result_path.write_text(json.dumps(run(json.loads(job_path.read_text()))))
