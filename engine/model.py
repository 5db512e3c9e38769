"""One causal language model with its rollback cache: token ids in, logits out.

What is clever about a forward (which cache, which logits are kept, whether hidden states are caught) hides here; the
loop in `decode.py` sees `forward`, `length` and `roll_back`.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.attention import use_packed_attention
from engine.cache import RollbackCache, cache_length, make_cache, roll_back
from engine.errors import PairError
from engine.fused import FusedForward, fuse
from engine.graphs import Graphs
from engine.replayed import ReplayedForward, extent_for
from engine.rounding import near

PREFILL_BLOCK = 4096
"""Prompt positions fed in one forward; longer prompts go in blocks so that activations stay bounded."""


class Model:
    """A transformers causal LM on one sequence.

    Attributes:
        module: the transformers module, in eval mode; Llama-shaped ones run through `engine.fused` instead of it.
        name: what the user called it.
        vocab_size: width of its logits.
        context_length: positions it was made for; None when its config does not say.
        calls: forwards since the sequence began.
        graphs: where short forwards are captured and replayed; None where each is called anew.
    """

    def __init__(self, module: Any, name: str, fused: bool = True) -> None:
        self.module = module.eval()
        self.name = name
        self.config = module.config.get_text_config(decoder=True)
        self.vocab_size = int(module.get_output_embeddings().weight.shape[0])
        self.embedding_rows = int(module.get_input_embeddings().weight.shape[0])
        self.context_length: int | None = getattr(self.config, "max_position_embeddings", None)
        self.calls = 0
        self.hidden: Tensor | None = None
        self._keeps_logits = "logits_to_keep" in inspect.signature(module.forward).parameters
        self._cache = make_cache(module.config, 0)
        self._fused: FusedForward | None = fuse(module) if fused else None
        self._replayed: ReplayedForward | None = None
        self.graphs: Graphs | None = None
        if self._fused is None:
            use_packed_attention(module)
        self._taps: tuple[int, ...] | None = None
        self._tapped: dict[int, Tensor] = {}

    @property
    def device(self) -> torch.device:
        """Where token ids go in."""
        return torch.device(self.module.get_input_embeddings().weight.device)

    @property
    def output_device(self) -> torch.device:
        """Where logits come out; another one than `device` when layers are spread over several."""
        return torch.device(self.module.get_output_embeddings().weight.device)

    @property
    def dtype(self) -> torch.dtype:
        return torch.empty(0, dtype=self.module.dtype).dtype

    def begin(self, capacity: int) -> None:
        """Start a sequence with an empty cache that has room for `capacity` positions."""
        self.calls = 0
        if self.graphs is None or not isinstance(self._cache, RollbackCache):
            self._cache = make_cache(self.module.config, capacity)
        elif self._cache.capacity() >= capacity:
            self._cache.reset()  # the same memory again: captured graphs know no other
        else:
            self.graphs.clear()
            self._cache = make_cache(self.module.config, extent_for(capacity), blank=True)

    def use_graphs(self, graphs: Graphs) -> bool:
        """Capture short forwards and replay them from now on, where they are fused ones; whether they are."""
        if self._fused is None:
            return False
        self.graphs, self._replayed = graphs, ReplayedForward(self._fused, graphs)
        self._cache = make_cache(self.module.config, 0, blank=True)
        return True

    def prepare(self, sizes: tuple[int, ...], keep: int) -> None:
        """Capture the forwards over so many positions that come next, with `keep` as in `forward`, at most."""
        if self._replayed is not None and isinstance(self._cache, RollbackCache):
            with torch.inference_mode():
                self._replayed.prepare(sizes, self._cache, keep, self._taps)

    def catch_hidden(self, taps: tuple[int, ...] = ()) -> None:
        """From now on keep the last forward's hidden states in `hidden`, (n, (taps + 1) · hidden).

        Each tap t gives the residual stream after t decoder layers; last come the states after the final norm. They are
        caught where the next layer or the head receives them; nothing is computed twice.
        """
        if self._fused is None and self._taps is None:
            for tap in taps:
                self.module.base_model.layers[tap - 1].register_forward_hook(partial(self._keep_tap, tap))
            self.module.base_model.register_forward_hook(self._keep_hidden)
        self._taps = taps

    def _keep_tap(self, tap: int, _module: Any, _inputs: Any, output: Any) -> None:
        self._tapped[tap] = (output[0] if isinstance(output, tuple) else output)[0]

    def _keep_hidden(self, _module: Any, _inputs: Any, output: Any) -> None:
        final = output.last_hidden_state[0]
        parts = [self._tapped[tap].to(final.device) for tap in self._taps or ()]
        self.hidden = torch.cat([*parts, final], dim=-1) if parts else final

    def forward(self, ids: Tensor, keep: int) -> Tensor:
        """Score `ids` behind what the cache holds.

        Args:
            ids: (n,) int64.
            keep: how many of the last positions' logits to return.

        Returns:
            (keep, vocab) logits in the model's dtype. With graphs, the next forward of this size overwrites them.
        """
        return self._forward(self._replayed or self._fused, ids, keep)

    def _forward(self, fused: ReplayedForward | FusedForward | None, ids: Tensor, keep: int) -> Tensor:
        self.calls += 1
        if fused is not None and isinstance(self._cache, RollbackCache):
            logits, hidden = fused.forward(ids, self._cache, keep, self._taps)
            if self._taps is not None:
                self.hidden = hidden
            return logits
        options: dict[str, Any] = {"logits_to_keep": keep} if self._keeps_logits else {}
        output = self.module(input_ids=ids[None], cache=self._cache, use_cache=True, **options)
        every: Tensor = output.logits[0]
        return every[every.shape[0] - keep :]

    def prefill(self, ids: Tensor) -> list[Tensor]:
        """Feed a prompt in as few forwards as memory allows; returns the caught hidden states, block by block."""
        hidden = []
        for start in range(0, ids.shape[0], PREFILL_BLOCK):
            self._forward(self._fused, ids[start : start + PREFILL_BLOCK], 1)  # no graph: prompts differ in length
            if self._taps is not None and self.hidden is not None:
                hidden.append(self.hidden)
        return hidden

    def length(self) -> int:
        """Positions in the cache, read from the cache."""
        return cache_length(self._cache)

    def roll_back(self, length: int) -> None:
        """Keep the first `length` positions of the cache."""
        roll_back(self._cache, length)

    @torch.inference_mode()
    def distrust_fused(self) -> bool:
        """Fall back to the module's own forward unless the fused one computes the same; whether it had to."""
        if self._fused is None:
            return False
        ids = torch.arange(5, device=self.device) % min(self.vocab_size, self.embedding_rows)
        self.begin(8)
        ours = self.forward(ids, 5)
        theirs = self.module(input_ids=ids[None], use_cache=False).logits[0]
        self.begin(0)
        if near(ours, theirs):
            return False
        self._fused = None
        use_packed_attention(self.module)
        return True


@torch.inference_mode()
def probe_rollback(model: Model) -> None:
    """Try a model out before it is used: does its cache roll back, and does its fused forward compute the same?

    Feeds a few tokens, rolls some back, feeds others, and compares with a cache that never saw the first ones.

    Raises:
        PairError: the model's cache cannot be rolled back (recurrent state, or a crop that does nothing).
    """
    ids = torch.arange(7, device=model.device) % min(model.vocab_size, model.embedding_rows)
    kept, dropped, instead = ids[:2], ids[2:5], ids[5:7]
    sentence = (
        f"The cache of {model.name} ({model.config.model_type}) cannot be rolled back after a rejection; "
        "choose a model with ordinary attention layers."
    )
    try:
        model.begin(8)
        model.forward(torch.cat([kept, dropped]), 1)
        model.roll_back(2)
        held = model.length()
        after = model.forward(instead, 1)
        model.begin(8)
        straight = model.forward(torch.cat([kept, instead]), 1)
    except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
        raise PairError(sentence) from error
    finally:
        model.begin(0)
    # Different kernel widths round differently in half precision: equality is not to be had, nearness is.
    if held != 2 or not near(after, straight):
        raise PairError(sentence)
    model.distrust_fused()
