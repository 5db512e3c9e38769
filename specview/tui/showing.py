"""The screens over the main one, and what can be taken away from it: pictures, copies, exports."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding
from textual.screen import Screen
from textual.worker import get_current_worker

from specview.errors import SpecviewError, TraceError
from specview.export import csv
from specview.export.levels import export_of
from specview.export.sink import opened
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord
from specview.tui.bindings import BINDINGS, key_name
from specview.tui.model import statistics
from specview.tui.model.compare import load_comparison
from specview.tui.model.titles import draft_name, model_name, settings
from specview.tui.questions import Questions
from specview.tui.screens.choose import ChooseScreen
from specview.tui.screens.closing import close
from specview.tui.screens.compare import CompareScreen
from specview.tui.screens.help import HelpScreen
from specview.tui.screens.statistics import StatisticsScreen
from specview.tui.themes import THEMES
from specview.tui.widgets.ask import AskLine
from specview.tui.widgets.output import OutputPane


class Showing(Questions):
    """The part of the app that opens other screens and writes files."""

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    # Statistics

    def action_statistics(self) -> None:
        snapshot = self.view.snapshot
        if snapshot.run is None or snapshot.sequence is None:
            self.say("there is nothing to count yet.")
            return
        screen = StatisticsScreen()
        self.push_screen(screen)
        self._gather(screen, snapshot.run, snapshot.sequence.id)

    @work(thread=True, exclusive=True, group="statistics")
    def _gather(self, screen: StatisticsScreen, run: RunRecord, sequence_id: int) -> None:
        worker = get_current_worker()
        try:
            with TraceReader(self.path) as reader:
                found = statistics.gather(reader, run, sequence_id)
        except TraceError as error:
            self.call_from_thread(self.say, str(error))
            return
        if not worker.is_cancelled:
            self.call_from_thread(screen.pane.show, found)

    # Compare

    def action_compare(self) -> None:
        runs = self.view.snapshot.runs
        if len(runs) < 2:
            self.query_one(AskLine).ask("compare", "compare with the trace:", placeholder="path of another trace")
            return
        here = self.view.snapshot.cursor.run
        others = [i for i in range(len(runs)) if i != here]
        lines = [self._run_line(i, runs[i]) for i in others] + ["another trace …"]
        self.push_screen(ChooseScreen("Compare this run with", lines), partial(self._compare_chosen, others))

    def _run_line(self, index: int, run: RunRecord) -> str:
        info = run.info
        return f"{index + 1:>3}  {model_name(info.target)} ◂ {draft_name(info)} · {' · '.join(settings(info))}"

    def _compare_chosen(self, others: list[int], chosen: int | None) -> None:
        if chosen is None:
            return
        if chosen == len(others):
            self.query_one(AskLine).ask("compare", "compare with the trace:", placeholder="path of another trace")
        else:
            self._open_compare(self.path, self.view.snapshot.runs[others[chosen]].id)

    def answer(self, kind: str, text: str) -> None:
        if kind == "compare":
            self._open_compare(Path(text.strip()).expanduser(), None)
        elif kind == "export":
            self._export(Path(text.strip()).expanduser())
        else:
            super().answer(kind, text)

    def _open_compare(self, other: Path, other_run: int | None) -> None:
        run = self.view.snapshot.run
        if run is None:
            return
        screen = CompareScreen(lambda index: self._compare(screen, run.id, other, other_run, index))
        self.push_screen(screen)

    @work(thread=True, exclusive=True, group="compare")
    def _compare(self, screen: CompareScreen, run_id: int, other: Path, other_run: int | None, index: int) -> None:
        worker = get_current_worker()
        try:
            comparison = load_comparison(self.path, run_id, other, other_run, index)
        except TraceError as error:
            self.call_from_thread(self._close_with, screen, str(error))
            return
        if not worker.is_cancelled:
            self.call_from_thread(screen.show, comparison)

    def _close_with(self, screen: CompareScreen, sentence: str) -> None:
        close(screen)
        self.say(sentence, seconds=8)

    # Taking away

    def action_picture(self) -> None:
        folder = Path.cwd()
        index = self.view.snapshot.cursor.round + 1
        path = _free(folder / f"{self.path.stem}-round-{index}.svg")
        try:
            path.write_text(self.export_screenshot(), "utf-8")
        except OSError as error:
            self.say(f"the picture cannot be written to {folder}: {error.strerror}.")
            return
        self.say(f"picture written to {path.name}.")

    def action_copy(self) -> None:
        """Put the round's tokens, or the text so far, on the clipboard (OSC 52)."""
        snapshot = self.view.snapshot
        if snapshot.round is None:
            return
        if isinstance(self.focused, OutputPane):
            data = b"".join(snapshot.names.data(t.token) for t in snapshot.window.tokens if t.origin != "prompt")
            what = "the output"
        else:
            data = b"".join(snapshot.names.data(token) for token, _ in snapshot.round.committed)
            what = f"the tokens of round {snapshot.round.index + 1}"
        self.copy_to_clipboard(data.decode("utf-8", "replace"))
        self.say(f"copied {what}.")

    def action_export(self) -> None:
        default = self.path.with_suffix(".rounds.csv")
        self.query_one(AskLine).ask("export", "export the rounds to:", str(default))

    @work(thread=True, exclusive=True, group="export")
    def _export(self, path: Path) -> None:
        try:
            with TraceReader(self.path) as reader, opened(path, force=False) as out:
                csv.write(export_of(reader, "rounds"), out, raw_text=False, progress=lambda _: None)
        except SpecviewError as error:
            self.call_from_thread(self.say, str(error), 8.0)
            return
        self.call_from_thread(self.say, f"the rounds are in {path}.")

    # Looks

    def action_next_theme(self) -> None:
        names = [colours.name for colours in THEMES]
        here = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(here + 1) % len(names)]
        self.say(f"theme {self.theme.removeprefix('specview-')}.", seconds=2)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: every bound action by its words, and the themes by Textual's own command."""
        for binding in BINDINGS:
            if isinstance(binding, Binding):
                keys = " ".join(filter(None, (key_name(k) for k in binding.key.split(","))))
                action = binding.action
                yield SystemCommand(
                    binding.description[0].upper() + binding.description[1:], f"key {keys}", partial(self._do, action)
                )
        yield SystemCommand("Theme", "choose the colours", self.action_change_theme)

    async def _do(self, action: str) -> None:
        await self.run_action(action)


def _free(path: Path) -> Path:
    """The path, or the first numbered neighbour that does not exist: nothing is overwritten."""
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_stem(f"{path.stem}-{number}")
    return found
