"""`specview compare`: two runs side by side, aligned by output token."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("compare", short_help="Two runs side by side.")
@click.argument("left", metavar="TRACE", type=click.Path(path_type=Path))
@click.argument("right", metavar="TRACE", type=click.Path(path_type=Path))
@click.option("--run", "left_run", type=int, help="The run of the first trace; its newest otherwise.")
@click.option("--other-run", "right_run", type=int, help="The run of the second trace; its newest otherwise.")
@click.option("--prompt", "prompt", type=click.IntRange(1), default=1, show_default=True, help="Which prompt to align.")
def command(left: Path, right: Path, left_run: int | None, right_run: int | None, prompt: int) -> int:
    """Where the outputs of two runs part, by what margin, and what each run cost.

    The same TRACE twice compares two of its runs. When stdout is no terminal, the comparison is printed as a table."""
    from specview.tui.model.compare import load_comparison
    from specview.tui.run import has_terminal

    comparison = load_comparison(left, left_run, right, right_run, prompt - 1)
    if prompt > max(1, comparison.sequence_count):
        raise click.UsageError(
            f"the two runs have {comparison.sequence_count} prompts in common, so there is no {prompt}"
        )
    if not has_terminal():
        from specview.tui.model.compare_table import table

        for line in table(comparison):
            click.echo(line)
        return 0
    from specview.tui.compare_app import CompareApp
    from specview.tui.run import show

    return show(CompareApp(comparison, left, left_run, right, right_run))
