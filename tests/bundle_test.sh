#!/usr/bin/env bash
# Packs what <build> holds, unpacks it in an empty folder, and runs it there.
#
#   tests/bundle_test.sh BUILD
set -euo pipefail

build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "bundle_test: $*" >&2; exit 1; }

mkdir "$work/packed" "$work/unpacked"
cpack --config "$build/CPackConfig.cmake" -B "$work/packed" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "cpack failed"; }
tar -xzf "$work"/packed/flotilla-envhost-*.tar.gz -C "$work/unpacked"
cd "$work"/unpacked/flotilla-envhost-*

for program in flotilla flotilla-envserver flotilla-coordinator; do
  libraries=$(ldd "bin/$program")
  if grep -Eiq 'lib(torch|c10|cuda|nccl|ale)' <<<"$libraries"; then
    fail "$program links a library it must not: $libraries"
  fi
  if grep -q 'not found' <<<"$libraries"; then
    fail "$program lacks a library: $libraries"
  fi
  outside=$(grep '=> /' <<<"$libraries" | grep -v "=> $PWD/" |
    grep -Ev '^\s*lib(c|m|dl|rt|pthread|resolv)\.so' || true)
  [[ -z $outside ]] || fail "$program takes a library from this machine: $outside"
  # Abseil's --help exits with 1.
  env -i "bin/$program" --help >"$work/help" 2>&1 || [[ $? -eq 1 ]] ||
    { cat "$work/help" >&2; fail "$program --help failed"; }
  [[ -s $work/help ]] || fail "$program --help said nothing"
  echo "$program: $(wc -l <<<"$libraries") libraries, none of ours missing"
done
[[ -s share/flotilla/configs/cartpole_ppo.textproto ]] || fail "no configurations"
env -i bin/flotilla configs | grep -q cartpole_ppo ||
  fail "flotilla does not find the configurations that came with it"
explained=$(env -i bin/flotilla explain ppo.epochs)
for word in 'How often an update goes through its rollout' cartpole_ppo; do
  grep -q "$word" <<<"$explained" || fail "flotilla does not explain its configuration: $explained"
done
echo "$(du -h "$work"/packed/*.tar.gz | cut -f1) packed"
