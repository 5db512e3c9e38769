"""The engine's small parts: γ schedules, stopping, prompt lookup, layer lists, id maps, devices, clocks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.baseline import cost_curve
from engine.device import choose, device_name
from engine.errors import PairError
from engine.gamma import AutoGamma, FixedGamma
from engine.layer_skip import parse_layers, without_middle
from engine.pair import describe_layers, lookup_length
from engine.proposers.prompt_lookup import NgramIndex
from engine.round import Cost, PhaseTimes, Position, Round, Sampling
from engine.stopping import Stop, Stopping
from engine.timing import PhaseClock
from engine.vocab_map import find_id_map, load_id_map, plain_map
from tests.unit.contract_rules import assert_contract
from tests.unit.engine_models import TableModel, decoder, output, run
from tests.unit.lossless import SIGNIFICANCE, count, exact, p_value, table_logits, tables


def finished(overlap: float, proposed: int = 4, propose_ns: int = 4_000, score_ns: int = 10_000) -> Round:
    positions = tuple(Position(i + 1, candidate=1, overlap=overlap) for i in range(proposed))
    times = PhaseTimes(propose_ns=propose_ns, score_ns=score_ns)
    return Round(0, proposed, proposed, proposed, proposed, 1, 2, positions=positions, times=times)


def test_a_fixed_gamma_stays() -> None:
    schedule = FixedGamma(3)
    schedule.learn(finished(0.0))
    assert schedule.gamma() == 3


@pytest.mark.parametrize(("overlap", "expected"), [(0.98, 8), (0.05, 1)])
def test_an_auto_gamma_follows_the_overlap(overlap: float, expected: int) -> None:
    schedule = AutoGamma(4, largest=8)
    for _ in range(40):
        schedule.learn(finished(overlap))
    assert schedule.gamma() == expected


def test_an_auto_gamma_follows_the_cost_of_scoring() -> None:
    flat = AutoGamma(4, costs=[Cost(1, 1000, 100), Cost(9, 1100, 900)])
    steep = AutoGamma(4, costs=[Cost(1, 1000, 100), Cost(9, 9000, 900)])
    assert flat.best(0.8, 0.1) > steep.best(0.8, 0.1)
    assert AutoGamma(4).best(1.0, 0.0) == 8


def test_an_auto_gamma_learns_nothing_from_an_empty_round() -> None:
    schedule = AutoGamma(2)
    for _ in range(8):
        schedule.learn(Round(0, 2, 0, 0, 0, 1, 2, positions=(Position(1),)))
    assert schedule.gamma() == 2


def test_a_run_with_an_auto_gamma_keeps_the_contract_and_changes_gamma() -> None:
    target, _ = tables()
    loop = decoder(TableModel(target), TableModel(target), Sampling(), gamma=2)
    loop.schedule = AutoGamma(2, largest=6)
    rounds = run(loop, [1], 120)
    assert_contract([1], rounds, greedy=False)
    assert len({r.gamma for r in rounds}) > 1


def test_the_earliest_end_wins() -> None:
    def letter(token: int) -> bytes:
        return bytes([token])

    stopping = Stopping(frozenset({9}), 5, ("bc", "é"), letter)
    assert stopping.first([1, 9, 9]) == Stop(2, "eos")
    assert stopping.first([97, 98, 99]) == Stop(3, "stop")
    assert stopping.first([1, 1, 1, 1, 1, 1]) == Stop(5, "length")
    assert stopping.first([1, 1]) is None
    stopping.commit([97, 98])
    assert stopping.first([99]) == Stop(1, "stop")
    stopping.commit([0xC3])  # half an é
    assert stopping.first([0xA9]) == Stop(1, "stop")
    assert stopping.first([9]) == Stop(1, "eos")


def test_an_empty_stop_string_stops_nothing() -> None:
    assert Stopping(frozenset(), 9, ("",), lambda _: b"x").first([1, 2]) is None


def test_prompt_lookup_prefers_the_longest_and_then_the_latest_match() -> None:
    assert continuation([1, 2, 3, 9, 2, 3, 8, 2, 3], 1, 3) == [8]
    assert continuation([1, 2, 3, 9, 0, 3, 8, 1, 2, 3], 1, 3) == [9]
    assert continuation([7, 7, 7], 2, 3) == [7]
    assert continuation([1, 2, 3], 4, 3) == []
    assert continuation([1], 4, 3) == []
    assert continuation([4, 5, 4, 5], 3, 1) == [4, 5]


def searched(ids: list[int], gamma: int, longest: int) -> list[int]:
    """The same rule by looking through the whole text."""
    for n in range(min(longest, len(ids) - 1), 0, -1):
        starts = [s for s in range(len(ids) - n) if ids[s : s + n] == ids[-n:]]
        full = [s for s in starts if s + n + gamma <= len(ids)]
        if starts:
            start = full[-1] if full else starts[0]
            return ids[start + n : start + n + gamma]
    return []


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_the_index_finds_what_a_search_finds(longest: int) -> None:
    rng = random.Random(longest)
    for _ in range(60):
        text = [rng.randrange(4) for _ in range(rng.randrange(1, 40))]
        index = NgramIndex(longest)
        for end in sorted(rng.sample(range(1, len(text) + 1), rng.randrange(1, len(text) + 1))):
            index.extend(text[:end])
            for gamma in (1, 3, 6):
                assert index.continuation(gamma) == searched(text[:end], gamma, longest)


def continuation(ids: list[int], gamma: int, longest: int) -> list[int]:
    index = NgramIndex(longest)
    index.extend(ids)
    return index.continuation(gamma)


def test_lists_of_layers() -> None:
    assert parse_layers("0-2,5", 6) == (0, 1, 2, 5)
    assert describe_layers((0, 1, 2, 5)) == "0-2,5"
    assert without_middle(30) == (*range(13), *range(17, 30))
    assert without_middle(2) == (1,)
    assert without_middle(1) == (0,)


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-6", "1,1", "4,2", "-1", "0-2,"])
def test_lists_of_layers_that_make_no_model(text: str) -> None:
    with pytest.raises(PairError, match=r"--draft self:"):
        parse_layers(text, 6)


def test_lookup_lengths() -> None:
    assert lookup_length("prompt-lookup") == 3
    assert lookup_length("prompt-lookup:2") == 2
    for text in ("prompt-lookup:0", "prompt-lookup:x", "prompt-lookup:11", "prompt-lookup:-1"):
        with pytest.raises(PairError, match="between 1 and 10"):
            lookup_length(text)


def test_padded_ids_are_masked_out_of_q() -> None:
    wide = plain_map(72, 64, 64).to_target(torch.zeros(1, 72))
    assert wide.shape == (1, 64)
    assert torch.isfinite(wide).all()
    narrow = plain_map(64, 72, 64).to_target(torch.zeros(1, 64))
    assert torch.isfinite(narrow).sum() == 64
    padded_both = plain_map(72, 72, 64)
    assert torch.isfinite(padded_both.to_target(torch.zeros(1, 72))).sum() == 64


def id_map(folder: Path, ids: list[int], as_offsets: bool) -> Path:
    if as_offsets:
        save_file({"d2t": torch.tensor(ids) - torch.arange(len(ids))}, folder / "d2t.safetensors")
    else:
        (folder / "d2t.json").write_text(json.dumps(ids))
    found = find_id_map(folder)
    assert found is not None
    return found


@pytest.mark.parametrize("as_offsets", [True, False])
def test_a_reduced_vocabulary_stays_lossless(tmp_path: Path, as_offsets: bool) -> None:
    target, _ = tables()
    spoken = [0, 2, 5]
    table = torch.randn(3, 3, generator=torch.Generator().manual_seed(2))
    crossing = load_id_map(id_map(tmp_path, spoken, as_offsets), 3, 3, 6, torch.device("cpu"))
    loop = decoder(TableModel(target), TableModel(table), Sampling(), 2, vocab_map=crossing, seed=4, top=3)
    rounds = run(loop, [1], 60)
    assert_contract([1], rounds, greedy=False)
    assert {c for r in rounds for c in r.candidates} == set(spoken)
    assert set(output(rounds)) - set(spoken)
    assert p_value(count(loop, [1], 3000), exact(table_logits(target), [1], Sampling())) > SIGNIFICANCE


@pytest.mark.parametrize(("ids", "why"), [([0, 1], "maps 2 ids"), ([0, 1, 6], "below 6"), ([0, 1, 1], "at most once")])
def test_id_maps_that_do_not_fit(tmp_path: Path, ids: list[int], why: str) -> None:
    with pytest.raises(PairError, match=why):
        load_id_map(id_map(tmp_path, ids, False), 3, 3, 6, torch.device("cpu"))


def test_id_maps_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "d2t.json").write_text('{"a": 1}')
    with pytest.raises(PairError, match="JSON array"):
        load_id_map(tmp_path / "d2t.json", 3, 3, 6, torch.device("cpu"))
    (tmp_path / "d2t.safetensors").write_bytes(b"nothing")
    with pytest.raises(PairError, match="tensor named d2t"):
        load_id_map(tmp_path / "d2t.safetensors", 3, 3, 6, torch.device("cpu"))


def test_devices_and_dtypes() -> None:
    choice = choose("cpu", "float32")
    assert choice.dtype == torch.float32
    assert device_name(choice.device)
    assert choose("cpu").dtype in (torch.float32, torch.bfloat16)
    for device, dtype in (("abacus", "auto"), ("cpu", "int3"), ("meta", "auto"), ("cuda:99", "auto")):
        with pytest.raises(PairError):
            choose(device, dtype)


def test_phases_never_add_up_to_more_than_the_round() -> None:
    clock = PhaseClock(torch.device("cpu"))
    for _ in range(3):
        clock.begin()
        for phase in ("propose", "score", "accept"):
            clock.mark(phase)
        clock.transferred()
        clock.mark("record")
        clock.mark("rollback")
        times = clock.finish()
        phases = (times.propose_ns, times.score_ns, times.accept_ns, times.rollback_ns, times.record_ns)
        assert sum(phases) == times.round_ns
        assert times.start_ns >= 0


def test_the_cost_curve_ends_where_either_context_does() -> None:
    target, draft = TableModel(torch.zeros(8, 8)), TableModel(torch.zeros(8, 8))
    for model in (target, draft):
        model.prefill(torch.arange(4))
    draft.context_length = 8
    assert [cost.positions for cost in cost_curve(target, draft, (1, 2, 3, 5, 9))] == [1, 2, 3]
    assert [cost.positions for cost in cost_curve(target, None, (1, 5, 9))] == [1, 5, 9]
    assert (target.length(), draft.length()) == (4, 4)
