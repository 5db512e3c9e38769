"""Token id → bytes, for the three ways in which tokenizers spell text."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from engine.vocabulary import Vocabulary
from tests.unit.engine_folders import EOS, byte_tokenizer

TEXT = "Ünïcode ☃ 🙂\t\n\x00 tail"


def test_byte_level_tokens_add_up_to_the_text() -> None:
    tokenizer = byte_tokenizer()
    vocabulary = Vocabulary(tokenizer)
    ids = tokenizer(TEXT)["input_ids"]
    assert b"".join(vocabulary.token_bytes(i) for i in ids) == TEXT.encode()
    assert all(len(vocabulary.token_bytes(i)) == 1 for i in ids)  # half characters stay half


def test_every_byte_has_its_own_token() -> None:
    vocabulary = Vocabulary(byte_tokenizer())
    assert {vocabulary.token_bytes(i) for i in range(256)} == {bytes([b]) for b in range(256)}


def test_entries_are_distinct_and_sorted() -> None:
    entries = Vocabulary(byte_tokenizer()).entries([5, 3, 5, 256])
    assert [e.token for e in entries] == [3, 5, 256]
    assert [(e.data, e.special) for e in entries if e.special] == [(EOS.encode(), True)]


def test_ids_beyond_the_tokenizer_are_special() -> None:
    for token in (257, 99_999, -1):
        entry = Vocabulary(byte_tokenizer()).entry(token)
        assert entry.special
        assert entry.data == f"[{token}]".encode()


def tokenizer(pieces: list[str], decoder: object) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=pieces[0]))
    inner.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=inner)


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        decoders.Metaspace(),
    ],
)
def test_sentencepiece(decoder: object) -> None:
    vocabulary = Vocabulary(tokenizer(["▁the", "re", "<0xE2>", "▁▁", "<0x0A>"], decoder))
    assert [vocabulary.token_bytes(i) for i in range(5)] == [b" the", b"re", b"\xe2", b"  ", b"\n"]


def test_word_piece() -> None:
    vocabulary = Vocabulary(tokenizer(["play", "##ing"], decoders.WordPiece()))
    assert [vocabulary.token_bytes(i) for i in range(2)] == [b" play", b"ing"]


def test_words_without_a_decoder_stand_for_themselves() -> None:
    assert Vocabulary(tokenizer(["a▁b"], None)).token_bytes(0) == "a▁b".encode()
