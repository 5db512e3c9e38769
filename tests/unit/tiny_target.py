"""A random Llama-like target of a few thousand weights with a byte tokenizer and a chat template."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<user>", "<end>", "<bot>")
TEMPLATE = (
    "{% for message in messages %}<user>{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)


def tiny_tokenizer() -> Any:
    """256 bytes and four special tokens; `<end>` (id 2) ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<end>",
        pad_token="<pad>",
        additional_special_tokens=["<user>", "<bot>"],
        chat_template=TEMPLATE,
    )


def tiny_target(seed: int = 0) -> Any:
    """Three layers of width 32 in float32, its logits peaked enough that there is something to learn."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, initializer_range=0.3,
        eos_token_id=2, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval().requires_grad_(False)
