"""Every key of the main screen, once: the app binds them, help and the palette list them."""

from __future__ import annotations

from textual.binding import Binding, BindingType


def _key(keys: str, action: str, text: str, group: str) -> Binding:
    return Binding(keys, action, text, show=False, id=f"{group}.{action}", priority=False)


BINDINGS: list[BindingType] = [
    _key("space", "play", "play, pause; at the end: from the start", "play"),
    _key("plus,equals_sign", "faster", "faster", "play"),
    _key("minus", "slower", "slower", "play"),
    _key("right,full_stop", "step(1)", "next round", "move"),
    _key("left,comma", "step(-1)", "previous round", "move"),
    _key("shift+right", "step_phase(1)", "next phase: propose, score, accept, correct", "move"),
    _key("shift+left", "step_phase(-1)", "previous phase", "move"),
    _key("pagedown", "step(10)", "10 rounds on", "move"),
    _key("pageup", "step(-10)", "10 rounds back", "move"),
    _key("home", "first", "first round", "move"),
    _key("end", "last", "last round; follows a run that grows", "move"),
    _key("l", "toggle_log", "the recording process's log", "show"),
    _key("q,ctrl+c,ctrl+q", "quit", "quit", "show"),
]
