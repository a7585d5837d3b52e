"""Several hosts of one machine: network namespaces on a switch of their own, and a standalone Spark cluster on them.

All of it ends with the test: nothing outside the namespaces and the test's folder is changed. It needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

TOOLS = ("ip", "nsenter", "unshare", "hostname", "mount")


def possible() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, TOOLS))


def run(pid: int, *argv: str, only_net: bool = False) -> None:
    subprocess.run([*enter(pid, only_net), *argv], check=True, capture_output=True)


def enter(pid: int, only_net: bool = False) -> list[str]:
    return ["nsenter", "-t", str(pid), "--net", *([] if only_net else ["--uts", "--mount"])]


def cable(holder: int, number: int, connected: bool) -> None:
    """Connects or cuts a host's cable; a cut one loses every packet without a word."""
    run(holder, "ip", "link", "set", f"port{number}", "up" if connected else "down", only_net=True)


# Of a session on such a cluster: lost executors are noticed in seconds, and given up never.
SESSION = {
    "spark.driver.host": "10.78.0.1", "spark.driver.bindAddress": "10.78.0.1", "spark.executor.memory": "512m",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s", "spark.executor.heartbeatInterval": "2s", "spark.task.maxFailures": "100",
    "spark.deploy.maxExecutorRetries": "-1",
}  # fmt: skip


class Hosts:
    """Hosts of these names, with the addresses 10.78.0.1, .2, …"""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        self.pids: list[int] = []
        self.names = names
        for name, text in (
            ("hosts", "127.0.0.1 localhost\n" + "".join(f"10.78.0.{i} {n}\n" for i, n in enumerate(names, 1))),
            ("resolv.conf", ""),
            ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ):  # fmt: skip
            (folder / name).write_text(text)
        try:
            self.holder = self._hold("--net")
            run(self.holder, "ip", "link", "add", "sw", "type", "bridge", only_net=True)
            run(self.holder, "ip", "link", "set", "sw", "up", only_net=True)
            for i, name in enumerate(names, 1):
                self._host(i, name)
        except BaseException:
            self.close()
            raise

    def _hold(self, *flags: str) -> int:
        """A process that does nothing in namespaces of its own."""
        p = subprocess.Popen(["unshare", *flags, "sh", "-c", "echo up; exec sleep 100000"], stdout=subprocess.PIPE)
        self.processes.append(p)
        assert p.stdout.read(3) == b"up\n"
        return p.pid

    def _host(self, i: int, name: str) -> None:
        pid = self._hold("--net", "--uts", "--mount", "--propagation", "private")
        self.pids.append(pid)
        for argv in (
            ("link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", str(pid)),
            ("link", "set", f"port{i}", "master", "sw", "up"),
        ):
            run(self.holder, "ip", *argv, only_net=True)
        run(pid, "sh", "-ec", f"hostname {name}; ip link set lo up; ip addr add 10.78.0.{i}/24 dev eth0; ip link set eth0 up\n"
            f'for f in hosts resolv.conf nsswitch.conf; do mount --bind {self.folder}/$f "$(readlink -f /etc/$f)"; done')  # fmt: skip

    def start(self, number: int, argv: list[str], **env: str) -> subprocess.Popen:
        """A program on a host, the first is 1; its output goes to a file of the folder."""
        log = open(self.folder / f"{self.names[number - 1]}-{len(self.processes)}.log", "wb")
        p = subprocess.Popen(
            [*enter(self.pids[number - 1]), *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"SPARK_LOCAL_IP": f"10.78.0.{number}"} | env,
        )  # fmt: skip
        log.close()
        self.processes.append(p)
        return p

    def inside(self) -> list[int]:
        """What runs in the hosts' networks, but for what holds them."""
        mine = {os.readlink(f"/proc/{p}/ns/net") for p in self.pids}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns/net") in mine and int(path.name) not in self.pids:
                    found.append(int(path.name))
            except OSError:
                pass
        return found

    def close(self) -> None:
        for pid in self.inside() if len(self.pids) == len(self.names) else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for p in reversed(self.processes):
            p.kill()
            p.wait()


class Standalone:
    """A master and the driver on the first host, a worker of one slot on each other."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        import pyspark

        home = os.path.dirname(pyspark.__file__)
        self.hosts, self.master = hosts, "spark://10.78.0.1:7077"
        given = {"SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable}
        start, deploy = f"{home}/bin/spark-class", "org.apache.spark.deploy"
        hosts.start(
            1, [start, f"{deploy}.master.Master", "--host", "10.78.0.1", "--port", "7077", "--webui-port", "0"],
            SPARK_DAEMON_JAVA_OPTS="-Dspark.worker.timeout=20", SPARK_DAEMON_MEMORY="256m", **given,
        )  # fmt: skip
        self._await_port()
        for n in range(2, len(hosts.names) + 1):
            hosts.start(
                n,
                [start, f"{deploy}.worker.Worker", self.master, "--host", f"10.78.0.{n}", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                    "--work-dir", str(folder / f"work{n}")],
                SPARK_DAEMON_MEMORY="256m", SPARK_LOCAL_DIRS=str(folder / f"local{n}"), **given,
            )  # fmt: skip

    def _await_port(self) -> None:
        end = time.monotonic() + 90
        look = "import socket,sys\ntry: socket.create_connection(('10.78.0.1', 7077), 1)\nexcept OSError: sys.exit(1)"
        while subprocess.run([*enter(self.hosts.pids[0]), sys.executable, "-c", look]).returncode:
            assert time.monotonic() < end, "the master does not listen: " + self.said()
            threading.Event().wait(0.2)

    def said(self) -> str:
        return "".join(f"{p.name}:\n{p.read_text(errors='replace')}\n" for p in self.hosts.folder.glob("*.log"))
