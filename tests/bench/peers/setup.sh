#!/usr/bin/env bash
# usage: setup.sh [cleanrl|sb3|puffer|sf|envpool|rejax|jax|cleanba]...     (by default all but the last two, which
# README.md explains)
# Makes one virtual environment a peer under $PEERS_DIR from registry packages, about 5 GB each with
# Torch. CleanRL is no registry package: here is what it needs to run, and CLEANRL_DIR names a
# checkout of your own.
set -euo pipefail
PEERS_DIR=${PEERS_DIR:-${TMPDIR:-/tmp}/peers}
TORCH=torch==2.11.0
# For what is written for JAX 0.4: the oldest that this Python still gets.
JAX=(jax==0.4.13 jaxlib==0.4.13 flax==0.6.11 optax==0.1.5 chex==0.1.7 'numpy<1.25' 'scipy<1.11' gym==0.23.1
  gymnasium==0.29.1 tyro 'rich<14' 'setuptools<81' packaging dm-env types-protobuf optree)
mkdir -p "$PEERS_DIR"
cd "$PEERS_DIR"

venv() { [ -x "$1/bin/python" ] || python3 -m venv "$1"; }

for peer in ${*:-cleanrl sb3 puffer sf envpool rejax}; do
  case $peer in
  cleanrl)
    venv v_cleanrl
    v_cleanrl/bin/pip install -q $TORCH 'numpy<2' gymnasium==0.29.1 gym==0.23.1 ale-py==0.10.1 \
      'opencv-python-headless<4.12' tensorboard tyro 'rich<14' tenacity 'setuptools<81' packaging dm-env \
      types-protobuf optree
    # The last EnvPool that speaks the step of the old gym, which ppo_atari_envpool.py uses.
    v_cleanrl/bin/pip install -q --no-deps envpool==0.8.4;;
  sb3)
    venv v_sb3
    v_sb3/bin/pip install -q $TORCH stable-baselines3==2.9.2 gymnasium==1.4.0;;
  puffer)
    # Its setup.py downloads what its C environments may need, and all of it, or with NO_OCEAN none; then it
    # reads a name that it never set, so the environment's Python sets that name.
    venv v_puffer
    v_puffer/bin/pip install -q 'setuptools<81' wheel 'numpy<2' Cython $TORCH
    packages=$(echo v_puffer/lib/python3*/site-packages)
    echo 'import builtins; builtins.c_extension_paths = []' >"$packages/sitecustomize.py"
    export NO_OCEAN=1
    v_puffer/bin/pip install -q --no-build-isolation pufferlib==3.0.0
    # Breakout by itself, with what the source package has of raylib and with setup.py's flags.
    rm -rf puffer_source
    v_puffer/bin/pip download -q --no-deps --no-build-isolation --no-binary :all: pufferlib==3.0.0 -d puffer_source
    tar -xzf puffer_source/pufferlib-3.0.0.tar.gz -C puffer_source --strip-components 1
    python=$(v_puffer/bin/python -c 'import numpy, sysconfig; print(sysconfig.get_paths()["include"], "-I", numpy.get_include())')
    cc -shared -fPIC -O2 -flto -fwrapv -Wl,-Bsymbolic-functions -DPLATFORM_DESKTOP -DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION \
      -I $python -I puffer_source/raylib-5.5_linux_amd64/include -I puffer_source puffer_source/pufferlib/ocean/breakout/binding.c \
      puffer_source/raylib-5.5_linux_amd64/lib/libraylib.a -lm -o "$packages/pufferlib/ocean/breakout/binding.so";;
  sf)  # Sample Factory; of Gymnasium's Atari extra only the emulator, which brings its ROMs
    venv v_sf
    v_sf/bin/pip install -q $TORCH sample-factory==2.1.1 gymnasium==0.29.1 ale-py==0.10.1 'setuptools<81';;
  envpool)  # and the ALE's own vector interface
    venv v_envpool
    v_envpool/bin/pip install -q envpool==1.2.5 gymnasium==1.4.0 ale-py==0.12.1 opencv-python-headless==5.0.0.93;;
  rejax)  # its last version does not speak gymnax 1
    venv v_rejax
    v_rejax/bin/pip install -q rejax==0.1.3 gymnax==0.0.9 jax==0.10.2;;
  jax)  # what CleanRL's JAX variants need
    venv v_jax
    v_jax/bin/pip install -q $TORCH tensorboard "${JAX[@]}"
    v_jax/bin/pip install -q --no-deps envpool==0.8.4;;
  cleanba)
    venv v_cleanba
    v_cleanba/bin/pip install -q tensorboardX "${JAX[@]}"
    v_cleanba/bin/pip install -q --no-deps envpool==0.8.4;;
  *) echo "unknown peer $peer; know cleanrl, sb3, puffer, sf, envpool, rejax, jax, cleanba" >&2; exit 2;;
  esac
  echo "ready: $peer"
done
