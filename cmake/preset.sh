#!/usr/bin/env bash
# Prints the preset that suits this machine: cuda where a GPU is seen, else cpu.
# FLOTILLA_CUDA=1 or 0 decides instead. cmake/setup.sh installs to match.
case ${FLOTILLA_CUDA:-} in
  1) echo cuda ;;
  0) echo cpu ;;
  *) if nvidia-smi -L >/dev/null 2>&1; then echo cuda; else echo cpu; fi ;;
esac
