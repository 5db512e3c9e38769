"""The output as lines: tokens flow into a width, words stay whole, and what was laid out before never moves.

A flow only ever grows at its end. The round under the cursor is laid out on a fork that is thrown away, so stepping
costs the same on the tenth round as on the millionth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from specview.text import NEWLINE, SPACE, TAB, showable


class Run(NamedTuple):
    """Cells on one line that belong to one token. A tuple: a jump makes two thousand of them before it can paint."""

    text: str
    width: int
    owner: int
    """The token's place in the sequence, or −1 − position for a candidate that is not committed."""
    style: str
    """An origin, or a fate."""


Lines = list[list[Run]]

# Scripts without spaces may break before and after each character; marks stay with the character they stand on.
_WIDE = "\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\U0001f000-\U0003ffff"
_MARKS = "\u0300-\u036f\u20d0-\u20f0\u3099\u309a\ufe00-\ufe0f"
_ATOM = re.compile(f"\n|[ \t]+|[^\\s{_WIDE}]+|.[{_MARKS}]*", re.DOTALL)
_IS_WIDE = re.compile(f"[{_WIDE}]")


class Atom(NamedTuple):
    """A piece of a token that is laid out as a whole."""

    kind: str
    """word, space or break."""
    text: str
    """A word is showable; space is as it came."""
    width: int
    wide: bool


@lru_cache(maxsize=4096)
def _atoms(text: str) -> tuple[Atom, ...]:
    """The pieces of a token's text; tokens come again and again."""
    found = []
    for atom in _ATOM.findall(text):
        if atom == "\n":
            found.append(Atom("break", atom, 0, False))
        elif atom[0] in " \t":
            found.append(Atom("space", atom, len(atom), False))
        else:
            shown = showable(atom)
            found.append(Atom("word", shown, cell_len(shown), bool(_IS_WIDE.match(shown))))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class FlowState:
    """A place that a flow can be taken back to."""

    lines: int
    last: list[Run]
    x: int
    breakable: int


class Flow:
    """Lines of at most `width` cells."""

    def __init__(self, width: int) -> None:
        self.width = max(1, width)
        self.lines: Lines = [[]]
        self._x = 0
        self._breakable = 0  # index in the last line from which the current word may move to a line of its own

    def add(self, text: str, owner: int, style: str, *, visible: bool = False) -> None:
        """Lay out raw text of one token. `visible` shows spaces as signs, which take the same cells."""
        for kind, shown, width, wide in _atoms(text):
            if kind == "word":
                self._word(shown, width, wide, owner, style)
            elif kind == "break":
                self._sign(NEWLINE if visible else "", owner, style)
                self.break_line()
            elif visible:
                # A sign that can be seen clings to the word that it begins.
                sign = shown.replace("\t", TAB).replace(" ", SPACE)
                self._word(sign, cell_len(sign), False, owner, style, breakable=True)
            else:
                self._space(shown.replace("\t", f"{TAB} "), owner, style)

    def add_sign(self, text: str, owner: int, style: str, *, opening: bool = False) -> None:
        """A sign of our own that clings to what stands before it, or, `opening`, to what comes next."""
        if opening:
            self._breakable = len(self.lines[-1])
        self._sign(text, owner, style)

    def add_marks(self, text: str, owner: int, style: str) -> None:
        """Combining marks that stand on the last character laid out."""
        self._put(showable("x" + text)[1:], cell_len(showable("x" + text)) - 1, owner, style)

    def mark(self) -> FlowState:
        return FlowState(len(self.lines), list(self.lines[-1]), self._x, self._breakable)

    def rewind(self, state: FlowState) -> None:
        """Forget everything laid out since `mark`."""
        del self.lines[state.lines :]
        self.lines[-1] = list(state.last)
        self._x = state.x
        self._breakable = state.breakable

    def break_line(self) -> None:
        self.lines.append([])
        self._x = 0
        self._breakable = 0

    def _put(self, text: str, width: int, owner: int, style: str) -> None:
        self.lines[-1].append(Run(text, width, owner, style))
        self._x += width

    def _sign(self, text: str, owner: int, style: str) -> None:
        width = cell_len(text)
        if not text:
            return
        if self._x + width > self.width:
            self.break_line()
        self._put(text, width, owner, style)

    def _space(self, text: str, owner: int, style: str) -> None:
        for char in text:
            if self._x >= self.width:
                self.break_line()
                if char == " ":
                    continue  # a space at the end of a full line is the line break
            self._put(char, 1, owner, style)
        self._breakable = len(self.lines[-1])

    def _word(self, text: str, width: int, wide: bool, owner: int, style: str, *, breakable: bool = False) -> None:
        opened = bool(self.lines[-1]) and self.lines[-1][-1].style == "box"  # a bracket clings to its first word
        if (wide or breakable) and not opened:
            self._breakable = len(self.lines[-1])
        if self._x + width > self.width:
            self._carry(wide)
        while self._x + width > self.width:
            room = self.width - self._x
            head = set_cell_size(text, room).rstrip(" ") if room > 0 else ""
            if not head or not text.startswith(head):
                if self._x == 0:  # not even one character fits: a wide one in a width of one
                    self._put("…"[: self.width], min(1, self.width), owner, style)
                    return
                self.break_line()
                continue
            self._put(head, cell_len(head), owner, style)
            text = text[len(head) :]
            width = cell_len(text)
            self.break_line()
        if text:
            self._put(text, width, owner, style)
        if wide:
            self._breakable = len(self.lines[-1])

    def _carry(self, wide: bool) -> None:
        """Move the unfinished word to a new line, unless it would only leave an empty one behind."""
        line = self.lines[-1]
        if not self._breakable:
            return
        tail = line[self._breakable :]
        if wide and not tail:
            self.break_line()
            return
        del line[self._breakable :]
        self.lines.append(tail)
        self._x = sum(run.width for run in tail)
        self._breakable = 0


def whole_prefix(tokens: Sequence[bytes]) -> int:
    """How many of the tokens end at a whole character and are followed by nothing that could still join them."""
    tail = b"".join(tokens[-4:])
    for back in range(1, min(4, len(tail)) + 1):
        byte = tail[-back]
        if byte < 0x80:
            return len(tokens)
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if back >= needed:
                return len(tokens)
            # the token that holds this first byte is not whole yet
            count = 0
            for index in range(len(tokens) - 1, -1, -1):
                count += len(tokens[index])
                if count >= back:
                    return index
    return len(tokens)
