"""Each screen at three sizes and without colour, as text and as a map of its inks, against the pictures in golden/.

After a change that is meant: `SPECVIEW_UPDATE_PICTURES=1 pytest tests/tui/test_pictures.py`, and look at the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.style import Style

from specview.tui.app import SpecviewApp
from specview.tui.compare_app import CompareApp
from specview.tui.model.compare import load_comparison
from specview.tui.themes import BY_NAME
from specview.tui.widgets.round_pane import RoundPane
from tests.tui import small_trace
from tests.tui.driving import until

GOLDEN = Path(__file__).with_name("golden")
SIZES = ((160, 48), (100, 30), (60, 20))
INKS = {
    "text": "t", "muted": "m", "faint": "f", "rule": "l", "accent": "!", "accepted": "a", "rejected": "x",
    "correction": "c", "bonus": "b", "target": "p", "draft": "q",
}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "small.db"
    small_trace.write(path)
    return path


def picture(app: SpecviewApp | CompareApp) -> str:
    """The text of the screen, then a letter for the ink of each cell; strikes as capitals."""
    colours = BY_NAME[app.theme]
    letters = {getattr(colours, name).lower(): letter for name, letter in INKS.items()}
    text: list[str] = []
    inks: list[str] = []
    for strip in app.screen._compositor.render_strips():
        text.append(strip.text.rstrip())
        line = ""
        for segment in strip:
            line += (
                _letter(segment.style, letters) * segment.cell_length
                if segment.text.strip()
                else " " * len(segment.text)
            )
        inks.append(line.rstrip())
    return "\n".join([*text, "", *inks]).rstrip() + "\n"


def _letter(style: Style | None, letters: dict[str, str]) -> str:
    if style is None or style.color is None:
        return "."
    name = style.color.triplet.hex if style.color.triplet is not None else style.color.name
    letter = letters.get(name.lower(), "?")
    return letter.upper() if style.strike else letter


def check(name: str, shown: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("SPECVIEW_UPDATE_PICTURES"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8"), f"the screen is not as in {path.name}"


async def _replay(trace: Path, size: tuple[int, int], *keys: str, shows: str = "Round") -> str:
    app = SpecviewApp(trace)
    async with app.run_test(size=size) as pilot:
        await until(lambda: app.view.snapshot.round is not None and app.view.totals is not None, pilot)
        for key in keys:
            await pilot.press(key)
            await until(lambda: app.cursor == app.view.snapshot.cursor, pilot)
        await until(lambda: shows in picture(app), pilot)
        await pilot.pause()
        return picture(app)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_replay(trace: Path, size: tuple[int, int]) -> None:
    check(f"replay-{size[0]}x{size[1]}", await _replay(trace, size, "right", "right", "right"))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_statistics(trace: Path, size: tuple[int, int]) -> None:
    check(f"statistics-{size[0]}x{size[1]}", await _replay(trace, size, "s", shows="Acceptance by position"))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_help(trace: Path, size: tuple[int, int]) -> None:
    check(f"help-{size[0]}x{size[1]}", await _replay(trace, size, "question_mark", shows="Playing"))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_compare(trace: Path, size: tuple[int, int]) -> None:
    app = CompareApp(load_comparison(trace, None, trace, None, 0), trace, None, trace, None)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await until_text(app, "The outputs agree")
        check(f"compare-{size[0]}x{size[1]}", picture(app))


async def until_text(app: CompareApp, text: str) -> None:
    import asyncio

    for _ in range(400):
        if text in picture(app):
            return
        await asyncio.sleep(0.025)
    raise AssertionError(f"no {text!r} in\n{picture(app)}")


async def test_without_colour(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = await _replay(trace, (100, 30), "right", "right", "right")
    check("replay-100x30-no-colour", shown)
    for glyph in ("✗ rejected", "· discarded", "→ correction", "◌"):
        assert glyph in shown, "every state is told by a sign"


@pytest.mark.parametrize(
    ("round_", "said"),
    [
        (0, "takes its place, drawn from the residual"),
        (1, "All 3 candidates passed"),
        (2, "What followed was scored as if “␠light” stood"),
        (3, "Candidate 2 is the very token of the correction"),
        (4, "Nothing was proposed (nothing fits)"),
        (6, "ends the text inside the block"),
    ],
)
async def test_every_story_fits_the_screen_at_100_by_30(trace: Path, round_: int, said: str) -> None:
    shown = await _replay(trace, (100, 30), *["right"] * round_)
    words = " ".join(" ".join(line.partition("│")[2].split()) for line in shown.splitlines()[:22])
    assert said in words


async def test_a_story_without_room_says_so_and_is_told_whole_where_pointed_at(trace: Path) -> None:
    app = SpecviewApp(trace)
    async with app.run_test(size=(80, 20)) as pilot:
        await until(lambda: app.view.snapshot.round is not None, pilot)
        for _ in range(3):
            await pilot.press("right")
        await until(lambda: app.view.snapshot.cursor.round == 3, pilot)
        pane = app.query_one(RoundPane)
        told = [hit for hit in pane.hits if hit.name == "story"]
        assert told
        assert pane.render_line(told[-1].y).text.rstrip().endswith("…")
        assert "Candidate 2 is the very token of the correction" in told[0].tip
