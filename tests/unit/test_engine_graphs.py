"""Steps that are captured once and replayed: the same rounds as called ones, or a return to calling them."""

import pytest
import torch

from engine import facts, judge, replayed
from engine.graphs import Graphs
from engine.proposers import draft_model
from engine.round import Sampling
from engine.rows import best_on_device, rank_on_device
from tests.unit.engine_models import decoder, llama, output, run
from tests.unit.engine_tape import on_tape

PROMPT = [5, 9, 2, 40, 7]
SETTINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=1.0),
    "truncated": Sampling(temperature=0.8, top_k=20, min_p=0.01),
    "penalties": Sampling(temperature=1.0, repetition_penalty=1.2),
    "bias": Sampling(temperature=1.0, logit_bias={3: 2.0}),
}


@pytest.fixture(autouse=True)
def device_paths(monkeypatch):
    """What a GPU runs where the CPU has a way of its own through the host; and small extents, to be crossed."""
    monkeypatch.setattr(judge, "best_tokens", best_on_device)
    monkeypatch.setattr(draft_model, "best", best_on_device)
    monkeypatch.setattr(facts, "rank", rank_on_device)
    monkeypatch.setattr(replayed, "SMALLEST_EXTENT", 16)


def loops(sampling, gamma=4, capture=on_tape, **options):
    """(a loop that calls, a loop that replays) over the same two models."""
    target, draft = llama(3), llama(1, seed=4)
    plain = decoder(target, draft, sampling, gamma, seed=7, **options)
    replaying = decoder(target, draft, sampling, gamma, seed=7, **options)
    graphs = Graphs(capture)
    assert replaying.target.use_graphs(graphs)
    assert replaying.proposer.model.use_graphs(graphs)
    return plain, replaying


def facts_of(rounds):
    """Everything that a round says but its times."""
    return [
        (r.proposed, r.accepted, r.committed, r.target_kv_after, r.draft_kv_after, r.target_calls, r.draft_calls)
        for r in rounds
    ]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("gamma", [1, 4])
def test_replayed_rounds_are_the_called_ones(setting, gamma):
    plain, replaying = loops(SETTINGS[setting], gamma)
    for prompt in (PROMPT, [3], PROMPT * 9):  # the next sequence reuses the memory, the last one needs more
        expected, found = run(plain, prompt, 60), run(replaying, prompt, 60)
        assert replaying.target.graphs.failure is None
        assert facts_of(found) == facts_of(expected)
        for ours, theirs in zip(found, expected, strict=True):
            for one, other in zip(ours.positions[:-1], theirs.positions[:-1], strict=True):
                assert (one.candidate, one.fate, one.rank, one.u) == (other.candidate, other.fate, other.rank, other.u)
                assert one.target_prob == pytest.approx(other.target_prob, rel=1e-3, abs=1e-6)
                assert one.draft_prob == pytest.approx(other.draft_prob, rel=1e-3, abs=1e-6)
                assert one.target_entropy == pytest.approx(other.target_entropy, rel=1e-3, abs=1e-5)
                assert [t for t, _ in one.target_top] == [t for t, _ in other.target_top]
                assert [t for t, _ in one.draft_top] == [t for t, _ in other.draft_top]


def test_no_step_is_called_twice_where_a_graph_holds_it():
    captured = []

    def capture(step):
        captured.append(step)
        return on_tape(step)

    _, replaying = loops(SETTINGS["sampled"], capture=capture)
    run(replaying, PROMPT, 40)
    count = len(captured)
    # Forwards of 1, 2 and γ+1 positions in at most three extents; γ choices; accept, correct and measure.
    assert 3 <= count <= 3 * 3 + 4 + 3
    run(replaying, PROMPT, 40)
    assert len(captured) == count


def test_what_a_graph_cannot_hold_is_said_and_called():
    def refuse(step):
        raise RuntimeError("operation not permitted when stream is capturing\nand a long explanation")

    plain, replaying = loops(SETTINGS["sampled"], capture=refuse)
    assert facts_of(run(replaying, PROMPT)) == facts_of(run(plain, PROMPT))
    assert replaying.target.graphs.failure == "operation not permitted when stream is capturing"


def test_a_replay_that_computes_something_else_is_not_trusted():
    def forgetful(step):
        outputs = step()
        return lambda: [x.zero_() for x in outputs], outputs

    plain, replaying = loops(SETTINGS["sampled"], capture=forgetful)
    assert facts_of(run(replaying, PROMPT)) == facts_of(run(plain, PROMPT))
    assert "something else" in replaying.target.graphs.failure


def test_a_host_value_does_not_pass_the_tape():
    graphs = Graphs(on_tape)
    (out,) = graphs.run("k", lambda x: (x * float(x.sum()),), torch.ones(2))
    assert out.tolist() == [2.0, 2.0]
    assert "on the host" in graphs.failure


def test_the_memory_is_read_where_it_lies():
    graphs = Graphs(on_tape)
    (first,) = graphs.run("double", lambda x: (x * 2,), torch.ones(3))
    (second,) = graphs.run("add", lambda x: (x + 1,), first)
    graphs.run("double", lambda x: (x * 2,), torch.full((3,), 5.0))
    assert first.tolist() == [10.0] * 3
    assert graphs.run("add", lambda x: (x + 1,), first)[0] is second
    assert second.tolist() == [11.0] * 3


def test_a_stop_before_gamma_has_graphs_of_its_own():
    plain, replaying = loops(SETTINGS["sampled"], min_prob=0.3)
    expected, found = run(plain, PROMPT, 60), run(replaying, PROMPT, 60)
    assert len({r.proposed for r in expected}) > 1
    assert facts_of(found) == facts_of(expected)
    assert replaying.target.graphs.failure is None
    assert output(found) == output(expected)


def test_a_cache_that_had_to_grow_is_other_memory():
    _, replaying = loops(SETTINGS["greedy"])
    model, ids = replaying.target, torch.tensor(PROMPT)
    with torch.inference_mode():
        model.begin(16)
        before = [model.forward(ids, 5).clone() for _ in range(4)]  # the fourth does not fit
        model.roll_back(0)
        after = [model.forward(ids, 5).clone() for _ in range(4)]
        model.roll_back(0)
        again = [model.forward(ids, 5).clone() for _ in range(4)]
    torch.testing.assert_close(after, before)
    torch.testing.assert_close(again, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_on_a_gpu_replayed_rounds_are_the_called_ones(temperature):
    from engine.device import Choice
    from engine.layer_skip import skip_layers
    from engine.model import Model
    from engine.pair import Pair
    from engine.proposers.draft_model import DraftModel
    from engine.session import Session
    from engine.vocab_map import plain_map
    from tests.unit.engine_folders import byte_tokenizer

    device, sampling = torch.device("cuda", torch.cuda.current_device()), Sampling(temperature=temperature)
    module = llama(3).to(device)

    def rounds(graphs):
        target, draft = Model(module, "target"), Model(skip_layers(module, range(2)), "draft")
        proposer = DraftModel(draft, plain_map(64, 64, 64), sampling)
        choice = Choice(device, torch.float32, "asked for", "asked for")
        pair = Pair(target, proposer, draft, byte_tokenizer(), frozenset(), "draft", "target", choice)
        session = Session(pair, sampling=sampling, max_new_tokens=80, seed=3, graphs=graphs)
        session.prefill(0, None, (5, 9, 2, 40, 7))
        found = facts_of(session.decode())
        assert not graphs or session.uncaptured is None
        return found

    assert rounds(graphs=True) == rounds(graphs=False)
