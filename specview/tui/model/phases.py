"""The four steps of a round, and what is known after each: stepping by phase shows nothing before its time."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from engine.round import Position, Round

Phase = Literal["propose", "score", "accept", "correct"]
PHASES: tuple[Phase, ...] = ("propose", "score", "accept", "correct")
LAST: Phase = "correct"


def known(round_: Round, phase: Phase) -> Round:
    """The round as it stood after `phase`: facts that came later are None."""
    if phase == "correct":
        return round_
    positions = tuple(_known_position(p, phase) for p in round_.positions)
    if phase == "propose":
        positions = positions[: round_.proposed]
    return replace(
        round_,
        positions=positions,
        judged=round_.judged if phase == "accept" else None,
        accepted=round_.accepted if phase == "accept" else 0,
        committed=(),
        committed_after=round_.committed_before,
        correction_token=None,
        correction_kind=None,
        correction_prob=None,
        correction_target_prob=None,
        correction_draft_prob=None,
        residual_mass=None,
        residual_fallback=False,
        cut=round_.cut if phase == "accept" else None,
    )


def _known_position(position: Position, phase: Phase) -> Position:
    if phase == "accept":
        return position
    position = replace(position, u=None, fate=None)
    if phase == "score":
        return position
    return replace(
        position,
        target_prob=None,
        overlap=None,
        target_entropy=None,
        rank=None,
        target_top=(),
        target_deviation=None,
    )
