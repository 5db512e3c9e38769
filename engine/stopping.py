"""What ends a sequence: end of text, a stop string, the length limit; found inside an accepted block."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.round import Cut


class Stop(NamedTuple):
    """Where a block of tokens ends the sequence."""

    kept: int
    """Tokens of the block that stay, the one that ends the sequence included."""
    reason: Cut


class Stopping:
    """The limits of one sequence, fed block by block.

    Args:
        eos: ids that end a text; empty when the model declares none.
        limit: tokens of output at most.
        stop: stop strings; the token that completes one is the last to stay.
        token_bytes: id → its bytes, for stop strings. Bytes, not text: a stop string may end inside a token, and a
            token may end inside a character.
    """

    def __init__(
        self, eos: frozenset[int], limit: int, stop: tuple[str, ...] = (), token_bytes: Callable[[int], bytes] = bytes
    ) -> None:
        self.eos = eos
        self.limit = limit
        self._stops = [text.encode("utf-8", "surrogatepass") for text in stop if text]
        self._reach = max((len(stop) for stop in self._stops), default=1) - 1
        self._token_bytes = token_bytes
        self._tail = b""
        self.produced = 0

    def first(self, block: list[int]) -> Stop | None:
        """The first token of `block` that ends the sequence; None when the sequence goes on."""
        tail = self._tail
        for index, token in enumerate(block):
            if token in self.eos:
                return Stop(index + 1, "eos")
            if self._stops:
                text = tail + self._token_bytes(token)
                if any(stop in text for stop in self._stops):
                    return Stop(index + 1, "stop")
                tail = text[len(text) - self._reach :] if self._reach else b""
            if self.produced + index + 1 >= self.limit:
                return Stop(index + 1, "length")
        return None

    def commit(self, tokens: list[int]) -> None:
        """These tokens are output now."""
        self.produced += len(tokens)
        if self._stops and self._reach:
            self._tail = (self._tail + b"".join(map(self._token_bytes, tokens)))[-self._reach :]
