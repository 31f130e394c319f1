#!/usr/bin/env bash
# Installs what Flotilla needs, into Debian and into .deps/. Quick when all of
# it is there.
#
#   cmake/setup.sh runtime   compilers, gRPC, LibTorch, the Atari emulator
#   cmake/setup.sh test      runtime, and what the tests need
#   cmake/setup.sh cuda      runtime for building CUDA code; needs no GPU
#   cmake/setup.sh clang     runtime, and clang and its linker for the preset clang
#   cmake/setup.sh wheel     runtime, and what packs wheels
#   cmake/setup.sh site      what `make site` needs, and nothing else
#
# LibTorch comes with CUDA where a GPU is seen or FLOTILLA_CUDA=1 is set, and
# for CPUs elsewhere. FLOTILLA_ATARI=OFF leaves the emulator (GPL-2.0) out.
# FLOTILLA_DEPS=DIR puts everything but Debian's packages somewhere else: make has
# CMake look there, and by hand -DFLOTILLA_DEPS=DIR does.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
deps=$(realpath -ms "${FLOTILLA_DEPS:-$root/.deps}")  # Go takes no relative one
stamps=$deps/stamps
logs=$deps/logs

runtime_packages=(
  ca-certificates ccache cmake g++ libabsl-dev libgloo-dev libgmock-dev
  libgoogle-glog-dev libgrpc++-dev libgtest-dev libprotobuf-dev libssl-dev ninja-build
  nlohmann-json3-dev pkg-config protobuf-compiler protobuf-compiler-grpc python3-venv
  zlib1g-dev)
test_packages=(
  chromium-headless-shell clang-format git iproute2 munge openssl procps
  slurm-client slurmctld slurmd systemd)
clang_packages=(clang-14 libclang-rt-14-dev lld-14)

# Pip says of Ctrl-C that it failed, and would be tried again; what goes on beside
# it hears nothing of it.
beside=
trap '[[ -z $beside ]] || kill -- "-$beside" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '%s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# retry COMMAND...: three attempts, for whatever touches the network.
retry() {
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    sleep $((attempt * 5))
  done
  return 1
}

# step NAME KEY COMMAND...: runs COMMAND once for each KEY, output to a log. Meanwhile
# there is no stamp: COMMAND removes what the last one stands for, and may not end.
step() {
  local name=$1 key=$2 start=$SECONDS log
  shift 2
  if [[ $(cat "$stamps/$name" 2>/dev/null) == "$key" ]]; then
    say "  $name: there already"
    return
  fi
  log=$logs/$name.log
  rm -f "$stamps/$name"
  if ! "$@" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "$name failed; all of its output is in $log"
  fi
  printf '%s' "$key" >"$stamps/$name"
  say "  $name: installed in $((SECONDS - start)) s"
}

as_root() {
  if [[ $EUID -eq 0 ]]; then
    env "$@"
  else
    sudo env "$@"
  fi
}

# debian PACKAGE...: installs the ones that are missing.
debian() {
  local start=$SECONDS log=$logs/debian.log package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "  debian: there already"
    return
  fi
  [[ $EUID -eq 0 ]] || command -v sudo >/dev/null ||
    die "as root, run: apt-get install ${missing[*]}"
  if ! { retry as_root apt-get -qq update &&
    retry as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
      -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 \
      install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get could not install ${missing[*]}; all of its output is in $log"
  fi
  say "  debian: ${missing[*]} in $((SECONDS - start)) s"
}

# venv DIR PIP-ARGUMENT...: a new virtual environment in DIR. Most of what is installed is
# never imported: Python compiles what is.
venv() {
  local dir=$1
  shift
  rm -rf "$dir"
  python3 -m venv "$dir" || return
  retry "$dir/bin/pip" install --disable-pip-version-check --no-input \
    --no-cache-dir --no-compile --retries 10 --timeout 60 "$@"
}

# python_step NAME DIR REQUIREMENTS PIP-ARGUMENT...
python_step() {
  local name=$1 dir=$2 requirements=$root/cmake/requirements/$3
  shift 3
  [[ -x $deps/$dir/bin/python ]] || rm -f "$stamps/$name"
  step "$name" "$(cat "$requirements")" venv "$deps/$dir" "$@" -r "$requirements"
}

# The emulator's C++ library and ROMs.
build_ale() {
  rm -rf "$deps/ale"
  retry "$root/envserver/ale/emulator.sh" "$deps/ale"
}

# grpcurl, by the newest version that this Go can build.
install_grpcurl() {
  local minor version=v1.9.3
  minor=$(go env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
  [[ $minor -ge 21 ]] || version=v1.8.7
  GOBIN=$deps/bin retry go install \
    "github.com/fullstorydev/grpcurl/cmd/grpcurl@$version"
}

mode=${1:-runtime}
case $mode in
  runtime | test | cuda | clang | wheel | site) ;;
  *) die "'$mode' is not one of runtime, test, cuda, clang, wheel, site" ;;
esac
mkdir -p "$stamps" "$logs"
say "Flotilla set-up ($mode) in $deps"

if [[ $mode == site ]]; then
  debian python3-venv
  python_step site sitevenv site.txt
  exit
fi

packages=("${runtime_packages[@]}")
if [[ $mode == test ]]; then
  packages+=("${test_packages[@]}")
  command -v go >/dev/null || packages+=(golang-go)
fi
[[ $mode != clang ]] || packages+=("${clang_packages[@]}")
debian "${packages[@]}"

# Downloads, which wait, and what is compiled here overlap.
downloads() {
  if [[ $mode == cuda || $("$root/cmake/preset.sh") == cuda ]]; then
    python_step libtorch-cuda cuda-venv torch_cuda.txt
  else
    python_step libtorch venv torch_cpu.txt --no-deps
  fi
  [[ $mode != test ]] || python_step testvenv testvenv test.txt
}
# In a process group of its own it can be ended whole.
set -m
downloads &
beside=$!
set +m
if [[ ${FLOTILLA_ATARI:-} != OFF ]]; then
  [[ -e $deps/ale/lib/libale.a ]] || rm -f "$stamps/ale"
  step ale "$(cat "$root"/envserver/ale/{emulator.sh,together.cmake,profiled_games.cc} | sha256sum)" build_ale
fi
if [[ $mode == test || $mode == wheel ]]; then
  python_step wheelvenv wheelvenv wheel.txt
fi
if [[ $mode == test ]]; then
  [[ $("$root/cmake/preset.sh") == cuda ]] || python_step nvcc nvcc-venv nvcc.txt --no-deps
  [[ -x $deps/bin/grpcurl ]] || rm -f "$stamps/grpcurl"
  step grpcurl 1 install_grpcurl
fi
wait "$beside"
beside=
say "  ready"
