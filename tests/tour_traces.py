"""Small traces made by hand for the tour's tests: each round is told by its candidates, and obeys the contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.round import Cost, Fate, Origin, PhaseTimes, Position, Round, RunInfo, Sampling, VocabEntry
from engine.round import Sequence as Prompt
from specview.trace.writer import TraceWriter

WORDS = (
    *("zero", "the", "sky", "looks", "blue", "because", "air", "scatters", "short", "waves"),
    *("more", "than", "long", "ones", "and", "so", "on", "it", "goes"),
)
PROMPT = (1, 2, 3)


@dataclass(frozen=True)
class Told:
    """A round in short: what was proposed, how many were accepted, what the target drew."""

    candidates: tuple[int, ...]
    accepted: int
    drawn: int


MIXED = (
    Told((4, 5, 6, 7), 2, 8),
    Told((9, 10, 11, 12), 4, 13),
    Told((1, 14, 15, 16), 1, 2),  # 15 is discarded, and is what the next round commits
    Told((15, 3, 4, 5), 0, 15),
    Told((6, 7, 8, 9), 3, 10),
)
"""Rejections in the middle, a full acceptance, and a discarded candidate that equals the next token."""


def make(round_: Told, index: int, before: int, *, greedy: bool = False, probabilities: bool = True) -> Round:
    """The recorded round."""
    n = len(round_.candidates)
    full = round_.accepted == n
    positions = []
    for i, token in enumerate(round_.candidates, start=1):
        fate: Fate = "accepted" if i <= round_.accepted else "rejected" if i == round_.accepted + 1 else "discarded"
        kept = fate == "accepted"
        p, q = (0.6, 0.4) if kept else (0.1, 0.5) if fate == "rejected" else (0.7, 0.5)
        best = (token, p) if kept or fate == "discarded" else (round_.drawn, 0.5)
        tops = {
            "target_top": (best, (17, 0.05)) if best[0] == token else (best, (token, p), (17, 0.05)),
            "draft_top": ((token, q), (17, 0.2)),
        }
        judged = fate != "discarded"
        positions.append(
            Position(
                i,
                token,
                q if probabilities else None,
                p if probabilities else None,
                None if greedy or not judged or not probabilities else 0.3,
                fate,
                rank=1 if best[0] == token else 2,
                **(tops if probabilities else {}),
            )
        )
    positions.append(Position(n + 1, target_top=((round_.drawn, 0.5),) if probabilities else ()))
    origins: list[Origin] = ["accepted"] * round_.accepted
    kind: Origin = "target" if n == 0 else "bonus" if full else "correction"
    after = before + round_.accepted + 1
    committed = tuple(zip((*round_.candidates[: round_.accepted], round_.drawn), (*origins, kind), strict=True))
    return Round(
        index=index,
        gamma=n,
        proposed=n,
        judged=min(n, round_.accepted + 1),
        accepted=round_.accepted,
        committed_before=before,
        committed_after=after,
        committed=committed,
        positions=tuple(positions),
        correction_token=round_.drawn,
        correction_kind=kind,  # type: ignore[arg-type]
        correction_prob=0.5 if probabilities else None,
        correction_target_prob=0.5 if probabilities else None,
        correction_draft_prob=0.1 if probabilities and not full else None,
        residual_mass=None if full else 0.4,
        target_kv_before=before - 1,
        target_kv_written=n + 1,
        target_kv_after=after - 1,
        draft_kv_before=before - 1,
        draft_kv_written=n,
        draft_kv_after=min(after - 1, before - 1 + n),
        target_calls=1,
        draft_calls=n,
        times=PhaseTimes(index * 10_000_000, 3_000_000, 5_000_000, 100_000, 50_000, 50_000, 9_000_000),
    )


def rounds(told: Iterable[Told], **options: bool) -> list[Round]:
    """The rounds in a row, behind the prompt."""
    before, made = len(PROMPT), []
    for index, one in enumerate(told):
        made.append(make(one, index, before, **options))
        before = made[-1].committed_after
    return made


def write(
    path: Path,
    told: Sequence[Told] = MIXED,
    *,
    greedy: bool = False,
    costs: Sequence[Cost] = (Cost(1, 20_000_000, 2_000_000), Cost(3, 25_000_000, None), Cost(5, 30_000_000, 3_000_000)),
    changes: Sequence[dict[str, object]] = (),
    probabilities: bool = True,
    words: Sequence[str] = WORDS,
    proposer: str = "draft-model",
) -> Path:
    """A finished trace of one sequence; `changes` alter the recorded rounds, one after the other."""
    info = RunInfo(
        uuid="00" * 16,
        draft="small",
        target="large",
        proposer=proposer,
        vocab_size=100,
        device="cpu",
        device_name="a made-up machine",
        target_dtype="float32",
        gamma=max((len(t.candidates) for t in told), default=0),
        sampling=Sampling(temperature=0.0 if greedy else 1.0),
        seed=1,
    )
    made = rounds(told, greedy=greedy, probabilities=probabilities)
    for index, change in enumerate(changes):
        made[index] = replace(made[index], **change)  # type: ignore[arg-type]
    with TraceWriter(path) as writer:
        writer.begin_run(info)
        writer.set_status("running")
        writer.add_vocab(VocabEntry(i, f" {word}".encode()) for i, word in enumerate(words))
        writer.add_costs(costs)
        sequence = writer.begin_sequence(Prompt(0, "the sky looks", PROMPT, 1_000_000, 1_000_000, 1))
        for round_ in made:
            writer.add_round(sequence, round_)
        writer.end_sequence(sequence, "length")
        writer.close("finished")
    return path
