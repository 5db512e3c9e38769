"""What a pane may show before the prediction: the recorded round without what came later. Pure."""

from __future__ import annotations

from dataclasses import replace

from specview.tour.questions import Attempt
from specview.tour.station import Phase, Station
from specview.tui.model.view import View


def hidden(station: Station, attempt: Attempt) -> bool:
    """The outcome is still to be predicted."""
    return station.question is not None and not attempt.revealed


def at_home(view: View, station: Station) -> bool:
    """The view shows the station's own round."""
    cursor, place = view.snapshot.cursor, station.place
    if place is None or view.snapshot.round is None:
        return False
    return (cursor.run, cursor.sequence, cursor.round) == (place.run, place.sequence, place.round)


def veiled(view: View, station: Station, attempt: Attempt) -> View:
    """The view of Output and Round: up to the veil's phase, with no verdict and no u that it hides."""
    round_ = view.snapshot.round
    if not hidden(station, attempt) or round_ is None:
        return view
    veil = station.veil
    crafted = veil.fates is not None or veil.draws
    phase: Phase = "accept" if crafted else veil.phase
    if crafted:
        fates = veil.fates or 0
        draws = attempt.count + 1 if veil.draws else fates
        positions = tuple(
            replace(p, fate=p.fate if p.position <= fates else None, u=p.u if p.position <= draws else None)
            for p in round_.positions
        )
        accepted = sum(1 for p in positions if p.fate == "accepted")
        round_ = replace(round_, positions=positions, accepted=accepted, cut=None)
    first = min(attempt.count + 1, max(1, round_.proposed)) if veil.draws else 1
    selected = view.selected or station.selected or first
    return replace(_at(view, phase, selected), snapshot=replace(_at(view, phase, selected).snapshot, round=round_))


def veiled_kv(view: View, station: Station, attempt: Attempt) -> View:
    """The view of the caches: what the forward wrote, and not what became of it."""
    phase = station.veil.phase
    if not hidden(station, attempt) or phase == "correct":
        return view
    return _at(view, "propose" if phase == "propose" else "score", 1)


def _at(view: View, phase: Phase, selected: int) -> View:
    """The view in a phase of its round, with no more text than stood before the round."""
    snapshot = view.snapshot
    round_, window = snapshot.round, snapshot.window
    if round_ is not None:
        window = replace(window, tokens=window.tokens[: max(0, round_.committed_before - window.start)])
    cursor = replace(snapshot.cursor, phase=phase)
    return replace(
        view, snapshot=replace(snapshot, cursor=cursor, window=window, following=None, after=None), selected=selected
    )
