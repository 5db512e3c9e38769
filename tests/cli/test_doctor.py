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


def test_a_draft_that_is_no_model_of_its_own_is_named(specview, tiny_pair):
    assert "SmolLM2-135M-Instruct-head" in specview("doctor").out
    for words, said in (
        (["--draft", "prompt-lookup"], "prompt-lookup"),
        (["--draft", "self:0-1"], "self:0-1"),
        ([], "some layers of the target itself"),
    ):
        result = specview("doctor", "--target", tiny_pair.target, *words)
        assert result.code == 0
        (line,) = [line for line in result.out.splitlines() if line.startswith("draft")]
        assert said in line


def test_what_is_missing_is_told_and_not_raised(specview, tmp_path):
    result = specview("doctor", "--target", tmp_path / "nowhere", "--device", "tpu")
    assert result.code == 1
    assert "nowhere" in result.out
    assert "tpu" in result.out
