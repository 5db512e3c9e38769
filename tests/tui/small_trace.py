"""A small trace made by hand, one round for each way a round can go; pictures of it stay the same for ever."""

from __future__ import annotations

from pathlib import Path

from engine.round import Alternatives, Cost, PhaseTimes, Position, Round, RunInfo, Sampling, Sequence, VocabEntry
from specview.trace.writer import TraceWriter

WORDS = (
    "<|user|>", "Why", " is", " the", " sky", " blue", "?", "\n", " air", " scatters", " short", " waves", " more",
    " than", " long", " ones", ".", " It", " looks", " light", "<|end|>",
)  # fmt: skip
IDS = {word: token for token, word in enumerate(WORDS)}
PROMPT = ("<|user|>", "Why", " is", " the", " sky", " blue", "?", "\n")


def info() -> RunInfo:
    return RunInfo(
        uuid="small", source="engine", draft="tiny-draft", target="big/tiny-target", proposer="draft-model",
        vocab_size=len(WORDS), device="cpu", device_name="a machine", target_dtype="float32", draft_dtype="float32",
        gamma=3, gamma_schedule="fixed", sampling=Sampling(), seed=7, max_new_tokens=40,
    )  # fmt: skip


class Maker:
    """Makes rounds that follow one another."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []
        self.committed = len(PROMPT)
        self.draft_kv = self.committed - 1
        self.clock = 0

    def round(self, proposed: tuple[str, ...], accepted: int, drawn: str | None, *, cut: int = 0) -> None:
        """`accepted` candidates pass; `drawn` is the target's own token; `cut` accepted ones are dropped by the end."""
        index, before = len(self.rounds), self.committed
        rejected = accepted < len(proposed)
        positions = []
        for i, word in enumerate(proposed, 1):
            fate = "accepted" if i <= accepted - cut else "cut" if i <= accepted else "rejected"
            if i > accepted + 1:
                fate = "discarded"
            u = None if fate == "discarded" else 0.25 if i <= accepted else 0.75
            p, q = (0.5, 0.25) if i <= accepted else (0.125, 0.5)
            other = drawn if drawn is not None and fate == "rejected" else " light"
            draft: Alternatives = ((IDS[word], q), (IDS[other], 0.0625))
            target: Alternatives = ((IDS[other], 0.4375), (IDS[word], p)) if p < 0.4 else ((IDS[word], p),)
            positions.append(
                Position(i, IDS[word], q, p, u, fate, 0.6, 1.0, 1.5, 1 + (p < 0.4), draft, target)  # type: ignore[arg-type]
            )
        positions.append(Position(len(proposed) + 1, target_entropy=1.0, target_top=((IDS[drawn or "."], 0.5),)))
        kept = accepted - cut
        kind = "target" if not proposed else "correction" if rejected else "bonus"
        tokens = [(IDS[w], "accepted") for w in proposed[:kept]]
        if drawn is not None:
            tokens.append((IDS[drawn], kind))
        after = before + len(tokens)
        fed = max(0, len(proposed) - 1)
        wrote = before - self.draft_kv + fed if proposed else 0
        draft_after = min(after - 1, before + kept, self.draft_kv + wrote)
        times = PhaseTimes(self.clock, 3_000_000, 12_000_000, 200_000, 50_000, 100_000, 15_500_000 + index * 500_000)
        self.rounds.append(
            Round(
                index, 3, len(proposed), min(len(proposed), accepted + 1), accepted, before, after,
                tuple(tokens), tuple(positions), None if drawn is None else IDS[drawn],  # type: ignore[arg-type]
                None if drawn is None else kind, 0.5, 0.4375, 0.0625, 0.6 if rejected else None,  # type: ignore[arg-type]
                cut="eos" if drawn is None else None, draft_stop=None if proposed else "nothing fits",
                target_kv_before=before - 1, target_kv_written=1 + len(proposed), target_kv_after=after - 1,
                draft_kv_before=self.draft_kv, draft_kv_written=wrote, draft_kv_after=draft_after,
                target_calls=1, draft_calls=len(proposed), times=times,
            )
        )  # fmt: skip
        self.committed, self.draft_kv = after, draft_after
        self.clock += 16_000_000 + index * 500_000


def rounds() -> list[Round]:
    make = Maker()
    make.round((" air", " scatters", " light"), 2, " short")
    make.round((" waves", " more", " than"), 3, " long")
    make.round((" light", " ones", "."), 0, " waves")
    make.round((" looks", ".", " It"), 0, ".")  # the discarded second candidate is the correction
    make.round((), 0, " It")
    make.round((" looks", " blue", "."), 3, "\n")
    make.round((" air", "<|end|>", " It"), 3, None, cut=1)
    return make.rounds


def write(path: Path) -> None:
    """A finished run of one prompt."""
    with TraceWriter(path) as writer:
        writer.begin_run(info())
        writer.set_status("running")
        writer.add_vocab(VocabEntry(t, w.encode(), special=w.startswith("<|")) for t, w in enumerate(WORDS))
        writer.add_costs(Cost(n, 10_000_000 + n * 400_000, 1_000_000 + n * 20_000, 64) for n in (1, 2, 3, 5, 9, 13))
        ids = tuple(IDS[w] for w in PROMPT)
        handle = writer.begin_sequence(Sequence(0, "Why is the sky blue?", ids, 30_000_000, 5_000_000, 1))
        writer.set_baseline(11.0, 16, ids, handle)
        for round_ in rounds():
            writer.add_round(handle, round_)
        writer.end_sequence(handle, "eos")
        writer.close("finished")
