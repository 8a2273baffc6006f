#!/usr/bin/env python3
"""Training on an emulated cluster of slow links: equal losses and the bytes that zpp-train says it has
sent, and communication that hides behind computing.

Where such a cluster is not allowed the tests are reported as skipped, with the reason.

Usage: train_test.py ZPP_TRAIN CONFIG OVERLAP_RANK
"""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_cases  # noqa: E402  (these lie beside this file)
import overlap  # noqa: E402
from cluster_training import Training  # noqa: E402
from emulated_cluster import Cluster  # noqa: E402

PROGRAM, CONFIG = sys.argv[1:3]
OVERLAP_RANK = os.path.abspath(sys.argv[3])
STEPS, FEWER_STEPS = 20, 5
# Headers and acknowledgements.
TOLERANCE = 0.03
# Step over computing; messages whose two directions take turns make it 1.15 to 1.2.
HIDDEN = 1.12


class TrainTest(unittest.TestCase):
    def training(self, settings):
        scratch = tempfile.TemporaryDirectory(prefix="zpp-cluster-")
        self.addCleanup(scratch.cleanup)
        return Training(PROGRAM, CONFIG, scratch.name, settings)

    def test_two_nodes_train_like_one_process_and_send_what_they_say(self):
        training = self.training(
            {"model.width": 128, "model.layers": 3, "schedule.warmup_steps": 0,
             "optimizer.lr": 1e-3, "optimizer.eps": 1e-6})
        alone = training.alone("alone", {"train.steps": STEPS})
        self.assertLess(alone[-1]["loss"], alone[0]["loss"] - 0.5)
        # By node, and what node 0 says; of each run.
        wire, said = [], []
        for steps in (FEWER_STEPS, STEPS):
            with Cluster(2, rate="300mbit") as cluster:
                records = training.on(
                    cluster, "nodes-{}".format(steps),
                    {"train.steps": steps, "launch.ranks_per_node": 2})
                wire.append([cluster.counter(node, "tx") for node in range(2)])
            said.append(sum(record["inter_node_bytes"] for record in records))
        self.assertEqual(len(records), STEPS)
        for one, found in zip(alone, records):
            self.assertLess(abs(found["loss"] / one["loss"] - 1), 2e-5, found)
        # The difference leaves out how they met.
        expected = said[1] - said[0]
        self.assertGreater(expected, 10 << 20)
        for node in range(2):
            sent = wire[1][node] - wire[0][node]
            self.assertLess(
                abs(sent / expected - 1), TOLERANCE,
                "node {}: {} bytes on the wire, {} in metrics.jsonl".format(node, sent, expected))

    def test_communication_of_seventy_percent_hides_behind_computing(self):
        # Sleeps last longer on a busy machine, and not always equally so.
        for _ in range(5):
            compute, sent = self.sleep("overlapped", None)
            rate = "{:.0f}bit".format(sent["bytes"] * 8 / (0.7 * compute))
            serial, apart = self.sleep("serial", rate)
            step, _ = self.sleep("overlapped", rate)
            text = "computing {:.3f} s, communicating {:.3f}, one after the other {:.3f}, both {:.3f}"
            text = text.format(compute, apart["comm"], serial, step)
            print(text, flush=True)
            if (0.6 * compute < apart["comm"] < 0.9 * compute and serial > 1.5 * compute and
                    step < HIDDEN * max(compute, apart["comm"])):
                return
        self.fail(text)

    def sleep(self, mode, rate):
        """Seconds of a step whose kernels sleep, and all that rank 0 says of it."""
        with tempfile.TemporaryDirectory() as directory, \
                Cluster(2, rate=rate, burst=overlap.BURST) as cluster:
            results = cluster.run([OVERLAP_RANK, directory, mode], timeout=100)
        self.assertEqual([code for code, _ in results], [0, 0])
        words = results[0][1].split()
        said = {name: float(value) for name, value in zip(words[::2], words[1::2])}
        return said["step"], said


if __name__ == "__main__":
    cluster_cases.main()
