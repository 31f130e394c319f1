#!/usr/bin/env bash
# What `flotilla install atari` runs: builds libflotilla_atari.so, with its ROMs, into
# FOLDER, which appears whole or not at all.
#
#   install.sh FOLDER
set -euo pipefail
out=${1:?install.sh: name a folder}
here=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
if ! "$here/emulator.sh" "$work/ale" >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  exit 1
fi
mkdir "$work/new"
c++ -std=c++20 -O3 -DNDEBUG -ffp-contract=off -fPIC -fvisibility=hidden -shared \
  "-DFLOTILLA_ALE_ROMS=\"$out/roms\"" -I "$here/include" \
  -isystem "$work/ale/include" -isystem "$work/ale/include/ale" \
  -o "$work/new/libflotilla_atari.so" "$here/ale_library.cc" \
  "$work/ale/lib/libale.a" -lz -Wl,--exclude-libs,ALL
mv "$work/ale/roms" "$work/ale/LICENSE.md" "$work/new/"
rm -rf "$out"
mv "$work/new" "$out"
roms=("$out"/roms/*.bin)
echo "$out: the Arcade Learning Environment (GPL-2.0), ${#roms[@]} games; \`flotilla envs\` lists them"
