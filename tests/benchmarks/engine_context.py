"""What a long context costs: the cost curve of clause C14 at two lengths, and assisted generation at the longer one.

    python -m tests.benchmarks.engine_context [--context 4096] [--tokens 32] [--repeats 5] [--threads N]

The default target in bfloat16 with the draft that leaves out its four middle layers. `forward` compares one forward of
n positions here with the same forward through the module and transformers' own cache, which copies itself every time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from transformers.cache_utils import DynamicCache

from engine.round import Sampling
from engine.session import Session, load_session
from tests.benchmarks.engine_speed import DRAFT, GAMMA, assisted, in_turns

SIZES = (1, 2, 3, 5, 9, 13)


def median_ms(call: Callable[[], None], repeats: int) -> tuple[float, float]:
    """(wall, processor time) in ms."""
    call()
    wall, cpu = [], []
    for _ in range(repeats):
        begin = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - begin[0])
        cpu.append(time.process_time() - begin[1])
    return statistics.median(wall) * 1e3, statistics.median(cpu) * 1e3


@torch.inference_mode()
def forwards(session: Session, context: int, repeats: int) -> dict[str, float]:
    """ms of a forward over 1 and 5 positions, ours and through the module with `DynamicCache`."""
    target = session.pair.target
    ids = torch.arange(context) % 1000 + 100
    target.begin(context + 32)
    target.prefill(ids)
    cache = DynamicCache(config=target.module.config)
    target.module(input_ids=ids[None], cache=cache, use_cache=True, logits_to_keep=1)
    result = {}
    for n in (1, 5):
        block = ids[:n]

        def ours(block: torch.Tensor = block, n: int = n) -> None:
            target.forward(block, n)
            target.roll_back(context)

        def theirs(block: torch.Tensor = block, n: int = n) -> None:
            target.module(input_ids=block[None], cache=cache, use_cache=True, logits_to_keep=n)
            cache.crop(-n)

        for name, call in (("engine", ours), ("module", theirs)):
            result[f"{name}_{n}_wall_ms"], result[f"{name}_{n}_cpu_ms"] = median_ms(call, repeats)
    return result


def decoding(session: Session, ids: tuple[int, ...], sampling: Sampling, tokens: int, repeats: int) -> dict[str, float]:
    """Assisted generation's time per token over ours, prefill apart: on both sides a short run is subtracted.

    It is long enough for a round of drafts, without which `generate` would not feed the prompt to its assistant.
    """
    few = GAMMA + 2

    def engine(limit: int) -> Callable[[], int]:
        def call() -> int:
            session.prefill(0, None, ids)
            produced = 0
            for finished in session.decode():
                produced += len(finished.committed)
                if produced >= limit:
                    break
            return produced

        return call

    calls = {
        "engine": engine(tokens),
        "engine, few": engine(few),
        "assisted": assisted(session, ids, sampling, tokens),
        "assisted, few": assisted(session, ids, sampling, few),
    }
    times = in_turns(calls, repeats)
    result = {}
    for kind in ("wall", "cpu"):
        per_token = {
            name: statistics.median(
                (getattr(whole, kind) - getattr(start, kind)) / (whole.tokens - start.tokens)
                for whole, start in zip(times[name], times[f"{name}, few"], strict=True)
            )
            for name in ("engine", "assisted")
        }
        result[f"assisted_over_engine_{kind}"] = per_token["assisted"] / per_token["engine"]
        result[f"engine_ms_per_token_{kind}"] = per_token["engine"] * 1e3
    return result


def run(context: int = 4096, tokens: int = 32, repeats: int = 5) -> dict[str, dict[str, float]]:
    """Measure, print tables, and return the numbers."""
    sampling = Sampling(temperature=1.0)
    session = load_session(DRAFT, None, sampling=sampling, gamma=GAMMA, max_new_tokens=tokens, seed=1, dtype="bfloat16")
    results: dict[str, dict[str, float]] = {}
    for length in (128, context):
        results[f"forward at {length}"] = forwards(session, length, repeats)
        ids = tuple((torch.arange(length) % 1000 + 100).tolist())
        curve = session.costs(ids, SIZES)
        results[f"cost curve at {length}"] = {f"{c.positions} positions_ms": (c.target_ns or 0) / 1e6 for c in curve}
    text = " ".join(f"Line {i}: the {i % 17}th drop bends light by {i % 43} degrees." for i in range(context))
    ids = session.encode(text[: 4 * context], chat=False)[: context - tokens]

    results[f"decoding at {context}"] = decoding(session, ids, sampling, tokens, max(3, repeats // 2))
    for name, rows in results.items():
        print(name)
        for row, value in rows.items():
            print(f"  {row:28}{value:>10.2f}")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    print(json.dumps(run(arguments.context, arguments.tokens, arguments.repeats), indent=1))
