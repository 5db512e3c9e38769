"""The single place where a token, a prompt or a message becomes text that is safe to print and to draw.

Whatever a model emits is hostile until it passed `showable`: terminal escapes, C1 controls, bidirectional overrides,
lone surrogates, half a UTF-8 character. What comes out is printable, has one undisputed cell width in every terminal,
and still tells what came in: nothing is silently dropped but variation selectors behind the character they style.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

SPACE, NEWLINE, TAB = "␠", "⏎", "⇥"

# More marks than any script stacks on one letter climb over the lines above.
_MARKS_PER_CHARACTER = 4
_DOTTED_CIRCLE = "\u25cc"
_TIE = "\u2040"  # stands for the zero-width joiner, so that no terminal may join what another one does not

# Printable by Unicode's rules, but invisible, or of a width that terminals disagree about.
_DISPUTED = re.compile(
    "[\u115f-\u11ff\u17b4\u17b5\u2800\u3164\ud7b0-\ud7fb\uffa0"  # fillers, conjoining jamo, blank braille
    "\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]"  # regional indicators, skin tones
)


def showable(data: bytes | str, *, whitespace: bool = False, limit: int | None = None) -> str:
    """`data` as printable text: no control, format, private, unassigned or surrogate character is left in it.

    Bytes are read as UTF-8; a byte that belongs to no character shows as `\\xNN`. Controls show as their pictures
    (␛ for ESC), everything else that cannot be shown as its escape (`\\u202e`).

    Args:
        whitespace: show spaces, newlines and tabs as ␠ ⏎ ⇥; otherwise each becomes one space.
        limit: look at no more than this many characters, and end with … when that left something out.
    """
    cropped = limit is not None and len(data) > limit
    if isinstance(data, bytes):
        # A character has at most four bytes, and half a character at the crop would be a lie.
        text = (data[: limit * 4 + 3] if limit is not None else data).decode("utf-8", "surrogateescape")
        cropped = limit is not None and len(text) > limit
    else:
        text = data
    if cropped:
        text = text[:limit]
    if not (text.isascii() and text.isprintable()):
        text = _rewrite(text, whitespace)
    if whitespace:
        text = text.replace(" ", SPACE)
    return f"{text}…" if cropped else text


def _rewrite(text: str, whitespace: bool) -> str:
    out: list[str] = []
    marks = -1  # combining marks since the last base character; -1 = there is none to stand on
    for char in text:
        if char in "\n\t":
            out.append((NEWLINE if char == "\n" else TAB) if whitespace else " ")
            marks = -1
            continue
        shown, mark = _shape(char)
        if mark:
            if "\ufe00" <= char <= "\ufe0f":
                shown = _escape(char) if marks < 0 else ""
            elif marks < 0:
                shown, marks = _DOTTED_CIRCLE + char, 1
            elif marks >= _MARKS_PER_CHARACTER:
                shown = _escape(char)
            else:
                marks += 1
        else:
            marks = 0 if shown == char and char != " " else -1
        out.append(shown)
    return "".join(out)


@lru_cache(maxsize=8192)
def _shape(char: str) -> tuple[str, bool]:
    """How one character shows, and whether it is a mark that stands on the character before it."""
    code = ord(char)
    category = unicodedata.category(char)
    if code < 0x20:
        return chr(0x2400 + code), False
    if code == 0x7F:
        return "\u2421", False
    if 0xDC80 <= code <= 0xDCFF:  # a byte that surrogateescape could not decode
        return f"\\x{code - 0xDC00:02x}", False
    if char == "\u200d":
        return _TIE, False
    if 0x1F1E6 <= code <= 0x1F1FF:  # a flag is two of these, one or two cells wide: show the letters
        return chr(0x24B6 + code - 0x1F1E6), False
    if category == "Zs":
        return ("  " if char == "\u3000" else " "), False
    if _DISPUTED.match(char) or not char.isprintable():
        return _escape(char), False
    return char, category[0] == "M"


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def unnamed(token: int) -> str:
    """How a token is shown whose text nobody knows: ⟨72⟩."""
    return f"⟨{token}⟩"


def join_pieces(pieces: Iterable[bytes]) -> list[str]:
    """Decode a run of tokens as one text and hand each its own piece of it, still unsafe: pass it on to `showable`.

    A character whose bytes are spread over several tokens belongs to the token that completes it, and the tokens
    before it get nothing of it. A combining mark joins the character that it stands on, in the token before. Bytes that
    are no UTF-8, and a character still incomplete at the end, come back as lone surrogates (`surrogateescape`).
    """
    tokens = list(pieces)
    parts = [""] * len(tokens)
    last = -1  # the token that got the last visible character
    start = 0
    for index, token in enumerate(tokens):
        # An ASCII token begins and ends between characters, and needs no look at each of them.
        if token and token.isascii():
            if start < index:
                last = _join(tokens, start, index, parts, last)
            parts[index] = text = token.decode("ascii")
            last = index if "!" <= text[-1] <= "~" else -1
            start = index + 1
    if start < len(tokens):
        _join(tokens, start, len(tokens), parts, last)
    return parts


def _join(tokens: list[bytes], start: int, stop: int, parts: list[str], last: int) -> int:
    """Share the characters of tokens `start` … `stop` − 1 out among `parts`; returns the new `last`."""
    ends = list(accumulate(len(token) for token in tokens[start:stop]))
    at = 0  # the token that holds the byte before `offset`, counted from `start`
    offset = 0
    for char in b"".join(tokens[start:stop]).decode("utf-8", "surrogateescape"):
        offset += _utf8_length(char)
        while ends[at] < offset:
            at += 1
        owner = start + at
        if last >= 0 and unicodedata.category(char)[0] == "M":
            owner = last
        else:
            last = owner if char.isprintable() and char != " " else -1
        parts[owner] += char
    return last


def _utf8_length(char: str) -> int:
    code = ord(char)
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:
        return 1
    return 2 if code < 0x800 else 3 if code < 0x10000 else 4
