"""How much slower `generate` is while it is captured: a script of its own with capture, beside one without.

    python -m tests.benchmarks.capture_overhead [--pairs 6] [--processes 2] [--threads N] [--only NAME]

Each side is a fresh process, warmed up by one call of each setting. The two take turns, call by call, because a
machine's speed drifts by more than the difference that is looked for; the result is the median of the ratios. The
time is that of `generate` alone; entering and leaving the block is given apart. The target has the shape of
SmolLM2-135M (vocabulary 49,152), with random weights: speed does not depend on them. Measured with one thread of
torch's, and with as many as it takes by itself. `cpu_ratio` compares the processor time of the whole process, the
instrument's threads included: what a machine with one core would lose.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

VOCAB = 49_152
NEW_TOKENS = 16
LIMIT = 1.03

SETTINGS: dict[str, dict[str, Any]] = {
    "sampling, transformers' defaults (top-k 50)": {"do_sample": True, "temperature": 0.7},
    "sampling, top-p 0.9": {"do_sample": True, "top_p": 0.9},
    "sampling, whole vocabulary": {"do_sample": True, "top_k": 0},
    "greedy": {"do_sample": False},
}


def llama(seed: int, hidden: int, layers: int, heads: int, kv_heads: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=hidden, intermediate_size=hidden * 8 // 3, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=2048, eos_token_id=None,
        bos_token_id=None, pad_token_id=0, tie_word_embeddings=True, initializer_range=0.05,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval().to(torch.bfloat16)


def serve(capturing: bool) -> None:
    """One side: each line of stdin asks for a call, [settings, threads, seed], and is answered by its times."""
    logging.set_verbosity_error()
    target, draft = llama(1, 576, 30, 9, 3), llama(2, 192, 2, 3, 3)
    draft.generation_config.num_assistant_tokens = 5
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    for line in sys.stdin:
        settings, threads, seed = json.loads(line)
        torch.set_num_threads(threads)
        print(json.dumps(timed(target, {**SETTINGS[settings], "assistant_model": draft}, seed, capturing)), flush=True)


def timed(target: LlamaForCausalLM, arguments: dict[str, Any], seed: int, capturing: bool) -> dict[str, Any]:
    """s in `generate` (wall), of the process from before the block to behind it (cpu), in the block outside of
    `generate` (around)."""
    ids = torch.arange(100, 132)[None]
    with tempfile.TemporaryDirectory() as folder:
        cpu, start = time.process_time(), time.perf_counter()
        with _captured(Path(folder) / "t.db") if capturing else nullcontext():
            torch.manual_seed(seed)
            inner = time.perf_counter()
            output = target.generate(ids, max_new_tokens=NEW_TOKENS, **arguments)
            wall = time.perf_counter() - inner
        around = time.perf_counter() - start - wall
        return {
            "wall": wall,
            "cpu": time.process_time() - cpu,
            "around": around,
            "tokens": output[0].tolist(),
        }


def _captured(path: Path) -> Any:
    import specview  # not in the other side's process

    return specview.capture(path)


class Side:
    """A fresh process that makes calls when asked."""

    def __init__(self, capturing: bool) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.capture_overhead", "--side"]
        self._process = subprocess.Popen(
            [*command, "capture" if capturing else "plain"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call(self, *what: str | int) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def measure(settings: list[str], threads: list[int], pairs: int, processes: int) -> list[dict[str, Any]]:
    """One row for each number of threads and each setting."""
    order = random.Random(0)
    found: dict[tuple[int, str], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for fresh in range(processes):
        with ExitStack() as stack:
            sides = [stack.enter_context(Side(capturing)) for capturing in (True, False)]
            for count in threads:
                for name in settings:
                    for side in sides:
                        side.call(name, count, 0)
                    for seed in range(fresh, pairs, processes):
                        answers: dict[Side, dict[str, Any]] = {}
                        for side in order.sample(sides, 2):
                            answers[side] = side.call(name, count, seed)
                        with_, without = (answers[side] for side in sides)
                        if with_["tokens"] != without["tokens"]:
                            raise SystemExit(f"{name}: capture changed the output of seed {seed}")
                        found.setdefault((count, name), []).append((with_, without))
    return [_row(name, count, some) for (count, name), some in found.items()]


def _row(name: str, threads: int, found: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    ratios = [with_["wall"] / without["wall"] for with_, without in found]
    return {
        "settings": name,
        "threads": threads,
        "pairs": len(found),
        "plain_ms_per_token": statistics.median(without["wall"] for _, without in found) / NEW_TOKENS * 1e3,
        "wall_ratio": statistics.median(ratios),
        "wall_ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
        "cpu_ratio": statistics.median(with_["cpu"] / without["cpu"] for with_, without in found),
        "around_ms": statistics.median(with_["around"] for with_, _ in found) * 1e3,
        "limit": LIMIT,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--processes", type=int, default=3, help="fresh processes of each side; they share the pairs")
    parser.add_argument("--threads", type=int, help="one number of threads instead of both")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--side", choices=("plain", "capture"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(options.side == "capture")
        return 0
    threads = [options.threads] if options.threads else sorted({1, torch.get_num_threads()})
    settings = [name for name in SETTINGS if options.only in name]
    json.dump(measure(settings, threads, options.pairs, options.processes), sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
