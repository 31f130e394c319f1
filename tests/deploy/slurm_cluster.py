"""A Slurm of our own for a test: one slurmctld, two slurmd and munged, all on this machine.

The nodes are called 127.0.0.1 and 127.0.0.2, so that their names resolve without
a name server. No service manager, cgroups or MPI is needed, nor root.
"""

import getpass
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess

from harness import TIMEOUT, poll
from ports import free_ports

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
FirstJobId={first_job}
NodeName=127.0.0.1 NodeAddr=127.0.0.1 NodeHostname=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=127.0.0.2 NodeAddr=127.0.0.1 NodeHostname=127.0.0.2 Port={ports[2]} CPUs=1
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.folder = sandbox.tmp  # short: munged's socket
        self.env = sandbox.env | {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        }
        for name in ("munge", "state", "127.0.0.1", "127.0.0.2"):
            (self.folder / name).mkdir()
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(256))
        key.chmod(0o400)
        self.start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge/socket",
            f"--pid-file={self.folder}/munge/pid", f"--log-file={self.folder}/munge/log",
            f"--seed-file={self.folder}/munge/seed",
        )  # fmt: skip
        poll(lambda: (self.folder / "munge" / "socket").exists(), f"munged\n{self.logs()}")
        for _ in range(3):  # somebody may take a port between us and Slurm
            if self.started():
                return
        raise AssertionError(f"Slurm does not start:\n{self.logs()}")

    def started(self):
        # A job's coordinator has port 29400 + its number % 1000: a run beside us takes 29400 first.
        text = CONFIG.format(
            folder=self.folder, user=getpass.getuser(), host=socket.gethostname().split(".")[0],
            ports=free_ports(3), first_job=1000 * random.randrange(1, 60) + random.randrange(1, 900),
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text)
        daemons = [self.start("slurmctld", "-D", "-c")]
        daemons += [self.start("slurmd", "-D", "-N", node) for node in ("127.0.0.1", "127.0.0.2")]

        def idle():
            if any(daemon.poll() is not None for daemon in daemons):
                return "dead"
            return "idle" if self.ask("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).strip() == "2" else ""

        if poll(idle, f"two idle nodes\n{self.logs()}", interval=0.1) == "idle":
            return True
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        return False

    def start(self, name, *words):
        program = shutil.which(name, path=self.env["PATH"])
        assert program, f"no {name}: cmake/setup.sh test installs it"
        with open(self.folder / f"{name}.out", "ab") as log:
            return subprocess.Popen([program, *words], env=self.env, stdout=log, stderr=log, cwd=self.folder)

    def ask(self, *words, check=True):
        result = subprocess.run(
            words, env=self.env, cwd=self.sandbox.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert result.returncode == 0 or not check, f"{words}: {result.stderr}\n{self.logs()}"
        return result.stdout

    def submit(self, script, *words, options=(), **env):
        """The job's number. Its output is in out.txt, its folder is the sandbox's."""
        command = ["sbatch", "--parsable", "--output=out.txt", "--gres=none", *options, script, *words]
        self.env |= env
        return int(self.ask(*map(str, command)))

    def job(self, number):
        """Slurm's own words about it: {"JobState": "RUNNING", ...}."""
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "show", "job", str(number))))

    def output(self):
        path = pathlib.Path(self.sandbox.folder) / "out.txt"
        return path.read_text() if path.exists() else ""

    def logs(self):
        parts = [self.output()]
        for path in sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out")):
            parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}")
        return "\n".join(parts)
