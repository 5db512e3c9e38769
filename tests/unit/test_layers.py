"""The arrows of the architecture: engine → trace → views, and what each layer may not import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = {"torch", "transformers", "safetensors", "gguf", "numpy"}
VIEWS = ["check", "stats", "export", "list_runs"]


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in `sys.modules` after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys; print('\\n'.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def imports_of(package: str) -> dict[Path, set[str]]:
    """Every module named by an import statement, at any depth of the code, per file."""
    found: dict[Path, set[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
        found[path.relative_to(ROOT)] = names
    return found


def test_the_vocabulary_needs_only_the_standard_library():
    loaded = loaded_after("import engine.round, engine.errors")
    assert not loaded & (HEAVY | {"specview", "click", "textual", "rich", "sqlite_utils"})


@pytest.mark.parametrize("command", VIEWS)
def test_views_on_the_command_line_load_neither_torch_nor_textual(command):
    assert not loaded_after(f"import specview.cli.{command}") & (HEAVY | {"textual"})


@pytest.mark.parametrize(
    "statement", ["import specview.cli.replay, specview.tui.app", "import specview.trace.reader, specview.contract"]
)
def test_a_viewer_loads_no_torch(statement):
    assert not loaded_after(statement) & {"torch", "transformers"}


def test_help_loads_nothing_heavy():
    loaded = loaded_after("import specview.cli as cli; ctx = cli.click.Context(cli.group); cli.group.get_help(ctx)")
    assert not loaded & (HEAVY | {"textual", "rich", "sqlite_utils"})


def test_the_engine_imports_nothing_of_specview():
    offenders = {
        path for path, names in imports_of("engine").items() if any(n.split(".")[0] == "specview" for n in names)
    }
    assert not offenders


def test_only_those_who_run_or_watch_models_import_what_needs_torch():
    light = {"engine", "engine.round", "engine.errors"}
    allowed = {"specview/recording", "specview/capturing", "specview/vllm_plugin", "specview/cli"}
    offenders = {
        (str(path), name)
        for path, names in imports_of("specview").items()
        for name in names
        if name.split(".")[0] in {"engine", "torch", "transformers"}
        and name not in light
        and not any(str(path.as_posix()).startswith(folder) for folder in allowed)
    }
    assert not offenders


def test_export_and_checks_import_no_textual():
    files = {p: n for p, n in imports_of("specview").items() if "tui" not in p.parts}
    offenders = {
        str(path)
        for path, names in files.items()
        if any(name.split(".")[0] == "textual" or name.startswith("specview.tui") for name in names)
        and path.name not in {"replay.py", "live.py", "compare.py", "serve.py", "tour.py"}
    }
    assert not offenders


def test_the_shadow_of_a_stranger_does_not_fall_on_us(tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('a stranger')")
    done = subprocess.run(
        [sys.executable, "-m", "specview", "record", "--gamma", "-1"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "gamma must be between 0" in done.stderr
