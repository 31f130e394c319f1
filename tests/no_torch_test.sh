#!/usr/bin/env bash
# Hosts without GPUs run these programs, and have neither Torch nor CUDA.
#
#   tests/no_torch_test.sh FOLDER-OF-PROGRAMS
set -euo pipefail

for program in flotilla flotilla-envserver flotilla-coordinator; do
  libraries=$(ldd "$1/$program")
  if grep -Ei 'lib(torch|c10|cuda|nccl)' <<<"$libraries"; then
    echo "no_torch_test: $program links it" >&2
    exit 1
  fi
done
