#!/usr/bin/env python3
"""What tools/bench/zeropp reads, computes and draws: fixed inputs, no runs, no cluster."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

SCRIPT = os.path.join("tools", "bench", "zeropp")
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("zeropp", SCRIPT)
zeropp = importlib.util.module_from_spec(importlib.util.spec_from_loader("zeropp", loader))
loader.exec_module(zeropp)
table, plot = zeropp.zeropp_table, zeropp.zeropp_table.zeropp_plot

MIB = 1 << 20


def record(step, step_s=1.0, exposed=0.25, inter=10, intra=20, skipped=0):
    return {"kind": "train", "step": step, "tokens": 512 * step, "step_s": step_s,
            "exposed_comm_s": exposed, "inter_node_bytes": inter, "intra_node_bytes": intra,
            "loss": 6 - step / 10, "skipped": skipped}


def found(rate, wait=0.8, inter=8 * MIB, loss=2.5):
    return {"rate": rate, "wait": wait, "inter": inter, "cards": inter + MIB, "intra": MIB,
            "loss": loss, "step_s": 1}


def results():
    """Of two rates and rounds."""
    return {
        1_000_000_000: {"zero3": [found(100, 0.01), found(200, 0.03)],
                        "zero++": [found(99, 0, 2 * MIB), found(198, 0, 2 * MIB)]},
        80_000_000: {"zero3": [found(10, 0.8), found(20, 0.9)],
                     "zero++": [found(30, 0.1, 2 * MIB), found(50, 0.1, 2 * MIB)]},
    }


VARIANTS = [v for v in zeropp.SPEED if v.name in ("zero3", "zero++")]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


class ReadingRuns(unittest.TestCase):
    def test_steps_after_the_warm_up_count(self):
        read = zeropp.read_run(
            [record(1, 9), record(2, 9), record(3, 1), record(4, 2), record(5, 0.5)], 2)
        self.assertEqual(read["rate"], 512)
        self.assertEqual(read["wait"], 0.25)
        self.assertEqual((read["inter"], read["intra"], read["loss"]), (10, 20, 5.5))

    def test_bytes_are_means_and_waiting_is_a_part_of_its_own_step(self):
        read = zeropp.read_run([record(1, 2, 1, inter=10), record(2, 4, 1, inter=40)], 0)
        self.assertEqual((read["inter"], read["wait"]), (25, 0.375))

    def test_too_few_and_skipped_steps_are_failures(self):
        with self.assertRaisesRegex(zeropp.Failed, "more than 2"):
            zeropp.read_run([record(1), record(2)], 2)
        with self.assertRaisesRegex(zeropp.Failed, "not finite"):
            zeropp.read_run([record(1), record(2, skipped=1)], 1)

    def test_the_last_evaluation_of_a_long_run_counts(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            for row in (record(1, skipped=1), {"kind": "eval", "val_loss": 3.0}, record(2),
                        {"kind": "eval", "val_loss": 2.0}, {"kind": "event"}):
                f.write(json.dumps(row) + "\n")
            f.flush()
            self.assertEqual(zeropp.read_learning(f.name),
                             {"val_loss": 2.0, "loss": 5.8, "step": 2, "skipped": 1})

    def test_a_run_without_evaluation_is_a_failure(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.write(json.dumps(record(1)) + "\n")
            f.flush()
            with self.assertRaises(zeropp.Failed):
                zeropp.read_learning(f.name)


class Arithmetic(unittest.TestCase):
    def test_rates_are_chosen_by_the_time_that_the_bytes_of_a_step_take(self):
        rates = zeropp.choose_rates({"inter": 32_000_000, "step_s": 0.5})
        for rate, ratio in zip(rates, zeropp.LINK_TO_STEP):
            self.assertAlmostEqual(8 * 32e6 / rate / 0.5, ratio, delta=0.05 * ratio)
        self.assertEqual(rates, sorted(rates, reverse=True))

    def test_numbers_are_rounded_to_two_digits(self):
        self.assertEqual([zeropp.two_digits(n) for n in (113_777_777, 8_560, 99.6)],
                         [110_000_000, 8_600, 100])

    def test_ratios_are_taken_within_a_round(self):
        of = results()[80_000_000]
        self.assertEqual(table.ratio_of(of["zero++"], of["zero3"]), (3.0 + 2.5) / 2)

    def test_waiting_for_the_link_is_what_makes_a_step_longer_than_at_the_fastest(self):
        of = results()
        of[80_000_000]["zero3"][1]["rate"] = 60
        self.assertAlmostEqual(table.waits_for_link(of, 80_000_000), (0.9 + 0.7) / 2)
        self.assertEqual(table.waits_for_link(of, 1_000_000_000), 0)

    def test_nodes_get_cores_of_their_own_if_there_are_enough(self):
        self.assertIsNone(zeropp.cores_of_nodes([0, 1, 2], 2))
        self.assertEqual(zeropp.cores_of_nodes([0, 2, 4, 6, 8], 2), ["0,2", "4,6"])

    def test_what_it_took_to_meet_is_not_part_of_a_step(self):
        class Fake(zeropp.Bench):
            def __init__(self):
                self._steps, self._meeting = 5, {}
                self.asked = []

            def _run(self, variant, rate, steps):
                self.asked.append((rate, steps))
                return [record(i + 1) for i in range(steps)], 1000 + 7 * steps

        bench = Fake()
        for _ in range(2):
            self.assertEqual(bench.run(zeropp.SPEED[0], 5)["cards"], 7)
        self.assertEqual(bench.asked, [(None, 1), (5, 5), (5, 5)])


class Tables(unittest.TestCase):
    def test_a_row_has_medians_ratio_and_bytes(self):
        lines = table.table(results(), VARIANTS)
        self.assertEqual(
            cells(lines[5]),
            ["80 Mbit/s", "ZeRO++", "40 (30 to 50)", "2.75", "10 %", "2.00", "3.00", "1.00",
             "2.5000"])
        self.assertEqual(len({line.count("|") for line in lines[:6]}), 1)

    def test_remarks_tell_of_the_slowest_and_the_fastest_link(self):
        text = "\n".join(table.remarks(results(), VARIANTS))
        self.assertIn("4.00x fewer bytes", text)
        self.assertIn("At 80 Mbit/s, where ZeRO-3 waits for the link 90 % of its step, ZeRO++ is "
                      "2.75x", text)
        self.assertIn("At 1 Gbit/s, where ZeRO-3 waits for the link 0 % of its step, ZeRO++ is "
                      "0.99x", text)
        self.assertEqual(table.remarks(results(), VARIANTS[:1]), [])

    def test_losses_are_compared_with_zero3(self):
        of = {"zero3": {"val_loss": 2.0, "loss": 1.9, "skipped": 0},
              "int4": {"val_loss": 2.02, "loss": 1.95, "skipped": 1}}
        lines = table.learning_table(of, zeropp.LEARNING)
        self.assertEqual(len(lines), 4)
        self.assertEqual(cells(lines[2])[1:], ["2.0000", "", "1.9000", "0"])
        self.assertEqual(cells(lines[3])[1:], ["2.0200", "+1.00 %", "1.9500", "1"])


class Picture(unittest.TestCase):
    def test_it_is_xml_with_a_line_for_each_variant(self):
        svg = table.picture(results(), VARIANTS, "a < b & c")
        root = ElementTree.fromstring(svg)
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(root.findall(space + "polyline")), 2)
        texts = [t.text for t in root.findall(space + "text")]
        for expected in ("a < b & c", "ZeRO++ 2.75", "ZeRO-3 1.00", "80 Mbit/s", "1 Gbit/s",
                         "90 %"):
            self.assertIn(expected, texts)

    def test_faster_is_higher_and_slower_links_are_to_the_right(self):
        axes = plot.Axes([1e9, 1e8], 3)
        self.assertLess(axes.y(3), axes.y(1))
        self.assertLess(axes.x(1e9), axes.x(1e8))
        self.assertEqual(plot.Axes([1e9], 3).x(1e9), plot.Axes([1e6], 3).x(1e6))

    def test_labels_do_not_overlap(self):
        self.assertEqual(plot.spread([10, 12, 13, 90], 16), [10, 26, 42, 90])

    def test_ticks_reach_the_highest_value(self):
        self.assertEqual(plot.ratio_ticks(1.2), [0, 0.5, 1, 1.5])
        self.assertEqual(plot.ratio_ticks(5), [0, 1, 2, 3, 4, 5])


class CommandLine(unittest.TestCase):
    def test_rates_have_units_and_come_fastest_first(self):
        self.assertEqual(zeropp.rates_of("80mbit,2.5gbit,800kbit"),
                         [2_500_000_000, 80_000_000, 800_000])
        self.assertEqual(zeropp.rates_of(""), [])

    def test_zero3_always_runs(self):
        names = [v.name for v in zeropp.parse(["--variants=qgz"]).variants]
        self.assertEqual(names, ["zero3", "qgz"])

    def test_learning_has_more_steps_and_variants_of_its_own(self):
        options = zeropp.parse(["--learning", "--variants=int4"])
        self.assertEqual(([v.name for v in options.variants], options.steps),
                         (["zero3", "int4"], 1000))

    def test_bad_input_ends_with_2(self):
        for bad in ("--rates=80", "--rates=1bit", "--variants=zero4", "--rounds=0", "--set=x",
                    "--variants=int4"):
            done = subprocess.run([sys.executable, SCRIPT, bad], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("zeropp", done.stderr)


if __name__ == "__main__":
    unittest.main()
