#include <cstdio>

#include "launcher/commands/command.h"

namespace flotilla {
namespace {

// Each asks the program that is being typed, and shows what it answers; see
// services/base/completion.h.

constexpr char kBash[] =
    R"(# bash completion of flotilla. For this shell: source <(flotilla completion bash)
_flotilla() {
  local line=${COMP_LINE:0:COMP_POINT} program word="" begun="" open="" start=0 inside=0 c i
  local -a words=() answer
  # Words as the shell takes them. Of "--set=a", it completes "a" alone, from start on, of
  # "a@b" "@b", and in quotes that are open what is inside them.
  for ((i = 0; i < ${#line}; ++i)); do
    c=${line:i:1}
    if [[ $c == '\' && $open != "'" ]]; then
      ((++i))
      c=${line:i:1}
      [[ $open == '"' && $c != [\"\$\`\\] ]] && c="\\$c"
      word+=$c begun=1
    elif [[ -n $open ]]; then
      if [[ $c == "$open" ]]; then open=""; else word+=$c; fi
    elif [[ $c == [\"\'] ]]; then
      open=$c inside=${#word} begun=1
    elif [[ $c == [[:space:]] ]]; then
      [[ -n $begun ]] && words+=("$word")
      word="" begun="" start=0
    else
      word+=$c begun=1
      [[ $c == [=:] && $COMP_WORDBREAKS == *"$c"* ]] && start=${#word}
      [[ $c == @ && $COMP_WORDBREAKS == *@* ]] && start=$((${#word} - 1))
    fi
  done
  words+=("$word")
  [[ -n $open ]] && start=$inside
  program=${words[0]/#\~/$HOME}
  mapfile -t answer < <("$program" __complete "${words[@]:1}" 2>/dev/null)
  COMPREPLY=()
  ((${#answer[@]})) || return 0
  local kind=${answer[-1]} candidate typed
  unset 'answer[-1]'
  for candidate in "${answer[@]}"; do
    candidate=${candidate%%$'\t'*}
    candidate=${candidate:start}
    # It quotes paths itself, and no words.
    [[ $kind == :words && -z $open && $candidate == *[![:alnum:]_%+,./:=@-]* ]] &&
      printf -v candidate %q "$candidate"
    COMPREPLY+=("$candidate")
  done
  if [[ $kind != :words ]]; then
    compopt -o filenames 2>/dev/null
    typed=$word
    [[ $word == -*=* ]] && typed=${word#*=}
    local paths=-f
    [[ $kind == :folders ]] && paths=-d
    while IFS= read -r candidate; do
      candidate=${word%"$typed"}$candidate
      COMPREPLY+=("${candidate:start}")
    done < <(compgen "$paths" -- "$typed")
  fi
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -F _flotilla flotilla
)";

constexpr char kZsh[] = R"(#compdef flotilla
# zsh completion of flotilla. For this shell, after compinit: source <(flotilla completion zsh)
_flotilla() {
  local program=${(Q)words[1]} line text about kind
  local -a answer whole begun
  program=${program/#\~/$HOME}
  answer=("${(@f)$("$program" __complete "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  kind=${answer[-1]}
  for line in "${(@)answer[1,-2]}"; do
    text=${line%%$'\t'*}
    about=""
    [[ $line == *$'\t'* ]] && about=${line#*$'\t'}
    text=${text//:/\\:}${about:+:$about}
    if [[ ${line%%$'\t'*} == *[=./] ]]; then begun+=("$text"); else whole+=("$text"); fi
  done
  (( $#whole )) && _describe flotilla whole
  (( $#begun )) && _describe flotilla begun -S ''
  [[ $kind == :words ]] && return
  [[ $PREFIX == -*=* ]] && compset -P '*='
  if [[ $kind == :folders ]]; then _files -/; elif [[ $kind == :files ]]; then _files; fi
}
if [[ $funcstack[1] == _flotilla ]]; then _flotilla "$@"; else compdef _flotilla flotilla; fi
)";

constexpr char kFish[] =
    R"(# fish completion of flotilla. For this shell: flotilla completion fish | source
function __flotilla_complete
    set -l typed (commandline -ct)
    set -l words (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -l answer ($program __complete $words[2..-1] "$typed" 2>/dev/null)
    test (count $answer) -gt 0; or return
    for line in $answer
        string match -q -- ':*' $line; or echo $line
    end
    set -l path (string replace -r -- '^-[^=]*=' '' "$typed")
    set -l before (string sub -l (math (string length -- "$typed") - (string length -- "$path")) -- "$typed")
    switch $answer[-1]
        case :files
            __fish_complete_path "$path" | string replace -r '^' -- "$before"
        case :folders
            __fish_complete_directories "$path" '' | string replace -r '^' -- "$before"
    end
end
complete -c flotilla -f -a '(__flotilla_complete)'
)";

}  // namespace

int RunCompletion(const Arguments& arguments) {
  CommandLine line(
      "flotilla completion bash|zsh|fish",
      "Prints what makes a shell complete commands, flags, configurations, "
      "fields and runs.\nFor this shell: source <(flotilla completion bash), "
      "the same with zsh, or\nflotilla completion fish | source; for all that "
      "follow, put it into your shell's\nstart-up file.");
  const ParsedLine parsed = ParseLine("completion", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const std::string shell =
      parsed.positional.empty() ? "" : parsed.positional[0];
  const char* script = shell == "bash"   ? kBash
                       : shell == "zsh"  ? kZsh
                       : shell == "fish" ? kFish
                                         : nullptr;
  if (script == nullptr) {
    return ReportUsage("completion", absl::InvalidArgumentError(
                                         (shell.empty() ? "name a shell"
                                                        : "\"" + shell +
                                                              "\" is no shell "
                                                              "that it knows") +
                                         ": bash, zsh or fish"));
  }
  std::printf("%s", script);
  return kExitDone;
}

}  // namespace flotilla
