#!/usr/bin/env python3
"""Writes compile_commands.json for clangd and clang-tidy from `bazel aquery`; nothing is built.

Usage: tools/compile_commands.py [bazel options] [targets]     (default: //...)
"""

import json
import os
import subprocess
import sys

BAZEL = os.environ.get("BAZEL", "bazel")
# Known to g++ but not to clang.
GCC_ONLY = {
    "-fno-canonical-system-headers",
    "-Wno-free-nonheap-object",
    "-Wunused-but-set-parameter",
}
INCLUDE_FLAGS = ("-I", "-isystem", "-iquote", "")


def bazel(*arguments):
    """Standard output of a Bazel command."""
    done = subprocess.run([BAZEL, *arguments], check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return done.stdout


def absolute(argument, output_base):
    """Points a path below external/ to where Bazel keeps it; other arguments stay as they are."""
    for flag in INCLUDE_FLAGS:
        if argument.startswith(flag + "external/"):
            return flag + os.path.join(output_base, argument[len(flag) :])
    return argument


def entries(actions, workspace, output_base):
    """One entry per source; a source compiled several times is listed as first compiled."""
    found = {}
    for action in actions:
        arguments = action.get("arguments", [])
        if "-c" not in arguments:
            continue
        source = arguments[arguments.index("-c") + 1]
        if source in found or source.startswith("external/"):
            continue
        found[source] = {
            "directory": workspace,
            "file": source,
            "arguments": [absolute(a, output_base) for a in arguments if a not in GCC_ONLY],
        }
    return [found[source] for source in sorted(found)]


def main(argv):
    options = [a for a in argv if a.startswith("--")]
    targets = [a for a in argv if a not in options] or ["//..."]
    info = bazel("info", *options, "workspace", "output_base").splitlines()
    paths = dict(line.split(": ", 1) for line in info if ": " in line)
    query = 'mnemonic("CppCompile", {})'.format(" union ".join(targets))
    graph = json.loads(bazel("aquery", *options, query, "--output=jsonproto", "--noshow_progress"))
    listed = entries(graph.get("actions", []), paths["workspace"], paths["output_base"])
    path = os.path.join(paths["workspace"], "compile_commands.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(listed, f, indent=1)
    print("{}: {} files".format(path, len(listed)))


if __name__ == "__main__":
    main(sys.argv[1:])
