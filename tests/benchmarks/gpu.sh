#!/usr/bin/env bash
# The whole GPU check in a few minutes: the engine's tests on the device machine, then times with random weights.
# Usage: tests/benchmarks/gpu.sh [OUTPUT.json]
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"
output="${1:-tests/benchmarks/results/gpu.json}"
mkdir -p "$(dirname "$output")"
"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "gpu.sh: PyTorch sees no CUDA device here.")'
"$python" -m pytest -q -x tests/unit/test_engine_verify.py tests/unit/test_engine_rows.py tests/unit/test_engine_sampling.py \
    tests/unit/test_engine_graphs.py
timeout 240 "$python" -m tests.benchmarks.engine_gpu --size small --size 1b --size 8b --repeats 5 -o "$output"
