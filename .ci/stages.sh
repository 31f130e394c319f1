# Sourced by run and long. A stage has passed when its command ended by itself,
# in time, with exit 0. Whatever else happens (it fails, takes too long, is left
# out, or the script ends early) is a failure, and the last line says which.
#
#   plan NAME...                   the stages, in their order, all of them required
#   stage NAME SECONDS COMMAND...  runs one
#   try NAME SECONDS COMMAND...    runs what is not required: the last line says how
#                                  it ended, and that it was not
#   finish                         after the last one

planned=() passed=() tried=() finished='' current='' child=''

plan() { planned=("$@"); }

# fail MESSAGE: what the last line will say.
fail() {
  problem=$1
  exit 1
}

stage() {
  local name=$1 limit=$2 start=$SECONDS code=0
  shift 2
  [[ ${planned[${#passed[@]}]:-} == "$name" ]] || fail "$name is not the stage that comes next"
  current=$name
  echo "=== $name"
  # In the background, so that a signal to this script is not kept waiting; timeout
  # sees to it that SIGINT is not ignored there.
  timeout --kill-after=30 "$limit" "$@" &
  child=$!
  wait "$child" || code=$?
  child=
  case $code in
    0) ;;
    124 | 137) fail "$name was cut off after $((SECONDS - start)) s" ;;
    *) fail "$name failed after $((SECONDS - start)) s (exit $code)" ;;
  esac
  passed+=("$name $((SECONDS - start)) s")
  echo "=== $name passed in $((SECONDS - start)) s"
  current=
}

try() {
  local name=$1 limit=$2 start=$SECONDS code=0 how
  shift 2
  echo "=== $name (not required)"
  timeout --kill-after=30 "$limit" "$@" &
  child=$!
  wait "$child" || code=$?
  child=
  case $code in
    0) how=passed ;;
    124 | 137) how='was cut off' ;;
    *) how="failed (exit $code)" ;;
  esac
  tried+=("$name $how after $((SECONDS - start)) s")
  echo "=== ${tried[-1]} (not required)"
}

finish() {
  ((${#passed[@]} == ${#planned[@]})) || fail "not every stage ran"
  finished=1
}

join() {
  local all
  printf -v all ', %s' "$@"
  echo "${all:2}"
}

last_line() {
  local code=$? left
  [[ -z $child ]] || kill "$child" 2>/dev/null
  if [[ -n $finished && $code -eq 0 ]]; then
    echo "=== passed in $SECONDS s: $(join "${passed[@]}")$(
      ((${#tried[@]} == 0)) || echo "; not required: $(join "${tried[@]}")")"
    return
  fi
  left=("${planned[@]:${#passed[@]}}")
  [[ -z $current ]] || left=("${left[@]:1}")
  echo "=== FAILED: ${problem:-$current ended early}; passed: $(join "${passed[@]:-nothing}")$(
    ((${#left[@]} == 0)) || echo "; not run: $(join "${left[@]}")")"
  exit 1
}
trap last_line EXIT
trap 'fail "${current:-the script} was interrupted"' HUP INT TERM
