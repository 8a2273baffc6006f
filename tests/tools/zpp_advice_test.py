#!/usr/bin/env python3
"""Compares presets on clusters with the real zpp-train and zpp-plan: table, sentence, units, errors.

Usage: zpp_advice_test.py ZPP_TRAIN ZPP_PLAN
"""

import os
import resource
import subprocess
import sys
import time
import unittest

ZPP_TRAIN, ZPP_PLAN = (os.path.abspath(p) for p in sys.argv[1:3])
GPT_20B = ["--config", os.path.abspath("configs/gpt-20b.json")]
CLUSTER = {"--nodes": "48", "--ranks-per-node": "8", "--inter": "100Gbps", "--intra": "600GBps",
           "--flops": "125T"}
PRESETS = ["ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid", "zero++", "hybrid, int8/int4"]
NODES, PARAMETERS = 48, 20554567680


def run_it(*args, program=ZPP_TRAIN):
    return subprocess.run([program, *args], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def cluster(**changes):
    """The paper's cluster as arguments; None leaves an option out."""
    options = dict(CLUSTER)
    options.update({"--" + key.replace("_", "-"): value for key, value in changes.items()})
    return [a for key, value in options.items() if value is not None for a in (key, value)]


def advise(*more, **changes):
    done = run_it(*GPT_20B, "--dry-run", *cluster(**changes), *more)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def into_node(text):
    """Bytes into a node by preset, in GB."""
    column = {}
    for line in text.splitlines():
        for name in PRESETS:
            if line.startswith(name + "  "):
                column[name] = float(line[len(name):].split()[7].replace(",", ""))
    return column


class Advice(unittest.TestCase):
    def test_zeropp_sends_a_quarter_of_zero3_between_nodes_and_what_the_formulas_say(self):
        m, f = 2 * PARAMETERS / 1e9, (NODES - 1) / NODES
        for k, micro_batch in ((1, 4), (4, 1)):
            sent = into_node(advise("--set", f"train.micro_batch={micro_batch}"))
            self.assertEqual(list(sent), PRESETS)
            formulas = {"zero++": f * (m / 2 + k * m / 4), "hybrid, int8/int4": f * (m / 2 + m / 4)}
            for name, wanted in formulas.items():
                # Scales add 4/128 to each half byte of gradients, 4/2048 to each byte of weights.
                self.assertGreater(sent[name], wanted)
                self.assertLess(sent[name], 1.06 * wanted)
            for name in ("ddp", "zero1", "hsdp", "hybrid"):
                self.assertAlmostEqual(sent[name] / (2 * f * m), 1, delta=0.001)
            # The root and the last block stay between forward and backward.
            self.assertAlmostEqual(sent["zero3"] / (3 * k * f * m), 1, delta=0.03)
            if k == 1:
                self.assertGreater(sent["zero3"] / sent["zero++"], 3.7)

    def test_the_last_line_says_which_preset_to_take(self):
        small = ("--set", "train.global_batch=384", "--set", "train.micro_batch=1")
        last = advise(*small, memory="80GiB").splitlines()[-1]
        self.assertTrue(last.startswith("zero++ is the fastest that fits in 80.0 GiB: "), last)
        self.assertIn("times fewer bytes between nodes", last)
        last = advise(memory="1GiB").splitlines()[-1]
        self.assertTrue(last.startswith("No preset fits in 1.00 GiB: "), last)

    def test_what_does_not_fit_is_marked(self):
        marked = {line.split()[0] for line in advise(memory="80GiB").splitlines()
                  if line.endswith("does not fit")}
        self.assertEqual(marked, {"ddp", "zero1"})
        self.assertNotIn("does not fit", advise())

    def test_units_are_what_they_say(self):
        text = advise()
        self.assertIn("100 Gbit/s into each node, 600 GB/s into each rank inside it, 125 TFLOP/s", text)
        self.assertEqual(text, advise(inter="12.5GBps", intra="0.6TBps", flops="0.125P"))
        self.assertEqual(advise(memory="80GiB"), advise(memory="0.078125TiB"))

    def test_it_takes_a_moment_and_little_memory_and_zpp_plan_says_the_same(self):
        begin = time.monotonic()
        text = advise()
        if "ZPP_SANITIZER" not in os.environ:
            self.assertLess(time.monotonic() - begin, 5)
            self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 100 << 10)
        plan = run_it(*GPT_20B, *cluster(), program=ZPP_PLAN)
        self.assertEqual((plan.returncode, plan.stdout), (0, text))

    def test_one_node_and_one_rank_need_no_rate_of_links_they_do_not_have(self):
        one = ("--set", "train.global_batch=8", "--set", "train.micro_batch=1")
        self.assertIn("one node of 8 ranks", advise(*one, nodes="1", inter=None))
        self.assertIn("2 nodes of 1 rank\n", advise(*one, nodes="2", ranks_per_node="1", intra=None))
        self.assertIn("on one rank\n", advise(*one, nodes="1", ranks_per_node="1", inter=None,
                                              intra=None))

    def test_bad_values_end_with_2_and_one_clear_message(self):
        table = [({"inter": value}, '--inter: expected a positive number and a unit')
                 for value in ("100", "Gbps", "100gbps", "100 Gbps", "100Gb/s", "-1Gbps", "0Gbps",
                               "nanGbps", "infGbps", "1e999Gbps", "100Gbps ", "100T")]
        table += [
            ({"intra": "600GiBps"}, '--intra: expected a positive number and a unit'),
            ({"flops": "125Tflops"}, '--flops: expected a positive number and a unit'),
            ({"flops": "125"}, "as in 125T; found \"125\""),
            ({"memory": "80G"}, '--memory: expected a positive number and a unit'),
            ({"flops": None}, "--flops is missing: a cluster is"),
            ({"inter": None}, "--inter is missing"),
            ({"intra": None}, "--intra is missing"),
            ({"nodes": None}, "--nodes is missing"),
            ({"ranks_per_node": None}, "--ranks-per-node is missing"),
            ({"nodes": "0"}, "--nodes"),
            ({"nodes": "7"}, "train.global_batch: 1536 sequences cannot be cut"),
            ({"nodes": "16384"}, "at most 16384 are possible"),
            ({"world": "384"}, "--world goes without"),
        ]
        for changes, message in table:
            for program, dry in ((ZPP_TRAIN, ["--dry-run"]), (ZPP_PLAN, [])):
                done = run_it(*GPT_20B, *dry, *cluster(**changes), program=program)
                self.assertEqual(done.returncode, 2, changes)
                self.assertIn(message, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertEqual(done.stdout, "")
        done = run_it(*GPT_20B, "--nodes", "48")
        self.assertEqual(done.returncode, 2)
        self.assertIn("only mean something with --dry-run", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
