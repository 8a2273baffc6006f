#!/usr/bin/env python3
"""Runs `bazel test` and closes with one plain line: "N passed, N failed[, N skipped]".

Bazel counts test programs; this counts GoogleTest cases, from each program's test.xml. A program
without readable cases (a crash, a timeout, a script) counts as one test, and so does one that
could not be built. Everything Bazel says goes to a log file.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from urllib.parse import unquote, urlparse

BAZEL = os.environ.get("BAZEL", "bazel")
PROGRESS = re.compile(r"\[[\d,]+ / [\d,]+\]")
PROGRESS_SECONDS = 20
# GoogleTest's lines about what went well.
NOISE = re.compile(r"\[ (RUN     |      OK) \]|\[-{10}\]")
# Of each failing program's output, and of Bazel's own when something does not build.
SHOWN_LINES = 200

Counts = collections.namedtuple("Counts", "passed failed skipped")


class Outcome(collections.namedtuple("Outcome", "counts failures")):
    """What a run did: `counts`, and (label, path of its output or None) of what failed."""


def cases(xml_path):
    """Counts of one test.xml, or None when it holds no case."""
    try:
        root = xml.etree.ElementTree.parse(xml_path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return None
    passed = failed = skipped = 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (
            case.find("skipped") is not None
            or case.get("result") in ("skipped", "suppressed")
            or case.get("status") == "notrun"
        ):
            skipped += 1
        else:
            passed += 1
    return Counts(passed, failed, skipped) if passed + failed + skipped else None


def program_counts(status, xml_path):
    """Counts of one test program that Bazel ran to `status`."""
    succeeded = status in ("PASSED", "FLAKY")
    counts = cases(xml_path) if xml_path else None
    if counts and (succeeded or counts.failed):
        return counts
    if succeeded:
        return Counts(1, 0, 0)
    # It died, or its exit code was bad although no case failed: the cases prove nothing.
    return Counts(0, 1, 0)


def local_path(outputs, name):
    """Path of the output called `name`, or None."""
    for output in outputs:
        uri = output.get("uri", "")
        if output.get("name") == name and uri.startswith("file://"):
            return unquote(urlparse(uri).path)
    return None


def outcome(event_lines, exit_code):
    """Outcome of a `bazel test` from its build events (JSON lines) and its exit code."""
    runs, unbuilt, skipped_targets, kinds = {}, set(), set(), {}
    for line in event_lines:
        event = json.loads(line)
        ident = event.get("id", {})
        if "testResult" in event:
            result, key = event["testResult"], ident["testResult"]
            outputs = result.get("testActionOutput", [])
            # A later attempt of the same run replaces the earlier one.
            runs[(key["label"], key.get("shard", 1), key.get("run", 1))] = (
                result.get("status", ""),
                local_path(outputs, "test.xml"),
                local_path(outputs, "test.log"),
            )
        elif "configured" in event:
            kinds[ident["targetConfigured"]["label"]] = event["configured"].get("targetKind", "")
        elif "targetCompleted" in ident and not event.get("completed", {}).get("success"):
            incompatible = event.get("aborted", {}).get("reason") == "SKIPPED"
            label = ident["targetCompleted"]["label"]
            (skipped_targets if incompatible else unbuilt).add(label)

    total, failures = Counts(0, 0, 0), []
    for (label, _, _), (status, xml_path, log) in sorted(runs.items()):
        counts = program_counts(status, xml_path)
        total = Counts(*(a + b for a, b in zip(total, counts)))
        if counts.failed:
            failures.append((label, log))
    unbuilt -= {label for label, _, _ in runs}
    failures += [(label, None) for label in sorted(unbuilt)]
    tests_skipped = sum(kinds.get(label, "").endswith("_test rule") for label in skipped_targets)
    total = Counts(total.passed, total.failed + len(unbuilt), total.skipped + tests_skipped)
    if exit_code != 0 and total.failed == 0:
        # Bazel itself gave up, before any target or for want of tests.
        total = total._replace(failed=1)
        failures.append(("bazel (exit code {})".format(exit_code), None))
    return Outcome(total, failures)


def closing_line(counts):
    """The last line of the output, the one that scripts read."""
    text = "{} passed, {} failed".format(counts.passed, counts.failed)
    return text + (", {} skipped".format(counts.skipped) if counts.skipped else "")


def run_bazel(arguments, log_path):
    """Runs Bazel with everything into the log; shows a progress line now and then."""
    shown = time.monotonic()
    with open(log_path, "w", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [BAZEL, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        for line in process.stdout:
            log.write(line)
            log.flush()
            if PROGRESS.match(line) and time.monotonic() - shown > PROGRESS_SECONDS:
                print(line.rstrip(), flush=True)
                shown = time.monotonic()
        return process.wait()


def tail(path):
    """The last lines of a program's output, or a remark that it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lines = [line for line in f.read().splitlines() if not NOISE.match(line)]
    except OSError as e:
        return "({})".format(e)
    cut = ["... ({} lines more in {})".format(len(lines) - SHOWN_LINES, path)]
    return "\n".join((cut if len(lines) > SHOWN_LINES else []) + lines[-SHOWN_LINES:])


def main(argv):
    in_ci = os.environ.get("CI") == "true"
    targets = [] if any(not a.startswith("-") for a in argv) else ["//..."]
    handle, log_path = tempfile.mkstemp(prefix="zpp-test-", suffix=".log")
    os.close(handle)
    print("building and testing; log: " + log_path, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        events = os.path.join(scratch, "events.json")
        options = ["-c", "opt", "--keep_going", "--build_event_json_file=" + events]
        # What the failing programs said is shown below, once.
        options += ["--test_output=summary"] + (["--config=ci"] if in_ci else [])
        exit_code = run_bazel(["test", *options, *argv, *targets], log_path)
        lines = []
        if os.path.exists(events):
            with open(events, encoding="utf-8") as f:
                lines = f.read().splitlines()
        counts, failures = outcome(lines, exit_code)
    if any(log is None for _, log in failures):
        print("----- bazel\n" + tail(log_path))
    for label, log in failures:
        print("----- FAILED " + label + ("\n" + tail(log) if log else ""))
    if in_ci:
        subprocess.run([BAZEL, "shutdown"], stdin=subprocess.DEVNULL, check=False)
    print(closing_line(counts), flush=True)
    return exit_code or (1 if counts.failed else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
