"""How much slower `generate` is while it is captured: the same calls, with and without, in turns.

    python -m tests.benchmarks.capture_overhead [--pairs 10] [--threads N] [--only NAME]

The target has the shape of SmolLM2-135M (vocabulary 49,152), with random weights: speed does not depend on them. The
time is that of `generate` alone; entering and leaving the block is given apart. In turns and as a median of ratios,
because a machine's speed drifts by more than the difference that is looked for; with one thread of torch's, and with
as many as it takes by itself. `cpu_ratio` compares the processor time of the whole process, the trace's writer thread
included: it also means something on a machine that is busy, best with one thread (waiting threads of a parallel loop
count as busy), and is what a machine with one core would lose.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

import specview

VOCAB = 49_152
NEW_TOKENS = 16
LIMIT = 1.03

SETTINGS = {
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


@dataclass(frozen=True)
class Timing:
    wall: float
    """s in generate."""
    cpu: float
    """s of the process, from before the block to behind it."""
    around: float
    """s in the block outside generate."""
    tokens: list[int]


def timed(target: LlamaForCausalLM, arguments: dict[str, object], seed: int, capturing: bool) -> Timing:
    ids = torch.arange(100, 132)[None]
    with tempfile.TemporaryDirectory() as folder:
        cpu, start = time.process_time(), time.perf_counter()
        with specview.capture(Path(folder) / "t.db") if capturing else nullcontext():
            torch.manual_seed(seed)
            inner = time.perf_counter()
            output = target.generate(ids, max_new_tokens=NEW_TOKENS, **arguments)
            wall = time.perf_counter() - inner
        around = time.perf_counter() - start - wall
        return Timing(wall, time.process_time() - cpu, around, output[0].tolist())


def measure(pairs: int, only: str = "") -> list[dict[str, object]]:
    """One row a setting: the ratios of times with and without capture, and the cost of entering and leaving."""
    logging.set_verbosity_error()
    target, draft = llama(1, 576, 30, 9, 3), llama(2, 192, 2, 3, 3)
    draft.generation_config.num_assistant_tokens = 5
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    order = random.Random(0)
    rows = []
    for name, settings in SETTINGS.items():
        if only not in name:
            continue
        arguments = {**settings, "assistant_model": draft}
        timed(target, arguments, 0, capturing=True)
        timed(target, arguments, 0, capturing=False)
        found: list[tuple[Timing, Timing]] = []
        for seed in range(pairs):
            first = order.random() < 0.5
            one = timed(target, arguments, seed, capturing=first)
            other = timed(target, arguments, seed, capturing=not first)
            with_, without = (one, other) if first else (other, one)
            if with_.tokens != without.tokens:
                raise SystemExit(f"{name}: capture changed the output of seed {seed}")
            found.append((with_, without))
        ratios = [with_.wall / without.wall for with_, without in found]
        rows.append(
            {
                "settings": name,
                "pairs": pairs,
                "threads": torch.get_num_threads(),
                "plain_ms_per_token": statistics.median(w.wall for _, w in found) / NEW_TOKENS * 1e3,
                "wall_ratio": statistics.median(ratios),
                "wall_ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
                "cpu_ratio": statistics.median(w.cpu / wo.cpu for w, wo in found),
                "around_ms": statistics.median(w.around for w, _ in found) * 1e3,
                "limit": LIMIT,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--threads", type=int, help="one number of threads instead of both")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    options = parser.parse_args()
    rows = []
    for threads in [options.threads] if options.threads else sorted({1, torch.get_num_threads()}, reverse=True):
        torch.set_num_threads(threads)
        rows += measure(options.pairs, options.only)
    json.dump(rows, sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
