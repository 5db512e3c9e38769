"""`specview doctor` on folders of tiny models."""

import json


def test_a_pair_that_fits(specview, tiny_pair):
    result = specview("doctor", "--draft", tiny_pair.draft, "--target", tiny_pair.target)
    assert result.code == 0
    assert "A run would start." in result.out
    assert "260 token ids" in result.out


def test_a_pair_that_does_not_fit_says_why(specview, tiny_pair):
    result = specview("doctor", "--draft", tiny_pair.stranger, "--target", tiny_pair.target, "--json")
    assert result.code == 1
    found = json.loads(result.out)
    assert found["target"]["layers"] == 3
    (problem,) = found["problems"]
    assert "different tokenizers" in problem
    assert str(tiny_pair.stranger) in problem


def test_what_is_missing_is_told_and_not_raised(specview, tmp_path):
    result = specview("doctor", "--target", tmp_path / "nowhere", "--device", "tpu")
    assert result.code == 1
    assert "nowhere" in result.out
    assert "tpu" in result.out
