"""`make bench`: every benchmark of this folder, one after the other, or those named on the command line.

Each is a program of its own and prints a short table of ratios measured in one run. What it printed goes to `results/`
as JSON, with the machine and the versions.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).parent
LEFT_OUT = {"__init__", "__main__", "engine_gpu", "vllm_overhead"}
"""engine_gpu.py is run by gpu.sh on a machine with a GPU, vllm_overhead in vLLM's own environment."""


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in LEFT_OUT)


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - set(names())
    if unknown:
        sys.exit(f"There is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names())}.")
    for name in wanted or names():
        print(f"\n── {name} ──", flush=True)
        before = machine()
        lines = []
        with subprocess.Popen(
            [sys.executable, "-m", f"tests.benchmarks.{name}"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip())
        result = {"benchmark": name, "machine": before, "exit_code": process.returncode, "output": lines}
        (FOLDER / "results" / f"{name}.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def machine() -> dict[str, object]:
    packages = ("specview", "torch", "transformers", "textual")
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(terse=True),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main(sys.argv[1:])
