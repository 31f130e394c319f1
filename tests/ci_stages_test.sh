#!/usr/bin/env bash
# What .ci/stages.sh promises: nothing is passed that did not run to its end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME EXIT PATTERN: runs standard input as such a script. PATTERN is of its
# last line.
check() {
  local code=0 last
  { echo "set -euo pipefail; source '$root/.ci/stages.sh'"; cat; } >"$work/script"
  bash "$work/script" >"$work/out" 2>&1 || code=$?
  last=$(tail -n 1 "$work/out")
  if [[ $code != "$2" || ! $last =~ $3 ]]; then
    cat "$work/out" >&2
    echo "ci_stages_test: $1: exit $code, want $2; last line to match: $3" >&2
    exit 1
  fi
}

check 'all pass' 0 '^=== passed in [0-9]+ s: one [0-9]+ s, two [0-9]+ s$' <<'S'
plan one two; stage one 60 true; stage two 60 true; finish
S
check 'signals are as usual' 0 '^=== passed' <<'S'
plan one; stage one 60 python3 -c 'import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)'; finish
S
check 'one fails' 1 '^=== FAILED: two failed after [0-9]+ s \(exit 3\); passed: one [0-9]+ s; not run: three$' <<'S'
plan one two three; stage one 60 true; stage two 60 bash -c 'exit 3'; stage three 60 true; finish
S
check 'the first fails' 1 '^=== FAILED: one failed after [0-9]+ s \(exit 1\); passed: nothing; not run: two$' <<'S'
plan one two; stage one 60 false; stage two 60 true; finish
S
check 'one is cut off' 1 '^=== FAILED: one was cut off after [0-9]+ s; passed: nothing$' <<'S'
plan one; stage one 0.1 sleep 60; finish
S
check 'one that ends well when it is cut off' 1 '^=== FAILED: one was cut off' <<'S'
plan one; stage one 0.1 bash -c 'trap "exit 0" TERM; sleep 60 & wait'; finish
S
check 'the last is left out' 1 '^=== FAILED: not every stage ran; passed: one [0-9]+ s; not run: two$' <<'S'
plan one two; stage one 60 true; finish
S
check 'one in between is left out' 1 '^=== FAILED: three is not the stage that comes next; passed: one [0-9]+ s; not run: two, three$' <<'S'
plan one two three; stage one 60 true; stage three 60 true; finish
S
check 'the script ends early' 1 '^=== FAILED: .*; passed: one [0-9]+ s; not run: two$' <<'S'
plan one two; stage one 60 true; exit 0
S
check 'a command between stages fails' 1 '^=== FAILED: .*; passed: one [0-9]+ s; not run: two$' <<'S'
plan one two; stage one 60 true; false; stage two 60 true; finish
S
check 'what is not required fails' 0 '^=== passed in [0-9]+ s: one [0-9]+ s; not required: two failed \(exit 3\) after [0-9]+ s, three was cut off after [0-9]+ s$' <<'S'
plan one; stage one 60 true; try two 60 bash -c 'exit 3'; try three 0.1 sleep 60; finish
S
check 'interrupted' 1 '^=== FAILED: one was interrupted; passed: nothing; not run: two$' <<'S'
plan one two; stage one 60 bash -c "kill -TERM $$; sleep 30"; stage two 60 true; finish
S
