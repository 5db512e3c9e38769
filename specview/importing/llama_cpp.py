"""llama.cpp's speculation log (`--spec-log-file`): one object a round.

`draft.tokens[]` have the candidates with their probability, entropy and best alternatives; `verify` has how many were
accepted, the position of the first rejection (−1: none) and the target's own token; `timing` has µs. There is nothing
about p in it. Rounds without a draft are not logged: where the position jumps, a new sequence begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.round import Alternatives, Fate, Origin, PhaseTimes, Position, Round
from specview.importing import fields
from specview.importing.fields import FieldError, count, listing, mapping
from specview.importing.step import MOST_CANDIDATES, Step, fates, kind


def matches(line: dict[str, Any]) -> bool:
    """Whether an object looks like a round of this log."""
    return isinstance(line.get("draft"), dict) and isinstance(line.get("verify"), dict)


class Slots:
    """The open sequence of each server slot: its number, next round and expected position."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int, int]] = {}
        self._started = 0

    def place(self, slot: int, position: int | None) -> tuple[int, int, int]:
        """(sequence, round index, committed length) of the slot's next round."""
        known = self._open.get(slot)
        if known is None or (position is not None and position != known[2]):
            self._started += 1
            known = (self._started, 0, position or 0)
        return known

    def advance(self, slot: int, sequence: int, index: int, length: int) -> None:
        """Note what a round left behind."""
        self._open[slot] = (sequence, index + 1, length)


def steps(line: dict[str, Any], slots: Slots) -> Iterator[Step]:
    """The round that one line tells.

    Raises:
        FieldError: a field is not what the log writes.
    """
    draft, verify = mapping(line.get("draft"), "draft"), mapping(line.get("verify"), "verify")
    timing = mapping(line.get("timing", {}), "timing")
    tokens = [mapping(t, "draft.tokens[]") for t in listing(draft.get("tokens", []), "draft.tokens")]
    proposed = count(draft.get("n", len(tokens)), "draft.n", most=MOST_CANDIDATES)
    if len(tokens) > proposed:
        raise FieldError(f"draft.n is {proposed}, but there are {len(tokens)} draft.tokens")
    accepted = count(verify.get("n_accepted"), "verify.n_accepted", most=MOST_CANDIDATES)
    token = fields.optional_count(verify.get("target_id"), "verify.target_id")
    slot = fields.optional_count(line.get("slot_id"), "slot_id") or 0
    sequence, index, before = slots.place(slot, fields.optional_count(line.get("prompt_pos"), "prompt_pos"))
    judged, rejected = _judged(verify.get("rej_pos"), proposed)
    positions = _positions(tokens, fates(proposed, judged, rejected))
    after = before + accepted + 1
    slots.advance(slot, sequence, index, after)
    yield Step(
        sequence,
        Round(
            index=index,
            gamma=None,
            proposed=proposed,
            judged=judged,
            accepted=accepted,
            committed_before=before,
            committed_after=after,
            committed=_committed(positions, accepted, token, proposed),
            positions=positions,
            correction_token=token,
            correction_kind=kind(proposed, accepted),
            draft_stop=fields.optional_text(draft.get("stop_reason"), "draft.stop_reason"),
            times=PhaseTimes(
                propose_ns=fields.optional_microseconds(timing.get("t_draft_us"), "timing.t_draft_us"),
                score_ns=fields.optional_microseconds(timing.get("t_verify_us"), "timing.t_verify_us"),
            ),
        ),
        f"slot {slot}",
        before if index == 0 else 0,
    )


def _positions(tokens: list[dict[str, Any]], known: list[Fate | None]) -> tuple[Position, ...]:
    made = []
    for i, fate in enumerate(known):
        token = tokens[i] if i < len(tokens) else {}
        made.append(
            Position(
                position=i + 1,
                candidate=fields.optional_count(token.get("id"), "draft.tokens[].id"),
                draft_prob=fields.optional_number(token.get("p"), "draft.tokens[].p"),
                draft_entropy=fields.optional_number(token.get("entropy"), "draft.tokens[].entropy"),
                draft_top=_top(token.get("top_k")),
                fate=fate,
            )
        )
    return tuple(made)


def _top(value: Any) -> Alternatives:
    if value is None:
        return ()
    pairs = [listing(pair, "draft.tokens[].top_k[]") for pair in listing(value, "draft.tokens[].top_k")]
    if any(len(pair) != 2 for pair in pairs):
        raise FieldError("draft.tokens[].top_k has an entry that is no pair of a token id and a probability")
    top = []
    for token, prob in pairs:
        number = fields.optional_number(prob, "draft.tokens[].top_k[]")
        top.append((count(token, "draft.tokens[].top_k[]"), float("nan") if number is None else number))
    return tuple(top)


def _judged(rejected: Any, proposed: int) -> tuple[int | None, bool]:
    """(Candidates judged, whether one was rejected): what the log says of the first rejection, even where it
    contradicts the number of accepted candidates; (None, False) where it says nothing."""
    if rejected is None:
        return None, False
    if type(rejected) is not int or not -1 <= rejected <= MOST_CANDIDATES:
        raise FieldError("verify.rej_pos is neither -1 nor a position")
    return (proposed, False) if rejected == -1 else (rejected + 1, True)


def _committed(
    positions: tuple[Position, ...], accepted: int, token: int | None, proposed: int
) -> tuple[tuple[int, Origin], ...]:
    """What the round committed, where all of it is known."""
    candidates = [p.candidate for p in positions[:accepted]]
    if token is None or None in candidates or accepted > proposed:
        return ()
    origin: Origin = kind(proposed, accepted)
    return (*((c, "accepted") for c in candidates if c is not None), (token, origin))
