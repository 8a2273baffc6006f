#!/usr/bin/env python3
"""Collectives on an emulated cluster: two nodes of two ranks behind cards of 1 Gbit/s.

Where such a cluster is not allowed the tests are reported as skipped, with the reason.

Usage: cluster_test.py CLUSTER_RANK
"""

import os
import re
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_cases  # noqa: E402  (these lie beside this file)
from emulated_cluster import Cluster  # noqa: E402

CLUSTER_RANK = os.path.abspath(sys.argv[1])
PER_NODE, BYTES = 2, 16 << 20
# Headers and acknowledgements.
TOLERANCE = 0.03


class ClusterTest(unittest.TestCase):
    def test_its_cards_hold_the_rate_and_count_the_bytes(self):
        size = 8 << 20
        receive = (
            "import socket; s = socket.create_server(('', 7000)); c = s.accept()[0]\n"
            "n = 0\n"
            "while True:\n"
            "    d = c.recv(1 << 16)\n"
            "    if not d: break\n"
            "    n += len(d)\n"
            "print(n)"
        )
        send = (
            "import os, socket, time\n"
            "while True:\n"
            "    try: s = socket.create_connection((os.environ['MASTER_ADDR'], 7000)); break\n"
            "    except OSError: time.sleep(0.02)\n"
            "s.sendall(bytes({}))".format(size)
        )
        program = "import os\nexec({!r} if os.environ['NODE_RANK'] == '0' else {!r})".format(
            receive, send
        )
        with Cluster(2, rate="200mbit") as cluster:
            start = time.monotonic()
            results = cluster.run([sys.executable, "-c", program], timeout=60)
            seconds = time.monotonic() - start
            self.assertEqual(results[0], (0, "{}\n".format(size)))
            self.assertEqual(results[1][0], 0)
            sent, received = cluster.counter(1, "tx"), cluster.counter(0, "rx")
        self.assertGreater(seconds, 0.9 * size * 8 / 200e6)
        for counted in (sent, received):
            self.assertLess(abs(counted / size - 1), TOLERANCE)

    def test_collectives_put_on_the_wire_what_the_ledger_says(self):
        with tempfile.TemporaryDirectory() as directory, Cluster(2, rate="1gbit") as cluster:
            results = cluster.run(
                [CLUSTER_RANK, directory, str(PER_NODE), str(BYTES)], timeout=120
            )
            self.assertEqual([code for code, _ in results], [0, 0])
            for node, (_, output) in enumerate(results):
                ranks = [list(map(int, re.findall(r"\d+", line))) for line in output.splitlines()]
                self.assertEqual(len(ranks), PER_NODE, output)
                between_nodes = sum(sent[3] for sent in ranks)  # rank, self, node, world
                self.assertGreaterEqual(between_nodes, BYTES)  # half of it, twice
                wire = cluster.counter(node, "tx")
                self.assertLess(
                    abs(wire / between_nodes - 1),
                    TOLERANCE,
                    "node {}: ledger {}, wire {}".format(node, between_nodes, wire),
                )


if __name__ == "__main__":
    cluster_cases.main()
