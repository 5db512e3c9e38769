"""What works, and what is said, where torch is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# An import hook that answers as an interpreter without the packages would.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "safetensors", "gguf"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from specview.cli import main
main(sys.argv[1:], prog_name="specview")
"""


def specview(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("no-torch") / "run.db"
    made = [sys.executable, "-m", "tests.synthetic", "--rounds", "30", "-o", out]
    subprocess.run(made, check=True, capture_output=True, cwd=ROOT)
    return out


@pytest.mark.parametrize(
    "words",
    [["replay"], ["stats"], ["check"], ["export", "--level", "rounds"], ["export", "--level", "positions"], ["list"]],
)
def test_every_view_works(trace, words, tmp_path):
    where = trace.parent if words == ["list"] else trace
    done = specview(words[0], where, *words[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


@pytest.mark.parametrize(
    "words", [["record", "-o", "new.db"], ["live", "-o", "new.db"], ["doctor"], ["distill", "-o", "new"]]
)
def test_what_needs_the_engine_says_so(words, tmp_path):
    done = specview(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("specview: running a pair needs the package t")
    assert "pip install 'specview[engine]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
