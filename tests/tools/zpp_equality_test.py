#!/usr/bin/env python3
"""Losses of real processes that train together, over UCX, against those of one process.

Usage: zpp_equality_test.py ZPP_TRAIN
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ZPP_TRAIN = os.path.abspath(sys.argv[1])
STEPS = 20
PRESETS = ("ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid")
SHAPE = {"layers": 2, "width": 32, "heads": 2, "context": 16, "vocab": 257}
MODELS = {"gpt": {"name": "gpt", **SHAPE, "dropout": 0.1},
          "llama": {"name": "llama", **SHAPE, "ffn": 80}}


class ZppEquality(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="zpp-equality-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = scratch.name
        cls.runs = 0
        with open(cls.dir + "/train.txt", "w") as f:
            f.write("".join(f"The {i * 37 % 101} cats sat on the mat, and " for i in range(1000)))
        cls.alone = {model: cls.train(model) for model in MODELS}

    @classmethod
    def train(cls, model, ranks=1, nodes=1, zero=None, **train):
        """Loss, gradient norm and number of tokens of each step."""
        cls.runs += 1
        directory = f"{cls.dir}/run-{cls.runs}"
        config = {
            "run": {"name": "equality", "dir": directory, "threads": 1},
            "model": MODELS[model],
            "data": {"train": [{"path": cls.dir + "/train.txt", "format": "text"}]},
            "train": {"steps": STEPS, "global_batch": 12, "eval_every": 0, **train},
            "optimizer": {"lr": 3e-3, "eps": 1e-6},
            "zero": zero or {},
            "log": {"every": 1},
            "sample": {"tokens": 0},
            "launch": {"ranks_per_node": ranks, "nodes": nodes, "timeout_s": 60},
        }
        with open(directory + ".json", "w") as f:
            json.dump(config, f)
        done = subprocess.run([ZPP_TRAIN, "--config", directory + ".json"], cwd=cls.dir,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(f"exit status {done.returncode}: {done.stdout}")
        with open(directory + "/metrics.jsonl") as f:
            lines = [json.loads(line) for line in f]
        return [(line["loss"], line["grad_norm"], line["tokens"])
                for line in lines if line["kind"] == "train"]

    def expect_one_process(self, ranks, nodes=1):
        """Every preset, each with a choice of its own of model, recompute, prefetch and
        micro-batches, and once more, some of them without overlap."""
        for i, preset in enumerate(PRESETS):
            turn = i + ranks + nodes
            model = ("gpt", "llama")[turn % 2]
            options = dict(ranks=ranks, nodes=nodes,
                           zero={"preset": preset, "prefetch_units": turn % 3},
                           recompute=("none", "unit")[turn // 2 % 2],
                           micro_batch=(1, 12 // (ranks * nodes))[turn // 3 % 2])
            with self.subTest(model=model, **options):
                found = self.train(model, **options)
                self.assertEqual(len(found), STEPS)
                for (loss, norm, tokens), alone in zip(found, self.alone[model]):
                    self.assertLess(abs(loss - alone[0]), 2e-5 * alone[0])
                    self.assertLess(abs(norm - alone[1]), 1e-5 * alone[1])
                    self.assertEqual(tokens, alone[2])
                options["zero"]["overlap"] = i % 2 == 0
                self.assertEqual(self.train(model, **options), found, "the same bits again")

    def test_one_rank(self):
        self.expect_one_process(1)

    def test_two_ranks(self):
        self.expect_one_process(2)

    def test_three_ranks(self):
        self.expect_one_process(3)

    def test_four_ranks(self):
        self.expect_one_process(4)

    def test_two_nodes_of_two_ranks(self):
        self.expect_one_process(2, nodes=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
