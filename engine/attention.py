"""Attention over a long cache for models that run through their own module: grouped queries packed, keys unrepeated.

When several query heads share a key head, transformers copies every key and value once for each of them before it
scores more than one position — at a few thousand positions the copies take longer than the attention. Queries that
share a key head may as well stand one below the other: same numbers, and the cache is read as it lies.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

NAME = "specview_packed"
LARGEST_BLOCK = 64
"""Longer blocks (a prompt) are bound by arithmetic, and keep transformers' own path."""


def use_packed_attention(module: Any) -> bool:
    """Let a module that uses PyTorch's attention and grouped heads attend this way; whether it does now.

    The module's results stay the same to rounding, in `generate` too.
    """
    config = module.config.get_text_config(decoder=True)
    heads = getattr(config, "num_attention_heads", None)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if getattr(config, "_attn_implementation", None) != "sdpa" or not isinstance(heads, int) or heads == kv_heads:
        return False
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, packed_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    module.set_attn_implementation(NAME)
    return bool(config._attn_implementation == NAME)


def packed_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: query (1, heads, n, width), key and value (1, kv_heads, m, width).

    Returns:
        ((1, n, heads, width) output, None).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, n, width = query.shape
    groups = heads // key.shape[1]
    packs = (
        1 < n <= LARGEST_BLOCK
        and groups > 1
        and attention_mask is not None
        and attention_mask.shape[1] == 1
        and options.get("position_bias") is None
        and options.get("softcap") is None
        and not options.get("dropout")
    )
    if not packs or attention_mask is None:
        out: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]
        return out, None
    packed = query.reshape(batch, key.shape[1], groups * n, width)
    mask = attention_mask.repeat(1, 1, groups, 1)
    mixed = functional.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=options.get("scaling"))
    return mixed.reshape(batch, heads, n, value.shape[-1]).transpose(1, 2).contiguous(), None
