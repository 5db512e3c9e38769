"""Predictions: every kind of question, answered right, wrong, and again."""

import pytest

from specview.tour.questions import (
    Attempt,
    Choice,
    Estimate,
    Marks,
    Option,
    Prefix,
    Question,
    fault,
    judge,
    right_attempt,
)

OPTIONS = tuple(Option(key) for key in "abcd")
QUESTIONS: list[Question] = [
    Choice(OPTIONS, 2),
    Prefix(OPTIONS, 0),
    Prefix(OPTIONS, 4),
    Marks(OPTIONS, frozenset({0, 1})),
    Marks(OPTIONS, frozenset()),
    Estimate((1.0, 1.25, 1.5, 1.75, 2.0), 1.6),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_right_attempt_is_right_and_reveals_the_outcome(question):
    answered = right_attempt(question).answered(question)
    assert (answered.verdict, answered.revealed, answered.tries) == ("right", True, 1)


def test_exactly_one_of_all_marks_is_right():
    question = Marks(OPTIONS, frozenset({1, 3}))
    answers = [frozenset(i for i in range(4) if bits >> i & 1) for bits in range(16)]
    assert [a for a in answers if judge(question, Attempt(marked=a))] == [question.right]


def test_exactly_one_prefix_and_one_choice_is_right():
    assert [n for n in range(5) if judge(Prefix(OPTIONS, 3), Attempt(count=n))] == [3]
    assert [n for n in range(4) if judge(Choice(OPTIONS, 1), Attempt(cursor=n))] == [1]


@pytest.mark.parametrize(
    ("value", "steps"),
    [(1.6, [1, 2, 3, 4]), (3.0, [5, 6, 7, 8, 9, 10, 11]), (0.4, [0, 1]), (9.0, [15, 16]), (1.13, [0, 1, 2])],
)
def test_an_estimate_is_right_near_the_value_or_at_the_nearest_step(value, steps):
    scale = tuple(1 + 0.25 * i for i in range(17))
    question = Estimate(scale, value)
    assert [i for i in range(17) if judge(question, Attempt(step=i))] == steps


def test_an_estimate_without_a_value_is_never_right():
    question = Estimate((1.0, 2.0), None)
    assert not any(judge(question, Attempt(step=step)) for step in (0, 1))
    assert fault(question, Attempt()) == ("wait", None)


def test_a_scale_that_became_shorter_keeps_the_estimate_at_its_end():
    assert judge(Estimate((1.0, 2.0, 3.0), 3.0), Attempt(step=9))
    high = Estimate((1.0, 2.0, 3.0), 1.0)
    assert not judge(high, Attempt(step=9))
    assert fault(high, Attempt(step=9)) == ("high", None)


def test_a_wrong_answer_hides_on_costs_nothing_and_can_be_tried_again():
    question = Choice(OPTIONS, 2)
    wrong = Attempt().answered(question)
    assert (wrong.verdict, wrong.revealed) == ("wrong", False)
    moved = wrong.move(question, 1)
    assert moved.verdict is None
    right = moved.move(question, 1).answered(question)
    assert (right.verdict, right.tries) == ("right", 2)
    assert right.again() == Attempt(tries=2)


def test_moving_stops_at_both_ends():
    question = Choice(OPTIONS, 0)
    assert Attempt().move(question, -1).cursor == 0
    assert Attempt(cursor=3).move(question, 1).cursor == 3
    estimate = Estimate((1.0, 2.0), 1.0)
    assert Attempt().slide(estimate, -1).step == 0
    assert Attempt(step=1).slide(estimate, 1).step == 1


def test_a_prefix_ends_at_the_option_or_before_it():
    question = Prefix(OPTIONS, 2)
    one = Attempt(cursor=1).toggle(question)
    assert one.count == 2
    assert one.toggle(question).count == 1
    assert one.move(question, -1).toggle(question).count == 0


def test_the_fault_names_the_option_that_it_is_about():
    marks = Marks(OPTIONS, frozenset({0, 1}))
    assert fault(marks, Attempt(marked=frozenset({0}))) == ("missing", OPTIONS[1])
    assert fault(marks, Attempt(marked=frozenset({0, 1, 3}))) == ("no.d", OPTIONS[3])
    assert fault(Prefix(OPTIONS, 2), Attempt(count=1)) == ("short", OPTIONS[1])
    assert fault(Prefix(OPTIONS, 2), Attempt(count=4)) == ("long", OPTIONS[2])
    assert fault(Choice(OPTIONS, 2), Attempt(cursor=1)) == ("no.b", OPTIONS[1])
    estimate = Estimate((1.0, 2.0, 3.0), 2.0)
    assert [fault(estimate, Attempt(step=s))[0] for s in (0, 2)] == ["low", "high"]
