#!/bin/sh
# Development build: puts _native.so beside src/tensormill/backends/cpu. Usage: csrc/build.sh [python]
set -e
cd "$(dirname "$0")/.."
python=${1:-${PYTHON:-python3}}
PATH="$(dirname "$(command -v "$python")"):$PATH"
cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE="$(command -v "$python")" -DTM_INPLACE=ON -DTM_EMULATE=ON >/dev/null
cmake --build build/dev
