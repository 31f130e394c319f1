#!/usr/bin/env bash
# Formats our C++ with clang-format; `--check` only reports.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[[ ${1:-} != --check ]] || mode=(--dry-run --Werror)
find services envserver learner launcher tests \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -print0 |
  xargs -0 -P "$(nproc)" -n 20 clang-format "${mode[@]}"
