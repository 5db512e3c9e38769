"""vLLM's per-request acceptance metrics, level `detailed`: one completion response a line.

Under `metrics.speculative_decoding` of each response, `per_step_drafted` and `per_step_accepted` have an entry a verify
step. There are no tokens, no probabilities and no clocks in them. The token that a prefill yields belongs to no step,
so lengths count from the prompt without it. A step commits no more than `usage.completion_tokens` leaves for it: the
output may end at one of its accepted tokens. Lines of a stream (`data: {…}`) are read too; its last chunk has metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.round import Cut, Round
from specview.importing.fields import FieldError, count, listing, mapping, optional_count, optional_text
from specview.importing.step import MOST_CANDIDATES, Facts, Step, bare_positions, kind

_STOPS: dict[str, Cut] = {"stop": "stop", "length": "length"}


def matches(line: dict[str, Any]) -> bool:
    """Whether an object looks like a response with these metrics."""
    metrics = line.get("metrics")
    return isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict)


def steps(line: dict[str, Any], number: int, facts: Facts) -> Iterator[Step]:
    """The rounds of one response; none when it carries no metrics.

    Args:
        number: the line's number, which tells requests without an id apart.

    Raises:
        FieldError: a field is not what vLLM writes.
    """
    if not matches(line):
        return
    metrics = mapping(line["metrics"], "metrics")
    speculative = mapping(metrics["speculative_decoding"], "metrics.speculative_decoding")
    if "per_step_drafted" not in speculative:
        raise FieldError(
            "there is no per_step_drafted; start vLLM with --per-request-spec-decode-metrics detailed to get it"
        )
    drafted = listing(speculative["per_step_drafted"], "per_step_drafted")
    accepted = listing(speculative.get("per_step_accepted"), "per_step_accepted")
    if len(drafted) != len(accepted):
        raise FieldError(f"per_step_drafted has {len(drafted)} steps and per_step_accepted {len(accepted)}")
    gamma = optional_count(speculative.get("num_spec_tokens"), "num_spec_tokens")
    facts.target = facts.target or optional_text(line.get("model"), "model")
    facts.gamma = gamma if facts.gamma is None else facts.gamma
    usage = line.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    known = optional_count(usage.get("prompt_tokens"), "usage.prompt_tokens")
    length = known or 0
    output = optional_count(usage.get("completion_tokens"), "usage.completion_tokens")
    limit = None if output is None else length + max(0, output - 1)
    request_id = optional_text(line.get("id"), "id")
    for index, (proposed, kept) in enumerate(zip(drafted, accepted, strict=True)):
        proposed = count(proposed, f"per_step_drafted[{index}]", most=MOST_CANDIDATES)
        kept = count(kept, f"per_step_accepted[{index}]", most=MOST_CANDIDATES)
        ends = _stop(line) if index == len(drafted) - 1 else None
        whole = length + kept + 1
        after = whole if limit is None else min(whole, limit)
        round_ = Round(
            index=index,
            gamma=gamma,
            proposed=proposed,
            judged=None,
            accepted=kept,
            committed_before=length,
            committed_after=after,
            positions=bare_positions(proposed),
            correction_kind=kind(proposed, kept) if after == whole else None,
            cut=None if after == whole else ends,
        )
        length = after
        yield Step(number, round_, request_id, known or 0, ends)


def _stop(line: dict[str, Any]) -> Cut | None:
    choices = line.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return _STOPS.get(str(choices[0].get("finish_reason")))
