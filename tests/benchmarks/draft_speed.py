"""What the default pair's draft is worth: acceptance and measured speed-up on held-out prompts, for several γ.

    python -m tests.benchmarks.draft_speed [--gammas 2,3,4] [--tokens 128] [--draft DIR]

Eight prompts that the draft was not trained on, 128 tokens each, at temperature 1 and greedy. Plain and speculative
decoding take turns on every prompt, because a machine's speed drifts; both are timed with everything recorded. The
draft step's share is the median time of one draft forward ÷ one target forward of a single position.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from engine.distill.prompts import HELD_OUT
from engine.round import Round, Sampling
from engine.session import load_session

PROMPTS = 8


@dataclass(frozen=True)
class Measured:
    """One temperature and one γ, over all prompts."""

    temperature: float
    gamma: int
    alpha: float
    """Mean Σ min(p, q) over judged positions; at temperature 0 the share of judged candidates that were accepted."""
    mean_acceptance_length: float
    plain_ms: float
    """Median step of plain decoding, averaged over prompts."""
    speculative_ms: float
    """Wall time of all rounds ÷ output tokens."""
    speed_up: float
    draft_step_share: float
    propose_ms: float
    score_ms: float
    other_ms: float
    tokens: int


def measure(draft: str | None, temperature: float, gamma: int, tokens: int, seed: int) -> Measured:
    """Run every prompt plainly and speculatively."""
    session = load_session(
        draft, None, sampling=Sampling(temperature=temperature), gamma=gamma, max_new_tokens=tokens, seed=seed,
        device="cpu", dtype="bfloat16",
    )  # fmt: skip
    rounds: list[Round] = []
    plain: list[float] = []
    shares: list[float] = []
    for index, prompt in enumerate(HELD_OUT[:PROMPTS]):
        ids = session.encode(prompt)
        plain.append(session.baseline(ids, tokens=tokens).ms_per_token)
        single = session.costs(ids, (1,))[0]
        if single.draft_ns and single.target_ns:
            shares.append(single.draft_ns / single.target_ns)
        session.prefill(index, prompt, ids)
        rounds += session.decode()
    return summarise(rounds, plain, shares, temperature, gamma)


def summarise(
    rounds: Sequence[Round], plain: Sequence[float], shares: Sequence[float], temperature: float, gamma: int
) -> Measured:
    """The figures of one setting; `plain` in ms a token, one a prompt."""
    judged = [p for r in rounds for p in r.positions if p.fate in ("accepted", "rejected", "cut")]
    output = sum(r.committed_after - r.committed_before for r in rounds)
    spent = sum(r.times.round_ns or 0 for r in rounds) / 1e6

    def mean_ms(name: str) -> float:
        return sum(getattr(r.times, name) or 0 for r in rounds) / len(rounds) / 1e6

    propose, score = mean_ms("propose_ns"), mean_ms("score_ns")
    return Measured(
        temperature=temperature,
        gamma=gamma,
        alpha=statistics.fmean(p.overlap or 0.0 for p in judged),
        mean_acceptance_length=1 + sum(r.accepted for r in rounds) / len(rounds),
        plain_ms=statistics.fmean(plain),
        speculative_ms=spent / output,
        speed_up=statistics.fmean(plain) / (spent / output),
        draft_step_share=statistics.median(shares) if shares else float("nan"),
        propose_ms=propose,
        score_ms=score,
        other_ms=mean_ms("round_ns") - propose - score,
        tokens=output,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gammas", default="2,3,4")
    parser.add_argument("--temperatures", default="1,0")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draft", help="another draft than the default one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(2)
    for temperature in (float(t) for t in options.temperatures.split(",")):
        for gamma in (int(g) for g in options.gammas.split(",")):
            m = measure(options.draft, temperature, gamma, options.tokens, options.seed)
            if options.json:
                print(json.dumps(asdict(m)), flush=True)
                continue
            print(
                f"T {m.temperature:g}  γ {m.gamma}  α {m.alpha:.3f}  {m.mean_acceptance_length:.2f} tokens a round  "
                f"plain {m.plain_ms:.1f} ms  speculative {m.speculative_ms:.1f} ms  speed-up {m.speed_up:.2f}  "
                f"draft step {m.draft_step_share:.3f} of a target step  "
                f"(propose {m.propose_ms:.1f}, score {m.score_ms:.1f}, other {m.other_ms:.1f} ms a round)",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
