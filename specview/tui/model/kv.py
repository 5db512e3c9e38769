"""The two KV caches during one round, slot by slot, in the five states of the contract (C9, C10).

A cache holds one slot a position. The round's forward writes from `before` on: first the pending token that the round
before left, then the candidates. What is off the true path is rolled back; the token that the round committed last
stays pending, and takes the slot where the refused candidate stood. Where the text ends inside the block, that token is
an accepted candidate: its slot is rolled back as well, since the caches hold all but the last token (C9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.round import Round
from specview.tui.model.phases import Phase

State = Literal["committed", "kept", "rejected", "off_path", "pending", "written", "missing"]
"""`written` is a slot whose fate the phase in view does not know yet; `missing` one that the draft still lacks."""

GLYPHS: dict[State, str] = {
    "committed": "▪",
    "kept": "█",
    "rejected": "✗",
    "off_path": "·",
    "pending": "◌",
    "written": "░",
    "missing": "_",
}


@dataclass(frozen=True, slots=True)
class Span:
    """`length` slots from `start` on, all in one state."""

    state: State
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One cache during a round. Lengths are the recorded ones; None where the trace does not know them."""

    name: str
    before: int | None
    written: int | None
    after: int | None
    spans: tuple[Span, ...] = ()
    """Slots as the forward left them, before any rollback."""
    result: tuple[Span, ...] = ()
    """Slots after the round."""

    @property
    def kept(self) -> int:
        return sum(s.length for s in self.spans if s.state == "kept")

    @property
    def rejected(self) -> int:
        return sum(s.length for s in self.spans if s.state == "rejected")

    @property
    def off_path(self) -> int:
        return sum(s.length for s in self.spans if s.state == "off_path")

    @property
    def pending(self) -> int:
        return sum(s.length for s in self.result if s.state == "pending")


def lanes(round_: Round, phase: Phase = "correct") -> tuple[Lane, Lane]:
    """The target's and the draft's lane of a round, as known after `phase`."""
    target = _lane(
        "target", round_, phase, round_.target_kv_before, round_.target_kv_written, round_.target_kv_after, "score"
    )
    draft = _lane(
        "draft", round_, phase, round_.draft_kv_before, round_.draft_kv_written, round_.draft_kv_after, "propose"
    )
    return target, draft


_ORDER = {"propose": 0, "score": 1, "accept": 2, "correct": 3}


def _lane(
    name: str,
    round_: Round,
    phase: Phase,
    before: int | None,
    written: int | None,
    after: int | None,
    writes_in: Phase,
) -> Lane:
    if before is None:
        return Lane(name, None, None, None)
    spans = _merge([Span("committed", 0, before)])
    step = _ORDER[phase]
    if step < _ORDER[writes_in] or written is None:
        pending = max(0, round_.committed_before - before) if written is not None else 0
        return Lane(name, before, None, None, spans, _merge([*spans, Span("pending", before, min(pending, 1))]))
    if step < _ORDER["accept"]:
        wrote = _merge([*spans, Span("written", before, written)])
        return Lane(name, before, written, None, wrote, wrote)
    # Judged from the committed length, not from `after`: a cache rolled back wrongly must show as wrong.
    end = before + written
    path = min(end, round_.committed_before + _candidates(round_, "accepted"))
    again = 1 if round_.cut is not None and before < path == round_.committed_after else 0
    behind = min(end, path + _candidates(round_, "cut"))
    refused = 1 if _refused(round_) and end > behind else 0
    spans = _merge(
        [
            *spans,
            Span("kept", before, max(0, path - again - before)),
            Span("pending", path - again, again),
            Span("off_path", path, behind - path),
            Span("rejected", behind, refused),
            Span("off_path", behind + refused, end - behind - refused),
        ]
    )
    if step < _ORDER["correct"] or after is None:
        return Lane(name, before, written, None, spans, spans)
    lacking = max(0, round_.committed_after - 1 - after)
    result = _merge(
        [
            Span("committed", 0, min(before, after)),
            Span("kept", before, max(0, after - before)),
            Span("missing", after, lacking),
            Span("pending", after + lacking, round_.committed_after - after - lacking),
        ]
    )
    return Lane(name, before, written, after, spans, result)


def _candidates(round_: Round, fate: Literal["accepted", "cut"]) -> int:
    """Candidates of that fate: accepted ones stay, unless the end of the text or the length limit cut them."""
    if any(p.fate is not None for p in round_.positions):
        return sum(1 for p in round_.positions if p.fate == fate)
    return round_.accepted if fate == "accepted" else 0


def _refused(round_: Round) -> bool:
    return any(p.fate == "rejected" for p in round_.positions) or (
        not any(p.fate is not None for p in round_.positions) and round_.accepted < round_.proposed
    )


def _merge(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(s for s in spans if s.length > 0)
