"""Model folders written to disk: tiny weights with a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.unit.engine_models import llama

EOS = "<end>"
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[bot]{% endif %}"
)


def byte_tokenizer(chat: bool = True, swap: bool = False) -> PreTrainedTokenizerFast:
    """257 tokens: every byte and an end of text. `swap` exchanges two ids: another tokenizer of the same size."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    if swap:
        letters[0], letters[1] = letters[1], letters[0]
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)
    if chat:
        fast.chat_template = TEMPLATE
    return fast


def save_model(
    folder: Path, *, layers: int = 2, vocab: int = 257, seed: int = 0, tokenizer: Any = True, **config: Any
) -> str:
    """Write a tiny Llama and its tokenizer (True for the usual one, None for none); returns the folder's name."""
    module = llama(layers, vocab, seed, **config)
    module.save_pretrained(folder)
    if tokenizer is not None:
        (byte_tokenizer() if tokenizer is True else tokenizer).save_pretrained(folder)
    return str(folder)
