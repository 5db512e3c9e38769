"""A speculative engine of two bigram tables in the shape of vLLM: the same modules, classes, signatures and order of
calls, so that the plugin's wraps can be tried where vLLM is not installed."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from specview.vllm_plugin import signatures

VOCAB = 16
GAMMA = 3
EOS = 15


@dataclass
class Params:
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    stop: list[str] = field(default_factory=list)
    max_tokens: int = 20


class Request:
    def __init__(self, name: str, prompt: list[int], params: Params) -> None:
        self.request_id = name
        self.sampling_params = params
        self.prompt = prompt
        self.all_token_ids = list(prompt)
        self.num_computed_tokens = self.num_in_flight_tokens = self.num_stale_output_tokens = 0
        self.drafts: list[int] = []
        self.stop_reason = None
        self.status = types.SimpleNamespace(name="RUNNING")

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.all_token_ids[len(self.prompt) :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    def is_finished(self) -> bool:
        return self.status.name.startswith("FINISHED")


def modules(garbage: bool = False) -> dict[str, types.ModuleType]:
    """Fresh modules by name; with `garbage`, every second candidate's temperature is not its request's."""
    made = {name: types.ModuleType(name) for name in signatures.KNOWN}
    _sampling(made[signatures.SAMPLER], made[signatures.TOPK_TOPP])
    _rejection(made[signatures.REJECTION], made[signatures.TOPK_TOPP], garbage)
    _proposer(made[signatures.PROPOSER])
    _runner(made[signatures.RUNNER], made)
    _scheduler(made[signatures.SCHEDULER])
    made[signatures.CORE].EngineCore = type("EngineCore", (), {"shutdown": lambda self: self.scheduler.shutdown()})
    return made


def _sampling(sampler_module: Any, topk_module: Any) -> None:
    def apply_top_k_top_p(logits, k, p):
        if k is not None:
            least = logits.sort(-1, descending=True).values.gather(1, (k.long() - 1)[:, None])
            logits.masked_fill_(logits < least, -torch.inf)
        if p is not None:
            probs, order = logits.softmax(-1).sort(-1, descending=True)
            out = (probs.cumsum(-1) - probs >= p[:, None]) & (p[:, None] < 1)
            logits.masked_fill_(torch.zeros_like(out).scatter_(1, order, out), -torch.inf)
        return logits

    class TopKTopPSampler(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.forward = self.forward_native

        def forward_native(self, logits, generators, k, p):
            logits = topk_module.apply_top_k_top_p(logits, k, p)
            return torch.multinomial(logits.softmax(-1), 1)[:, 0], None

    class Sampler(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.topk_topp_sampler = topk_module.TopKTopPSampler()

        def forward(self, logits, sampling_metadata):
            return self.sample(logits.to(torch.float32), sampling_metadata)[0]

        def sample(self, logits, sampling_metadata, logprobs_mode_override=None):
            greedy = logits.argmax(-1)
            if sampling_metadata.all_greedy:
                return greedy, None
            temperature = sampling_metadata.temperature
            logits.div_(torch.where(temperature < 1e-5, 1.0, temperature)[:, None])
            drawn, _ = self.topk_topp_sampler(
                logits, sampling_metadata.generators, sampling_metadata.top_k, sampling_metadata.top_p
            )
            return torch.where(temperature < 1e-5, greedy, drawn), None

    topk_module.apply_top_k_top_p, topk_module.TopKTopPSampler = apply_top_k_top_p, TopKTopPSampler
    sampler_module.Sampler = Sampler


def _rejection(module: Any, topk_module: Any, garbage: bool) -> None:
    def generate_uniform_probs(num_tokens, num_draft_tokens, generators, device):
        return torch.rand(num_tokens, dtype=torch.float64, device=device)

    def sample_recovered_tokens(
        max_spec_len, num_draft_tokens, cu_num_draft_tokens, draft_token_ids, draft_probs, target_probs,
        sampling_metadata, device, use_fp64_gumbel=False,
    ):  # fmt: skip
        q = torch.nn.functional.one_hot(draft_token_ids.long(), VOCAB) if draft_probs is None else draft_probs
        return torch.multinomial((target_probs - q).clamp(min=0) + 1e-30, 1)[:, 0]

    def apply_sampling_constraints(logits, cu_num_draft_tokens, sampling_metadata):
        if sampling_metadata.all_greedy:
            return logits
        counts = torch.diff(cu_num_draft_tokens, prepend=cu_num_draft_tokens.new_zeros(1))
        temperature = sampling_metadata.temperature
        own = torch.where(temperature == 0, 1.0, temperature).repeat_interleave(counts)
        if garbage:
            own[1::2] = 1e30
        k, p = sampling_metadata.top_k, sampling_metadata.top_p
        k, p = (None if x is None else x.repeat_interleave(counts) for x in (k, p))
        return topk_module.apply_top_k_top_p(logits.div_(own[:, None]), k, p)

    def rejection_sample(
        draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_logits,
        bonus_token_ids, sampling_metadata, synthetic_mode=False, synthetic_conditional_rates=None,
        use_fp64_gumbel=False,
    ):  # fmt: skip
        output = torch.full((len(num_draft_tokens), max_spec_len + 1), -1, dtype=torch.int32)
        uniform = recovered = None
        probs = target_logits.softmax(-1)
        if not sampling_metadata.all_greedy:
            uniform = module.generate_uniform_probs(len(draft_token_ids), num_draft_tokens, {}, output.device)
            recovered = module.sample_recovered_tokens(
                max_spec_len, num_draft_tokens, cu_num_draft_tokens, draft_token_ids, draft_probs, probs,
                sampling_metadata, output.device,
            )  # fmt: skip
        at = 0
        for row, count in enumerate(num_draft_tokens):
            greedy = sampling_metadata.all_greedy or sampling_metadata.temperature[row] == 0
            for place in range(count):
                token = int(draft_token_ids[at + place])
                if greedy:
                    best = int(target_logits[at + place].argmax())
                    accepted, instead = best == token, best
                else:
                    q = 1.0 if draft_probs is None else draft_probs[at + place, token]
                    accepted = bool(uniform[at + place].float() < probs[at + place, token] / q)
                    instead = int(recovered[at + place])
                output[row, place] = token if accepted else instead
                if not accepted:
                    break
            else:
                output[row, count] = bonus_token_ids[row, 0]
            at += count
        return output

    class RejectionSampler(torch.nn.Module):
        def __init__(self, sampler):
            super().__init__()
            self.sampler = sampler

        def forward(self, metadata, draft_probs, logits, sampling_metadata):
            bonus = self.sampler(logits[metadata.bonus_logits_indices], sampling_metadata)[:, None]
            target = logits[metadata.target_logits_indices].to(torch.float32)
            target = module.apply_sampling_constraints(target, metadata.cu_num_draft_tokens, sampling_metadata)
            return module.rejection_sample(
                metadata.draft_token_ids, metadata.num_draft_tokens, max(metadata.num_draft_tokens),
                metadata.cu_num_draft_tokens, draft_probs, target, bonus, sampling_metadata,
            )  # fmt: skip

    for made in (
        generate_uniform_probs, sample_recovered_tokens, apply_sampling_constraints, rejection_sample,
        RejectionSampler,
    ):  # fmt: skip
        setattr(module, made.__name__, made)


def _proposer(module: Any) -> None:
    class SpecDecodeBaseProposer:
        def _sample_from_logits(self, logits, sampling_metadata):
            if sampling_metadata.all_greedy:
                return logits.argmax(-1), None
            temperature = sampling_metadata.temperature
            logits.div_(torch.where(temperature == 0, 1.0, temperature)[:, None])
            probs = logits.softmax(-1)
            drawn = torch.where(temperature == 0, probs.argmax(-1), torch.multinomial(probs, 1)[:, 0])
            return drawn, probs

        def take_last_draft_probs(self):
            return None

    module.SpecDecodeBaseProposer = SpecDecodeBaseProposer


def _runner(module: Any, made: dict[str, types.ModuleType]) -> None:
    class GPUModelRunner:
        def __init__(self, dtype=torch.float32):
            torch.manual_seed(0)
            self.dtype = dtype
            self.target = (torch.randn(VOCAB, VOCAB) * 1.5).to(dtype)
            self.draft = self.target.float() + torch.randn(VOCAB, VOCAB)
            self.speculative_config = types.SimpleNamespace(num_speculative_tokens=GAMMA)
            self.device = torch.device("cpu")
            self.sampler = made[signatures.SAMPLER].Sampler()
            self.rejection_sampler = made[signatures.REJECTION].RejectionSampler(self.sampler)
            self.drafter = made[signatures.PROPOSER].SpecDecodeBaseProposer()
            self.input_batch = None
            self._draft_probs = None
            self._draft_prob_req_ids = None

        def execute_model(self, scheduler_output, intermediate_tensors=None):
            rows, counts, drafts = [], [], []
            for name, count in scheduler_output.num_scheduled_tokens.items():
                spec = scheduler_output.scheduled_spec_decode_tokens.get(name, [])
                request = scheduler_output.requests[name]
                rows += [request.all_token_ids[request.num_computed_tokens : request.num_tokens][-1], *spec]
                counts.append(len(spec))
                drafts += spec
                assert count >= len(spec) + 1
            self.logits = self.target[torch.tensor(rows)].clone()
            self.metadata = _metadata(counts, drafts) if drafts else None
            names = list(scheduler_output.num_scheduled_tokens)
            self.input_batch = _batch([scheduler_output.requests[name] for name in names])

        def _get_spec_decode_draft_probs(self, spec_decode_metadata):
            if self._draft_probs is None:
                return None
            row = {name: i for i, name in enumerate(self._draft_prob_req_ids)}
            counts = zip(self.input_batch.req_ids, spec_decode_metadata.num_draft_tokens, strict=True)
            return torch.cat([self._draft_probs[row[name], :count] for name, count in counts if count])

        def _sample(self, logits, spec_decode_metadata):
            sampling = self.input_batch.sampling_metadata
            if spec_decode_metadata is None:
                return self.sampler(logits, sampling)[:, None]
            probs = self._get_spec_decode_draft_probs(spec_decode_metadata)
            return self.rejection_sampler(spec_decode_metadata, probs, logits, sampling)

        def propose_draft_token_ids(
            self, scheduler_output, sampled_token_ids, sampling_metadata, hidden_states, sample_hidden_states,
            aux_hidden_states, spec_decode_metadata, common_attn_metadata, slot_mappings,
        ):  # fmt: skip
            last = torch.tensor([row[-1] for row in sampled_token_ids])
            tokens, probs = [], []
            for _ in range(GAMMA):
                last, q = self.drafter._sample_from_logits(self.draft[last].clone(), sampling_metadata)
                tokens.append(last)
                probs.append(q)
            self._draft_probs = None if probs[0] is None else torch.stack(probs, 1)
            self._draft_prob_req_ids = list(self.input_batch.req_ids)
            return torch.stack(tokens, 1).tolist()

        def sample_tokens(self, grammar_output):
            output = self._sample(self.logits, self.metadata)
            rows = [[t for t in row if t >= 0] for row in output.tolist()]
            names = self.input_batch.req_ids
            sampling = self.input_batch.sampling_metadata
            self.drafts = dict(
                zip(
                    names,
                    self.propose_draft_token_ids(None, rows, sampling, None, None, None, self.metadata, None, None),
                    strict=True,
                )
            )
            return types.SimpleNamespace(
                req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=rows
            )

    module.GPUModelRunner = GPUModelRunner
    module.get_tp_group = lambda: types.SimpleNamespace(rank_in_group=0)


def _metadata(counts: list[int], drafts: list[int]) -> Any:
    sizes = torch.tensor(counts)
    ends = (sizes + 1).cumsum(0)
    last = set((ends - 1).tolist())
    return types.SimpleNamespace(
        draft_token_ids=torch.tensor(drafts, dtype=torch.int32),
        num_draft_tokens=counts,
        cu_num_draft_tokens=sizes.cumsum(0).to(torch.int32),
        target_logits_indices=torch.tensor([i for i in range(int(ends[-1])) if i not in last]),
        bonus_logits_indices=ends - 1,
    )


def _batch(requests: list[Request]) -> Any:
    params = [r.sampling_params for r in requests]
    k = np.array([p.top_k or VOCAB for p in params], dtype=np.int32)
    p = torch.tensor([p.top_p for p in params])
    greedy = all(x.temperature == 0 for x in params)
    sampling = types.SimpleNamespace(
        temperature=None if greedy else torch.tensor([x.temperature for x in params]),
        all_greedy=greedy,
        top_k=torch.from_numpy(k) if (k < VOCAB).any() else None,
        top_p=p if bool((p < 1).any()) else None,
        generators={},
        no_penalties=True,
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=types.SimpleNamespace(all=[]),
        thinking_budget_state_holder=None,
    )
    return types.SimpleNamespace(req_ids=[r.request_id for r in requests], top_k_cpu=k, sampling_metadata=sampling)


def _scheduler(module: Any) -> None:
    class Scheduler:
        def __init__(self, vllm_config):
            self.vllm_config = vllm_config
            self.requests: dict[str, Request] = {}

        def schedule(self, throttle_prefills=False):
            scheduled, spec = {}, {}
            for name, request in self.requests.items():
                spec[name] = request.drafts
                scheduled[name] = request.num_tokens - request.num_computed_tokens + len(request.drafts)
            return types.SimpleNamespace(
                num_scheduled_tokens=scheduled,
                scheduled_spec_decode_tokens={name: ids for name, ids in spec.items() if ids},
                requests=self.requests,
            )

        def computed(self, scheduled):
            """What vLLM does at the end of scheduling; here after the forward, which reads the lengths before."""
            for name, count in scheduled.num_scheduled_tokens.items():
                self.requests[name].num_computed_tokens += count
                self.requests[name].num_in_flight_tokens += count

        def update_from_output(self, scheduler_output, model_runner_output):
            for name, count in scheduler_output.num_scheduled_tokens.items():
                request = self.requests[name]
                request.num_in_flight_tokens -= count
                new = model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[name]]
                drafted = len(scheduler_output.scheduled_spec_decode_tokens.get(name, ()))
                request.num_computed_tokens -= drafted - (len(new) - 1)
                for place, token in enumerate(new, 1):
                    request.all_token_ids.append(token)
                    if token == EOS:
                        request.status.name = "FINISHED_STOPPED"
                    elif request.num_output_tokens >= request.sampling_params.max_tokens:
                        request.status.name = "FINISHED_LENGTH_CAPPED"
                    if request.is_finished():
                        del new[place:]
                        break
            for name in [name for name, request in self.requests.items() if request.is_finished()]:
                del self.requests[name]

        def make_spec_decoding_stats(
            self, spec_decoding_stats, num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id
        ):
            return None

        def finish_requests(self, request_ids, finished_status):
            ended = [self.requests.pop(name) for name in request_ids]
            for request in ended:
                request.status.name = finished_status
            return ended

        def shutdown(self):
            self.requests.clear()

    module.Scheduler = Scheduler


class Engine:
    """Drives the modules as vLLM's engine core does."""

    def __init__(self, made: dict[str, types.ModuleType], dtype: torch.dtype = torch.float32) -> None:
        config = types.SimpleNamespace(speculative_config=object(), use_v2_model_runner=False)
        self.scheduler = made[signatures.SCHEDULER].Scheduler(config)
        self.runner = made[signatures.RUNNER].GPUModelRunner(dtype)

    def add(self, name: str, prompt: list[int], **params: Any) -> Request:
        request = self.scheduler.requests[name] = Request(name, prompt, Params(**params))
        return request

    def step(self) -> None:
        scheduled = self.scheduler.schedule()
        self.runner.execute_model(scheduled)
        self.scheduler.computed(scheduled)
        output = self.runner.sample_tokens(None)
        self.scheduler.update_from_output(scheduled, output)
        for name, request in self.scheduler.requests.items():
            request.drafts = self.runner.drafts.get(name, [])
