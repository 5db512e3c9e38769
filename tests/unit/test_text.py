"""`showable` turns anything into printable text, and says what it was."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specview.text import join_pieces, showable

FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text", "plain text"),
        ("x[/INST]y [b] [@click=app.quit]x[/] \\", "x[/INST]y [b] [@click=app.quit]x[/] \\"),
        ("\x1b]0;x\x07", "␛]0;x␇"),
        ("\x1b[2J", "␛[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eabc", "\\u202eabc"),
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u2040\U0001f4bb"),
        ("\u2764\ufe0f", "\u2764"),
        ("\ufe0f", "\\ufe0f"),
        ("\U0001f1fa\U0001f1f8", "ⓊⓈ"),
        ("漢字", "漢字"),
        ("e\u0301", "e\u0301"),
        ("\u0301", "\u25cc\u0301"),
        (" \u0301", " \u25cc\u0301"),
        ("a\tb\nc\rd", "a b c␍d"),
        ("\x00", "␀"),
        ("\ud800", "\\ud800"),
        (b"\xe2\x96", "\\xe2\\x96"),
        (b"\xe2\x96\x81", "▁"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        ("\x7f", "␡"),
        ("\xad", "\\xad"),
        ("\ufeff", "\\ufeff"),
        ("\ue000", "\\ue000"),
        ("", ""),
    ],
)
def test_each_kind_of_hostile_text(raw: bytes | str, shown: str) -> None:
    assert showable(raw) == shown


def test_whitespace_is_visible_on_request() -> None:
    assert showable(" a\tb\n", whitespace=True) == "␠a⇥b⏎"
    assert showable("\u3000", whitespace=True) == "␠␠"


@given(st.one_of(st.text(), st.binary(), st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Mn", "Me"]))))
def test_nothing_unprintable_is_left(raw: bytes | str) -> None:
    for whitespace in (False, True):
        shown = showable(raw, whitespace=whitespace)
        assert not {unicodedata.category(c) for c in shown} & FORBIDDEN
        assert shown.isprintable()
        assert not raw or shown
        shown.encode("utf-8")


def test_a_stack_of_marks_is_cut_short() -> None:
    shown = showable("a" + "\u0301" * 50)
    assert shown.startswith("a" + "\u0301" * 4 + "\\u0301")


def test_limit_looks_at_a_part_only() -> None:
    assert showable("a" * 1_000_000, limit=3) == "aaa…"
    assert showable(("é" * 10).encode(), limit=3) == "ééé…"
    assert showable(b"abc", limit=3) == "abc"
    assert showable("漢字".encode(), limit=3) == "漢字"


def test_a_character_spread_over_tokens_is_joined_in_the_token_that_completes_it() -> None:
    snow = "☃".encode()
    assert join_pieces([b"a", snow[:1], snow[1:2], snow[2:] + b"b"]) == ["a", "", "", "☃b"]
    assert [showable(p) for p in join_pieces([b"a", snow[:2]])] == ["a", "\\xe2\\x98"]
    assert join_pieces([b"", b"x", b""]) == ["", "x", ""]


def test_a_mark_joins_the_letter_of_the_token_before() -> None:
    assert join_pieces([b"e", "\u0301x".encode()]) == ["e\u0301", "x"]
    assert join_pieces([b" ", "\u0301".encode()]) == [" ", "\u0301"]


@given(st.lists(st.binary(max_size=6)))
def test_pieces_lose_no_byte(pieces: list[bytes]) -> None:
    joined = "".join(join_pieces(pieces)).encode("utf-8", "surrogateescape")
    assert joined == b"".join(pieces)
