"""A trace whose every text is hostile: markup, escapes, controls, bidi, half characters, a megabyte."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from engine.round import Position, Round, RunInfo, Sampling, Sequence, VocabEntry
from specview.trace.writer import TraceWriter

TEXTS = (
    "[/",
    "[/INST]",
    "[b",
    "[@click=app.quit]x[/]",
    "\\",
    "\x1b]0;x\x07",
    "\x1b[2J",
    "\x9b31m",
    "\u202eabc",
    "\U0001f469\u200d\U0001f4bb",
    "\u2764\ufe0f",
    "漢字かな",
    "e\u0301\u0301\u0301",
    "\u0301",
    "\t",
    "\n",
    "\r",
    "\x00",
    "\u200b\u2066",
    " ",
    "",
)
BYTES = (*(t.encode() for t in TEXTS), b"\xed\xa0\x80", b"\xe2\x96", b"\x81", b"\xff\xfe", b"x" * 1_000_000)
"""Token id → bytes; 22 and 23 are the halves of one character."""


def info() -> RunInfo:
    text = "".join(TEXTS)
    return RunInfo(
        uuid="hostile", source="[/x]\x1b[2J", draft=text, target=f"\x1b]0;owned\x07{text}", proposer="[b",
        vocab_size=len(BYTES), device="\x1b[31m", device_name=text, target_dtype="[/", draft_dtype="[/", gamma=3,
        gamma_schedule="[b", sampling=Sampling(), seed=-1,
    )  # fmt: skip


def rounds(count: int, seed: int = 1) -> list[Round]:
    """Rounds whose tokens are drawn from `BYTES`."""
    rng = random.Random(seed)
    committed, made = len(BYTES), []

    def token() -> int:
        return rng.randrange(len(BYTES))

    for index in range(count):
        accepted = rng.randrange(4)
        top = tuple((token(), 0.3) for _ in range(4))
        positions = []
        for i in range(1, 4):
            fate = "accepted" if i <= accepted else "rejected" if i == accepted + 1 else "discarded"
            judged = i <= accepted + 1
            u = None if not judged else 0.01 if i <= accepted else 0.99
            positions.append(Position(i, token(), 0.5, 0.25, u, fate, 0.5, draft_top=top, target_top=top))  # type: ignore[arg-type]
        positions.append(Position(4, target_top=top))
        kind = "bonus" if accepted == 3 else "correction"
        drawn = token()
        tokens = [(p.candidate, "accepted") for p in positions[:accepted]] + [(drawn, kind)]
        made.append(
            Round(
                index=index,
                gamma=3,
                proposed=3,
                judged=min(3, accepted + 1),
                accepted=accepted,
                committed_before=committed,
                committed_after=committed + accepted + 1,
                committed=tuple(tokens),
                positions=tuple(positions),
                correction_token=drawn,  # type: ignore[arg-type]
                correction_kind=kind,
                correction_prob=0.1,
                draft_stop="[/]\x1b[2J",  # type: ignore[arg-type]
                target_kv_before=committed - 1,
                target_kv_written=4,
                target_kv_after=committed + accepted,
                draft_kv_before=committed - 1,
                draft_kv_written=3,
                draft_kv_after=committed + min(accepted, 2),
                target_calls=1,
                draft_calls=3,
            )
        )
        committed += accepted + 1
    return made


def write(path: Path, count: int = 40) -> None:
    """A finished run of hostile rounds, and one that failed with a hostile message."""
    with TraceWriter(path) as writer:
        writer.begin_run(info())
        writer.set_status("running", "".join(TEXTS))
        writer.add_vocab(VocabEntry(i, data, special=i % 7 == 0) for i, data in enumerate(BYTES))
        for index in range(2):
            prompt = "".join(TEXTS) + "\ud800"
            handle = writer.begin_sequence(
                Sequence(index, prompt, tuple(range(len(BYTES))), request_id="[/]\x1b[2J\x00")
            )
            for round_ in rounds(count, seed=index):
                writer.add_round(handle, round_)
            writer.end_sequence(handle, "length")
        writer.set_status("finished")
        writer.begin_run(replace(info(), uuid="failed"))
        writer.close("failed", "".join(TEXTS) + "\x1b[2J")
