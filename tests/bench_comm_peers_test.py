#!/usr/bin/env python3
"""What tools/bench/comm_peers reads and prints: fixed inputs, none of the programs it runs."""

import collections
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import unittest

SCRIPT = os.path.join("tools", "bench", "comm_peers")
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("comm_peers", SCRIPT)
comm_peers = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("comm_peers", loader))
loader.exec_module(comm_peers)

ZPP_OUTPUT = """\
2 ranks on 1 node, transport ucx, 2 cores
single messages between rank 0 and rank 1: latency 0.25 us, one way 7.30 GB/s, both ways at once \
6.10 GB/s each (messages of 64.0 MiB)
link class node     latency     0.30 us   bandwidth   7.00 GB/s

collective          buffer        time  alg GB/s  bus GB/s   alg/raw   bus/raw
all-gather        4.00 KiB      2.5 us      1.64      0.82      22 %      11 %
all-gather        64.0 MiB   4000.0 us     16.78      8.39     230 %     115 %
all-to-all        64.0 MiB   8000.0 us      8.39      4.19     115 %      57 %
alg: buffer / time; bus: bytes that each rank sends / time; raw: one way at 64 MiB
"""
MIB64 = 64 << 20


def results_of(entries):
    results = collections.defaultdict(lambda: collections.defaultdict(list))
    for key, programs in entries.items():
        results[key].update(programs)
    return results


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


class Reading(unittest.TestCase):
    def test_times_and_rates_of_zpp(self):
        times, raw = comm_peers.read_zpp(ZPP_OUTPUT)
        self.assertEqual(set(times), {("all-gather", 4096), ("all-gather", MIB64),
                                      ("all-to-all", MIB64)})
        self.assertAlmostEqual(times["all-gather", 4096], 2.5e-6)
        self.assertAlmostEqual(times["all-to-all", MIB64], 8e-3)
        self.assertEqual(raw, [7.3e9, 6.1e9])

    def test_output_without_times_is_a_failure_that_shows_it(self):
        for read in (comm_peers.read_zpp, comm_peers.read_lines, comm_peers.read_perftest):
            with self.assertRaisesRegex(comm_peers.Failed, "no memory left"):
                read("no memory left\n")

    def test_lines_of_the_other_programs(self):
        text = "[host] a warning 3 4\nall-reduce 1048576 0.000250000\nall-gather 4096 0.000001000\n"
        self.assertEqual(comm_peers.read_lines(text),
                         {("all-reduce", 1 << 20): 250e-6, ("all-gather", 4096): 1e-6})

    def test_overall_numbers_of_perftest_count(self):
        for label in ("", "Final:"):
            line = f"{label:<16}  1000   4.0   5.0   6.0   7000.00   8000.00   200000   166666\n"
            seconds, rate = comm_peers.read_perftest("[0] warning: 1 2\n" + line)
            self.assertAlmostEqual(seconds, 6e-6)
            self.assertEqual(rate, 8000 * 2**20)

    def test_sizes_as_zpp_prints_them(self):
        self.assertEqual([comm_peers.size_of(s) for s in ("512 B", "4.00 KiB", "64.0 MiB")],
                         [512, 4096, MIB64])


class Arithmetic(unittest.TestCase):
    def test_half_of_the_buffer_counts_and_all_of_it_in_an_all_reduce(self):
        self.assertEqual(comm_peers.bus_rate("all-gather", 8_000_000, 1e-3), 4e9)
        self.assertEqual(comm_peers.bus_rate("all-reduce", 8_000_000, 1e-3), 8e9)

    def test_the_median_of_the_rounds_counts(self):
        results = results_of({("shm", "all-gather", 8): {"zpp": [1.0, 9.0, 2.0]}})
        self.assertEqual(comm_peers.median(results, ("shm", "all-gather", 8), "zpp"), 2.0)
        self.assertIsNone(comm_peers.median(results, ("shm", "all-gather", 8), "mpi"))


class Table(unittest.TestCase):
    shm, tcp = comm_peers.TRANSPORTS

    def test_a_row_of_rates_has_the_share_of_perftest(self):
        half = MIB64 / 2
        results = results_of({
            ("tcp", "all-gather", MIB64): {"zpp": [half / 2e9], "mpi": [half / 1e9],
                                           "gloo": [half / 0.5e9]},
            ("tcp", "ucx_perftest", MIB64): {"ucx": [2.5e9]},
        })
        self.assertEqual(comm_peers.row(results, self.tcp, "all-gather", MIB64),
                         ["TCP", "all-gather", "64 MiB", "2.00", "80 %", "2.50", "1.00", "0.50"])

    def test_a_row_of_times_has_the_share_of_perftests_time(self):
        results = results_of({
            ("shm", "all-gather", 4096): {"zpp": [2e-6], "mpi": [4e-6]},
            ("shm", "ucx_perftest", 4096): {"ucx": [0.5e-6]},
        })
        self.assertEqual(comm_peers.row(results, self.shm, "all-gather", 4096),
                         ["shared memory", "all-gather", "4 KiB", "2.0 us", "25 %", "0.5 us",
                          "4.0 us", "-"])

    def test_what_was_not_measured_is_left_open(self):
        lines = comm_peers.table(results_of({}), comm_peers.TRANSPORTS, [4096, MIB64])
        rows = [line for line in lines if line.startswith("|")]
        self.assertEqual(len(rows), 2 + 2 * 2 * 4)
        self.assertEqual(cells(rows[2])[3:], ["-"] * 5)
        self.assertEqual(len({line.count("|") for line in rows}), 1)

    def test_both_ways_at_once_are_told(self):
        results = results_of({("shm", "raw", 0): {"one_way": [7e9], "both_ways": [5e9]}})
        (line,) = comm_peers.limits(results, comm_peers.TRANSPORTS)
        self.assertIn("7.00 GB/s one way, 5.00 in each direction", line)


class CommandLine(unittest.TestCase):
    def test_sizes_have_units(self):
        self.assertEqual(comm_peers.sizes_of("4K,1m,800"), [4096, 1 << 20, 800])

    def test_bad_input_ends_with_2(self):
        for bad in ("--transports=rdma", "--bytes=4G", "--bytes=12", "--rounds=0"):
            done = subprocess.run([sys.executable, SCRIPT, bad], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
