#!/usr/bin/env bash
# Packs the wheels of a build that has its programs. Of those that are to run elsewhere
# it checks that they can.
#
#   cmake/wheel/pack.sh BUILD [FOLDER]    into FOLDER, else BUILD/wheels
set -euo pipefail
build=${1:?pack.sh: name a build folder}
wheels=${2:-$build/wheels}
here=$(cd "$(dirname "$0")" && pwd)
# Its scripts name the folder that it was made in; where it is now, its modules are.
python=${FLOTILLA_DEPS:-$here/../../.deps}/wheelvenv/bin/python
"$python" -m wheel version >/dev/null 2>&1 || {
  echo "pack.sh: there is no wheel for $python; run cmake/setup.sh wheel" >&2
  exit 1
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$wheels"
rm -f "$wheels"/flotilla*.whl
for about in "$build"/wheel/*/; do
  name=$(basename "$about")
  cmake --install "$build" --component "wheel-$name" --strip --prefix "$stage/$name" >/dev/null
  "$python" -m wheel pack --dest-dir "$wheels" "$stage/$name" >/dev/null
done
if compgen -G "$wheels/*-manylinux_*.whl" >/dev/null; then
  python3 "$here/check.py" --build "$build" "$wheels"/*.whl
fi
