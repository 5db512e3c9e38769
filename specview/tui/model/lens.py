"""Reads what a cursor points at, by range and through small pages: a million rounds cost what a hundred do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from engine.round import Round
from specview.metrics import totals
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord, SequenceRecord, TokenRecord
from specview.tui.model.cursor import Cursor
from specview.tui.model.names import Names
from specview.tui.model.snapshot import PAGE, Mark, Snapshot, TokenWindow

ROUNDS_A_PAGE = 8
TOKENS_A_BLOCK = 256
TOKENS_BEFORE = 4 * TOKENS_A_BLOCK
EXACT_TOKENS = 16 * TOKENS_A_BLOCK
"""Up to here the text is laid out from its beginning; behind it, from so many tokens before the cursor's block."""
RECENT = 16
_MARK_PAGES_AROUND = 2

# A page of the timeline is drawn from six columns; whole rounds with their tokens would cost ten times as much.
_MARKS = (
    "SELECT round_index, accepted, proposed, correction_kind, cut, round_ns FROM rounds"
    " WHERE sequence_id = ? AND round_index >= ? AND round_index < ?"
)
MISSING = Mark(0, 0, "cut", None)
"""A round that a damaged file lacks."""

K = TypeVar("K")
V = TypeVar("V")


class Pages(Generic[K, V]):
    """The most recently used pages, each with whether it can still grow."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pages: OrderedDict[K, tuple[V, bool]] = OrderedDict()

    def get(self, key: K, load: Callable[[], tuple[V, bool]]) -> V:
        """The page `key`; `load` returns it with True when it is complete and will not change."""
        if key in self._pages:
            self._pages.move_to_end(key)
        else:
            self._pages[key] = load()
            while len(self._pages) > self._size:
                self._pages.popitem(last=False)
        return self._pages[key][0]

    def forget_growing(self) -> None:
        for key in [key for key, (_, complete) in self._pages.items() if not complete]:
            del self._pages[key]


def window_start(committed: int) -> int:
    """Where the text around `committed` tokens starts to be laid out; it moves a whole block at a time."""
    if committed <= EXACT_TOKENS + TOKENS_A_BLOCK:
        return 0
    return committed // TOKENS_A_BLOCK * TOKENS_A_BLOCK - TOKENS_BEFORE


def tokens_in(rounds: Iterable[Round]) -> set[int]:
    """Every token id that the rounds name."""
    found: set[int] = set()
    for round_ in rounds:
        if round_.correction_token is not None:
            found.add(round_.correction_token)
        for position in round_.positions:
            if position.candidate is not None:
                found.add(position.candidate)
            found.update(token for token, _ in position.draft_top)
            found.update(token for token, _ in position.target_top)
    return found


class Lens:
    """One reader and its caches; lives in one thread."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._names: dict[int, Names] = {}
        self._rounds: Pages[tuple[int, int], tuple[Round, ...]] = Pages(128)
        self._marks: Pages[tuple[int, int], tuple[Mark, ...]] = Pages(32)
        self._tokens: Pages[tuple[int, int], tuple[TokenRecord, ...]] = Pages(64)
        self._sequences: Pages[tuple[int, int], SequenceRecord | None] = Pages(64)
        self._runs: tuple[RunRecord, ...] = ()
        self._counts: dict[int, tuple[int, int]] = {}
        self._sequence_counts: dict[int, int] = {}
        self.refresh()

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        return self._runs

    def refresh(self) -> None:
        """Look again at everything that can have grown."""
        self._runs = tuple(self._reader.runs())
        self._counts.clear()
        self._sequence_counts.clear()
        for pages in (self._rounds, self._marks, self._tokens, self._sequences):
            pages.forget_growing()

    def look(self, cursor: Cursor) -> Snapshot:
        """The snapshot at `cursor`, which is clamped to what exists.

        Raises:
            TraceError: the file cannot be read.
        """
        if not self._runs:
            return Snapshot(cursor)
        run_index = max(0, min(cursor.run, len(self._runs) - 1))
        run = self._runs[run_index]
        sequence_count = self._sequence_count(run.id)
        wanted = sequence_count - 1 if cursor.at_end else cursor.sequence
        sequence_index = max(0, min(wanted, sequence_count - 1))
        sequence = self._sequence(run.id, sequence_index, sequence_count)
        cursor = Cursor(run_index, sequence_index, cursor.round, cursor.phase, cursor.at_end)
        names = self._names.setdefault(run.id, Names())
        if sequence is None:
            return Snapshot(cursor, self._runs, run, names=names, sequence_count=sequence_count)
        round_count, token_count = self._count(sequence.id)
        if round_count == 0:
            window = self._window(sequence.id, token_count, token_count)
            self._learn(run.id, names, (t.token for t in window.tokens))
            cursor = Cursor(run_index, sequence_index, 0, cursor.phase, cursor.at_end)
            return Snapshot(
                cursor, self._runs, run, sequence, sequence_count, 0, token_count, window=window, names=names
            )
        index = round_count - 1 if cursor.at_end else max(0, min(cursor.round, round_count - 1))
        cursor = Cursor(run_index, sequence_index, index, cursor.phase, cursor.at_end)
        round_ = self.round(sequence.id, index, round_count)
        if round_ is None:
            trouble = f"Round {index + 1} is missing from the trace; the others can be looked at."
            return Snapshot(
                cursor,
                self._runs,
                run,
                sequence,
                sequence_count,
                round_count,
                token_count,
                names=names,
                trouble=trouble,
            )
        recent = (self.round(sequence.id, i, round_count) for i in range(max(0, index - RECENT + 1), index + 1))
        end = round_.committed_after
        window = self._window(sequence.id, end, token_count)
        following = self._token(sequence.id, end, token_count)
        self._learn(run.id, names, (*(t.token for t in window.tokens), *tokens_in([round_])))
        return Snapshot(
            cursor=cursor,
            runs=self._runs,
            run=run,
            sequence=sequence,
            sequence_count=sequence_count,
            round_count=round_count,
            token_count=token_count,
            round=round_,
            before=self.round(sequence.id, index - 1, round_count) if index else None,
            after=self.round(sequence.id, index + 1, round_count) if index + 1 < round_count else None,
            following=following,
            window=window,
            names=names,
            marks=self._mark_pages(sequence.id, index, round_count),
            recent=totals(r for r in recent if r is not None),
        )

    def round(self, sequence_id: int, index: int, round_count: int) -> Round | None:
        """One round; None where a damaged file lacks it."""
        page, offset = divmod(index, ROUNDS_A_PAGE)
        start = page * ROUNDS_A_PAGE

        def load() -> tuple[tuple[Round, ...], bool]:
            rounds = tuple(self._reader.rounds(sequence_id, start, min(start + ROUNDS_A_PAGE, round_count)))
            return rounds, start + ROUNDS_A_PAGE <= round_count

        rounds = self._rounds.get((sequence_id, page), load)
        if offset < len(rounds) and rounds[offset].index == index:
            return rounds[offset]
        return next((r for r in rounds if r.index == index), None)

    def _mark_pages(self, sequence_id: int, index: int, round_count: int) -> dict[int, tuple[Mark, ...]]:
        here = index // PAGE
        last = (round_count - 1) // PAGE
        pages = range(max(0, here - _MARK_PAGES_AROUND), min(last, here + _MARK_PAGES_AROUND) + 1)
        return {page: self._mark_page(sequence_id, page, round_count) for page in pages}

    def _mark_page(self, sequence_id: int, page: int, round_count: int) -> tuple[Mark, ...]:
        def load() -> tuple[tuple[Mark, ...], bool]:
            start = page * PAGE
            with self._reader.reading():
                rows = self._reader.connection.execute(_MARKS, (sequence_id, start, start + PAGE)).fetchall()
            marks = [MISSING] * min(PAGE, round_count - start)
            for index, *facts in rows:
                if index - start < len(marks):
                    marks[index - start] = _mark(*facts)
            return tuple(marks), len(marks) == PAGE

        return self._marks.get((sequence_id, page), load)

    def _window(self, sequence_id: int, end: int, token_count: int) -> TokenWindow:
        end = min(end, token_count)
        start = window_start(end)
        tokens: list[TokenRecord] = []
        for block in range(start // TOKENS_A_BLOCK, (max(end, 1) - 1) // TOKENS_A_BLOCK + 1):
            tokens += self._block(sequence_id, block, token_count)
        return TokenWindow(start, tuple(tokens[: end - start]))

    def _block(self, sequence_id: int, block: int, token_count: int) -> tuple[TokenRecord, ...]:
        def load() -> tuple[tuple[TokenRecord, ...], bool]:
            start = block * TOKENS_A_BLOCK
            tokens = tuple(self._reader.tokens(sequence_id, start, min(start + TOKENS_A_BLOCK, token_count)))
            return tokens, len(tokens) == TOKENS_A_BLOCK

        return self._tokens.get((sequence_id, block), load)

    def _token(self, sequence_id: int, position: int, token_count: int) -> int | None:
        if position >= token_count:
            return None
        block, offset = divmod(position, TOKENS_A_BLOCK)
        tokens = self._block(sequence_id, block, token_count)
        return tokens[offset].token if offset < len(tokens) else None

    def _learn(self, run_id: int, names: Names, tokens: Iterable[int]) -> None:
        lacking = names.lacking(tokens)
        if lacking:
            names.add(self._reader.vocab(run_id, lacking))

    def _count(self, sequence_id: int) -> tuple[int, int]:
        if sequence_id not in self._counts:
            self._counts[sequence_id] = (
                self._reader.round_count(sequence_id),
                self._reader.token_count(sequence_id),
            )
        return self._counts[sequence_id]

    def _sequence_count(self, run_id: int) -> int:
        if run_id not in self._sequence_counts:
            self._sequence_counts[run_id] = self._reader.sequence_count(run_id)
        return self._sequence_counts[run_id]

    def _sequence(self, run_id: int, index: int, count: int) -> SequenceRecord | None:
        if count == 0:
            return None

        def load() -> tuple[SequenceRecord | None, bool]:
            found = self._reader.sequences(run_id, index, index + 1)
            record = found[0] if found else None
            return record, record is not None and record.stop_reason is not None

        return self._sequences.get((run_id, index), load)


def _mark(accepted: object, proposed: object, kind: object, cut: object, round_ns: object) -> Mark:
    """The timeline's view of a round; what no round can hold shows as nothing, and as damage once one looks at it."""
    known = ("correction", "bonus", "target")
    return Mark(
        accepted if isinstance(accepted, int) else 0,
        proposed if isinstance(proposed, int) else 0,
        kind if isinstance(kind, str) and kind in known else "cut" if cut is not None else "target",
        round_ns if isinstance(round_ns, int) else None,
    )
