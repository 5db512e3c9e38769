"""`specview distill`: make a draft for a target from the target's own outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specview.errors import EngineMissingError

POSITIVE = click.IntRange(min=1)


def _layers(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.split(",") if part.strip())
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of layers like 10,20.") from None


@click.command("distill", short_help="Make a draft for your own target, from its own outputs.")
@click.option("--target", metavar="B", help="Folder, hub id or .gguf file.  [default: the embedded target]")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the draft."
)
@click.option(
    "--kind",
    type=click.Choice(["head", "plain"]),
    default="head",
    show_default=True,
    help="head: reads the target's hidden states. plain: a model folder of its own, which other programs take too.",
)
@click.option("--tokens", type=POSITIVE, help="Answer tokens to sample from the target.  [default: 630000]")
@click.option("--steps", type=POSITIVE, help="Training steps.  [default: 1500]")
@click.option("--layers", type=click.IntRange(1, 8), help="Layers of the draft.  [default: 1, plain: 2]")
@click.option(
    "--taps",
    metavar="L,…",
    callback=_layers,
    help="Layers of the target whose states a head reads too.  [default: 1/3 and 2/3 up]",
)
@click.option("--scored-tokens", type=POSITIVE, help="Size of the trimmed vocabulary.  [default: 8192]")
@click.option(
    "--work", type=click.Path(file_okay=False, path_type=Path), help="Folder for samples.  [default: DIR.work]"
)
@click.option(
    "--start",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Train on from the head in this folder.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--force", is_flag=True, help="Replace a draft that is in the folder.")
def command(output: Path, force: bool, **options: Any) -> int:
    """Make a draft for a Llama-like target: it answers prompts, and a small draft learns its distribution.

    Takes from minutes to hours. A killed run goes on where it stopped when the same command is given again. Use the
    draft with `--draft DIR`.
    """
    if not force and any((output / name).exists() for name in ("head.json", "config.json")):
        raise click.UsageError(f"{output} holds a draft already; choose another folder or give --force.")

    try:
        from engine.distill.pipeline import run  # torch and transformers: loaded when the work begins
    except ModuleNotFoundError as error:
        raise EngineMissingError(error) from error

    def report(sentence: str) -> None:
        click.echo(sentence, err=True)

    measured = run(out=output, report=report, **options)
    click.echo(f"{output}\n{measured}")
    return 0
