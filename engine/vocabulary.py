"""Token id → its own bytes, which may be half a UTF-8 character.

`tokenizer.decode` cannot be used for this: it joins tokens, strips spaces and replaces half characters. The bytes are
read from the token's own string, by the rule that the tokenizer's decoder names: byte-level BPE (GPT-2's table of 256
printable letters), SentencePiece (▁ for a space, <0xXX> for a byte), WordPiece (## for "no space before").
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from engine.round import VocabEntry

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """The bytes of a tokenizer's ids; ids that the tokenizer does not know (padding of the embedding) are special."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._rule = _rule(tokenizer)
        self._special = set(getattr(tokenizer, "all_special_ids", ()))
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._added = {int(i): (str(t.content), bool(t.special)) for i, t in added.items()}
        self._known: dict[int, VocabEntry] = {}

    def entry(self, token: int) -> VocabEntry:
        """What one id stands for."""
        if token not in self._known:
            self._known[token] = self._make(token)
        return self._known[token]

    def entries(self, ids: Iterable[int]) -> list[VocabEntry]:
        """One entry for each distinct id, in ascending order."""
        return [self.entry(token) for token in sorted(set(ids))]

    def token_bytes(self, token: int) -> bytes:
        """The bytes that an id adds to the text."""
        return self.entry(token).data

    def _make(self, token: int) -> VocabEntry:
        if token in self._added:
            # Added tokens stand for themselves, whatever letters the rule would make of them.
            content, special = self._added[token]
            return VocabEntry(token, content.encode("utf-8", "surrogatepass"), special or token in self._special)
        piece = self._tokenizer.convert_ids_to_tokens(token) if 0 <= token < len(self._tokenizer) else None
        if piece is None:
            return VocabEntry(token, f"[{token}]".encode(), True)
        return VocabEntry(token, self._rule(str(piece)), token in self._special)


def _rule(tokenizer: Any) -> Callable[[str], bytes]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return _sentencepiece
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
    kinds = {step.get("type") for step in [state, *state.get("decoders", [])] if step}
    if "ByteLevel" in kinds:
        return _byte_level
    if "WordPiece" in kinds:
        return _word_piece
    if kinds & {"Metaspace", "ByteFallback", "Replace"}:
        return _sentencepiece
    return _as_it_is


def _byte_level(piece: str) -> bytes:
    table = _letters()
    # A letter outside the table can only come from a token that was never text; its own bytes are the best answer.
    return b"".join(table.get(letter, letter.encode("utf-8", "surrogatepass")) for letter in piece)


def _sentencepiece(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode("utf-8", "surrogatepass")


def _word_piece(piece: str) -> bytes:
    return (piece[2:] if piece.startswith("##") else f" {piece}").encode("utf-8", "surrogatepass")


def _as_it_is(piece: str) -> bytes:
    return piece.encode("utf-8", "surrogatepass")


@cache
def _letters() -> dict[str, bytes]:
    """GPT-2's letter for each byte, inverted: printable bytes stand for themselves, the others start at U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): bytes([byte]) for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    table.update({chr(0x100 + i): bytes([byte]) for i, byte in enumerate(others)})
    return table
