"""Makes valid traces of any length without a model: `python -m tests.synthetic --rounds N -o FILE`.

Every round obeys the contract: verdicts follow from the recorded u, p and q, lengths chain, caches roll back. Rounds
are put together from pools of ready-made positions, so that a million of them take a minute or two.
"""

from __future__ import annotations

import argparse
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine.round import (
    Alternatives,
    Cost,
    Fate,
    Origin,
    PhaseTimes,
    Position,
    Round,
    RunInfo,
    Sampling,
    Sequence,
    VocabEntry,
)
from specview.trace.writer import TraceWriter

VOCAB_SIZE = 49_152
WORDS = (
    " the", " sky", " looks", " blue", " because", " air", " scatters", " short", " waves", " more", " than", " long",
    " ones", ".", ",", "\n", " is", " of", "ing", "ed", " 天空", "是", "蓝色", "的", " 🌈", "🙂", "é", " naïve", "\t",
    "\x1b[31m", "\x07", "[/INST]", "=1+1", "\u202e", " \"quoted\"", "ß",
)  # fmt: skip
HALF_CHARACTERS = (b"\xf0\x9f", b"\x8c\x88", b"\xe5\xa4", b"\xa9")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judged candidate and what a rejection there would bring."""

    position: Position
    residual_mass: float
    correction: tuple[int, float, float, float]
    """Token, its residual probability, p and q."""


def f32(value: float) -> float:
    """The nearest float32, as a Python float."""
    result: float = struct.unpack("f", struct.pack("f", value))[0]
    return result


def vocab() -> list[VocabEntry]:
    """Names for every token id that synthetic rounds use; one is special, some are half a character."""
    entries = [VocabEntry(0, b"<|endoftext|>", special=True)]
    entries += [VocabEntry(i + 1, half) for i, half in enumerate(HALF_CHARACTERS)]
    for token in range(len(entries), 2048):
        entries.append(VocabEntry(token, WORDS[token % len(WORDS)].encode()))
    return entries


class Pools:
    """Ready-made positions by place and fate."""

    def __init__(self, rng: random.Random, gamma: int, size: int) -> None:
        self.gamma = gamma
        self.judged = [_judged(rng, i, size) for i in range(1, gamma + 1)]
        self.discarded = [[_discarded(rng, i) for _ in range(size)] for i in range(1, gamma + 1)]
        self.last = {i: [_last(rng, i) for _ in range(size)] for i in range(1, gamma + 2)}


def _token(rng: random.Random) -> int:
    return rng.randrange(5, 2048)


def _top(rng: random.Random, first: int, prob: float) -> Alternatives:
    """Five alternatives that leave `first` its probability."""
    rest, left = [(first, prob)], max(0.0, 1 - prob)
    for _ in range(4):
        share = f32(left * rng.uniform(0.2, 0.7))
        rest.append((_token(rng), share))
        left -= share
    return tuple(sorted(rest, key=lambda pair: -pair[1]))


def _candidate(
    rng: random.Random, place: int, fate: Fate, u: float | None, p: float, q: float, beta: float
) -> Position:
    token = _token(rng)
    target_top = _top(rng, token, p)
    rank = 1 + sum(prob > p for _, prob in target_top)
    return Position(
        place, token, q, p, u, fate, beta, f32(rng.uniform(0.1, 6)), f32(rng.uniform(0.1, 6)), rank,
        _top(rng, token, q), target_top, None, 0.0, 0.0,
    )  # fmt: skip


def _discarded(rng: random.Random, place: int) -> Position:
    p, q = f32(rng.uniform(0.001, 0.95)), f32(rng.uniform(0.02, 0.95))
    return _candidate(rng, place, "discarded", None, p, q, f32(rng.uniform(min(p, q), 1 - abs(p - q))))


def _judged(rng: random.Random, place: int, size: int) -> list[Verdict]:
    """Verdicts whose acceptances are as many as their overlaps β sum up to, as clause C12 asks of a long run: in each
    group of 20 around β = j/20, exactly j are accepted."""
    verdicts: list[Verdict] = []
    while len(verdicts) < size:
        j = rng.choice((4, 9, 12, 14, 15, 16, 17, 18, 18, 19))
        for k in range(20):
            spread = (k // 2 + 1) / 10 * min(j, 20 - j) / 41 * (1 if k % 2 else -1)
            verdicts.append(_verdict(rng, place, f32(j / 20 + spread), accepted=k < j))
    return verdicts[:size]


def _verdict(rng: random.Random, place: int, beta: float, *, accepted: bool) -> Verdict:
    q = rng.uniform(0.02, beta)
    if accepted and rng.random() < 0.6:
        ratio, p = 1.0, q + rng.uniform(0, 1 - beta)
    else:
        ratio = rng.uniform(0.05, 0.95)
        q = min(q, (1 - beta) / (1 - ratio))  # |p − q| is no more than the distributions' distance, 1 − β
        p = q * ratio
    p, q = f32(p), f32(q)
    u = f32(rng.uniform(0, ratio * 0.999) if accepted else rng.uniform(ratio * 1.001, 0.9999))
    position = _candidate(rng, place, "accepted" if accepted else "rejected", u, p, q, beta)
    correction = _token(rng)
    while correction == position.candidate:
        correction = _token(rng)
    mass = f32(1 - beta)
    correction_q = f32(rng.uniform(0, 0.2 * beta))
    correction_p = f32(correction_q + mass * rng.uniform(0.05, 0.9))
    return Verdict(position, mass, (correction, f32((correction_p - correction_q) / mass), correction_p, correction_q))


def _last(rng: random.Random, place: int) -> Position:
    return Position(
        place, target_entropy=f32(rng.uniform(0.1, 6)), target_top=_top(rng, _token(rng), f32(rng.uniform(0.1, 0.95))),
        target_deviation=0.0,
    )  # fmt: skip


def run_info(rng: random.Random, gamma: int = 4) -> RunInfo:
    """Facts of a made-up pair."""
    return RunInfo(
        uuid=f"{rng.getrandbits(128):032x}", source="engine", draft="synthetic-draft", target="synthetic-target",
        proposer="draft-model", vocab_size=VOCAB_SIZE, device="cpu", device_name="synthetic", target_dtype="float32",
        draft_dtype="float32", gamma=gamma, gamma_schedule="fixed", sampling=Sampling(temperature=1.0, top_p=0.95),
        max_new_tokens=1_000_000_000, seed=1, chat=False, versions={"specview": "synthetic"},
    )  # fmt: skip


def prompt(index: int = 0) -> Sequence:
    """A prompt of twelve tokens."""
    return Sequence(index, "Why is the sky blue? 天空为什么是蓝色的？", tuple(range(5, 17)), 31_000_000, 9_000_000, 1)


def rounds(
    count: int, *, seed: int = 1, gamma: int = 4, pool: int | None = None, prompt_tokens: int = 12
) -> Iterator[Round]:
    """`count` rounds of one sequence that obey every clause of the contract."""
    rng = random.Random(seed)
    pool = pool or min(2000, max(200, count))
    pools = Pools(rng, gamma, pool)
    pick, between = rng.random, rng.uniform
    committed, clock, draft_kv = prompt_tokens, 50_000_000, prompt_tokens - 1
    for index in range(count):
        proposed = gamma if pick() < 0.95 else int(pick() * (gamma + 1))
        positions: list[Position] = []
        tokens: list[tuple[int, Origin]] = []
        rejection: Verdict | None = None
        for place in range(proposed):
            if rejection is not None:
                positions.append(pools.discarded[place][int(pick() * pool)])
                continue
            verdict = pools.judged[place][int(pick() * pool)]
            positions.append(verdict.position)
            if verdict.position.fate == "rejected":
                rejection = verdict
            else:
                tokens.append((verdict.position.candidate or 0, "accepted"))
        accepted = len(tokens)
        last = pools.last[proposed + 1][int(pick() * pool)]
        positions.append(last)
        if rejection is not None:
            token, prob, target_prob, draft_prob = rejection.correction
            kind, mass = "correction", rejection.residual_mass
        else:
            token, prob = last.target_top[0]
            target_prob, draft_prob, mass, kind = prob, None, None, "bonus" if proposed else "target"
        tokens.append((token, kind))  # type: ignore[arg-type]
        after = committed + accepted + 1
        draft_before = draft_kv
        draft_fed = committed + max(proposed - 1, 0)  # the draft is fed the prefix and all but its last candidate
        draft_kv = min(after - 1, draft_fed) if proposed else draft_before
        propose, score = int(between(5e6, 7e6)), int(between(20e6, 26e6))
        accept, rollback, record = int(between(2e5, 4e5)), int(between(5e4, 2e5)), int(between(1e5, 3e5))
        wall = propose + score + accept + rollback + record + int(between(1e4, 1e5))
        yield Round(
            index, gamma, proposed, accepted + (rejection is not None), accepted, committed, after, tuple(tokens),
            tuple(positions), token, kind, prob, target_prob, draft_prob, mass, False, None,  # type: ignore[arg-type]
            None if proposed == gamma else "confidence", committed - 1, proposed + 1, after - 1, draft_before,
            draft_fed - draft_before if proposed else 0, draft_kv, 1, proposed,
            PhaseTimes(clock, propose, score, accept, rollback, record, wall),
        )  # fmt: skip
        committed, clock = after, clock + wall


def greedy(r: Round) -> Round:
    """The same round as greedy decoding would have recorded it: no u, rank 1 where accepted, argmax everywhere."""
    positions = []
    for p in r.positions:
        if p.candidate is None:
            positions.append(p)
            continue
        wins = p.fate in ("accepted", "cut")
        best = p.candidate if wins else r.correction_token if p.fate == "rejected" else 3
        assert best is not None
        others = () if wins else ((p.candidate, 0.125),)
        positions.append(
            replace(
                p, u=None, rank=1 if wins else 2, draft_prob=0.75, draft_top=((p.candidate, 0.75),),
                target_prob=0.625 if wins else 0.125, target_top=((best, 0.625), *others),
            )
        )  # fmt: skip
    return replace(r, positions=tuple(positions))


def write(path: Path, count: int, *, seed: int = 1, gamma: int = 4, sequences: int = 1, force: bool = False) -> None:
    """A finished trace with `count` rounds in each of `sequences` sequences."""
    with TraceWriter(path, force=force) as writer:
        writer.begin_run(run_info(random.Random(seed), gamma))
        writer.set_status("running")
        writer.add_vocab(vocab())
        writer.add_costs(Cost(n, 20_000_000 + n * 500_000, 1_500_000 + n * 40_000, 64) for n in (1, 2, 3, 5, 9, 13))
        for index in range(sequences):
            sequence = writer.begin_sequence(prompt(index))
            if index == 0:
                writer.set_baseline(20.5, 16, tuple(range(100, 116)), sequence)
            for round_ in rounds(count, seed=seed + index, gamma=gamma):
                writer.add_round(sequence, round_)
            writer.end_sequence(sequence, "stop")
        writer.close("finished")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="rounds in each sequence")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    write(args.output, args.rounds, seed=args.seed, gamma=args.gamma, sequences=args.sequences, force=args.force)


if __name__ == "__main__":
    main()
