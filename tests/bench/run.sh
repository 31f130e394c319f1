#!/usr/bin/env bash
# usage: run.sh [--quick] [--save] [--rounds N] [--memory-seconds S] [--cores N] [GROUP...]
#   groups: cartpole fast envservice atari breakout dqn pendulum native gymnasium scaling coordinator memory memory_atari
#     kernels watched watched_atari (all by default)
#
# Our speed beside our peers': each comparison takes turns, ours and theirs, in one run, with the
# same work on the same cores, and prints the medians as Markdown. Wants the machine for itself.
#   --quick  about 3 minutes: one round, short runs, fewer peers; a smoke test, not a measurement
#   --save   also writes tests/bench/results/<date>-<cpu>[-<groups>].md: of seven rounds at least, and only if
#            nobody else used the cores; a turn that was disturbed is taken again, ten times at most
# FLOTILLA_BIN: our programs (build/bin). PEERS_DIR: what peers/setup.sh made. CLEANRL_DIR: a CleanRL
# checkout of yours. What is not installed is named, and left out.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(dirname "${FLOTILLA_BIN:-$here/../../build/bin}")
if [ -z "${FLOTILLA_BENCH_BIN:-}" ] && [ -f "$build/CMakeCache.txt" ]; then
  cmake --build "$build" --target flotilla_env_service_bench flotilla_mlp_kernels_bench \
    flotilla_machine_probe >&2
fi
exec python3 "$here/main.py" "$@"
