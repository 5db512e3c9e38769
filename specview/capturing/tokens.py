"""What the token ids of a captured call stand for, as far as a tokenizer is at hand."""

from __future__ import annotations

from typing import Any

from engine.vocabulary import Vocabulary


def find_tokenizer(given: Any, of_call: Any, name: str | None) -> tuple[Any, str | None]:
    """(tokenizer or None, one sentence where there is none).

    Args:
        given: what the user handed to `capture`; of_call: what `generate` was given; both win over looking for one.
        name: the target's name or folder. Only local files are read, and none of their code is run.
    """
    for tokenizer in (given, of_call):
        if tokenizer is not None:
            return tokenizer, None
    hint = "give capture(…, tokenizer=…) to see text instead of token ids."
    if not name:
        return None, f"No tokenizer is known for this model; {hint}"
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True, trust_remote_code=False), None
    except Exception:  # noqa: BLE001 - transformers raises whatever the files provoke; ids are shown instead, and why
        return None, f"No tokenizer was found locally for {name}; {hint}"


def vocabulary_of(tokenizer: Any) -> Vocabulary | None:
    """The bytes of a tokenizer's ids; None without a tokenizer."""
    return None if tokenizer is None else Vocabulary(tokenizer)
