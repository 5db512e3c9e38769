"""`specview stats`: the summary of a trace, as tables or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from specview.summary import Summary


@click.command("stats", short_help="The summary of a trace, as a table or JSON.")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--run", "run_id", type=int, help="Only the run with this number; all runs otherwise.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run, a line each.")
def command(trace: Path, run_id: int | None, as_json: bool) -> int:
    """How many tokens were accepted, what the rounds cost, and what speculation gained.

    The names are those of the metrics; each rate stands beside its denominator."""
    print_summary(trace, run_id=run_id, as_json=as_json)
    return 0


def print_summary(trace: Path, *, run_id: int | None = None, as_json: bool = False) -> None:
    """Print the summary of every run of a trace, or of one; `live` and `replay` do so where there is no terminal.

    Raises:
        TraceError: the trace cannot be read, or holds no such run.
    """
    from specview.cli.progress import working
    from specview.cli.wording import warn
    from specview.errors import TraceError
    from specview.summary import document, summarize
    from specview.trace.reader import TraceReader

    with TraceReader(trace) as reader:
        warn(reader)
        runs = [run for run in reader.runs() if run_id in (None, run.id)]
        if not runs:
            known = ", ".join(str(run.id) for run in reader.runs()) or "none"
            raise TraceError(
                f"{trace} has no run {run_id}; it has {known}." if run_id is not None else f"{trace} holds no run."
            )
        for number, run in enumerate(runs):
            with working(f"summing up run {run.id}"):
                summary = summarize(reader, run)
            if as_json:
                click.echo(document(summary))
            else:
                if number:
                    click.echo()
                show(summary)


def show(summary: Summary) -> None:
    """Print a summary for people on stdout."""
    from rich.text import Text

    from specview.cli.tables import stdout
    from specview.cli.wording import run_title

    console = stdout()
    console.print(Text(run_title(summary.run), style="bold"), soft_wrap=True)
    console.print()
    console.print(_counts(summary))
    if summary.totals.proposed_at:
        console.print()
        console.print(_positions(summary))
    if any(summary.clocks.values()) or summary.time_to_first_token_ms:
        console.print()
        console.print(_clocks(summary))
    console.print()
    console.print(_gains(summary))


def _counts(s: Summary) -> Table:
    from specview.cli.tables import cell, table
    from specview.metrics import (
        draft_acceptance_rate,
        judged_acceptance_rate,
        mean_acceptance_length,
        mean_overlap,
        target_calls_per_token,
    )
    from specview.plain import sentence

    t = s.totals
    made = table((("rounds and tokens", False), ("", True), ("", False)))
    judged = t.num_judged_draft_tokens
    rows = (
        ("num_sequences", _whole(s.sequences), ""),
        ("num_rounds", _whole(t.num_rounds), ""),
        ("num_draft_tokens", _whole(t.num_draft_tokens), ""),
        ("num_judged_draft_tokens", _whole(judged), ""),
        ("num_accepted_draft_tokens", _whole(t.num_accepted_draft_tokens), ""),
        ("num_output_tokens", _whole(t.num_output_tokens), ""),
        ("draft_acceptance_rate", _percent(draft_acceptance_rate(t)), f"of {t.num_draft_tokens:,} proposed"),
        (
            "judged_acceptance_rate",
            _percent(judged_acceptance_rate(t)),
            "" if judged is None else f"of {judged:,} judged",
        ),
        (
            "overlap",
            _percent(mean_overlap(t)),
            f"over {sum(t.overlap_counts):,} candidates" if any(t.overlap_counts) else "",
        ),
        ("mean_acceptance_length", _decimal(mean_acceptance_length(t)), "tokens a round"),
        ("target_calls_per_token", _decimal(target_calls_per_token(t)), "plain decoding has 1"),
        (
            "plain_tokens_agreed",
            _whole(None if s.plain is None else s.plain.agreed),
            sentence(s.plain) if s.plain else "",
        ),
    )
    for name, value, remark in rows:
        made.add_row(cell(name), cell(value), cell(remark, "dim"))
    return made


def _positions(s: Summary) -> Table:
    from specview import metrics
    from specview.cli.tables import cell, table

    t = s.totals
    made = table(
        (("position", True), ("proposed", True), ("judged", True), ("accepted", True), ("of rounds", True),
         ("of judged", True), ("overlap", True))
    )  # fmt: skip
    rates = metrics.acceptance_rate_per_position(t)
    conditional = metrics.conditional_acceptance_per_position(t)
    overlaps = metrics.overlap_per_position(t)
    for i in range(len(t.proposed_at)):
        made.add_row(
            cell(str(i + 1)),
            cell(_whole(t.proposed_at[i])),
            cell(_whole(t.judged_at[i]) if i < len(t.judged_at) else "0"),
            cell(_whole(t.accepted_at[i]) if i < len(t.accepted_at) else "0"),
            cell(_percent(rates[i])),
            cell(_percent(conditional[i])),
            cell(_percent(overlaps[i] if i < len(overlaps) else None)),
        )
    return made


def _clocks(s: Summary) -> Table:
    from specview.cli.tables import cell, table
    from specview.metrics import NS_PER_MS, PHASES

    made = table((("milliseconds", False), ("mean", True), ("median", True), ("p95", True), ("share", True)))
    wall = s.clocks["round"]
    for phase in PHASES:
        spread = s.clocks[phase]
        if spread is None:
            continue
        share = spread.mean * spread.count / (wall.mean * wall.count) if wall is not None and wall.mean else None
        values = (spread.mean / NS_PER_MS, spread.median / NS_PER_MS, spread.p95 / NS_PER_MS)
        made.add_row(cell(f"{phase}_ms"), *(cell(_decimal(v)) for v in values), cell(_percent(share)))
    if s.time_to_first_token_ms is not None:
        made.add_row(cell("time_to_first_token_ms"), *(cell(_decimal(v)) for v in s.time_to_first_token_ms), cell(""))
    return made


def _gains(s: Summary) -> Table:
    from specview import metrics
    from specview.cli.tables import cell, table

    values = s.values()
    made = table((("speed", False), ("", True), ("", False)))
    baseline = s.run.baseline_tokens
    estimate = "estimate, assumes i.i.d. acceptance"
    rows = (
        ("tokens_per_second", _decimal(metrics.tokens_per_second(s.totals)), s.prefill_note),
        ("ms_per_token", _decimal(metrics.ms_per_token(s.totals)), ""),
        ("baseline_ms_per_token", _decimal(s.run.baseline_ms_per_token),
         "" if baseline is None else f"median of {baseline:,} plain steps"),
        ("measured_speedup", _times(s.measured_speedup), "against plain decoding, measured in this run"),
        ("cost_ratio", _decimal(s.cost_ratio), "draft step ÷ target step"),
        ("short_scoring_ratio", _decimal(values["short_scoring_ratio"]), "score time ÷ plain step"),
        ("expected_tokens_per_round", _decimal(values["expected_tokens_per_round"]), estimate),
        ("expected_speedup", _times(values["expected_speedup"]), estimate),
    )  # fmt: skip
    for name, value, remark in rows:
        made.add_row(cell(name), cell(value), cell("" if value is None else remark, "dim"))
    return made


def _whole(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _decimal(value: float | None) -> str | None:
    return None if value is None else f"{value:,.2f}"


def _times(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}×"
