#!/usr/bin/env python3
"""An emulated cluster on one machine: several "nodes" behind slow network cards.

A node is a network namespace on a bridge that all share; what it sends is held to a rate by a token
bucket. Its processes also have namespaces of their own for shared memory, host name and process
numbers, so that ranks find shared memory inside a node and the network between nodes, as on real
machines. Needs root (or CAP_NET_ADMIN and CAP_SYS_ADMIN), ip, tc and unshare.

Usage: emulated_cluster.py --nodes 2 --rate 1gbit -- COMMAND [ARG...]

runs COMMAND once on each node, with NODE_RANK, NNODES and MASTER_ADDR (node 0's address) in its
environment, then prints what each node's card has sent and received. Exit status: the first that is
not 0 among the commands'; 125 where such a cluster is not allowed.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

NOT_ALLOWED = 125
DEVICE = "eth0"
# The bucket holds the largest packet that the kernel hands to a card in one piece several times:
# pieces are then counted whole, with one header each.
BURST = "256kb"


class NotAllowed(Exception):
    """This machine, or this user, cannot have such a cluster."""


def end_cleanly_on_sigterm():
    """A program that is told to end leaves no cluster behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _tool(*arguments):
    """Runs a command of the system's; its complaint is the exception's text."""
    # Debian keeps tc where a test's PATH does not look.
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    if done.returncode != 0:
        raise NotAllowed("{}: {}".format(" ".join(arguments), done.stderr.strip()))
    return done.stdout


class Cluster:
    """Use it as a context: the network is gone afterwards.

    Args:
      nodes: how many.
      rate: of each node's card, as tc writes it: "1gbit", "200mbit"; None: unlimited.
      delay: of each packet that leaves a node, "1ms"; None: none.
      burst: what a card that has been idle may send at once.
    """

    def __init__(self, nodes, rate=None, delay=None, burst=BURST):
        self.nodes, self.rate, self.delay, self.burst = nodes, rate, delay, burst
        self._tag = "zpp{}n".format(os.getpid())
        self._running = []

    def __enter__(self):
        try:
            self._build()
        except FileNotFoundError as missing:
            self._remove()
            raise NotAllowed("{} is not installed".format(missing.filename)) from missing
        except NotAllowed:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        for process in self._running:
            self._kill(process)
        self._remove()

    def address(self, node):
        """Where other nodes reach this one."""
        return "10.77.0.{}".format(node + 1)

    def counter(self, node, direction):
        """Bytes that a node's card has sent ("tx") or received ("rx"), headers included."""
        path = "/sys/class/net/{}/statistics/{}_bytes".format(DEVICE, direction)
        return int(_tool("ip", "netns", "exec", self._name(node), "cat", path))

    def start(self, node, command, environment=None, **popen):
        """Starts a command on a node. With the cluster it ends, and what it started with it."""
        variables = dict(environment or os.environ)
        variables.update(
            NODE_RANK=str(node), NNODES=str(self.nodes), MASTER_ADDR=self.address(0)
        )
        # --kill-child: the first process of a namespace of process numbers takes all with it.
        inside = ["unshare", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._name(node), *inside, *command],
            env=variables,
            start_new_session=True,
            **popen,
        )
        self._running.append(process)
        return process

    def run(self, command, timeout=None, **popen):
        """Runs a command, or what a function says for a node's number, on all nodes; returns their
        (exit status, output). A status is None where the time was over."""
        of = command if callable(command) else lambda node: command
        processes = [
            self.start(node, of(node), stdout=subprocess.PIPE, text=True, **popen)
            for node in range(self.nodes)
        ]
        until = None if timeout is None else time.monotonic() + timeout
        results = []
        for process in processes:
            try:
                left = None if until is None else max(0.0, until - time.monotonic())
                output, _ = process.communicate(timeout=left)
                results.append((process.returncode, output))
            except subprocess.TimeoutExpired:
                self._kill(process)
                results.append((None, process.communicate()[0]))
        return results

    def _name(self, node):
        return self._tag + str(node)

    def _kill(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _build(self):
        if os.geteuid() != 0:
            raise NotAllowed("only root may make network namespaces")
        _tool("unshare", "--ipc", "--uts", "--pid", "--fork", "--mount-proc", "true")
        switch = self._tag + "s"
        _tool("ip", "netns", "add", switch)
        _tool("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _tool("ip", "-n", switch, "link", "set", "br0", "up")
        for node in range(self.nodes):
            name, port = self._name(node), "port{}".format(node)
            _tool("ip", "netns", "add", name)
            _tool("ip", "link", "add", DEVICE, "netns", name, "type", "veth", "peer", "name", port,
                  "netns", switch)
            _tool("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            _tool("ip", "-n", name, "addr", "add", self.address(node) + "/24", "dev", DEVICE)
            _tool("ip", "-n", name, "link", "set", DEVICE, "up")
            _tool("ip", "-n", name, "link", "set", "lo", "up")
            parent = ["root"]
            if self.delay:
                _tool("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "handle", "1:",
                      "netem", "delay", self.delay, "limit", "100000")
                parent = ["parent", "1:1"]
            if self.rate:
                _tool("tc", "-n", name, "qdisc", "add", "dev", DEVICE, *parent, "tbf", "rate",
                      self.rate, "burst", self.burst, "latency", "50ms")

    def _remove(self):
        for name in [self._name(node) for node in range(self.nodes)] + [self._tag + "s"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def main(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", help="of each node's card, 1gbit; without it unlimited")
    parser.add_argument("--delay", help="of each packet, 1ms")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    end_cleanly_on_sigterm()
    try:
        with Cluster(options.nodes, options.rate, options.delay) as cluster:
            processes = [cluster.start(n, options.command) for n in range(options.nodes)]
            codes = [process.wait() for process in processes]
            for node in range(options.nodes):
                print("node {}: sent {} received {} bytes".format(
                    node, cluster.counter(node, "tx"), cluster.counter(node, "rx")))
    except NotAllowed as reason:
        print("emulated_cluster: not allowed here: {}".format(reason), file=sys.stderr)
        return NOT_ALLOWED
    return next((code for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
