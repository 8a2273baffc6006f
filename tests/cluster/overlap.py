#!/usr/bin/env python3
"""How well communication hides behind computing on a slow link, with the real zpp-train.

Two nodes of one rank train a GPT whose parameters are spread over both. A run with free links tells
how long a step computes and how many bytes it sends; then the nodes' cards get the rate at which
these bytes take a share of that time, and the same run is done once with overlap and once without.
It wants a quiet machine of two cores; train_test.py asks the same of kernels that sleep.

Usage: overlap.py ZPP_TRAIN CONFIG [--share 0.7] [--rounds 3] [--steps 8] [--set KEY=VALUE ...]
"""

import argparse
import collections
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_training import Training  # noqa: E402  (it lies beside this file)
from emulated_cluster import Cluster, end_cleanly_on_sigterm  # noqa: E402

MODEL = {
    "model.layers": 12, "model.width": 128, "model.heads": 4, "model.context": 128,
    "train.global_batch": 16, "run.threads": 1, "schedule.warmup_steps": 0,
}
# The first steps allocate memory and learn the order of the units.
WARM_UP = 2
# Larger than the kernel's largest packet, much smaller than a message: a card that has been idle
# has nothing to give away.
BURST = "80kb"

Overlap = collections.namedtuple(
    "Overlap", "compute bytes rate_bits serial serial_exposed overlapped overlapped_exposed")


def _median(records, key):
    return statistics.median(record[key] for record in records[WARM_UP:])


def _cores():
    """One core per node, if there are as many."""
    cores = sorted(os.sched_getaffinity(0))
    return [str(core) for core in cores[:2]] if len(cores) >= 2 else None


def measure(training, share, steps=8):
    """The three runs."""
    def run(name, rate, overlap):
        settings = {"train.steps": steps, "zero.overlap": "true" if overlap else "false"}
        with Cluster(2, rate=rate, burst=BURST) as cluster:
            records = training.on(cluster, name, settings, cores=_cores())
        return records

    free = run("free", None, True)
    compute, sent = _median(free, "step_s"), _median(free, "inter_node_bytes")
    rate_bits = int(sent * 8 / (share * compute))
    rate = "{}bit".format(rate_bits)
    overlapped, serial = run("overlapped", rate, True), run("serial", rate, False)
    return Overlap(
        compute, sent, rate_bits,
        _median(serial, "step_s"), _median(serial, "exposed_comm_s"),
        _median(overlapped, "step_s"), _median(overlapped, "exposed_comm_s"))


def longer(result):
    """What a step cannot be shorter than: computing or communicating, whichever takes longer."""
    return max(result.compute, result.serial_exposed)


HEADER = "compute s  MB/step  Mbit/s  comm s  comm/compute  serial s  step s  exposed s  step/max"


def line(result):
    """One line of the table."""
    return "{:9.3f}  {:7.2f}  {:6.1f}  {:6.3f}  {:12.2f}  {:8.3f}  {:6.3f}  {:9.3f}  {:8.3f}".format(
        result.compute, result.bytes / 1e6, result.rate_bits / 1e6, result.serial_exposed,
        result.serial_exposed / result.compute, result.serial, result.overlapped,
        result.overlapped_exposed, result.overlapped / longer(result))


def main(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("config")
    parser.add_argument("--share", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    end_cleanly_on_sigterm()
    settings = {**MODEL, **dict(change.split("=", 1) for change in options.set)}
    print(HEADER, flush=True)
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="zpp-overlap-") as directory:
            training = Training(options.program, options.config, directory, settings)
            print(line(measure(training, options.share, options.steps)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
