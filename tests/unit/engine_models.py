"""Tiny models for the engine's tests: random transformers, and models that are a table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.decode import Decoder
from engine.gamma import FixedGamma
from engine.graphs import Graphs
from engine.model import Model
from engine.proposers.draft_model import DraftModel
from engine.round import Round, Sampling
from engine.stopping import Stopping
from engine.timing import PhaseClock
from engine.vocab_map import VocabMap, plain_map

torch.set_num_threads(1)  # tiny models: a second thread only waits for the first

VOCAB = 64


def llama(layers: int = 3, vocab: int = VOCAB, seed: int = 0, **more: Any) -> LlamaForCausalLM:
    """A random Llama whose head is scaled × 20, so that its distributions are neither flat nor points."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
        **more,
    }
    module = LlamaForCausalLM(LlamaConfig(**options))
    return sharpened(module)


def sharpened(module: Any) -> Any:
    with torch.no_grad():
        module.get_output_embeddings().weight *= 20
    module.generation_config.eos_token_id = None
    module.generation_config.pad_token_id = 0
    return module.eval()


def first_layer_of(target: LlamaForCausalLM) -> LlamaForCausalLM:
    """D = T's first layer with shared embedding, norm and head."""
    draft = llama(1, target.config.vocab_size)
    draft.model.embed_tokens = target.model.embed_tokens
    draft.model.layers = nn.ModuleList([target.model.layers[0]])
    draft.model.norm = target.model.norm
    draft.lm_head = target.lm_head
    return draft.eval()


_SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_GROUPED: dict[str, Any] = {**_SMALL, "num_key_value_heads": 2, "intermediate_size": 64}


def family(name: str, seed: int, layers: int = 2) -> Any:
    """A tiny random model of a family."""
    torch.manual_seed(seed)
    grouped = {**_GROUPED, "num_hidden_layers": layers}
    if name == "llama":
        return llama(layers, seed=seed)
    if name == "gpt2":
        small = {k: v for k, v in _SMALL.items() if k not in ("hidden_size", "num_attention_heads")}
        module = GPT2LMHeadModel(
            GPT2Config(**{**small, "n_embd": 32, "n_head": 4, "n_layer": layers, "n_positions": 256})
        )
    elif name == "qwen2":
        module = Qwen2ForCausalLM(Qwen2Config(**grouped))
    elif name == "qwen3":
        module = Qwen3ForCausalLM(Qwen3Config(**grouped, head_dim=8))
    else:
        module = GemmaForCausalLM(GemmaConfig(**grouped, head_dim=8))
    return sharpened(module)


class TableModel:
    """A model whose next-token logits are a row of a table, chosen by the last `order` tokens.

    It has the surface of `engine.model.Model` that the loop uses, and keeps the ids it was fed as its cache, so that
    a wrong rollback shows up as a wrong context.
    """

    def __init__(self, table: Tensor, order: int = 1, name: str = "table") -> None:
        self.table = table
        self.order = order
        self.name = name
        self.vocab_size = int(table.shape[-1])
        self.embedding_rows = self.vocab_size
        self.context_length: int | None = None
        self.device = self.output_device = torch.device("cpu")
        self.dtype = torch.float32
        self.hidden: Tensor | None = None
        self.graphs: Graphs | None = None
        self.calls = 0
        self._fed: list[int] = []

    def begin(self, capacity: int) -> None:
        self._fed = []
        self.calls = 0

    def prepare(self, sizes: tuple[int, ...], keep: int) -> None:
        """A table has nothing to capture."""

    def prefill(self, ids: Tensor) -> list[Tensor]:
        self._fed += ids.tolist()
        return []

    def forward(self, ids: Tensor, keep: int) -> Tensor:
        self.calls += 1
        fed = self._fed
        start = len(fed)
        fed += ids.tolist()
        rows = []
        for end in range(start + len(ids) - keep + 1, start + len(ids) + 1):
            row = 0
            for token in fed[max(0, end - self.order) : end]:
                row = row * self.vocab_size + token
            rows.append(row)
        return self.table[rows]

    def length(self) -> int:
        return len(self._fed)

    def roll_back(self, length: int) -> None:
        del self._fed[length:]


def decoder(
    target: Any,
    draft: Any,
    sampling: Sampling,
    gamma: int = 4,
    seed: int = 0,
    vocab_map: VocabMap | None = None,
    min_prob: float = 0.0,
    top: int = 5,
) -> Decoder:
    """A loop over two modules or two tables."""
    target_model = target if isinstance(target, TableModel) else Model(target, "target")
    draft_model = draft if isinstance(draft, TableModel) else Model(draft, "draft")
    vocab = target_model.vocab_size
    crossing = vocab_map or plain_map(draft_model.vocab_size, vocab, vocab)
    proposer = DraftModel(draft_model, crossing, sampling, min_prob=min_prob)
    generator = torch.Generator().manual_seed(seed)
    clock = PhaseClock(torch.device("cpu"))
    return Decoder(target_model, proposer, sampling, FixedGamma(gamma), generator, clock, top)


def run(
    loop: Decoder,
    prompt: list[int],
    tokens: int = 24,
    eos: frozenset[int] = frozenset(),
    stop: tuple[str, ...] = (),
) -> list[Round]:
    """Decode one prompt."""
    with torch.inference_mode():
        ids = torch.tensor(prompt)
        capacity = len(prompt) + tokens + 16
        loop.target.begin(capacity)
        if len(prompt) > 1:
            loop.target.prefill(ids[:-1])
        loop.proposer.begin(ids, capacity)
    loop.begin(prompt, Stopping(eos, tokens, stop, lambda token: chr(97 + token % 26).encode()))
    return list(loop.rounds())


def output(rounds: list[Round]) -> list[int]:
    """The committed tokens."""
    return [token for finished in rounds for token, _ in finished.committed]
