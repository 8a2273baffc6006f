"""Runs of the real zpp-train on English text, by one process or once per node of an emulated cluster.
"""

import gzip
import json
import os
import subprocess

# Debian's dict-gcide, which tools/install brings.
PROSE = "/usr/share/dictd/gcide.dict.dz"
TEXT_BYTES = 400000
# Nodes have ports of their own.
PORT = 29400


class Training:
    """Runs in a directory that is there already.

    Args:
      program: zpp-train.
      config: a configuration file.
      directory: for text and run directories.
      settings: of all runs, as "key=value" takes them: {"train.steps": 20}.
    """

    def __init__(self, program, config, directory, settings):
        self.program, self.directory = os.path.abspath(program), directory
        self._config = os.path.abspath(config)
        self._settings = {
            "train.eval_every": 0, "sample.tokens": 0, "log.every": 1, "launch.timeout_s": 60}
        with gzip.open(PROSE) as prose:
            text = prose.read(2 * TEXT_BYTES)
        for at, name in enumerate(("train", "val")):
            path = os.path.join(directory, name + ".txt")
            with open(path, "wb") as f:
                f.write(text[at * TEXT_BYTES:(at + 1) * TEXT_BYTES])
            self._settings["data.{}.0.path".format(name)] = path
            self._settings["data.{}.0.format".format(name)] = "text"
        self._settings.update(settings)

    def alone(self, name, settings=None, timeout=60):
        """One process without a cluster; returns the records of its steps."""
        done = subprocess.run(
            self._command(name, settings), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
        return self._records(name, [(done.returncode, done.stdout)])

    def on(self, cluster, name, settings=None, timeout=100, cores=None):
        """Started by hand on every node; returns the records of the steps.

        Args:
          cores: of each node, as taskset takes them; None: all.
        """
        def command(node):
            pinned = ["taskset", "-c", cores[node]] if cores else []
            return pinned + self._command(name, settings) + [
                "--nnodes", str(cluster.nodes), "--node-rank", str(node),
                "--master", "{}:{}".format(cluster.address(0), PORT)]

        results = cluster.run(
            command, timeout=timeout, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        return self._records(name, results)

    def _command(self, name, settings):
        values = {**self._settings, **(settings or {}),
                  "run.dir": os.path.join(self.directory, name)}
        sets = [a for key, value in values.items() for a in ("--set", "{}={}".format(key, value))]
        return [self.program, "--config", self._config, *sets]

    def _records(self, name, results):
        for node, (code, output) in enumerate(results):
            if code != 0:
                raise AssertionError("node {} ended with {}:\n{}".format(node, code, output))
        with open(os.path.join(self.directory, name, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        return [line for line in lines if line["kind"] == "train"]
