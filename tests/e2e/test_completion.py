"""The tabulator in real shells, and the manual page in real man."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from harness import BIN, TIMEOUT

SHOW = "\x14"  # Ctrl-T: the shell says what its line is now

START = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "source <(flotilla completion bash); bind 'set bell-style none'; "
        """bind -x '"\\C-t": echo "LINE<$READLINE_LINE>"'\n""",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit && compinit -u -d $TMPDIR/zcompdump && source <(flotilla completion zsh); "
        "show() { print -r -- \"LINE<$BUFFER>\" }; zle -N show; bindkey '^T' show; unsetopt beep\n",
    ),
}


COMPLETED = {
    "flotilla ser": "flotilla serve-envs ",
    "flotilla help stat": "flotilla help status ",
    "flotilla train cartpole_f": "flotilla train cartpole_fast ",
    "flotilla train cartpole_fast --nproc": "flotilla train cartpole_fast --nproc-per-node ",
    "flotilla train x --progress pl": "flotilla train x --progress plain ",
    "flotilla train x --progress=pl": "flotilla train x --progress=plain ",
    "flotilla train x --set opt": "flotilla train x --set optimizer.",
    "flotilla train x --set ppo.ep": "flotilla train x --set ppo.epochs=",
    "flotilla train x --set=ppo.ep": "flotilla train x --set=ppo.epochs=",
    "flotilla train x --set model.activation=T": "flotilla train x --set model.activation=TANH ",
    "flotilla train x --set 'a=b' --set=runtime.bf16=t": "flotilla train x --set 'a=b' --set=runtime.bf16=true ",
    "flotilla train x --run-dir deep/er/fo": "flotilla train x --run-dir deep/er/folder/",
    "flotilla train ./own": "flotilla train ./own.textproto ",
    "flotilla status ru": "flotilla status runs/first ",
    "flotilla explain optimizer.lear": "flotilla explain optimizer.learning_rate ",
    "flotilla coordinator --lis": "flotilla coordinator --listen ",
}


class Shell:
    """One that a person types into."""

    def __init__(self, name, sandbox):
        command, setup = START[name]
        env = sandbox.env | {"PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "", "INPUTRC": "/dev/null", "ZDOTDIR": str(sandbox.tmp)}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(sandbox.folder)
            os.execvpe(command[0], command, env)
        self._said = ""
        self.type(setup + "echo rea''dy\n")
        self._read_until("ready\r?\n")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def _read_until(self, pattern):
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = re.search(pattern, self._said)
            if found:
                self._said = self._said[found.end() :]
                return found
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.terminal], [], [], max(0, left))
            assert ready, f"no {pattern!r} in {self._said!r}"
            self._said += os.read(self.terminal, 65536).decode(errors="replace")

    def complete(self, line):
        """What becomes of a line when the tabulator is pressed at its end."""
        self.type(line + "\t" + SHOW)
        result = self._read_until(r"LINE<([^>]*)>")[1]
        self.type("\x15")  # Ctrl-U: an empty line again
        return result

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "zsh"])
def shell(request, sandbox):
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} is installed")
    opened = Shell(request.param, sandbox)
    yield opened
    opened.close()


def test_the_tabulator(sandbox, shell):
    (sandbox.folder / "deep" / "er" / "folder").mkdir(parents=True)
    (sandbox.folder / "own.textproto").write_text("ppo {}")
    (sandbox.folder / "runs" / "first").mkdir(parents=True)
    (sandbox.folder / "runs" / "first" / "config.textproto").write_text("ppo {}")
    for line, completed in COMPLETED.items():
        assert shell.complete(line) == completed


def test_a_run_whose_path_has_a_blank(sandbox, shell):
    (sandbox.folder / "runs" / "my run").mkdir(parents=True)
    (sandbox.folder / "runs" / "my run" / "config.textproto").write_text("ppo {}")
    assert shell.complete("flotilla replay ru") == "flotilla replay runs/my\\ run "
    assert shell.complete("flotilla replay runs/my\\ r") == "flotilla replay runs/my\\ run/"


def test_fish(sandbox):
    if shutil.which("fish") is None:
        pytest.skip("no fish is installed")
    (sandbox.folder / "own.textproto").write_text("ppo {}")
    env = sandbox.env | {"PATH": f"{BIN}:{os.environ['PATH']}"}

    def offers(line):
        script = f"flotilla completion fish | source; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script], cwd=sandbox.folder, env=env, capture_output=True, text=True, timeout=TIMEOUT
        )
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return [offer.split("\t")[0] for offer in done.stdout.splitlines()]

    assert offers("flotilla ser") == ["serve-envs"]
    assert offers("flotilla train cartpole_f") == ["cartpole_fast"]
    assert offers("flotilla train --set ppo.epo") == ["ppo.epochs="]
    assert offers("flotilla train --set=model.activation=T") == ["--set=model.activation=TANH"]
    assert offers("flotilla train ow") == ["own.textproto"]
    assert offers("flotilla coordinator --token-file=ow") == ["--token-file=own.textproto"]


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_the_scripts_are_sound(sandbox, shell_name):
    script = sandbox.folder / f"completion.{shell_name}"
    printed = sandbox.run("completion", shell_name)
    assert printed.returncode == 0
    script.write_text(printed.stdout)
    if shutil.which(shell_name) is None:
        pytest.skip(f"no {shell_name} is installed")
    checked = subprocess.run([shell_name, "-n", str(script)], capture_output=True, text=True, timeout=TIMEOUT)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_shell_that_nobody_knows_is_refused(sandbox):
    refused = sandbox.run("completion", "csh")
    assert refused.returncode == 2 and '"csh"' in refused.stderr and "bash, zsh or fish" in refused.stderr


def test_the_manual_page(sandbox):
    page = sandbox.run("help", "--man").stdout
    commands = re.findall(r"(?m)^  ([a-z-]+)  +", sandbox.run("--help").stdout.split("commands:")[1])
    assert len(commands) > 10
    for command in commands:
        roff = command.replace("-", "\\-")
        assert re.search(rf"(?m)^\.SS flotilla(\\-| ){re.escape(roff)}\b", page), command
    assert page.startswith('.TH FLOTILLA 1 "" "Flotilla ')
    assert "\\fB\\-\\-nproc\\-per\\-node\\fR \\fIN|auto|gpu\\fR" in page
    for line in page.splitlines():
        assert not line.startswith(".") or re.match(r"\.(TH|SH|SS|TP|B|I)\b", line), line
    if shutil.which("groff") is None:
        pytest.skip("no groff is installed")
    shown = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True, timeout=TIMEOUT)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--nproc-per-node N|auto|gpu" in shown.stdout and "-\n" not in shown.stdout.split("COMMANDS")[0]
