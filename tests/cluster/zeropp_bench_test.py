#!/usr/bin/env python3
"""One short round of tools/bench/zeropp: that it runs, and that ZeRO++ sends as few bytes between nodes
as its formats say, by the ledger and by the cards.

Usage: zeropp_bench_test.py ZEROPP ZPP_TRAIN
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_cases  # noqa: E402  (this lies beside this file)

ZEROPP, ZPP_TRAIN = sys.argv[1:3]
# Headers and acknowledgements.
TOLERANCE = 0.03


class ZeroppBenchTest(unittest.TestCase):
    def test_zeropp_sends_a_quarter_and_the_cards_agree(self):
        with tempfile.TemporaryDirectory(prefix="zpp-cluster-") as folder:
            numbers, picture = (os.path.join(folder, name) for name in ("n.json", "p.svg"))
            done = subprocess.run(
                [sys.executable, ZEROPP, "--zpp-train", ZPP_TRAIN, "--variants=zero++",
                 "--rates=2gbit", "--rounds=1", "--steps=1", "--json", numbers, "--svg", picture],
                capture_output=True, text=True, timeout=250, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(numbers, encoding="utf-8") as f:
                (found,) = json.load(f)["results"].values()
            with open(picture, encoding="utf-8") as f:
                self.assertIn("</svg>", f.read())
        print(done.stdout)
        self.assertIn("| 2 Gbit/s | ZeRO++ |", done.stdout)
        for (one,) in found.values():
            self.assertLess(abs(one["cards"] / one["inter"] - 1), TOLERANCE, one)
        (plain,), (coded,) = found["zero3"], found["zero++"]
        self.assertGreater(plain["inter"] / coded["inter"], 3.8)
        self.assertGreater(plain["cards"] / coded["cards"], 3.7)
        self.assertLess(abs(coded["loss"] / plain["loss"] - 1), 0.02)


if __name__ == "__main__":
    cluster_cases.main()
