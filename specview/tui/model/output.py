"""The output around the cursor: committed tokens laid out once, the round under the cursor in place."""

from __future__ import annotations

from bisect import bisect_right

from engine.round import Round
from specview.text import join_pieces, showable
from specview.trace.records import TokenRecord
from specview.tui.model.flow import Flow, FlowState, Lines, whole_prefix
from specview.tui.model.lens import EXACT_TOKENS, TOKENS_A_BLOCK
from specview.tui.model.names import Names
from specview.tui.model.phases import Phase
from specview.tui.model.snapshot import Snapshot

OPEN, CLOSE = "⟦", "⟧"
CHECKPOINT = 256
"""Tokens between two places that stepping back can return to."""


class OutputText:
    """Lays out what the cursor has seen. Tokens before the round keep their places while the cursor moves."""

    def __init__(self) -> None:
        self.key: tuple[object, ...] = ()
        """Changes when the lines are laid out anew, with another width or from another place."""
        self._flow = Flow(1)
        self._checkpoints: list[tuple[int, FlowState]] = []
        self.first_line_of_round = 0
        """Index of the first line that the cursor's round can touch; the lines before it are settled."""

    def lines(self, snapshot: Snapshot, width: int, phase: Phase) -> Lines:
        """The lines up to the end of the cursor's round; runs of tokens that are not committed have negative owners."""
        round_ = snapshot.round
        end = round_.committed_before if round_ is not None else snapshot.window.end
        self._catch_up(snapshot, width, end)
        state = self._flow.mark()
        # The unfinished word on the last line may still move to the next one, and takes the line with it.
        self.first_line_of_round = len(self._flow.lines) - 1
        self._rest(snapshot, end)
        if round_ is not None:
            _lay_out_round(self._flow, round_, snapshot.names, phase)
        # The last line may still change, the lines before it never do: only the last one needs a copy of its own.
        lines = list(self._flow.lines)
        self._flow.rewind(state)
        return lines

    def _catch_up(self, snapshot: Snapshot, width: int, end: int) -> None:
        """Bring the committed flow to the last whole character before `end`."""
        sequence = snapshot.sequence
        window = snapshot.window
        key = (snapshot.run and snapshot.run.id, sequence and sequence.id, window.start, width)
        if key != self.key:
            self.key = key
            self._flow = Flow(width)
            self._checkpoints = [(window.start, self._flow.mark())]
        done = self._checkpoints[-1][0]
        if end < done:
            places = [place for place, _ in self._checkpoints]
            keep = max(1, bisect_right(places, end))
            del self._checkpoints[keep:]
            done, state = self._checkpoints[-1]
            self._flow.rewind(state)
        while done < end:
            stop = min(end, done + CHECKPOINT)
            tokens = window.tokens[done - window.start : stop - window.start]
            data = [snapshot.names.data(t.token) for t in tokens]
            whole = whole_prefix(data)
            if whole == 0 or not tokens:
                return
            before = window.tokens[done - window.start - 1] if done > window.start else None
            self._pour(before, tokens[:whole], data[:whole], snapshot.names)
            done += whole
            self._checkpoints.append((done, self._flow.mark()))
            if whole < len(tokens) and stop == end:
                return

    def _pour(
        self, before: TokenRecord | None, tokens: tuple[TokenRecord, ...], data: list[bytes], names: Names
    ) -> None:
        context = names.data(before.token) if before is not None else b""
        old, *pieces = join_pieces([context, *data])
        alone = context.decode("utf-8", "surrogateescape")
        if before is not None and len(old) > len(alone):  # a mark that stands on the token before
            self._flow.add_marks(old[len(alone) :], before.position, _style(before, names))
        for record, piece in zip(tokens, pieces, strict=True):
            if record.position >= EXACT_TOKENS and record.position % TOKENS_A_BLOCK == 0 and before is not None:
                self._flow.break_line()
            before = record
            self._flow.add(piece, record.position, _style(record, names))

    def _rest(self, snapshot: Snapshot, end: int) -> None:
        """What stands before the round but ends inside a character: laid out anew once that is whole."""
        done = self._checkpoints[-1][0]
        window = snapshot.window
        for record in window.tokens[done - window.start : max(0, end - window.start)]:
            text = showable(snapshot.names.data(record.token))
            self._flow.add(text, record.position, _style(record, snapshot.names))


def _style(record: TokenRecord, names: Names) -> str:
    return "special" if names.special(record.token) else record.origin


def _lay_out_round(flow: Flow, round_: Round, names: Names, phase: Phase) -> None:
    """The round in place: kept tokens, what was refused and discarded, then the token that the target put there."""
    flow.add_sign(OPEN, round_.committed_before, "box", opening=True)
    judged = phase in ("accept", "correct")
    path = [p for p in round_.positions if p.candidate is not None and p.position <= round_.proposed]
    data = [names.data(p.candidate) for p in path if p.candidate is not None]
    for position, piece in zip(path, join_pieces(data), strict=True):
        fate = position.fate if judged else None
        committed = fate == "accepted"
        owner = round_.committed_before + position.position - 1 if committed else -position.position
        flow.add(piece, owner, fate or "proposed", visible=True)
    if not path and phase == "correct":
        # A source that records no candidates still tells what was committed.
        kept = [(t, o) for t, o in round_.committed if o == "accepted"]
        for index, piece in enumerate(join_pieces(names.data(t) for t, _ in kept)):
            flow.add(piece, round_.committed_before + index, "accepted", visible=True)
    if phase == "correct" and round_.correction_token is not None:
        kind = round_.correction_kind or "correction"
        (piece,) = join_pieces([names.data(round_.correction_token)])
        flow.add(piece, round_.committed_after - 1, kind, visible=True)
    flow.add_sign(CLOSE, round_.committed_after - 1, "box")
