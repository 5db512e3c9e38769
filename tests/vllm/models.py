"""Tiny Llamas with random weights, with a byte-level tokenizer: a target, and a draft that often agrees with it."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

EOS = 256
VOCAB = 320


def make_pair(folder: Path) -> tuple[Path, Path]:
    """(target, draft) folders. The draft is the target with noise on its weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=EOS,
        bos_token_id=None,
        initializer_range=0.35,
        tie_word_embeddings=False,
    )
    target = LlamaForCausalLM(config).float()
    with torch.no_grad():
        target.lm_head.weight.mul_(0.25)  # peaked, but not so that one token takes all
    paths = folder / "target", folder / "draft"
    target.save_pretrained(paths[0])
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.05)
    target.save_pretrained(paths[1])
    for path in paths:
        _tokenizer().save_pretrained(path)
    return paths


def _tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(letters)} | {"<eos>": EOS} | {f"w{i}": i for i in range(EOS + 1, VOCAB)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
