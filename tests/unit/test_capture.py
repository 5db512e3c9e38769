"""Capture leaves the generation, the models and transformers as it found them."""

import subprocess
import sys
import threading
import warnings

import pytest
import torch
from transformers.generation import utils
from transformers.generation.stopping_criteria import StoppingCriteria, StoppingCriteriaList

import specview
from specview.capturing import CaptureError, CaptureWarning, session
from specview.errors import TraceError
from specview.trace.reader import TraceReader
from tests.capture_pair import pair, prompt, tiny

torch.set_num_threads(1)

SAMPLED = {"max_new_tokens": 30, "do_sample": True, "temperature": 0.8, "top_k": 30}
PLACES = (
    (utils.GenerationMixin, "_assisted_decoding"),
    (utils.GenerationMixin, "_get_candidate_generator"),
    (utils, "_speculative_sampling"),
)


def places():
    return [vars(owner)[name] for owner, name in PLACES]


def hooks_on(*models):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in models]


def runs(path):
    with TraceReader(path) as reader:
        return [(run, reader.sequences(run.id)) for run in reader.runs()]


@pytest.fixture(autouse=True)
def everything_is_put_back():
    before = places()
    yield
    assert places() == before


STRATEGIES = [
    {**SAMPLED},
    {"max_new_tokens": 30, "do_sample": True, "top_k": 0, "top_p": 0.8},
    {"max_new_tokens": 30, "do_sample": True, "repetition_penalty": 1.2, "min_p": 0.02},
    {"max_new_tokens": 30, "do_sample": False},
    {**SAMPLED, "prompt_lookup_num_tokens": 3},
    {"max_new_tokens": 30, "do_sample": False, "prompt_lookup_num_tokens": 3},
    {**SAMPLED, "assistant_early_exit": 1},
    {"max_new_tokens": 30, "do_sample": False, "assistant_early_exit": 1},
]


@pytest.mark.parametrize("arguments", STRATEGIES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tokens_and_random_state_are_those_of_a_run_without_capture(tmp_path, arguments, dtype):
    target, draft = (model.to(dtype) for model in pair())
    if not {"prompt_lookup_num_tokens", "assistant_early_exit"} & set(arguments):
        arguments = {**arguments, "assistant_model": draft}
    torch.manual_seed(11)
    plain = target.generate(prompt(), **arguments)
    state = torch.get_rng_state()
    torch.manual_seed(11)
    with specview.capture(tmp_path / "t.db"):
        captured = target.generate(prompt(), **arguments)
    assert captured.tolist() == plain.tolist()
    assert torch.equal(torch.get_rng_state(), state)
    assert len(runs(tmp_path / "t.db")[0][1]) == 1


def test_scores_and_logits_that_generate_returns_are_unchanged(tmp_path):
    target, draft = pair()
    arguments = {**SAMPLED, "assistant_model": draft, "return_dict_in_generate": True, "output_scores": True,
                 "output_logits": True}  # fmt: skip
    torch.manual_seed(0)
    plain = target.generate(prompt(), **arguments)
    torch.manual_seed(0)
    with specview.capture(tmp_path / "t.db"):
        captured = target.generate(prompt(), **arguments)
    for name in ("scores", "logits"):
        pairs = zip(getattr(plain, name), getattr(captured, name), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert "crop" not in vars(captured.cache)


class Broken(StoppingCriteria):
    """Raises when the output has grown to a length."""

    def __init__(self, length, error):
        self.length, self.error = length, error

    def __call__(self, input_ids, scores, **kwargs):
        if input_ids.shape[1] >= self.length:
            raise self.error
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("no more"), "failed", "failed"),
        (KeyboardInterrupt(), "interrupted", "interrupted"),
        (SystemExit(3), "failed", "failed"),
    ],
    ids=["error", "interrupt", "exit"],
)
def test_an_exception_passes_through_and_everything_is_put_back(tmp_path, error, status, reason):
    target, draft = pair()
    before = places()
    arguments = {**SAMPLED, "assistant_model": draft, "stopping_criteria": StoppingCriteriaList([Broken(15, error)])}
    with pytest.raises(type(error)) as raised, specview.capture(tmp_path / "t.db"):
        target.generate(prompt(), **arguments)
    assert raised.value is error
    assert places() == before
    assert hooks_on(target, draft) == [0, 0]
    ((run, (sequence,)),) = runs(tmp_path / "t.db")
    assert run.status == status
    assert sequence.stop_reason == reason
    with TraceReader(tmp_path / "t.db") as reader:
        assert reader.token_count(sequence.id) >= 15  # the round before the error is kept
    with specview.capture(tmp_path / "again.db"):
        target.generate(prompt(), **SAMPLED, assistant_model=draft)


def test_an_error_that_the_block_handles_ends_only_its_sequence(tmp_path):
    target, draft = pair()
    criteria = StoppingCriteriaList([Broken(15, ValueError("no more"))])
    before = places()
    with specview.capture(tmp_path / "t.db"):
        assert all(now is not then for now, then in zip(places(), before, strict=True))
        with pytest.raises(ValueError, match="no more"):
            target.generate(prompt(), **SAMPLED, assistant_model=draft, stopping_criteria=criteria)
        target.generate(prompt(), **SAMPLED, assistant_model=draft)
    ((run, sequences),) = runs(tmp_path / "t.db")
    assert run.status == "finished"
    first, second = (s.stop_reason for s in sequences)
    assert first == "failed"
    assert second in ("length", "eos")


def test_a_draft_that_breaks_loses_no_round_before_it(tmp_path, monkeypatch):
    target, draft = pair()
    forward, calls = draft.forward, []

    def broken(*args, **kwargs):
        calls.append(1)
        if len(calls) > 9:  # in the middle of the third proposal
            raise FloatingPointError("the draft broke")
        return forward(*args, **kwargs)

    monkeypatch.setattr(draft, "forward", broken)
    with specview.capture(tmp_path / "t.db"), pytest.raises(FloatingPointError):
        target.generate(prompt(), **SAMPLED, assistant_model=draft)
    ((_, (sequence,)),) = runs(tmp_path / "t.db")
    assert sequence.stop_reason == "failed"
    with TraceReader(tmp_path / "t.db") as reader:
        rounds = reader.rounds(sequence.id, 0, reader.round_count(sequence.id))
    assert [r.proposed for r in rounds] == [4, 4]
    assert hooks_on(target, draft) == [0, 0]


def test_nothing_stays_hung_onto_models_or_generators(tmp_path):
    target, draft = pair()
    with specview.capture(tmp_path / "t.db"):
        target.generate(prompt(), **SAMPLED, assistant_model=draft)
        assert hooks_on(target, draft) == [0, 0]
    assert "forward" not in vars(target)


def test_a_wrapper_that_somebody_else_put_around_ours_stays(tmp_path):
    original = utils._speculative_sampling
    target, draft = pair()
    with specview.capture(tmp_path / "t.db"):
        target.generate(prompt(), **SAMPLED, assistant_model=draft)
        ours = utils._speculative_sampling

        def theirs(*args, **kwargs):
            return ours(*args, **kwargs)

        utils._speculative_sampling = theirs
    try:
        assert utils._speculative_sampling is theirs
        target.generate(prompt(), **SAMPLED, assistant_model=draft)  # ours is idle inside it
    finally:
        utils._speculative_sampling = original


def test_two_threads_in_one_capture_are_both_right(tmp_path):
    target, draft = pair()
    other_target, other_draft = tiny(7), tiny(7, layers=1)
    outputs = {}
    start = threading.Barrier(4)

    def work(name, model, assistant, length):
        start.wait()
        arguments = {"max_new_tokens": 40, "do_sample": False, "assistant_model": assistant, "eos_token_id": None}
        outputs[name] = model.generate(prompt(length), **arguments)[0].tolist()

    with specview.capture(tmp_path / "t.db"):
        threads = [
            threading.Thread(target=work, args=(name, *arguments))
            for name, arguments in enumerate(
                [(target, draft, 6), (target, draft, 8), (other_target, other_draft, 7), (target, draft, 11)]
            )
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert hooks_on(target, draft, other_target, other_draft) == [0, 0, 0, 0]
    recorded = {}
    with TraceReader(tmp_path / "t.db") as reader:
        for run in reader.runs():
            for s in reader.sequences(run.id):
                rounds = reader.rounds(s.id, 0, reader.round_count(s.id))
                assert all(r.target_calls == 1 for r in rounds)
                assert all(r.draft_calls == r.proposed for r in rounds)
                tokens = [t.token for t in reader.tokens(s.id, 0, reader.token_count(s.id))]
                recorded[s.prompt_tokens] = tokens
    assert recorded == {6: outputs[0], 8: outputs[1], 7: outputs[2], 11: outputs[3]}


def test_a_second_capture_is_refused_and_the_first_goes_on(tmp_path):
    target, draft = pair()
    with specview.capture(tmp_path / "t.db"):
        with pytest.raises(CaptureError, match="already running"), specview.capture(tmp_path / "second.db"):
            pass
        target.generate(prompt(), **SAMPLED, assistant_model=draft)
    assert not (tmp_path / "second.db").exists()
    assert len(runs(tmp_path / "t.db")) == 1


def test_generate_inside_generate_becomes_a_sequence_of_its_own(tmp_path):
    target, draft = pair()
    inner = {"max_new_tokens": 30, "do_sample": True, "temperature": 0.8, "top_k": 30, "assistant_model": draft}
    lengths = []

    class Nested(StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            if not lengths:
                lengths.append(0)
                lengths[0] = target.generate(prompt(5), **inner).shape[1]
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    with specview.capture(tmp_path / "t.db"):
        outer = target.generate(prompt(), **inner, stopping_criteria=StoppingCriteriaList([Nested()])).shape[1]
    ((run, sequences),) = runs(tmp_path / "t.db")
    assert run.status == "finished"
    with TraceReader(tmp_path / "t.db") as reader:
        assert [reader.token_count(s.id) for s in sequences] == [outer, lengths[0]]
        for s in sequences:
            assert all(r.target_calls == 1 for r in reader.rounds(s.id, 0, reader.round_count(s.id)))


def test_plain_generation_is_not_recorded_and_a_block_without_any_says_so(tmp_path):
    target, _ = pair()
    with pytest.warns(CaptureWarning, match="no assisted generation ran"), specview.capture(tmp_path / "t.db"):
        target.generate(prompt(), max_new_tokens=5)
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_refused_unless_told_otherwise(tmp_path):
    target, draft = pair()
    path = tmp_path / "t.db"
    for expected, options in ((1, {}), (2, {"append": True}), (1, {"force": True})):
        with specview.capture(path, **options):
            target.generate(prompt(), **SAMPLED, assistant_model=draft)
        assert len(runs(path)) == expected
    with pytest.raises(TraceError, match="already exists"), specview.capture(path):
        pass
    assert len(runs(path)) == 1


def test_an_error_of_the_recording_never_reaches_generate(tmp_path, monkeypatch):
    target, draft = pair()
    torch.manual_seed(0)
    plain = target.generate(prompt(), **SAMPLED, assistant_model=draft)

    def broken(rounds, context, scratch):
        raise ZeroDivisionError("the instrument is broken")

    monkeypatch.setattr(session, "to_rounds", broken)
    captured = []

    def block():
        with specview.capture(tmp_path / "t.db"):
            for _ in range(2):
                torch.manual_seed(0)
                captured.append(target.generate(prompt(), **SAMPLED, assistant_model=draft))

    with pytest.raises(CaptureError, match="stopped early: ZeroDivisionError: the instrument is broken"):
        block()
    assert [one.tolist() for one in captured] == [plain.tolist()] * 2
    assert hooks_on(target, draft) == [0, 0]
    ((run, _),) = runs(tmp_path / "t.db")
    assert run.status == "failed"
    assert "the instrument is broken" in run.message


def test_an_error_of_the_recording_is_a_note_on_the_users_own(tmp_path, monkeypatch):
    target, draft = pair()
    monkeypatch.setattr(session, "to_rounds", lambda rounds, context, scratch: 1 / 0)

    def block():
        with specview.capture(tmp_path / "t.db"):
            target.generate(prompt(), **SAMPLED, assistant_model=draft)
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        block()
    assert any("stopped early: ZeroDivisionError" in note for note in raised.value.__notes__)


def test_a_call_still_running_when_the_block_ends_is_marked_interrupted(tmp_path):
    target, draft = pair()
    inside, leave = threading.Event(), threading.Event()

    class Wait(StoppingCriteria):
        def __call__(self, input_ids, scores, **kwargs):
            inside.set()
            assert leave.wait(60)
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    errors = []

    def work():
        try:
            criteria = StoppingCriteriaList([Wait()])
            target.generate(prompt(), **SAMPLED, assistant_model=draft, stopping_criteria=criteria)
        except Exception as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    thread = threading.Thread(target=work)
    with specview.capture(tmp_path / "t.db"):
        thread.start()
        assert inside.wait(60)
    leave.set()
    thread.join()
    assert not errors
    assert hooks_on(target, draft) == [0, 0]
    ((run, (sequence,)),) = runs(tmp_path / "t.db")
    assert (run.status, sequence.stop_reason) == ("finished", "interrupted")


def test_the_number_of_threads_of_torch_is_left_alone(tmp_path):
    target, draft = pair()
    before = torch.get_num_threads()
    seen = []
    with specview.capture(tmp_path / "t.db"):
        target.generate(prompt(), **SAMPLED, assistant_model=draft)
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
    assert [torch.get_num_threads(), *seen] == [before, before]


def test_a_batch_is_refused_by_transformers_as_ever(tmp_path):
    target, draft = pair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        with pytest.raises(ValueError, match="batch_size = 1"), specview.capture(tmp_path / "t.db"):
            target.generate(prompt().repeat(2, 1), **SAMPLED, assistant_model=draft)
    assert not list(tmp_path.iterdir())


def test_importing_specview_imports_no_torch():
    code = "import specview, sys; print('torch' in sys.modules, callable(specview.capture), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_an_unknown_attribute_is_still_an_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = specview.nothing
