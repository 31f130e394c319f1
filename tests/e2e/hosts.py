"""Hosts on this machine: network namespaces on one switch, whose cables can be pulled."""

import itertools
import os
import pathlib
import shutil
import subprocess

_numbers = itertools.count()


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)


class Hosts:
    """`with Hosts(3) as hosts`: hosts 0, 1, 2 at hosts.address(i)."""

    def __init__(self, count):
        self.count = count
        # Short, for interfaces' names; unlike those of other runs.
        self.id = f"{os.getpid() % 100000}{next(_numbers)}"
        self.switch = f"fs{self.id}"

    def name(self, host):
        return f"fh{self.id}x{host}"

    @staticmethod
    def address(host):
        return f"10.213.7.{host + 1}"

    def prefix(self, host):
        """Put before a command, makes it run there."""
        return ["ip", "netns", "exec", self.name(host)]

    def __enter__(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for host in range(self.count):
            name = self.name(host)
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{host}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{host}", "master", "switch")
            ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "route", "add", "default", "dev", "eth0")
            self.plug(host)
        return self

    def shut(self, host):
        """It opens connections as before, and accepts none: answers from ports that nobody dials out of go nowhere."""
        ports = "echo 61000 65000 > /proc/sys/net/ipv4/ip_local_port_range"
        subprocess.run([*self.prefix(host), "sh", "-c", ports], check=True, stdin=subprocess.DEVNULL)
        ip("-n", self.name(host), "rule", "add", "ipproto", "tcp", "sport", "1-60999", "prohibit")

    def call(self, host, name, address):
        """Has programs on `host` find `address` by `name`."""
        folder = pathlib.Path("/etc/netns") / self.name(host)  # ip netns exec puts it over /etc
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # where none is, which is soon said

    def plug(self, host):
        ip("-n", self.switch, "link", "set", f"port{host}", "up")

    def unplug(self, host):
        """Packets from and to it are lost; nobody is told."""
        ip("-n", self.switch, "link", "set", f"port{host}", "down")

    def __exit__(self, *_):
        for name in [self.name(host) for host in range(self.count)] + [self.switch]:
            subprocess.run(["ip", "netns", "del", name], stdin=subprocess.DEVNULL, capture_output=True)
            shutil.rmtree(pathlib.Path("/etc/netns") / name, ignore_errors=True)
