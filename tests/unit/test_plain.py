"""A greedy run against plain greedy decoding: what check, stats and compare say where the two part."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.round import Round, Sampling
from specview.cli.record import tell_parting
from specview.contract import check
from specview.plain import comparisons
from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter
from tests import synthetic
from tests.tui.driving import lines, press, running, screen, until

COMPARED = 16


def with_runner_up(r: Round) -> Round:
    """The round with a second choice of the target, a little below the first."""
    positions = tuple(
        replace(p, target_top=(p.target_top[0], (p.target_top[0][0] + 1, 0.95 * p.target_top[0][1])))
        for p in r.positions
    )
    return replace(r, positions=positions)


def write(path: Path, dtype: str | None, parts_at: int | None, temperature: float = 0.0) -> tuple[int, float]:
    """A run whose baseline is its own output up to `parts_at`; (round, top-2 margin) of that output token."""
    rounds = [with_runner_up(synthetic.greedy(r)) for r in synthetic.rounds(20)]
    output = [token for r in rounds for token, _ in r.committed]
    plain = output[:COMPARED]
    where = 0, 0.0
    prompt = synthetic.prompt()
    if parts_at is not None:
        place = len(prompt.prompt_ids) + parts_at
        at = next(r for r in rounds if r.committed_before <= place < r.committed_after)
        best, second = at.positions[place - at.committed_before].target_top[:2]
        where = at.index, best[1] - second[1]
        plain[parts_at] = second[0]
    with TraceWriter(path) as writer:
        info = synthetic.run_info(random.Random(1))
        writer.begin_run(replace(info, sampling=Sampling(temperature=temperature), target_dtype=dtype))
        sequence = writer.begin_sequence(prompt)
        writer.set_baseline(20.0, len(plain), tuple(plain), sequence)
        for r in rounds:
            writer.add_round(sequence, r)
        writer.end_sequence(sequence, "length")
        writer.close("finished")
    return where


def lossless(path: Path) -> Any:
    with TraceReader(path) as reader:
        (report,) = check(reader)
    return next(clause for clause in report.clauses if clause.id == "C12")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_tells_where_it_parts_and_by_which_margin(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "run.db"
    index, margin = write(path, dtype, 9)
    with TraceReader(path) as reader:
        (found,) = comparisons(reader, reader.runs()[0])
    assert found.parting is not None
    assert (found.compared, found.agreed, found.parting.round) == (COMPARED, 9, index)
    assert found.parting.margin == pytest.approx(margin)
    clause = lossless(path)
    assert (clause.verdict, clause.checked) == ("ok", 9)
    assert f"output token 10; top-2 margin there {margin:.4f} ({dtype}" in clause.note


def test_half_precision_that_agrees_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    write(path, "bfloat16", None)
    clause = lossless(path)
    assert (clause.verdict, clause.checked) == ("ok", COMPARED)
    assert "for all 16 tokens" in clause.note


def test_float32_that_parts_is_broken_and_says_the_margin(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    index, margin = write(path, "float32", 3)
    clause = lossless(path)
    assert (clause.verdict, clause.violations[0].round) == ("broken", index)
    assert f"top-2 margin {margin:.6g}" in clause.violations[0].recorded


def test_an_unknown_dtype_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    write(path, None, 3)
    assert lossless(path).verdict == "not recorded"


def test_a_margin_that_was_not_recorded_is_not_made_up(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    write(path, "bfloat16", 9)
    with sqlite3.connect(path) as connection:
        assert connection.execute("UPDATE positions SET target_top = NULL").rowcount
    connection.close()
    assert "margin there not recorded" in lossless(path).note


def test_a_sampled_run_has_no_plain_output_to_keep(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    write(path, "float32", 3, temperature=1.0)
    with TraceReader(path) as reader:
        assert list(comparisons(reader, reader.runs()[0])) == []


def test_stats_and_compare_name_the_token_and_the_margin(specview: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    _, margin = write(path, "bfloat16", 9)
    told = f"output token 10; top-2 margin there {margin:.4f}"
    assert told in " ".join(specview("stats", path).out.split())
    assert specview("compare", path, path).out.count(told) == 2
    values = json.loads(specview("stats", path, "--json").out)
    assert (values["plain_tokens_compared"], values["plain_tokens_agreed"]) == (COMPARED, 9)
    assert values["plain_parting_margin"] == pytest.approx(margin)


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("parts_at", [9, None])
async def test_the_statistics_screen_says_it_at_its_top(
    tmp_path: Path, parts_at: int | None, size: tuple[int, int]
) -> None:
    path = tmp_path / "run.db"
    _, margin = write(path, "bfloat16", parts_at)
    told = (
        f"Leaves plain greedy decoding at output token 10; top-2 margin there {margin:.4f}."
        if parts_at is not None
        else f"As plain greedy decoding for all {COMPARED} tokens compared."
    )
    async with running(path, size) as (app, pilot):
        await press(pilot, "s")
        await until(lambda: "Acceptance by position" in screen(app), pilot)
        assert lines(app)[2].rstrip() == told


async def test_the_statistics_screen_of_a_sampled_run_says_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    write(path, "bfloat16", 9, temperature=1.0)
    async with running(path) as (app, pilot):
        await press(pilot, "s")
        await until(lambda: "Acceptance by position" in screen(app), pilot)
        assert "plain greedy decoding" not in screen(app)


@pytest.mark.parametrize(("parts_at", "temperature"), [(9, 0.0), (None, 0.0), (9, 1.0)])
def test_record_ends_with_it_where_the_run_parts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], parts_at: int | None, temperature: float
) -> None:
    path = tmp_path / "run.db"
    _, margin = write(path, "bfloat16", parts_at, temperature)
    tell_parting(path)
    out, err = capfd.readouterr()
    said = f"specview: the run leaves plain greedy decoding at output token 10; top-2 margin there {margin:.4f}.\n"
    assert (out, err) == ("", said if parts_at is not None and not temperature else "")
