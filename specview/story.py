"""What happened in a round, in plain words: which test decided, by how much, and why nothing behind it can be kept.

Pure functions of a `Round`; the clauses behind the sentences are C3–C8 of the draft–verify contract.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.round import Position, Round, RunInfo

Name = Callable[[int], str]
"""Token id → its text, safe to show."""


def explain(
    round_: Round, name: Name, info: RunInfo | None = None, *, following: int | None = None, phase: str = "correct"
) -> str:
    """The story of one round as a few sentences.

    Args:
        name: how a token is called.
        info: the run, for what a round alone does not tell (greedy or sampled, kind of proposer).
        following: the first token that the next round committed, if there is one.
        phase: propose, score, accept or correct; the story tells no more than what is known by then.
    """
    if round_.proposed == 0:
        return _nothing_proposed(round_, name, phase)
    if phase == "propose":
        return _proposed(round_, info)
    if phase == "score":
        return (
            f"One forward of the target scored all {_positions(round_.proposed + 1)} at once: the path is known, and "
            "the causal mask lets each position see only what stands before it. Nothing is decided yet."
        )
    greedy = bool(info and info.sampling and info.sampling.greedy)
    sentences = [_verdict(round_, name, greedy)]
    if phase == "accept":
        return " ".join(sentences)
    sentences += _ending(round_, name, greedy)
    sentences += _discarded(round_, name, following)
    return " ".join(s for s in sentences if s)


def decisive_position(round_: Round) -> int:
    """The position where the round was decided: the refused or last kept one, or γ+1 after a full acceptance."""
    rejected = rejected_position(round_)
    if rejected is not None:
        return rejected.position
    cut = next((p.position for p in round_.positions if p.fate == "cut"), None)
    if cut is not None:
        return max(1, cut - 1)
    return max(1, round_.accepted if round_.cut else round_.proposed + 1)


def rejected_position(round_: Round) -> Position | None:
    """The first refused candidate, or None when every judged one was accepted."""
    return next((p for p in round_.positions if p.fate == "rejected"), None)


def probability(value: float) -> str:
    """A probability without its leading zero: .81, 1.00, 4e-5."""
    if value != value:
        return "nan"
    if value == 0 or value >= 0.995:
        return f"{value:.2f}" if value else "0"
    if value >= 0.1:
        return f"{value:.2f}"[1:]
    if value >= 0.01:
        return f"{value:.3f}"[1:].removesuffix("0")
    if value >= 0.001:
        return f"{value:.4f}"[1:].rstrip("0")
    return f"{value:.0e}".replace("e-0", "e-")


def _positions(count: int) -> str:
    return f"{count} position" + ("" if count == 1 else "s")


def _candidates(count: int) -> str:
    return f"{count} candidate" + ("" if count == 1 else "s")


def _quoted(token: int | None, name: Name) -> str:
    return "an unknown token" if token is None else f"“{name(token)}”"


def _nothing_proposed(round_: Round, name: Name, phase: str) -> str:
    why = "γ is 0" if round_.gamma == 0 else round_.draft_stop or "the draft found nothing to propose"
    start = f"Nothing was proposed ({why})"
    if phase in ("propose", "score", "accept"):
        return f"{start}: the target takes one plain step."
    if round_.correction_token is None:
        return f"{start}, and the target added nothing."
    chance = round_.correction_prob if round_.correction_prob is not None else round_.correction_target_prob
    drawn = f", which had probability {probability(chance)}" if chance is not None else ""
    return f"{start}, so the target took one plain step and chose {_quoted(round_.correction_token, name)}{drawn}."


def _proposed(round_: Round, info: RunInfo | None) -> str:
    few = ""
    if round_.gamma is not None and round_.proposed < round_.gamma:
        few = f" It stopped short of γ = {round_.gamma}" + (f" ({round_.draft_stop})." if round_.draft_stop else ".")
    if info is not None and info.proposer == "prompt-lookup":
        return (
            f"{_candidates(round_.proposed).capitalize()} copied from where the text said the same before; "
            f"q is 1 at each.{few}"
        )
    return (
        f"The draft proposed {_candidates(round_.proposed)} one after the other, each drawn from its own distribution "
        f"given all before it.{few}"
    )


def _verdict(round_: Round, name: Name, greedy: bool) -> str:
    rejected = rejected_position(round_)
    cut = [p for p in round_.positions if p.fate == "cut"]
    if rejected is not None:
        return _rejection(round_, rejected, name, greedy)
    if round_.accepted < round_.proposed and not cut:
        # A source that counts but does not show single verdicts.
        counts = f"{round_.accepted} of {_candidates(round_.proposed)}"
        return f"{counts} were accepted; the trace records no single verdicts."
    if cut or round_.cut:
        return _cut(round_, name, len(cut))
    every = "The candidate" if round_.proposed == 1 else f"All {round_.proposed} candidates"
    known = any(p.target_prob is not None for p in round_.positions)
    if greedy:
        how = "the target's own first choice" if round_.proposed == 1 else "each the target's own first choice"
        return f"{every} passed, {how}."
    if not known:
        return f"{every} passed; the trace records no probabilities."
    return f"{every} passed: {'u' if round_.proposed == 1 else 'each u'} was below target ÷ draft."


def _rejection(round_: Round, rejected: Position, name: Name, greedy: bool) -> str:
    token = _quoted(rejected.candidate, name)
    kept = {0: "", 1: " The one before it stays."}.get(round_.accepted, f" The {round_.accepted} before it stay.")
    if round_.cut is not None:
        kept = " " + _cut(round_, name, sum(p.fate == "cut" for p in round_.positions), "correction")
    if greedy:
        rank = f" but its choice number {rejected.rank}" if rejected.rank is not None else ""
        return f"{token} was refused: it is not the target's first choice{rank}.{kept}"
    p, q, u = rejected.target_prob, rejected.draft_prob, rejected.u
    if p is None or q is None or q <= 0:
        return f"{token} was refused; the trace records no probabilities for it.{kept}"
    threshold = min(1.0, p / q)
    if u is None:
        return f"{token} had a chance of {probability(threshold)} to be kept, and was refused.{kept}"
    if p == 0:
        return f"{token} could not be kept: the target gives it no probability at all.{kept}"
    return (
        f"{token} was kept only if u < {probability(threshold)}; u was {probability(u)}, "
        f"{probability(u - threshold)} too high.{kept}"
    )


def _cut(round_: Round, name: Name, dropped: int, drawn: str = "bonus token") -> str:
    last = round_.committed[-1][0] if round_.committed else None
    reason = {
        "eos": f"{_quoted(last, name)} ends the text inside the block",
        "length": "The length limit falls inside the block",
        "stop": f"A stop string is complete with {_quoted(last, name)}",
        None: "The text ends inside the block",
    }[round_.cut]
    if not dropped:
        return f"{reason}, so no {drawn} is drawn."
    tokens = "accepted candidate behind it is" if dropped == 1 else f"{dropped} accepted candidates behind it are"
    return f"{reason}: the {tokens} cut, and no {drawn} is drawn."


def _ending(round_: Round, name: Name, greedy: bool) -> list[str]:
    token = _quoted(round_.correction_token, name)
    if round_.correction_token is None:
        return []
    if round_.correction_kind == "bonus":
        chance = f" ({probability(round_.correction_prob)})" if round_.correction_prob is not None else ""
        return [f"The same forward had also scored the place behind them: {token}{chance} is a bonus, free of charge."]
    if round_.correction_kind == "target":
        return [f"The target then put {token}."]
    if round_.residual_fallback:
        return [f"p and q agree to rounding, so no residual is left: {token} was drawn from p itself."]
    if greedy:
        return [f"The target's first choice, {token}, takes its place."]
    if round_.correction_prob is None:
        return [f"The target put {token} in its place."]
    return [
        f"{token} takes its place, drawn from the residual max(0, p − q), where it holds "
        f"{probability(round_.correction_prob)}."
    ]


def _discarded(round_: Round, name: Name, following: int | None) -> list[str]:
    discarded = [p for p in round_.positions if p.fate == "discarded"]
    rejected = rejected_position(round_)
    if not discarded or rejected is None:
        return []
    refused = _quoted(rejected.candidate, name)
    behind = "What followed was" if len(discarded) > 1 else f"{_quoted(discarded[0].candidate, name)} was"
    sentences = [f"{behind} scored as if {refused} stood, so it cannot be kept."]
    same = next((p for p in discarded if p.candidate == round_.correction_token), None)
    heir = discarded[0]  # it stood where the next round puts its first token
    if same is not None and same.candidate is not None:
        sentences.append(
            f"Candidate {same.position} is the very token of the correction, and still may not stay: "
            "its score belongs to a path that no longer exists."
        )
    elif following is not None and heir.candidate == following and heir.position == rejected.position + 1:
        sentences.append(
            f"The next round does commit “{name(following)}” here, but only after scoring it on the true path."
        )
    return sentences
