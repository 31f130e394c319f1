#!/usr/bin/env bash
# Proves the GPU path on this machine and writes one report.
#
#   tests/gpu/prove.sh --device rehearsal|cuda [--build build] [--out REPORT.md]
#
# rehearsal   the device of tests/rehearsal, which every machine has: what is copied,
#             waited for and launched, the order of streams, graphs, whole runs beside
#             the CPU's, and which backend enumerated GPUs get. Nothing of it is a
#             measure of speed.
# cuda        the GPUs of this machine, by the programs of BUILD or else those on PATH:
#             its kernels beside Torch and the formulas (where BUILD has their tests), whole
#             runs beside the CPU's, NCCL with one rank and with all GPUs, what is
#             learned and how fast; Atari's games too where the emulator is installed. In
#             30 minutes at most; it needs Python alone.
#
# Exits with 1 if anything fails, and with 2 if it cannot begin.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
device='' build=$root/build out=''
unset GTEST_FILTER  # every test of each program
while (($# > 0)); do
  case $1 in
    --device) device=${2-} ;;
    --build) build=${2-} ;;
    --out) out=${2-} ;;
    *) echo "prove.sh: no option $1" >&2; exit 2 ;;
  esac
  shift 2 || { echo "prove.sh: $1 wants a value" >&2; exit 2; }
done
out=${out:-$build/gpu_report.md}
if [[ $device == cuda ]]; then
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
  ((gpus > 0)) || {
    echo "prove.sh: nvidia-smi lists no GPU; --device rehearsal needs none" >&2
    exit 2
  }
  flotilla=$build/bin/flotilla
  [[ -x $flotilla ]] || flotilla=$(command -v flotilla) || {
    echo "prove.sh: neither $build/bin/flotilla nor a flotilla on PATH" >&2
    exit 2
  }
  more=()
  if compgen -G "$build/tests/learner/cuda/cuda_*_test" >/dev/null; then
    more+=(--kernels "$build/tests/learner/cuda")
  fi
  [[ $("$flotilla" envs) != *ALE/Breakout-v5* ]] || more+=(--atari)
  exec python3 "$root/tests/gpu/prove_runs.py" --device cuda --devices "$gpus" \
    --flotilla "$flotilla" "${more[@]}" --out "$out"
fi
if [[ $device != rehearsal ]]; then
  echo "prove.sh: --device is '$device', want rehearsal or cuda" >&2
  exit 2
fi

# What is proved, and the test programs that prove it.
sections=(
  'The rehearsal device itself|rehearsal_test'
  'Missing events and moved buffers are named|order_and_graph_test'
  'Transfers, and the order of two threads|transfer_test stream_test'
  'Kernels of our own beside Torch and the formulas|cuda_adam_test cuda_frames_test cuda_mlp_policy_test cuda_ppo_loss_test cuda_ring_test cuda_sampling_test cuda_sum_tree_test cuda_traces_test mlp_on_device_test'
  'What a decision, a minibatch and an update ask for|transfer_budget_test resident_rollout_test resident_replay_test'
  'Gradient steps that the host does not wait for|device_step_test minibatch_graphs_test'
  'Which backend and device each rank gets|backend_test device_table_test'
  'NCCL over its fake|nccl_collective_test'
  'Whole runs beside the same on the CPU|rehearsed_run_test'
)

# Other tests make folders there meanwhile and remove them, which find calls an error.
tests=()
declare -A program
while read -r found; do
  program[${found##*/}]=$found
done < <(find "$build/bin" "$build/tests" -type f -perm -u+x -name '*_test' 2>/dev/null)
for section in "${sections[@]}"; do
  for name in ${section#*|}; do
    [[ -n ${program[$name]-} ]] || {
      echo "prove.sh: $name is not built: ninja -C $build $name" >&2
      exit 2
    }
    tests+=("$name")
  done
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FLOTILLA_SOURCE=$root FLOTILLA_BIN=$build/bin FLOTILLA_DEPS=${FLOTILLA_DEPS:-$root/.deps}
export GLOG_minloglevel=2
failed=0
for name in "${tests[@]}"; do
  begin=$(date +%s)
  code=0
  "${program[$name]}" >"$work/$name" 2>"$work/$name.err" || code=$?
  echo "$code $(($(date +%s) - begin))" >"$work/$name.code"
  ((code == 0)) || failed=1
  grep -qE '^\[==========\] [1-9][0-9]* test.* ran\.' "$work/$name" || failed=1
done

{
  echo "# The GPU path on the device \"$device\""
  echo
  echo "$(date -u '+%Y-%m-%d %H:%M UTC'), commit $(git -C "$root" rev-parse --short HEAD)," \
    "$(uname -m), $(nproc) cores, $(nvidia-smi -L 2>/dev/null | wc -l) GPUs."
  ((failed == 0)) && echo "All passed." || echo "**Something failed.**"
  for section in "${sections[@]}"; do
    printf '\n## %s\n\n' "${section%%|*}"
    for name in ${section#*|}; do
      read -r code seconds <"$work/$name.code"
      printf -- '- `%s`: exit %s after %s s, %s\n' "$name" "$code" "$seconds" \
        "$(grep -E '^\[  (PASSED|FAILED)  \] [0-9]+ test' "$work/$name" | tr -d '[]' |
          xargs | sed 's/^$/did not end/')"
      grep -E '^\[  FAILED  \] [A-Za-z]+' "$work/$name" | sort -u | sed 's/^/  /' || true
    done
  done
  printf '\n## What whole runs asked for\n\n```\n'
  grep -vE '^(\[|Note:|Running|$)' "$work/rehearsed_run_test" || true
  printf '```\n'
} >"$out"
echo "prove.sh: $out"
if ((failed != 0)); then
  grep -E '^\[  FAILED' "$work"/*_test >&2 || true
  exit 1
fi
