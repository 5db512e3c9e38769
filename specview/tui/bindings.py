"""Every key of the main screen, once: the app binds them, help and the command palette list them."""

from __future__ import annotations

from textual.binding import Binding, BindingType

GROUPS = {
    "play": "Playing",
    "move": "Moving",
    "find": "Finding",
    "show": "Showing",
    "keep": "Keeping",
}
"""Group of a binding's id → its title in the help."""


def _key(group: str, keys: str, action: str, text: str) -> Binding:
    return Binding(keys, action, text, show=False, id=f"{group}.{action}")


BINDINGS: list[BindingType] = [
    _key("play", "space", "play", "play, pause; at the end: from the start"),
    _key("play", "plus,equals_sign", "faster", "faster"),
    _key("play", "minus", "slower", "slower"),
    _key("move", "right,full_stop", "step(1)", "next round"),
    _key("move", "left,comma", "step(-1)", "previous round"),
    _key("move", "shift+right", "step_phase(1)", "next phase: propose, score, accept, correct"),
    _key("move", "shift+left", "step_phase(-1)", "previous phase"),
    _key("move", "pagedown", "step(10)", "10 rounds on"),
    _key("move", "pageup", "step(-10)", "10 rounds back"),
    _key("move", "home", "first", "first round"),
    _key("move", "end", "last", "last round; follows a run that grows"),
    _key("move", "colon", "ask_goto", "go to a round"),
    # Before Textual's own: a pane that is folded away must be unfolded before it can take the focus.
    Binding(
        "tab,shift+tab",
        "next_pane",
        "next pane; j k g G move in it as in vim",
        show=False,
        id="move.next_pane",
        priority=True,
    ),
    _key("move", "r", "choose_run", "another run"),
    _key("move", "t", "choose_sequence", "another prompt"),
    _key("find", "slash", "ask_find", "find text"),
    _key("find", "n", "find(1)", "next occurrence"),
    _key("find", "N,shift+n", "find(-1)", "previous occurrence"),
    _key("find", "f", "choose_filter", "filter: stop only at rounds that match"),
    _key("find", "right_square_bracket", "match(1)", "next round that matches"),
    _key("find", "left_square_bracket", "match(-1)", "previous round that matches"),
    _key("find", "m", "bookmark", "bookmark this round, or no longer"),
    _key("show", "s", "statistics", "statistics"),
    _key("show", "c", "compare", "compare with another run"),
    _key("show", "d", "next_theme", "next theme: dark, light, contrast, colour-blind, 16 colours"),
    _key("show", "l", "toggle_log", "log of the recording process"),
    _key("show", "i", "ask_prompt", "next prompt of a live run"),
    _key("show", "question_mark", "help", "this help"),
    _key("keep", "y", "copy", "copy the round (focus on the output: the text)"),
    _key("keep", "p", "picture", "picture of the screen, as SVG"),
    _key("keep", "e", "export", "export the run as CSV"),
    _key("keep", "q", "quit", "quit"),
    Binding("ctrl+c,ctrl+q", "quit", "quit, whatever is open", show=False, id="keep.quit_now", priority=True),
]

_NAMES = {
    "full_stop": ".",
    "comma": ",",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "right": "→",
    "left": "←",
    "shift+right": "⇧→",
    "shift+left": "⇧←",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
}


def key_name(key: str) -> str:
    """How a key is written for people; spellings of the same key are empty."""
    return _NAMES.get(key, "" if key.startswith("shift+") else key)
