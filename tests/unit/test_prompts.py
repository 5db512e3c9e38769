from pathlib import Path

import pytest

from specview.recording.prompts import PromptFileError, read_prompts


def prompts_in(tmp_path: Path, content: str | bytes) -> list:
    path = tmp_path / "prompts"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_prompts(path))


def test_plain_text_is_one_prompt_without_its_last_newline(tmp_path):
    assert [p.text for p in prompts_in(tmp_path, "Why is\nthe sky blue?\n")] == ["Why is\nthe sky blue?"]


def test_text_that_only_mentions_json_later_stays_text(tmp_path):
    assert [p.text for p in prompts_in(tmp_path, 'Explain:\n{"a": 1}\n')] == ['Explain:\n{"a": 1}']


def test_json_lines_are_many_prompts(tmp_path):
    lines = '\n{"prompt": "a", "id": 7}\n\n{"messages": [{"role": "user", "content": "b"}]}\n'
    first, second = prompts_in(tmp_path, lines)
    assert (first.text, first.request_id) == ("a", "7")
    assert (second.text, second.messages) == (None, ({"role": "user", "content": "b"},))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no prompt"),
        ("  \n\n", "holds no prompt"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ('{"prompt": ""}', "needs a non-empty `prompt`"),
        ('{"prompt": 3}', "needs a non-empty `prompt`"),
        ('{"messages": [{"role": "user"}]}', "role and content"),
        ('{"prompt": "a"}\n[1]\n', "line 2 is not a JSON object"),
        ('{"prompt": "a"}\nhello\n', "line 2 is not valid JSON"),
        ("{" + "[" * 100_000, "not valid JSON"),
    ],
)
def test_what_cannot_be_read_says_where(tmp_path, content, complaint):
    with pytest.raises(PromptFileError, match=complaint):
        prompts_in(tmp_path, content)


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert [p.text for p in prompts_in(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\n{"prompt": "b"}\n')] == ["a", "b"]


def test_a_folder_is_no_prompt_file(tmp_path):
    with pytest.raises(PromptFileError, match="cannot read the prompt file"):
        list(read_prompts(tmp_path))


def test_stdin_gives_each_line_as_it_arrives(monkeypatch, tmp_path):
    import os

    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as stdin, os.fdopen(write_end, "w") as feed:
        monkeypatch.setattr("sys.stdin", stdin)
        prompts = read_prompts(Path("-"))
        feed.write('{"prompt": "first"}\n')
        feed.flush()
        assert next(prompts).text == "first"  # the pipe is still open: nothing waited for its end
        feed.write('{"prompt": "second"}\n')
        feed.close()
        assert [p.text for p in prompts] == ["second"]
