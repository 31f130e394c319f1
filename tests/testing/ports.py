"""TCP ports for programs that are told theirs before they listen."""

import contextlib
import pathlib
import random
import socket

RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count):
    """`count` that nobody has on this host by IPv4, of those below what the kernel gives to whoever asks for any port,
    or connects, if there are some: until they are listened on, only another test that draws here may get one."""
    first = int(RANGE.read_text().split()[0])
    below = range(max(1024, first - 16384), first)
    drawn = random.sample(below, min(512, len(below))) or [0] * count
    ports = []
    with contextlib.ExitStack() as held:
        for port in drawn:
            if len(ports) == count:
                break
            one = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("", port))
                ports.append(one.getsockname()[1])
    assert len(ports) == count, f"{len(ports)} of {len(drawn)} ports below {first} are free, {count} are wanted"
    return ports


def free_port():
    return free_ports(1)[0]
