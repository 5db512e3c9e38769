"""The errors that a user can cause and mend. Each message is one sentence that says what to do next."""


class EngineError(Exception):
    """The engine cannot do what was asked; `str(error)` is one sentence fit to show to the user."""


class PairError(EngineError):
    """A model is missing, or the draft and the target cannot work together."""


class PromptError(EngineError):
    """A prompt is empty, or does not fit into the models' context."""


class NumericalError(EngineError):
    """A model produced logits that are no distribution (NaN, or nothing but −inf)."""
