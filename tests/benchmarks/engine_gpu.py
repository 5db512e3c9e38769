"""The engine on a GPU, with random weights of realistic sizes: nothing is downloaded.

    python -m tests.benchmarks.engine_gpu [--device cuda] [--size small|1b|8b|tiny] [--tokens 128] [-o FILE]

Random weights agree on nothing, so the draft is the target itself without its last layers, and only times are looked
at: round time over the time of its forwards alone (replayed graphs on both sides), recording on and off, the same
engine with every kernel launched anew, transformers' assisted generation with the same two modules, and flashspec
(compiled on a GPU) where it is installed.
`--device cpu --size tiny` runs the same script anywhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from engine.baseline import synchronise
from engine.device import Choice, device_name
from engine.layer_skip import skip_layers
from engine.model import Model, probe_rollback
from engine.pair import Pair
from engine.proposers.draft_model import DraftModel
from engine.round import Sampling
from engine.session import Session
from engine.vocab_map import plain_map
from specview.trace.writer import TraceWriter
from tests.benchmarks import flashspec
from tests.benchmarks.engine_speed import GAMMA, Floor, assisted, in_turns, output_length, ratio
from tests.unit.engine_folders import byte_tokenizer

SIZES = {  # hidden, intermediate, layers, heads, key heads, vocabulary, layers of the draft
    "tiny": (64, 128, 4, 4, 2, 512, 1),
    "small": (576, 1536, 30, 9, 3, 49_152, 4),
    "1b": (2048, 8192, 16, 32, 8, 128_256, 2),
    "8b": (4096, 14_336, 32, 32, 8, 128_256, 2),
}


def make_module(size: str, device: torch.device) -> LlamaForCausalLM:
    hidden, inner, layers, heads, kv_heads, vocab, _ = SIZES[size]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        eos_token_id=None,
        bos_token_id=None,
    )
    with torch.device(device):
        module = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    module.generation_config.eos_token_id = None
    return module


def make_session(module: LlamaForCausalLM, size: str, device: torch.device, tokens: int, graphs: bool) -> Session:
    *_, vocab, kept = SIZES[size]
    target = Model(module, f"llama-{size}")
    probe_rollback(target)
    draft = Model(skip_layers(module, range(kept)), "draft")
    sampling = Sampling(temperature=1.0)
    pair = Pair(
        target=target,
        proposer=DraftModel(draft, plain_map(vocab, vocab, vocab), sampling),
        draft_model=draft,
        tokenizer=byte_tokenizer(),
        eos=frozenset(),
        draft_name="first layers",
        target_name=target.name,
        choice=Choice(device, torch.bfloat16, "asked for", "asked for"),
    )
    return Session(pair, sampling=sampling, gamma=GAMMA, max_new_tokens=tokens, seed=1, graphs=graphs)


def measure(size: str, device: torch.device, tokens: int, repeats: int) -> dict[str, float]:
    module = make_module(size, device)
    session = make_session(module, size, device, tokens, graphs=True)
    calling = make_session(module, size, device, tokens, graphs=False)
    ids = tuple(range(10, 74))

    def decode(session: Session) -> int:
        session.prefill(0, None, ids)
        count = output_length(list(session.decode()))
        synchronise(device)
        return count

    session.prefill(0, None, ids)
    rounds = list(session.decode())
    floor = Floor(session.pair.target, session.pair.draft_model, ids, rounds)
    floor.ids, floor.block = floor.ids.to(device), floor.block.to(device)
    written = 0

    def recorded() -> int:
        nonlocal written
        written += 1
        with tempfile.TemporaryDirectory() as folder:
            writer = TraceWriter(Path(folder) / "gpu.db")
            writer.begin_run(replace(session.info, uuid=f"{session.info.uuid}-{written}"))
            handle = writer.begin_sequence(session.prefill(0, None, ids))
            count = 0
            for finished in session.decode():
                writer.add_round(handle, finished)
                count += len(finished.committed)
            writer.end_sequence(handle, session.stop_reason)
            writer.close("finished")
        return count

    def bare() -> int:
        count = floor.run()
        synchronise(device)
        return count

    calls = {
        "floor": bare,
        "engine": lambda: decode(session),
        "called": lambda: decode(calling),
        "recorded": recorded,
        "assisted": assisted(session, ids, Sampling(temperature=1.0), tokens),
    }
    if flashspec.installed():
        calls["flashspec"] = flashspec.theirs(session, ids, 1.0, tokens)
    times = in_turns(calls, repeats)
    if device.type == "cuda":
        print(f"{size}: {session.uncaptured or 'steps are replayed as CUDA graphs'}")
    peers = {
        f"{name}_over_recorded": ratio(times[name], times["recorded"], True, "wall")
        for name in ("assisted", "flashspec")
        if name in times
    }
    return {
        "tokens_per_round": output_length(rounds) / len(rounds),
        "round_ms": sum(r.times.round_ns or 0 for r in rounds) / len(rounds) / 1e6,
        "engine_over_floor": ratio(times["engine"], times["floor"], False, "wall"),
        "recorded_over_engine": ratio(times["recorded"], times["engine"], False, "wall"),
        "called_over_engine": ratio(times["called"], times["engine"], True, "wall"),
        **peers,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", action="append", choices=list(SIZES))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    results = {size: measure(size, device, arguments.tokens, arguments.repeats) for size in arguments.size or ["small"]}
    print(f"{'engine_gpu':24}" + "".join(f"{size:>10}" for size in results))
    for row in next(iter(results.values())):
        print(f"{row:24}" + "".join(f"{result[row]:>10.3f}" for result in results.values()))
    if arguments.output:
        facts = {
            "device": device_name(device),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "results": results,
        }
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
