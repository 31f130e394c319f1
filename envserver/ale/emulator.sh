#!/usr/bin/env bash
# Builds the Arcade Learning Environment (GPL-2.0) as a C++ library, by its own build, with
# the ROMs of its source distribution.
#
#   emulator.sh FOLDER        gets lib/libale.a, include/, roms/ and LICENSE.md
#
# By GCC it is built twice: games that the first one plays say which ways are common, and
# the second is a seventh faster for it. RelWithDebInfo is its only build type without
# link-time optimization, which makes every link slow and the emulator no faster.
set -euo pipefail
version=0.12.1
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?emulator.sh: name a folder}

missing=()
command -v c++ >/dev/null || missing+=(g++)
command -v cmake >/dev/null || missing+=(cmake)
command -v ninja >/dev/null || missing+=(ninja-build)
[[ -e /usr/include/zlib.h ]] || missing+=(zlib1g-dev)
python=${FLOTILLA_PYTHON:-python3}
command -v "$python" >/dev/null && "$python" -c 'import ensurepip, venv' 2>/dev/null ||
  missing+=(python3-venv)
if ((${#missing[@]} > 0)); then
  echo "building the emulator needs ${missing[*]}; run: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" download --disable-pip-version-check --no-input --retries 10 \
  --timeout 60 --no-deps --no-binary ale-py -d "$work" "ale-py==$version"
tar -xf "$work"/ale*.tar.gz -C "$work"
source=$(dirname "$work"/ale*/CMakeLists.txt)
roms=$source/src/ale/python/roms

# build FLAGS FOLDER
build() {
  CXX=c++ cmake -S "$source" -B "$work/build" -G Ninja \
    -DBUILD_CPP_LIB=ON -DBUILD_PYTHON_LIB=OFF -DSDL_SUPPORT=OFF \
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_PROJECT_ale_INCLUDE="$here/together.cmake" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O3 -DNDEBUG $1" \
    -DCMAKE_INSTALL_PREFIX="$2"
  cmake --build "$work/build" --target install
}

learned=
if [[ $(c++ -dM -E -x c++ /dev/null) != *__clang__* ]]; then
  build -fprofile-generate "$work/first"
  c++ -std=c++17 -fprofile-generate -isystem "$work/first/include" -isystem "$work/first/include/ale" \
    -o "$work/profiled_games" "$here/profiled_games.cc" "$work/first/lib/libale.a" -lz -pthread
  "$work/profiled_games" "$roms"
  learned="-fprofile-use -fprofile-partial-training -Wno-missing-profile"
fi
build "$learned" "$out"
mkdir -p "$out/roms"
cp "$roms"/*.bin "$out/roms/"
cp "$source/LICENSE.md" "$out/"
