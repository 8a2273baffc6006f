#!/usr/bin/env python3
"""Runs the real zpp-train and zpp-plan: exit codes, messages, signals, output, memory.

Usage: zpp_train_test.py ZPP_TRAIN ZPP_PLAN
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ZPP_TRAIN, ZPP_PLAN = (os.path.abspath(p) for p in sys.argv[1:3])
CONFIGS = os.path.abspath("configs")


class ZppTrain(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name
        text = "".join(f"The {i * 37 % 101} cats sat on the mat, and " for i in range(2000))
        for name in ("train", "val"):
            with open(os.path.join(self.dir, name + ".txt"), "w") as f:
                f.write(text)

    def sets(self, **more):
        """Arguments that put the scratch directory in the place of data and run directory."""
        values = {"run.dir": self.dir + "/run"}
        for name in ("train", "val"):
            values[f"data.{name}.0.path"] = f"{self.dir}/{name}.txt"
            values[f"data.{name}.0.format"] = "text"
        values.update({key.replace("__", "."): value for key, value in more.items()})
        return [a for key, value in values.items() for a in ("--set", f"{key}={value}")]

    def config(self, name="gpt-tiny"):
        return ["--config", os.path.join(CONFIGS, name + ".json")]

    def run_it(self, *args, program=ZPP_TRAIN):
        return subprocess.run([program, *args], cwd=self.dir, text=True, errors="replace", timeout=120,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def metrics(self):
        with open(self.dir + "/run/metrics.jsonl") as f:
            text = f.read()
        self.assertTrue(text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def test_a_run_ends_with_0_and_leaves_what_it_says(self):
        done = self.run_it(*self.config(), *self.sets(train__steps=20, train__eval_every=10))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Sample:", done.stdout)
        self.assertIn(self.dir + "/run", done.stdout)
        self.assertNotIn("\r", done.stderr)  # no progress bar: stderr is no terminal
        for name in ("config.json", "metrics.jsonl", "sample.txt", "log/rank-0.log"):
            self.assertTrue(os.path.getsize(f"{self.dir}/run/{name}") > 0, name)
        losses = [m["loss"] for m in self.metrics() if m["kind"] == "train"]
        self.assertLess(losses[-1], losses[0] - 1)
        with open(self.dir + "/run/config.json") as f:
            self.assertEqual(json.load(f)["train"]["steps"], 20)

    def test_bad_input_ends_with_2_and_one_clear_message(self):
        table = [
            (["--config", "none.json"], "none.json"),
            ([], "--config FILE is needed"),
            ([*self.config(), "--stepz=3"], "--stepz"),
            ([*self.config(), "--set", "train.steps"], "expected path.key=value"),
            ([*self.config(), "--set", "train.stepz=5"], 'did you mean "train.steps"?'),
            ([*self.config(), "--set", "zero.preset=zero9"], "zero.preset"),
            ([*self.config(), "--set", "zero.weights.wire=int9"], "zero.weights.wire"),
            ([*self.config(), "--resume", "auto"], "no checkpoints to resume from"),
            ([*self.config(), "--nnodes", "2"], "--nnodes: --master HOST:PORT"),
            ([*self.config(), "--node-rank", "1"], "--node-rank: expected a number from 0 to 0"),
            ([*self.config(), "--master", "h"], "--master: expected HOST:PORT"),
            ([*self.config(), "--world", "2"], "--world only means something with --dry-run"),
            ([*self.config(), "--set", "data.train.0.path=none.bin"], "none.bin"),
        ]
        for args, message in table:
            done = self.run_it(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertTrue(done.stderr.startswith("zpp-train: "), done.stderr)
            self.assertIn(message, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertFalse(os.path.exists(self.dir + "/run"), "bad input left a run directory")

    def test_a_token_outside_the_vocabulary_ends_with_2_naming_the_file(self):
        done = self.run_it(*self.config(), *self.sets(model__vocab=100, sample__tokens=0,
                                                        train__eval_every=0))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("train.txt", done.stderr)

    def test_a_run_that_blows_up_ends_with_1(self):
        done = self.run_it(*self.config(), *self.sets(
            optimizer__lr=1000, optimizer__weight_decay=1000, schedule__warmup_steps=0,
            train__eval_every=0))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("steps in a row were not finite", done.stderr)

    def test_a_signal_ends_the_run_cleanly_with_3(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            shutil.rmtree(self.dir + "/run", ignore_errors=True)
            run = subprocess.Popen(
                [ZPP_TRAIN, *self.config(), *self.sets(train__steps=1000000, log__every=1)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            deadline = time.time() + 60
            while time.time() < deadline:
                try:
                    if sum(m["kind"] == "train" for m in self.metrics()) > 3:
                        break
                except (OSError, AssertionError):
                    pass
                time.sleep(0.05)
            second = self.run_it(*self.config(), *self.sets(train__steps=50))
            self.assertEqual(second.returncode, 2, "two runs in one directory")
            self.assertIn("another process", second.stderr)
            run.send_signal(number)
            run.send_signal(number)  # launchers and terminals say it twice
            run.communicate(timeout=60)
            self.assertEqual(run.returncode, 3)
            last = self.metrics()[-1]
            self.assertEqual((last["kind"], last["event"]), ("event", "stopped"))
            self.assertEqual(self.metrics()[-2]["step"], last["step"])

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            for args in (["--help-config"], [*self.config(), "--dry-run"]):
                done = subprocess.run([ZPP_TRAIN, *args], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(done.returncode, 1, args)
                self.assertIn("could not be written", done.stderr)

    def test_closed_standard_streams_do_not_end_up_in_the_metrics(self):
        command = [ZPP_TRAIN, *self.config(), *self.sets(train__steps=20, train__eval_every=0)]
        shell = '"$@" <&- >&- 2>&-'
        subprocess.run(["bash", "-c", shell, "bash", *command], check=True, timeout=60)
        self.assertEqual(self.metrics()[-1]["event"], "done")

    def test_the_dry_run_allocates_nothing_and_zpp_plan_prints_the_same(self):
        for name, parameters in (("gpt-20b", "20,554,567,680"), ("llama-7b", "6,738,415,616")):
            dry = self.run_it(*self.config(name), "--dry-run")
            self.assertEqual(dry.returncode, 0, dry.stderr)
            self.assertIn(parameters, dry.stdout)
            plan = self.run_it(*self.config(name), program=ZPP_PLAN)
            self.assertEqual(self.without_available(plan.stdout),
                             self.without_available(dry.stdout))

    @staticmethod
    def without_available(text):
        return [line for line in text.splitlines() if "available" not in line]

    @unittest.skipIf("ZPP_SANITIZER" in os.environ, "a sanitizer's own memory is not ours to predict")
    def test_peak_memory_is_within_a_tenth_of_what_the_dry_run_says(self):
        # All context lengths of the sampler are met, as in a whole run.
        args = [*self.config("gpt-mini"), *self.sets(train__steps=10, train__eval_batches=8,
                                                     schedule__warmup_steps=0,
                                                     sample__tokens=260)]
        total = next(line.split() for line in self.run_it(*args, "--dry-run").stdout.splitlines()
                     if line.split()[:1] == ["total"] and "iB" in line)
        predicted = int(total[3].replace(",", ""))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        done = self.run_it(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertGreater(peak, 1024 * before)
        self.assertLess(abs(peak - predicted), 0.1 * predicted, f"{peak} against {predicted}")

    def test_help_is_complete(self):
        text = self.run_it("--help").stdout
        for option in ("--config", "--set", "--dry-run", "--print-config", "--help-config",
                       "--version", "--resume", "--world", "--nnodes", "--node-rank", "--master"):
            self.assertIn(option, text)
        self.assertIn("devices: cpu", self.run_it("--version").stdout)
        self.assertIn("train.micro_batch", self.run_it("--help-config").stdout)
        resolved = json.loads(self.run_it(*self.config(), "--print-config").stdout)
        self.assertEqual(resolved["model"]["norm_eps"], 1e-5)
        self.assertEqual(self.run_it("--help", program=ZPP_PLAN).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
