"""What a person asks of the trace: go to, find, filter, bookmark, another run or prompt."""

from __future__ import annotations

from functools import partial

from textual import work
from textual.worker import get_current_worker

from specview.errors import TraceError
from specview.text import showable
from specview.trace.reader import TraceReader
from specview.tui.model import marks as marks_file
from specview.tui.model import search
from specview.tui.model.cursor import Cursor
from specview.tui.model.marks import LastPlace, Marks
from specview.tui.model.snapshot import Snapshot
from specview.tui.model.titles import draft_name, model_name, settings
from specview.tui.navigation import Navigation
from specview.tui.numbers import count
from specview.tui.screens.choose import ChooseScreen
from specview.tui.widgets.ask import AskLine

ANY = 1 << 40
"""A count that no sequence reaches: the feed clamps to what there is."""
LISTED = 5000
"""Sequences that the switcher lists; `:` reaches the rest of them by number."""


class Questions(Navigation):
    """The part of the app that answers questions."""

    _needle = ""
    _filter: search.Filter | None = None
    _marks = Marks()
    _last: LastPlace | None = None

    # Go to

    def action_ask_goto(self) -> None:
        total = self.view.snapshot.round_count
        if total:
            self.query_one(AskLine).ask("goto", "go to round:", placeholder=f"1 … {count(total)}, or prompt.round")

    def action_ask_find(self) -> None:
        self.query_one(AskLine).ask("find", "find text:", self._needle)

    def on_ask_line_answered(self, message: AskLine.Answered) -> None:
        # Textual calls a handler of every class in the line of inheritance, so there is this one only.
        text = message.text.strip()
        place = self._named(text) if message.kind == "goto" and text else None
        if place is not None:
            self.go(place)  # the question goes when the round comes: one picture, not two
            return
        self.query_one(AskLine).close()
        if text:
            self.answer(message.kind, message.text)

    def after_snapshot(self, snapshot: Snapshot) -> None:
        super().after_snapshot(snapshot)
        for line in self.query(AskLine):
            if line.answered:
                line.close()

    def answer(self, kind: str, text: str) -> None:
        """The person answered a question of this kind."""
        if kind == "find":
            self._needle = text
            self.action_find(1)
        elif kind == "prompt" and self.child is not None:
            self.child.send_prompt(text)
            self.look(self.cursor.to_end())
            self.say("the prompt is sent; it is decoded when the one before it is done.")

    def _named(self, text: str) -> Cursor | None:
        """The place that a person typed; None, and a sentence, where it is none."""
        sequence, _, round_ = text.rpartition(".")
        try:
            number = int(round_.replace(",", ""))
            prompt = int(sequence) if sequence else None
        except ValueError:
            self.say(f"“{showable(text)}” is no round; type a number, or prompt.round such as 2.14.")
            return None
        snapshot = self.view.snapshot
        cursor = self.cursor
        if prompt is not None:
            cursor = cursor.to_sequence(prompt - 1, snapshot.sequence_count)
            if cursor.sequence != self.cursor.sequence:
                # The feed clamps to what the other sequence has.
                return cursor.to_round(max(0, number - 1), ANY)
        return cursor.to_round(number - 1, snapshot.round_count)

    # Find text

    def action_find(self, direction: int) -> None:
        snapshot = self.view.snapshot
        if not self._needle:
            self.action_ask_find()
            return
        if snapshot.run is None or snapshot.sequence is None:
            return
        round_ = snapshot.round
        start = 0 if round_ is None else round_.committed_after - 1 if direction > 0 else round_.committed_before
        self.say("searching …", seconds=60)
        self._find_text(snapshot.run.id, snapshot.sequence.id, self._needle, start, direction)

    @work(thread=True, exclusive=True, group="search")
    def _find_text(self, run_id: int, sequence_id: int, needle: str, start: int, direction: int) -> None:
        worker = get_current_worker()
        try:
            with TraceReader(self.path) as reader:
                place = search.find_text(
                    reader, run_id, sequence_id, needle, start, direction, lambda: worker.is_cancelled
                )
                round_ = reader.tokens(sequence_id, place, place + 1)[0].round_index if place is not None else None
        except TraceError as error:
            self.call_from_thread(self.say, str(error))
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._found_text, needle, place, round_)

    def _found_text(self, needle: str, place: int | None, round_: int | None) -> None:
        shown = showable(needle, limit=40)
        if place is None:
            self.say(f"“{shown}” does not occur in this output.")
        elif round_ is None:
            self.say(f"“{shown}” occurs in the prompt, before the first round.")
            self.action_first()
        else:
            self.say(f"“{shown}” · n next, N previous")
            self.go(self.cursor.to_round(round_, self.view.snapshot.round_count))

    # Filter

    def action_choose_filter(self) -> None:
        gamma = self.view.info.gamma if self.view.info is not None and self.view.info.gamma is not None else 4
        offered = search.filters(min(gamma, 24))
        names = ["no filter", *(f.name for f in offered), "bookmarked"]
        now = next((i for i, name in enumerate(names) if name == self.view.matches), 0)
        self.push_screen(
            ChooseScreen("Stop at rounds that …   [ previous  ] next", names, now), partial(self._filter_by, offered)
        )

    def _filter_by(self, offered: list[search.Filter], chosen: int | None) -> None:
        if chosen is None:
            return
        self._filter = offered[chosen - 1] if 0 < chosen <= len(offered) else None
        name = "bookmarked" if chosen > len(offered) else self._filter.name if self._filter is not None else ""
        self.set_view(matches=name)
        if name:
            self.action_match(1)

    def action_match(self, direction: int) -> None:
        snapshot = self.view.snapshot
        if snapshot.sequence is None:
            return
        if self.view.matches == "bookmarked":
            here = snapshot.cursor.round
            ahead = sorted(b for b in self.view.bookmarks if (b - here) * direction > 0)
            self._found_round(ahead[0 if direction > 0 else -1] if ahead else None, direction)
        elif self._filter is None:
            self.action_choose_filter()
        else:
            self._find_round(snapshot.sequence.id, self._filter, snapshot.cursor.round, direction)

    @work(thread=True, exclusive=True, group="search")
    def _find_round(self, sequence_id: int, wanted: search.Filter, start: int, direction: int) -> None:
        worker = get_current_worker()
        try:
            with TraceReader(self.path) as reader:
                wanted = search.with_threshold(reader, sequence_id, wanted)
                found = search.find_round(reader, sequence_id, wanted, start, direction)
        except TraceError as error:
            self.call_from_thread(self.say, str(error))
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._found_round, found, direction)

    def _found_round(self, found: int | None, direction: int) -> None:
        if found is None:
            where = "behind" if direction > 0 else "before"
            self.say(f"no round {where} this one matches: {self.view.matches}.")
        else:
            self.go(self.cursor.to_round(found, self.view.snapshot.round_count))

    # Bookmarks and the place last viewed

    def load_marks(self) -> None:
        """Bookmarks of this trace, and, in a finished one, the place where it was left."""
        try:
            self._marks = marks_file.load_marks(self.path)
            self._last = marks_file.load_place(self.path)
        except OSError as error:
            self.say(f"the bookmarks cannot be read: {error.strerror}.")

    def resume(self, snapshot: Snapshot) -> bool:
        """Go back to the place last viewed, if the trace still has it."""
        last = self._last
        if last is None or self.view.live:
            return False
        run = next((i for i, r in enumerate(snapshot.runs) if r.info.uuid == last.uuid), None)
        if run is None or (run, last.sequence, last.round) == (0, 0, 0):
            return False
        cursor = self.cursor.to_run(run, len(snapshot.runs)).to_sequence(last.sequence, ANY)
        self.look(cursor.to_round(last.round, ANY))
        self.say(f"back at round {count(last.round + 1)}, where this trace was left; Home goes to the start.")
        return True

    def bookmarks_of(self, snapshot: Snapshot) -> frozenset[int]:
        if snapshot.run is None or snapshot.sequence is None:
            return frozenset()
        return self._marks.of(snapshot.run.info.uuid, snapshot.sequence.index)

    def action_bookmark(self) -> None:
        snapshot = self.view.snapshot
        if snapshot.run is None or snapshot.sequence is None or snapshot.round is None:
            return
        self._marks = self._marks.toggled(snapshot.run.info.uuid, snapshot.sequence.index, snapshot.cursor.round)
        self.set_view(bookmarks=self.bookmarks_of(snapshot))
        self._save_marks()

    def remember_place(self) -> None:
        """Keep where the person was, for the next time."""
        snapshot = self.view.snapshot
        if snapshot.run is None or snapshot.round is None or self.view.live:
            return
        place = LastPlace(snapshot.run.info.uuid, snapshot.cursor.sequence, snapshot.cursor.round)
        try:
            marks_file.save_place(self.path, place)
        except OSError as error:
            self.farewell = f"the place in this trace cannot be remembered: {error.strerror}."

    def _save_marks(self) -> None:
        try:
            marks_file.save_marks(self.path, self._marks)
        except OSError as error:
            self.say(f"the bookmarks cannot be kept: {error.strerror}.")

    # Other runs and prompts

    def action_choose_run(self) -> None:
        runs = self.view.snapshot.runs
        if len(runs) < 2:
            self.say("this trace holds one run.")
            return
        lines = [
            f"{i:>3}  {model_name(r.info.target)} ◂ {draft_name(r.info)} · {' · '.join(settings(r.info))} · {r.status}"
            for i, r in enumerate(runs, start=1)
        ]
        self.push_screen(ChooseScreen("Runs", lines, self.view.snapshot.cursor.run), self._to_run)

    def _to_run(self, chosen: int | None) -> None:
        if chosen is not None:
            self.go(self.cursor.to_run(chosen, len(self.view.snapshot.runs)))

    def action_choose_sequence(self) -> None:
        snapshot = self.view.snapshot
        if snapshot.run is None or snapshot.sequence_count < 2:
            self.say("this run holds one prompt.")
            return
        try:
            with TraceReader(self.path) as reader:
                records = reader.sequences(snapshot.run.id, 0, LISTED)
        except TraceError as error:
            self.say(str(error))
            return
        lines = [
            f"{r.index + 1:>4}  {showable(r.prompt or r.request_id or '(no text)', limit=60):<62} "
            f"{r.stop_reason or 'growing'}"
            for r in records
        ]
        self.push_screen(ChooseScreen("Prompts", lines, snapshot.cursor.sequence), self._to_sequence)

    def _to_sequence(self, chosen: int | None) -> None:
        if chosen is not None:
            self.go(self.cursor.to_sequence(chosen, self.view.snapshot.sequence_count))

    def action_sequence(self, by: int) -> None:
        snapshot = self.view.snapshot
        self.go(self.cursor.to_sequence(snapshot.cursor.sequence + by, snapshot.sequence_count))

    # Live

    def action_ask_prompt(self) -> None:
        if self.child is None:
            self.say("a prompt needs a live run; this is a recorded one.")
        elif self.child.poll() is not None:
            self.say("the run has ended and takes no more prompts.")
        else:
            self.query_one(AskLine).ask("prompt", "next prompt:")
