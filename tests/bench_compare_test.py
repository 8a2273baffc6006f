#!/usr/bin/env python3
"""What tools/bench/compare and pytorch_train.py read and print: fixed inputs, no PyTorch."""

import importlib.machinery
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
import unittest

BENCH = os.path.join("tools", "bench")
sys.dont_write_bytecode = True


def load(name, file):
    """A script as a module; `compare` has no extension."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(BENCH, file))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


compare = load("compare", "compare")
pytorch_train = load("pytorch_train", "pytorch_train.py")

ZPP_OUTPUT = """\
gpt2-124m: 124,439,808 parameters, f32, 1 x 256 tokens a step, 2 threads, peak 100 GFLOP/s
step   1    9000.0 ms         28 tok/s  loss 10.9000  (warm-up)
step   2    1000.0 ms        256 tok/s  loss 10.8000
step   3     800.0 ms        320 tok/s  loss 10.7000
step   4     500.0 ms        512 tok/s  loss 10.6000
median 320 tok/s, 0.3 TFLOP/s, mfu 75.0 %, memory held 2.4 GiB
"""


def rounds(rates, gib):
    return [{"rate": rate, "peak_bytes": int(gib * 2**30)} for rate in rates]


def result(dtype="f32", zpp=(300, 320, 310), pytorch=(200, 190, 210), case="a"):
    return {"case": case, "title": "GPT", "batch": 4, "context": 256, "dtype": dtype,
            "variant": "graph=whole,loss=plain,denormals=flush", "zpp": rounds(zpp, 1.5),
            "pytorch": rounds(pytorch, 3)}


def read_config(text, overrides=()):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(text)
        f.flush()
        return pytorch_train.read_config(f.name, overrides)


class ReadingRuns(unittest.TestCase):
    def test_only_timed_steps_of_zpp_count(self):
        read = compare.read_zpp(ZPP_OUTPUT)
        self.assertEqual(read["rates"], [256, 320, 512])
        self.assertEqual(read["rate"], 320)
        self.assertEqual(read["loss"], 10.6)
        self.assertEqual(read["parameters"], 124439808)

    def test_output_without_steps_is_a_failure_that_shows_it(self):
        with self.assertRaisesRegex(compare.Failed, "out of memory"):
            compare.read_zpp("out of memory\n")

    def test_the_last_line_of_pytorch_counts(self):
        line = ('{"median": 5.0, "tokens_per_second": [4, 5, 6], "losses": [2.0, 1.0], '
                '"parameters": 7, "steps_peak_rss_bytes": 8}')
        read = compare.read_pytorch("a warning\n" + line + "\n")
        self.assertEqual((read["rate"], read["loss"], read["parameters"]), (5.0, 1.0, 7))

    def test_a_failed_run_is_told_with_its_last_words(self):
        with self.assertRaisesRegex(compare.Failed, "(?s)ended with 3:.*last words"):
            compare.run(["sh", "-c", "echo last words >&2; exit 3"])

    def test_the_peak_is_that_of_the_program_run(self):
        small = compare.run([sys.executable, "-c", "pass"])
        large = compare.run([sys.executable, "-c", "x = b'1' * (200 << 20); print('done')"])
        self.assertEqual(large.output, "done\n")
        self.assertGreater(large.peak_bytes - small.peak_bytes, 190 << 20)


class Table(unittest.TestCase):
    def row(self, line):
        return [cell.strip() for cell in line.strip("|").split("|")]

    def test_a_row_has_medians_spreads_ratio_and_memory(self):
        lines = compare.table([result()])
        self.assertEqual(len(lines), 3)
        self.assertEqual(
            self.row(lines[2]),
            ["GPT", "4 x 256", "f32", "310 (300 to 320)", "200 (190 to 210)", "1.55", "1.50 GiB",
             "3.00 GiB", "graph=whole, loss=plain"])
        self.assertEqual(len({line.count("|") for line in lines}), 1)

    def test_the_ratio_is_of_medians_not_of_extremes_or_means(self):
        r = result(zpp=(100, 300, 1000), pytorch=(150, 10, 200))
        self.assertEqual(compare.ratio_of(r), 2.0)

    def test_an_even_number_of_rounds_has_a_median_between(self):
        self.assertEqual(compare.summary(rounds((1, 4, 2, 3), 1)), (2.5, 1, 4))

    def test_bf16_that_is_slower_than_f32_is_remarked(self):
        slow = result("bf16", zpp=(500,), pytorch=(50,))
        remark = compare.table([result(), slow])[-1]
        self.assertIn("2.50x", remark)
        self.assertFalse(compare.remarks([result(), result("bf16", pytorch=(400,))]))
        self.assertFalse(compare.remarks([result(case="another"), slow]))


class Configuration(unittest.TestCase):
    def test_comments_go_and_strings_stay(self):
        config = read_config('{// one\n "a": "x // y", /* two\n */'
                             ' "b": "\\" /* z */", "c": 1 // 3\n}')
        self.assertEqual(config, {"a": "x // y", "b": '" /* z */', "c": 1})

    def test_overrides_replace_and_add(self):
        config = read_config('{"model": {"layers": 12}}',
                             ["model.layers=6", "train.lr=1e-3", "precision.compute=bf16"])
        self.assertEqual(config, {"model": {"layers": 6}, "train": {"lr": 1e-3},
                                  "precision": {"compute": "bf16"}})

    def test_bad_overrides_and_files_are_told(self):
        for bad in ("model.layers", "=3", "model.layers.x=3"):
            with self.assertRaises(pytorch_train.BadInput):
                read_config('{"model": {"layers": 12}}', [bad])
        with self.assertRaises(pytorch_train.BadInput):
            read_config("{")

    def test_every_case_reads_as_the_model_it_names(self):
        seen = []
        for case in compare.CASES:
            for dtype in compare.DTYPES:
                flags = compare.flags_of(case, dtype)
                overrides = [f.removeprefix("--set=") for f in flags if f.startswith("--set=")]
                s = pytorch_train.Settings(pytorch_train.read_config(flags[1], overrides))
                self.assertEqual((s.batch, s.micro_batch, s.context, s.dtype),
                                 (case.batch, case.batch, case.context, dtype))
                seen.append((s.layers, s.width, s.heads, s.vocab))
        self.assertEqual(set(seen), {(12, 768, 12, 50257), (6, 384, 6, 257), (6, 384, 6, 50304)})

    def test_what_pytorch_train_does_not_have_is_refused(self):
        for model in ({"positions": "rotary"}, {"name": "llama"}, {"dropout": 0.1}):
            with self.assertRaises(pytorch_train.BadInput):
                pytorch_train.Settings({"model": model})

    def test_the_learning_rate_rises_and_falls(self):
        s = pytorch_train.Settings({"optimizer": {"lr": 1.0}, "train": {"steps": 30},
                                    "schedule": {"warmup_steps": 10, "min_lr": 0.5}})
        self.assertEqual([s.learning_rate(step) for step in (0, 9, 30, 99)], [0.1, 1.0, 0.5, 0.5])
        self.assertTrue(math.isclose(s.learning_rate(20), 0.75))


class Choices(unittest.TestCase):
    def test_a_variant_is_written_as_it_is_read(self):
        variant = pytorch_train.read_variant("whole,loss=chunked")
        self.assertEqual((variant["graph"], variant["loss"]), ("whole", "chunked"))
        text = pytorch_train.variant_text(variant, "bf16")
        self.assertEqual(pytorch_train.read_variant(text), variant)
        self.assertNotIn("bf16", pytorch_train.variant_text(variant, "f32"))

    def test_unknown_choices_are_refused(self):
        for bad in ("graph=fast", "colour=red", "fast"):
            with self.assertRaises(pytorch_train.BadInput):
                pytorch_train.read_variant(bad)

    def test_cases_and_dtypes_are_subsets(self):
        options = compare.parse(["--dtypes=bf16", "--cases=6x384-bytes,124m-1x256"])
        self.assertEqual(options.dtypes, ["bf16"])
        self.assertEqual(options.cases, ["124m-1x256", "6x384-bytes"])

    def test_bad_input_ends_with_2(self):
        for program in (["compare", "--cases=124"], ["pytorch_train.py", "--config=/missing"]):
            command = [sys.executable, os.path.join(BENCH, program[0]), *program[1:]]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(program[0].removesuffix(".py"), done.stderr)


if __name__ == "__main__":
    unittest.main()
