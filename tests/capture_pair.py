"""Tiny random models that transformers can run assisted generation with, for the tests of capture."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = 97
EOS = 3


def tiny(seed: int, layers: int = 2, vocab: int = VOCAB, sharp: float = 3.0, dtype: torch.dtype = torch.float32):
    """A Llama of random weights; `sharp` scales its head, and with it the distance between its logits."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=EOS, pad_token_id=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(sharp / 0.02 / 32**0.5)
    return model.to(dtype)


def pair(vocab: int = VOCAB, noise: float = 0.3):
    """(target, draft): the draft is the target with its head disturbed, so that it is often right."""
    target, draft = tiny(1, vocab=vocab), tiny(1, vocab=vocab)
    torch.manual_seed(2)
    with torch.no_grad():
        weight = draft.lm_head.weight
        weight.add_(torch.randn_like(weight) * weight.std() * noise)
    draft.generation_config.num_assistant_tokens = 4
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    return target, draft


def prompt(length: int = 9, seed: int = 5) -> torch.Tensor:
    """(1, length) ids, none of them special."""
    return torch.randint(10, VOCAB, (1, length), generator=torch.Generator().manual_seed(seed))


def word_tokenizer(folder: Path, vocab: int = VOCAB, prefix: str = "w"):
    """A tokenizer whose token i is the word w<i>; saved in `folder`, as models keep theirs."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"{prefix}{i}": i for i in range(vocab)}
    inner = Tokenizer(models.WordLevel(words, unk_token=f"{prefix}0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=f"{prefix}{EOS}", pad_token=f"{prefix}0", unk_token=f"{prefix}0"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer
