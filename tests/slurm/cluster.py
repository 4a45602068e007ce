"""A private Slurm on this machine: a controller and two nodes, without systemd."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

CONF = """
ClusterName=private
SlurmctldHost=localhost
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SlurmctldParameters=idle_on_node_suspend
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
SlurmdTimeout=10
ReturnToService=2
KillWait=20
MinJobAge=300
InactiveLimit=0
{nodes}
PartitionName=low Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=high Nodes={names} MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """A Slurm of two nodes of one core each: n0 on this machine's first core, n1 on the second."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.nodes = ["n0", "n1"]
        self._processes = {}
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self):
        for name in ("state", *self.nodes):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "key").write_bytes(os.urandom(128))
        (self.folder / "key").chmod(0o400)
        hosts = pathlib.Path("/etc/hosts").read_text(encoding="utf-8")
        names = "".join(f"127.0.0.1 {name}\n" for name in self.nodes)
        (self.folder / "hosts").write_text(hosts + names, encoding="utf-8")
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 "
            f"Port={free_port()} CPUs=1 RealMemory=4000 State=UNKNOWN"
            for name in self.nodes
        )
        conf = CONF.format(
            folder=self.folder,
            controller_port=free_port(),
            nodes=nodes,
            names=",".join(self.nodes),
        )
        (self.folder / "slurm.conf").write_text(conf, encoding="utf-8")
        self._run(
            "munged",
            "munged --foreground --force --num-threads=2 "
            f"--key-file={self.folder}/key --socket={self.folder}/munge.socket "
            f"--pid-file={self.folder}/munged.pid --seed-file={self.folder}/munged.seed "
            f"--log-file={self.folder}/munged.log",
        )
        self.wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._run("slurmctld", f"slurmctld -D -f {self.folder}/slurm.conf")
        for name in self.nodes:
            self.start_node(name)
        self.wait(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), "the nodes", 60)

    def start_node(self, name):
        """Starts a node, in whose mount namespace the names of the nodes resolve."""
        core = self.nodes.index(name) % (os.cpu_count() or 1)
        self._run(
            name,
            f"unshare --mount sh -c 'mount --bind {self.folder}/hosts /etc/hosts && "
            f"exec taskset -c {core} slurmd -D -N {name} -f {self.folder}/slurm.conf'",
        )

    def kill_node(self, name):
        """Kills a node and all processes on it."""
        # The processes of a node, whoever their parent is, share its mount namespace.
        own = os.readlink(f"/proc/{self._processes[name].pid}/ns/mnt")
        doomed = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns/mnt") == own:
                    doomed.append(int(entry.name))
        # Stopped first, so that no process can report the death of another: a power failure.
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        self._processes.pop(name).wait()

    def command(self, *command):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def states(self):
        """Returns the state of each node: idle, alloc, down*."""
        try:
            lines = self.command("sinfo", "--noheader", "--Node", "--format=%N %t").split("\n")
        except AssertionError:  # the controller does not answer yet
            return {}
        return dict(line.split() for line in lines if line)

    def jobs(self):
        """Returns (job, index, state, node) of each queued or running task."""
        lines = self.command("squeue", "--noheader", "--array", "--format=%F %K %T %N").splitlines()
        return [tuple(line.split()) for line in lines]

    def wait(self, holds, what, seconds=30):
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"{what}: not within {seconds} seconds"
            time.sleep(0.3)

    def stop(self):
        if "slurmctld" in self._processes:
            with contextlib.suppress(AssertionError):
                self.command("scancel", "--user=root", "--signal=KILL", "--full")
        for name in self.nodes:
            if name in self._processes:
                self.kill_node(name)
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(timeout=30)

    def _run(self, name, command):
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
                start_new_session=True,
            )


def missing():
    """Returns the reason why no private Slurm can be started here; "" if there is none."""
    if os.geteuid():
        return "a private Slurm needs to be root, for names that resolve for its nodes alone"
    for program in ("slurmctld", "slurmd", "sbatch", "munged", "unshare", "taskset"):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            return f"{program} is not installed"
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        return "this machine allows no mount namespace"
    return ""
