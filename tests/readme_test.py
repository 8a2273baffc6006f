#!/usr/bin/env python3
"""Runs the commands of README.md's sh blocks as a reader would, but for building, installing and the
length of the training.

Usage: readme_test.py README.md
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile

# Run by other tests and by continuous integration.
LEFT_OUT = ("bazel build", "tools/quickstart", "tools/test")
SHORTER = "--set train.steps=2 --set schedule.warmup_steps=1 --set sample.tokens=8 --set train.eval_batches=1"


def commands(readme):
    """The lines of all sh blocks and of inline code that names a program, comments dropped."""
    for block in re.findall(r"```sh\n(.*?)```", readme, re.S):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.join(shlex.split(line, comments=True))
    for code in re.findall(r"`(bazel-bin/[^`]*?)`", readme, re.S):
        yield " ".join(code.split())


def main():
    root = os.getcwd()
    with open(sys.argv[1], encoding="utf-8") as f:
        todo = [c for c in commands(f.read()) if c and not c.startswith(LEFT_OUT)]
    with tempfile.TemporaryDirectory() as scratch:
        # What a reader has: a checkout, built, and a text of their own.
        os.symlink(root, os.path.join(scratch, "bazel-bin"))
        for folder in ("configs", "tests"):
            os.symlink(os.path.join(root, folder), os.path.join(scratch, folder))
        with open(os.path.join(scratch, "my-text.txt"), "w", encoding="utf-8") as f:
            f.writelines(f"Line {i} has {i * 7919 % 1009} words, or so it says.\n\n" for i in range(20000))
        for command in todo:
            trains = "/train" in command or "zpp-train" in command
            print("$", command, flush=True)
            done = subprocess.run(command + (" " + SHORTER if trains else ""), shell=True, cwd=scratch,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
            if done.returncode != 0:
                sys.exit(f"{command}\nended with {done.returncode}:\n{done.stdout}")
    if len(todo) < 5:
        sys.exit(f"only {len(todo)} commands found in {sys.argv[1]}: {todo}")
    print(f"{len(todo)} commands work")


if __name__ == "__main__":
    main()
