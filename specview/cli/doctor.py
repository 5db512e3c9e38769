"""`specview doctor`: what is installed, what a run would use and why, and whether a pair fits."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from specview.errors import EngineMissingError

if TYPE_CHECKING:
    from engine.doctor import Diagnosis, Side


@click.command("doctor", short_help="Say what is installed, and whether a pair would run.")
@click.option("--draft", metavar="A", help="Draft to look at.  [default: the embedded one, or layers of B]")
@click.option("--target", metavar="B", help="Target to look at.  [default: the embedded one]")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N, mps.")
@click.option(
    "--dtype", default="auto", show_default=True, type=click.Choice(["auto", "float32", "bfloat16", "float16"])
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(draft: str | None, target: str | None, device: str, dtype: str, as_json: bool) -> int:
    """Look at the installation and at a pair, without loading any weights. Exit code 1 when a run would not start."""
    try:
        from engine.doctor import diagnose
    except ModuleNotFoundError as error:
        raise EngineMissingError(error) from error

    found = diagnose(draft, target, device, dtype)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        _print(found, *_draft(draft, target, found))
    return 0 if found.fits else 1


def _draft(draft: str | None, target: str | None, found: Diagnosis) -> tuple[str | None, str]:
    """What a run would draft with, and why; the draft that is no model of its own has no side to describe."""
    if found.draft is not None:
        return _side(found.draft), ""
    if draft is not None:
        return (draft, "no model of its own: drafts beside the target") if found.fits else (None, "")
    from engine.default_pair import HEAD_NAME
    from engine.pair import default_draft

    if (embedded := default_draft(target)) is not None:
        return HEAD_NAME, f"the embedded draft, in {embedded}"
    return "self", "no --draft: some layers of the target itself"


def _print(found: Diagnosis, draft: str | None, draft_reason: str) -> None:
    from specview.cli.tables import cell, stdout, table
    from specview.text import showable

    console = stdout()
    facts = table([("fact", False), ("value", False), ("why", False)])
    for package, version in found.packages.items():
        facts.add_row(cell(package), cell(version or "not installed", "" if version else "dim"), cell(""))
    facts.add_section()
    facts.add_row(cell("device"), cell(_named(found.device, found.device_name)), cell(found.device_reason))
    facts.add_row(cell("dtype"), cell(found.dtype), cell(found.dtype_reason))
    facts.add_section()
    facts.add_row(cell("target"), cell(_side(found.target)), cell(found.default_model if found.target else ""))
    facts.add_row(cell("draft"), cell(draft), cell(draft_reason))
    console.print(facts)
    for problem in found.problems:
        console.print(f"✗ {showable(problem)}", style="red", soft_wrap=True)
    if found.fits:
        console.print("✓ A run would start.", style="green")


def _named(device: str | None, name: str | None) -> str | None:
    return device if device is None or name is None else f"{device} ({name})"


def _side(side: Side | None) -> str | None:
    if side is None:
        return None
    facts = [
        side.model_type,
        *(f"{value:,} {what}" for what, value in _sizes(side) if value is not None),
    ]
    return f"{side.name}: {', '.join(facts)}"


def _sizes(side: Side) -> tuple[tuple[str, int | None], ...]:
    return ("layers", side.layers), ("token ids", side.vocab_size), ("positions", side.context)
