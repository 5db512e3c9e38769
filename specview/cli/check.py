"""`specview check`: verify every clause of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from specview.cli import Standing
    from specview.contract import ClauseReport, RunReport, Violation

SHOWN_VIOLATIONS = 5
MARKS = {"ok": ("✓", "green"), "broken": ("✗", "bold red"), "not recorded": ("·", "dim")}


@click.command("check", short_help="Verify every clause of the contract.")
@click.argument("traces", metavar="TRACE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(standing: Standing, traces: tuple[Path, ...], as_json: bool) -> int:
    """Recompute every clause of the draft–verify contract from what the traces recorded.

    Exit code 0: whatever was recorded holds; 1: a clause is broken; 2: a trace cannot be read. A clause that a trace
    has no data for is `not recorded`, never `ok`. Prompts and rounds are numbered from 1, as on the screen; JSON has
    the indices of the tables, from 0."""
    import json

    from specview.cli import say
    from specview.errors import TraceError

    documents: list[dict[str, Any]] = []
    holds, readable = True, True
    for number, path in enumerate(traces, 1):
        # A reader that goes away (`| head`) must not make a pass of what was not looked at.
        standing.exit_code = 1
        try:
            reports = _check(path)
        except TraceError as error:
            readable = False
            say(str(error))
            documents.append({"trace": str(path), "error": str(error)})
            continue
        holds = holds and all(report.holds for report in reports)
        if number == len(traces):
            standing.exit_code = _exit_code(holds, readable)
        if as_json:
            documents.append({"trace": str(path), "runs": [_document(report) for report in reports]})
        else:
            _show(path, reports)
    standing.exit_code = _exit_code(holds, readable)
    if as_json:
        click.echo(json.dumps(documents, indent=2))
    return standing.exit_code


def _exit_code(holds: bool, readable: bool) -> int:
    return 2 if not readable else 0 if holds else 1


def _check(path: Path) -> list[RunReport]:
    from specview.cli.progress import counting
    from specview.cli.wording import warn
    from specview.contract import check_run
    from specview.trace.reader import TraceReader

    reports = []
    with TraceReader(path) as reader:
        warn(reader)
        for run in reader.runs():
            with counting(f"checking run {run.id}", reader.run_round_count(run.id)) as progress:
                reports.append(check_run(reader, run, progress))
    return reports


def _document(report: RunReport) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "run": report.run.id,
        "uuid": report.run.info.uuid,
        "status": report.run.status,
        "sequences": report.sequences,
        "rounds": report.rounds,
        "holds": report.holds,
        "clauses": [
            {
                "id": clause.id,
                "title": clause.title,
                "verdict": clause.verdict,
                "checked": clause.checked,
                "broken": clause.broken,
                "note": clause.note,
                "violations": [asdict(v) for v in clause.violations],
            }
            for clause in report.clauses
        ],
    }


def _show(path: Path, reports: list[RunReport]) -> None:
    from rich.text import Text

    from specview.cli.tables import stdout
    from specview.cli.wording import count, run_title
    from specview.text import showable

    console = stdout()
    if not reports:
        console.print(Text(f"{showable(str(path))}: no run was recorded in it."))
    for report in reports:
        console.print(Text(showable(str(path)), style="bold").append(f" · run {report.run.id}", style="not bold"))
        console.print(
            Text(
                f"{run_title(report.run)} · {count(report.sequences, 'sequence')} · {count(report.rounds, 'round')}",
                style="dim",
            )
        )
        for clause in report.clauses:
            _show_clause(console, clause)
        console.print(_conclusion(report))
        console.print()


def _show_clause(console: Console, clause: ClauseReport) -> None:
    from rich.text import Text

    from specview.cli.wording import count
    from specview.text import showable

    mark, style = MARKS[clause.verdict]
    line = Text(f"  {mark} ", style=style)
    line.append(f"{clause.id:<4}{clause.title:<14}", style="dim" if clause.verdict == "not recorded" else "not dim")
    if clause.verdict == "not recorded":
        line.append("not recorded".rjust(11), style="not bold")
    else:
        line.append(f"{clause.checked:>11,} checked", style="dim not bold red" if clause.broken else "dim")
    if clause.broken:
        line.append(f" · {count(clause.broken, 'violation')}", style="bold red")
    elif clause.note:
        line.append(f" · {clause.note}", style="dim")
    console.print(line, soft_wrap=True)
    for v in clause.violations[:SHOWN_VIOLATIONS]:
        where = _place(v)
        finding = Text(f"         {where}{': ' if where else ''}{showable(v.recorded)}")
        finding.append(f" — expected {showable(v.expected)}", style="dim")
        console.print(finding, soft_wrap=True)
    if clause.broken > SHOWN_VIOLATIONS:
        console.print(Text(f"         … and {clause.broken - SHOWN_VIOLATIONS:,} more", style="dim"))


def _place(v: Violation) -> str:
    """Numbered as on the replay's screen, from 1, so that `:` goes there; the JSON has the indices of the tables."""
    places = (
        ("prompt", None if v.sequence is None else v.sequence + 1),
        ("round", None if v.round is None else v.round + 1),
        ("position", v.position),
    )
    return " ".join(f"{name} {value:,}" for name, value in places if value is not None)


def _conclusion(report: RunReport) -> Any:
    from rich.text import Text

    broken = [clause.id for clause in report.clauses if clause.broken]
    if broken:
        return Text(f"  Broken: {', '.join(broken)}.", style="bold red")
    missing = [clause.id for clause in report.clauses if clause.verdict == "not recorded"]
    if len(missing) == len(report.clauses):
        return Text("  Nothing that a clause could be checked against was recorded.")
    text = "  Every clause holds" if not missing else "  Every clause that was recorded holds"
    return Text(f"{text}.", style="green")
