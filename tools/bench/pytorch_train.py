#!/usr/bin/env python3
"""Tokens per second of PyTorch on the model that `zpp-bench train` measures: GPT-2 layout, random
tokens, AdamW. tools/bench/compare runs both.

PyTorch is given what makes it fast on a CPU: a malloc that keeps its pages (without which first
touches of fresh memory cost it a multiple), huge pages, one thread per core, and with `--variant
best` the fastest of the ways a user could write this program, each tried in a process of its own.

Prints one line of JSON. Exit status: 0 done, 1 failed while running, 2 bad input.
"""

import argparse
import contextlib
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import time

MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "1000000000",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# Of each choice the first is where the search starts.
CHOICES = {
    "bf16": ("autocast", "pure", "f32-products"),
    "graph": ("eager", "blocks", "whole"),
    "loss": ("plain", "chunked"),
    "adamw": ("fused", "foreach"),
    "attention": ("sdpa", "plain"),
    "denormals": ("flush", "keep"),
}
CHOICES_HELP = """what --variant is made of, as in graph=blocks,loss=chunked (default: the first):
  bf16       autocast | pure (bf16 weights, f32 master copy) | f32-products (pure, but for the
             matrix products, which are computed on copies in f32)
  graph      eager | blocks (torch.compile of each block and of the loss) | whole (of the model)
  loss       plain (all logits at once) | chunked (linear_cross_entropy)
  adamw      fused | foreach
  attention  sdpa (scaled_dot_product_attention) | plain (scores, mask, softmax)
  denormals  flush | keep
"""


class BadInput(Exception):
    """Ends the program with exit status 2."""


# --- Configuration -------------------------------------------------------------------


def strip_comments(text):
    """JSON without // and /* */ comments; what looks like one inside a string stays."""
    token = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.S)
    return token.sub(lambda m: m.group() if m.group().startswith('"') else " ", text)


def set_value(config, assignment):
    """Applies "path.key=value"; a value that is no JSON is text."""
    path, equals, value = assignment.partition("=")
    if not path or not equals:
        raise BadInput(f'--set: expected path.key=value, found "{assignment}"')
    *sections, key = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
        if not isinstance(config, dict):
            raise BadInput(f"--set {assignment}: {section} is no section")
    try:
        config[key] = json.loads(value)
    except json.JSONDecodeError:
        config[key] = value


def read_config(path, overrides):
    try:
        with open(path, encoding="utf-8") as f:
            config = json.loads(strip_comments(f.read()))
    except (OSError, json.JSONDecodeError) as e:
        raise BadInput(f"{path}: {e}") from e
    for assignment in overrides:
        set_value(config, assignment)
    return config


class Settings:
    """What of a configuration matters here, with the defaults of zpp-train."""

    def __init__(self, config):
        model = config.get("model", {})
        self.layers, self.width = model.get("layers", 12), model.get("width", 768)
        self.heads, self.context = model.get("heads", 12), model.get("context", 1024)
        self.vocab, self.ffn = model.get("vocab", 50257), model.get("ffn")
        self.ffn = self.ffn or 4 * self.width
        self.bias, self.tied_head = model.get("bias", True), model.get("tied_head", True)
        self.gelu, self.norm_eps = model.get("gelu", "tanh"), model.get("norm_eps", 1e-5)
        self.init_std = model.get("init_std", 0.02)
        known = {"name": "gpt", "positions": "learned", "parallel_residual": False, "dropout": 0}
        for key, only in known.items():
            if model.get(key, only) != only:
                raise BadInput(f"model.{key}: only {only!r} is compared, found {model[key]!r}")
        train = config.get("train", {})
        self.batch = train.get("global_batch", 8)
        self.micro_batch = train.get("micro_batch") or self.batch
        if self.width % self.heads or self.batch % self.micro_batch:
            raise BadInput("heads should divide width, and micro_batch global_batch")
        self.grad_clip, self.total_steps = train.get("grad_clip", 1.0), train.get("steps", 1000)
        optimizer = config.get("optimizer", {})
        self.lr, self.eps = optimizer.get("lr", 3e-4), optimizer.get("eps", 1e-8)
        self.betas = (optimizer.get("beta1", 0.9), optimizer.get("beta2", 0.95))
        self.weight_decay = optimizer.get("weight_decay", 0.1)
        schedule = config.get("schedule", {})
        self.cosine = schedule.get("name", "cosine") == "cosine"
        self.warmup = schedule.get("warmup_steps", 0)
        self.min_lr = schedule.get("min_lr", 0.0)
        self.dtype = config.get("precision", {}).get("compute", "f32")
        if self.dtype not in ("f32", "bf16"):
            raise BadInput(f"precision.compute: f32 and bf16 are compared, found {self.dtype}")
        self.threads = config.get("run", {}).get("threads", 0) or len(os.sched_getaffinity(0))
        self.seed = config.get("run", {}).get("seed", 1)

    def learning_rate(self, step):
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if not self.cosine:
            return self.lr
        done = min(1.0, (step - self.warmup) / max(1, self.total_steps - self.warmup))
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done))


def read_variant(text):
    """All choices, by name, from "graph=blocks,loss=chunked" or a bare "eager"."""
    variant = {name: values[0] for name, values in CHOICES.items()}
    for part in filter(None, text.split(",")):
        name, _, value = part.rpartition("=")
        name = name or next((n for n, values in CHOICES.items() if value in values), "")
        if value not in CHOICES.get(name, ()):
            raise BadInput(f'--variant: expected a choice listed in --help, found "{part}"')
        variant[name] = value
    return variant


def variant_text(variant, dtype):
    return ",".join(f"{k}={v}" for k, v in variant.items() if k != "bf16" or dtype == "bf16")


# --- Measuring --------------------------------------------------------------------------


def reset_peak():
    """Makes the kernel forget this process's peak; where it can't, the peak of the start stays."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def peak_since_reset():
    with open("/proc/self/status", encoding="ascii") as f:
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", f.read()).group(1))


def measure(s, variant, options):
    import torch

    from pytorch_model import Trainer

    torch.set_num_threads(s.threads)
    torch.manual_seed(s.seed)
    torch.set_flush_denormal(variant["denormals"] == "flush")
    trainer = Trainer(s, variant)
    seconds, losses = [], []
    for step in range(options.warmup + options.steps):
        if step == options.warmup:
            reset_peak()
        row = torch.randint(s.vocab, (s.batch * s.context + 1,))
        begin = time.perf_counter()
        shape = (s.batch, s.context)
        losses.append(trainer.step(step, row[:-1].view(shape), row[1:].view(shape)))
        seconds.append(time.perf_counter() - begin)
        print(f"step {step + 1}  {seconds[-1]:.3f} s  loss {losses[-1]:.4f}", file=sys.stderr)
        if step >= options.warmup and seconds[-1] > options.give_up:
            break
    rates = [s.batch * s.context / t for t in seconds[options.warmup :]]
    return {
        "torch": torch.__version__,
        "dtype": s.dtype,
        "variant": variant_text(variant, s.dtype),
        "threads": s.threads,
        "parameters": trainer.parameters(),
        "batch": s.batch,
        "context": s.context,
        "median": statistics.median(rates),
        "tokens_per_second": rates,
        "losses": losses,
        "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "steps_peak_rss_bytes": peak_since_reset(),
    }


TRIAL_WARMUP = 2
# A trial gets this long to start and, where it compiles, this long to do so.
START_SECONDS, COMPILE_SECONDS = 60, 300
# Below this share of the rate in f32, products in bf16 have no kernel worth the name.
HOPELESS_BF16 = 0.3


class Search:
    """Tries one choice after the other, each time going on with the fastest."""

    def __init__(self, s, options):
        self.s, self.options = s, options
        self.best, self.best_rate, self.trials = read_variant(""), 0.0, []

    def run(self):
        """The fastest variant."""
        if self.s.dtype == "bf16":
            first, *others = self.worth_trying(CHOICES["bf16"])
            self.best["bf16"] = first
        self.attempt(self.best)
        if not self.best_rate:  # a PyTorch that has neither
            self.attempt({**self.best, "adamw": "foreach", "attention": "plain"})
        if self.s.dtype == "bf16":
            self.attempt_each("bf16", others)
        start = self.best
        compiles = self.attempt({**start, "graph": "whole"})
        if not compiles:
            self.attempt({**start, "graph": "blocks"})
        self.attempt_each("loss", ["chunked"])
        self.attempt_each("attention", ["plain"])
        if compiles:  # a second chance with the other choices, and when the machine was busy
            self.attempt_each("graph", ["whole"])
        if not self.best_rate:
            sys.exit("no variant ran")
        return self.best

    def attempt_each(self, name, values):
        start = self.best
        for value in values:
            if value != start[name]:
                self.attempt({**start, name: value})

    def worth_trying(self, modes):
        from pytorch_model import bf16_to_f32_rate

        rate = bf16_to_f32_rate()
        if rate >= HOPELESS_BF16:
            return modes
        self.say(f"bf16=autocast, bf16=pure: not tried, products run at {rate:.3f}x f32's rate")
        return ("f32-products",)

    def attempt(self, variant):
        """Whether it ran; it may be the best now."""
        text = variant_text(variant, self.s.dtype)
        rate, why = self.rate_of(variant)
        self.say(f"{text}: {f'{rate:.0f} tok/s' if rate else why}")
        self.trials.append({"variant": text, "tokens_per_second": rate, "failed": why})
        if rate > self.best_rate:
            self.best, self.best_rate = variant, rate
        return rate > 0

    def rate_of(self, variant):
        """Tokens per second in a process of its own, or 0 and why there is no number."""
        options, step, limit = self.options, math.inf, None
        if self.best_rate:
            step = self.s.batch * self.s.context / self.best_rate
            limit = START_SECONDS + 2 * step * (options.trial_steps + TRIAL_WARMUP)
            limit += 0 if variant["graph"] == "eager" else COMPILE_SECONDS
        command = [sys.executable, os.path.abspath(__file__), "--config", options.config]
        command += [f"--set={assignment}" for assignment in options.set]
        command += [f"--variant={','.join(f'{k}={v}' for k, v in variant.items())}"]
        command += [f"--steps={options.trial_steps}", f"--warmup={TRIAL_WARMUP}"]
        command += [f"--give-up={1.3 * step}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return 0.0, f"not done after {limit:.0f} s"
        if done.returncode == 0:
            return max(json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]), ""
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return 0.0, said[-1] if said else f"ended with {done.returncode}"

    def say(self, text):
        print(f"  {text}", file=sys.stderr, flush=True)


def use_environment(threads):
    """Starts this program again with the environment that malloc and OpenMP read at their start."""
    wanted = {**MALLOC, "OMP_NUM_THREADS": str(threads)}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    environment.update(wanted)
    if environment != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=CHOICES_HELP, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="as of zpp-train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--variant", default="", help="choices, or best")
    parser.add_argument("--choose", action="store_true", help="with best: only find it")
    parser.add_argument("--steps", type=int, default=10, help="steps to time")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--trial-steps", type=int, default=3, help="timed for each try of best")
    parser.add_argument("--give-up", type=float, default=math.inf, metavar="SECONDS",
                        help="no further steps after a timed one that takes longer")
    options = parser.parse_args()
    try:
        s = Settings(read_config(options.config, options.set))
        variant = None if options.variant == "best" else read_variant(options.variant)
        if options.steps < 1 or options.trial_steps < 1 or options.warmup < 0:
            raise BadInput("--steps and --trial-steps should be at least 1, --warmup at least 0")
    except BadInput as e:
        print(f"pytorch_train.py: {e}", file=sys.stderr)
        sys.exit(2)
    use_environment(s.threads)
    trials = []
    if variant is None:
        search = Search(s, options)
        variant, trials = search.run(), search.trials
    if options.choose:
        print(json.dumps({"variant": variant_text(variant, s.dtype), "trials": trials}))
    else:
        print(json.dumps({**measure(s, variant, options), "trials": trials}))


if __name__ == "__main__":
    main()
