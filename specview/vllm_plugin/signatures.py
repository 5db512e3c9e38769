"""The places inside vLLM that the plugin knows. vLLM moves fast: what looks different is not touched."""

from __future__ import annotations

import inspect
from types import ModuleType

SAMPLER = "vllm.v1.sample.sampler"
TOPK_TOPP = "vllm.v1.sample.ops.topk_topp_sampler"
REJECTION = "vllm.v1.sample.rejection_sampler"
RUNNER = "vllm.v1.worker.gpu_model_runner"
PROPOSER = "vllm.v1.spec_decode.llm_base_proposer"
SCHEDULER = "vllm.v1.core.sched.scheduler"
CORE = "vllm.v1.engine.core"

KNOWN: dict[str, dict[str, tuple[str, ...]]] = {
    SAMPLER: {
        "Sampler.sample": ("self", "logits", "sampling_metadata", "logprobs_mode_override"),
    },
    TOPK_TOPP: {
        "TopKTopPSampler.forward_native": ("self", "logits", "generators", "k", "p"),
        "apply_top_k_top_p": ("logits", "k", "p"),
    },
    REJECTION: {
        "RejectionSampler.forward": ("self", "metadata", "draft_probs", "logits", "sampling_metadata"),
        "rejection_sample": (
            "draft_token_ids", "num_draft_tokens", "max_spec_len", "cu_num_draft_tokens", "draft_probs",
            "target_logits", "bonus_token_ids", "sampling_metadata", "synthetic_mode", "synthetic_conditional_rates",
            "use_fp64_gumbel",
        ),
        "generate_uniform_probs": ("num_tokens", "num_draft_tokens", "generators", "device"),
        "sample_recovered_tokens": (
            "max_spec_len", "num_draft_tokens", "cu_num_draft_tokens", "draft_token_ids", "draft_probs",
            "target_probs", "sampling_metadata", "device", "use_fp64_gumbel",
        ),
        "apply_sampling_constraints": ("logits", "cu_num_draft_tokens", "sampling_metadata"),
    },
    RUNNER: {
        "GPUModelRunner.execute_model": ("self", "scheduler_output", "intermediate_tensors"),
        "GPUModelRunner._sample": ("self", "logits", "spec_decode_metadata"),
        "GPUModelRunner.sample_tokens": ("self", "grammar_output"),
        "GPUModelRunner.propose_draft_token_ids": (
            "self", "scheduler_output", "sampled_token_ids", "sampling_metadata", "hidden_states",
            "sample_hidden_states", "aux_hidden_states", "spec_decode_metadata", "common_attn_metadata",
            "slot_mappings",
        ),
        "GPUModelRunner._get_spec_decode_draft_probs": ("self", "spec_decode_metadata"),
    },
    PROPOSER: {
        "SpecDecodeBaseProposer._sample_from_logits": ("self", "logits", "sampling_metadata"),
        "SpecDecodeBaseProposer.take_last_draft_probs": ("self",),
    },
    SCHEDULER: {
        "Scheduler.schedule": ("self", "throttle_prefills"),
        "Scheduler.update_from_output": ("self", "scheduler_output", "model_runner_output"),
        "Scheduler.make_spec_decoding_stats": (
            "self", "spec_decoding_stats", "num_draft_tokens", "num_accepted_tokens", "num_invalid_spec_tokens",
            "request_id",
        ),
        "Scheduler.finish_requests": ("self", "request_ids", "finished_status"),
        "Scheduler.shutdown": ("self",),
    },
    CORE: {
        "EngineCore.shutdown": ("self",),
    },
}  # fmt: skip
"""Module → qualified name → parameters, as in vLLM 0.32."""


def difference(module: ModuleType) -> str | None:
    """What about a module is not as known, as the end of a sentence; None where all is as known."""
    for name, expected in KNOWN[module.__name__].items():
        found: object = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            return f"{module.__name__} has no {name}"
        parameters = tuple(inspect.signature(found).parameters)
        if parameters != expected:
            return f"{module.__name__}.{name} takes ({', '.join(parameters)})"
    return None
