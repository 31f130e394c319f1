#!/usr/bin/env bash
# Trains on several hosts that you can reach by ssh without a password: one
# launcher a host. Flotilla has to be at the same place on all of them, and the
# run's folder on storage that they share.
#
#   deploy/ssh/launch.sh node0,node1 -- breakout_ppo --run-dir /shared/runs/first \
#     --token-file /shared/token
#
# What stands after -- goes to `flotilla train` on every host. The first host
# gets the coordinator.
#
#   -C DIR      folder to start in, there (default: this one)
#   -f PROGRAM  flotilla, seen from there (default: build/bin/flotilla)
#   -p PORT     of the coordinator (default: 29400)
#
# Ctrl-C, SIGTERM and SIGUSR1 are passed on to all hosts, which save and stop;
# they do so too when this script dies. The exit code is that of the first host,
# or of another if that is 0. SSH="ssh -p 2222" names another client.
set -euo pipefail

usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"; }
die() { printf 'launch.sh: %s\n' "$*" >&2; exit 2; }
quoted() { local word; for word in "$@"; do printf "'%s' " "${word//\'/\'\\\'\'}"; done; }

[[ ${1:-} != -h && ${1:-} != --help ]] || { usage; exit 0; }
[[ $# -gt 0 && $1 != -* ]] || { usage >&2; exit 2; }
IFS=, read -ra hosts <<<"$1"
shift
folder=$PWD program=build/bin/flotilla port=29400
while getopts C:f:p: option; do
  case $option in
    C) folder=$OPTARG ;;
    f) program=$OPTARG ;;
    p) port=$OPTARG ;;
    *) usage >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[[ $# -gt 0 ]] || die "say what to train after --, as for flotilla train"
read -ra ssh <<<"${SSH:-ssh -o BatchMode=yes -o ServerAliveInterval=15}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pids=() pipes=()

# On the host: the launcher, and beside it a reader of the signals that we send.
# The end of input means that we are gone.
# shellcheck disable=SC2016
there='exec 3<&0
"$@" </dev/null & launcher=$!
{ while read -r signal; do kill -s "$signal" "$launcher"; done; kill -s TERM "$launcher"; } <&3 >/dev/null 2>&1 &
reader=$!
wait "$launcher"
code=$?
kill "$reader" 2>/dev/null
exit "$code"'

start() {
  local rank=$1 host=$2 pipe
  local -a command=("$program" train "${@:3}" --nnodes "${#hosts[@]}"
    --node-rank "$rank" --coordinator "${hosts[0]##*@}:$port")
  mkfifo "$work/$rank"
  (
    for pipe in "${pipes[@]}"; do exec {pipe}>&-; done
    trap '' INT TERM USR1 # ssh must outlive the signals that it carries
    exec > >(exec sed -u "s/^/[$host] /")
    prefix=$! code=0
    "${ssh[@]}" "$host" "cd $(quoted "$folder")&& exec sh -c $(quoted "$there" flotilla "${command[@]}")" \
      <"$work/$rank" 2>&1 || code=$?
    exec >&- # and its last words are written, unless a connection that ssh keeps for later holds it open
    for _ in {1..50}; do
      kill -0 "$prefix" 2>/dev/null || break
      sleep 0.1
    done
    exit "$code"
  ) &
  pids+=($!)
  exec {pipe}>"$work/$rank"
  pipes+=("$pipe")
}

# shellcheck disable=SC2329
pass_on() { local pipe; for pipe in "${pipes[@]}"; do echo "$1" >&"$pipe" || true; done; }
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM
trap 'pass_on USR1' USR1
trap '' PIPE

for rank in "${!hosts[@]}"; do start "$rank" "${hosts[rank]}" "$@"; done

result=0
for pid in "${pids[@]}"; do
  code=0
  # A signal that arrives ends the wait, not the host.
  while wait "$pid" || code=$?; kill -0 "$pid" 2>/dev/null; do code=0; done
  ((result != 0)) || result=$code
done
exit "$result"
