"""The plugin without vLLM: what it asks of the environment, when it wraps, and that it never gets in the way."""

import logging
import os
import subprocess
import sys
import types

import pytest

from specview.errors import TraceError
from specview.vllm_plugin import files, importing, signatures
from specview.vllm_plugin.log import Switch
from specview.vllm_plugin.settings import Settings, SettingsError, from_environment


def test_nothing_is_asked_for_without_a_trace():
    assert from_environment({}) is None
    assert from_environment({"SPECVIEW_TRACE": " ", "SPECVIEW_SAMPLE": "nonsense"}) is None


def test_the_environment_sets_share_and_alternatives(tmp_path):
    found = from_environment({"SPECVIEW_TRACE": f"{tmp_path}/run.db", "SPECVIEW_SAMPLE": "0.1", "SPECVIEW_TOP": "0"})
    assert found == Settings(tmp_path / "run.db", 0.1, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SAMPLE", "1.5"), ("SAMPLE", "-0.1"), ("SAMPLE", "nan"), ("SAMPLE", "all"), ("TOP", "2.5"), ("TOP", "1000")],
)
def test_bad_values_are_refused_with_their_name_and_range(name, value):
    with pytest.raises(SettingsError, match=f"SPECVIEW_{name} must be"):
        from_environment({"SPECVIEW_TRACE": "run.db", f"SPECVIEW_{name}": value})


def test_a_share_of_the_requests_is_chosen_by_name(tmp_path):
    names = [f"request-{i}" for i in range(4000)]
    chosen = [name for name in names if Settings(tmp_path, 0.25).chosen(name)]
    assert 900 < len(chosen) < 1100
    assert chosen == [name for name in names if Settings(tmp_path, 0.25).chosen(name)]
    assert all(Settings(tmp_path, 0.5).chosen(name) for name in chosen)
    assert all(Settings(tmp_path, 1).chosen(name) for name in names)
    assert not any(Settings(tmp_path, 0).chosen(name) for name in names)


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def test_registering_without_a_trace_touches_nothing():
    code = (
        "import sys; from specview.vllm_plugin.plugin import register; before = list(sys.meta_path); register();"
        "register(); print(sys.meta_path == before)"
    )
    assert run_python(code, SPECVIEW_TRACE="") == "True\n"


def test_a_bad_environment_is_one_line_and_no_exception():
    code = "from specview.vllm_plugin.plugin import register; register()"
    told = run_python(code, SPECVIEW_TRACE="run.db", SPECVIEW_TOP="many")
    assert told == "specview: SPECVIEW_TOP must be a number, not 'many'. Nothing is recorded.\n"


def test_an_unknown_vllm_is_told_in_one_line_and_left_alone(tmp_path):
    package = tmp_path / "vllm" / "v1" / "core" / "sched"
    package.mkdir(parents=True)
    (package / "scheduler.py").write_text("class Scheduler:\n    def schedule(self, budget): return budget\n")
    code = (
        "from specview.vllm_plugin.plugin import register; register(); register();"
        "from vllm.v1.core.sched.scheduler import Scheduler; print(Scheduler().schedule(3))"
    )
    trace = tmp_path / "run.db"
    told = run_python(code, SPECVIEW_TRACE=str(trace), PYTHONPATH=str(tmp_path)).splitlines()
    assert sorted(told) == [
        "3",
        "specview: this version of vLLM is not one that it knows: vllm.v1.core.sched.scheduler.Scheduler.schedule "
        "takes (self, budget). Nothing is recorded from here on; vLLM is not affected.",
    ]
    assert not trace.exists()


def test_a_module_is_reported_once_after_its_import(tmp_path, monkeypatch):
    (tmp_path / "imported_later.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    importing.when_imported("imported_later", lambda module: seen.append(module.value))
    assert seen == []
    import imported_later

    assert seen == [1]
    assert type(imported_later.__spec__.loader) is type(os.__spec__.loader) or imported_later.__loader__ is not None
    importing.when_imported("imported_later", lambda module: seen.append(module.__name__))
    assert seen == [1, "imported_later"]


def test_what_is_missing_or_different_is_named(monkeypatch):
    module = types.ModuleType("module")
    monkeypatch.setitem(signatures.KNOWN, "module", {"Thing.work": ("self", "load")})
    assert signatures.difference(module) == "module has no Thing.work"
    module.Thing = type("Thing", (), {"work": lambda self, load, speed: None})
    assert signatures.difference(module) == "module.Thing.work takes (self, load, speed)"
    module.Thing = type("Thing", (), {"work": lambda self, load: None})
    assert signatures.difference(module) is None


def test_an_error_in_the_instrument_is_told_once_and_ends_the_recording(caplog):
    switch = Switch()
    with caplog.at_level(logging.WARNING, "vllm.specview"):
        for _ in range(3):
            with switch.guard("reading\x1b[31m"):
                raise RuntimeError("no\nsuch thing")
    assert not switch.on
    assert len(caplog.messages) == 1
    assert "RuntimeError: no such thing" in caplog.messages[0]
    assert "\x1b" not in caplog.messages[0]


def test_each_engine_core_has_a_file_of_its_own(tmp_path):
    path = tmp_path / "run.db"
    claims = [files.claim(path, rank) for rank in (0, 1, 0, 0)]
    assert [c.path.name for c in claims] == ["run.db", "run.dp1.db", "run-2.db", "run-3.db"]
    claims[0].release()
    assert files.claim(path, 0).path == path
    for one in claims[1:]:
        one.release()


def test_a_folder_full_of_engines_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "NAMES_TRIED", 2)
    claimed = files.claim(tmp_path / "run.db", 0)
    with pytest.raises(TraceError, match="choose another SPECVIEW_TRACE"):
        files.claim(tmp_path / "run.db", 0)
    claimed.release()
