#!/usr/bin/env python3
"""tools/run_tests.py counts what Bazel and GoogleTest report, and never calls a bad run good."""

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path("tools/run_tests.py")


def load(path):
    """The script as a module."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_tests = load(SCRIPT)

GOOD = '<testcase name="Adds" status="run" result="completed"/>'
BAD = '<testcase name="Divides" status="run" result="completed"><failure message="x"/></testcase>'
SKIPPED = '<testcase name="Flies" status="run" result="skipped"><skipped message="x"/></testcase>'
DISABLED = '<testcase name="DISABLED_Sings" status="notrun" result="suppressed"/>'


class RunTests(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.events = []

    def add_program(self, label, status, cases=None, attempt=1):
        """Records that a test program ran, with a test.xml of `cases` unless that is None."""
        outputs = [{"name": "test.log", "uri": "file:///log%20of/" + label.split(":")[1]}]
        if cases is not None:
            path = self.scratch / "{}.xml".format(len(self.events))
            xml = "<testsuites><testsuite name='S'>{}</testsuite></testsuites>"
            path.write_text(xml.format("".join(cases)), encoding="utf-8")
            outputs.append({"name": "test.xml", "uri": path.as_uri()})
        ident = {"testResult": {"label": label, "run": 1, "shard": 1, "attempt": attempt}}
        result = {"status": status, "testActionOutput": outputs}
        self.events.append(json.dumps({"id": ident, "testResult": result}))

    def add_target(self, label, kind="cc_test rule", reason=None):
        """Records a target that was configured and then was not built."""
        ident = {"targetConfigured": {"label": label}}
        configured = {"id": ident, "configured": {"targetKind": kind}}
        completed = {"id": {"targetCompleted": {"label": label}}}
        completed.update({"aborted": {"reason": reason}} if reason else {"completed": {}})
        self.events += [json.dumps(configured), json.dumps(completed)]

    def outcome(self, exit_code):
        return run_tests.outcome(self.events, exit_code)

    def closing_line(self, exit_code):
        return run_tests.closing_line(self.outcome(exit_code).counts)

    def test_counts_cases_not_programs(self):
        self.add_program("//tests:a", "PASSED", [GOOD, GOOD, GOOD])
        self.add_program("//tests:b", "PASSED", [GOOD])
        self.assertEqual(self.closing_line(0), "4 passed, 0 failed")

    def test_counts_a_failing_case_and_names_its_program_and_log(self):
        self.add_program("//tests:a", "PASSED", [GOOD])
        self.add_program("//tests:b", "FAILED", [GOOD, BAD])
        self.assertEqual(self.closing_line(3), "2 passed, 1 failed")
        self.assertEqual(self.outcome(3).failures, [("//tests:b", "/log of/b")])

    def test_mentions_skipped_cases_only_if_there_are_any(self):
        self.add_program("//tests:a", "PASSED", [GOOD, SKIPPED, DISABLED])
        self.assertEqual(self.closing_line(0), "1 passed, 0 failed, 2 skipped")

    def test_counts_a_program_without_cases_as_one_test(self):
        self.add_program("//tests:script", "PASSED", [])
        self.add_program("//tests:crash", "FAILED")
        self.add_program("//tests:slow", "TIMEOUT")
        self.assertEqual(self.closing_line(3), "1 passed, 2 failed")

    def test_does_not_trust_good_cases_of_a_program_that_failed(self):
        self.add_program("//tests:leak_at_exit", "FAILED", [GOOD, GOOD])
        self.assertEqual(self.closing_line(3), "0 passed, 1 failed")

    def test_lets_a_later_attempt_replace_an_earlier_one(self):
        self.add_program("//tests:a", "FAILED", [BAD], attempt=1)
        self.add_program("//tests:a", "PASSED", [GOOD], attempt=2)
        self.assertEqual(self.closing_line(0), "1 passed, 0 failed")

    def test_counts_a_target_that_did_not_build_as_failed(self):
        self.add_program("//tests:a", "PASSED", [GOOD])
        self.add_target("//tests:broken")
        self.assertEqual(self.closing_line(1), "1 passed, 1 failed")
        self.assertEqual(self.outcome(1).failures, [("//tests:broken", None)])

    def test_counts_tests_that_do_not_fit_this_machine_as_skipped(self):
        self.add_program("//tests:a", "PASSED", [GOOD])
        self.add_target("//tests:gpu", reason="SKIPPED")
        self.add_target("//core:gpu", kind="cc_library rule", reason="SKIPPED")
        self.assertEqual(self.closing_line(0), "1 passed, 0 failed, 1 skipped")

    def test_fails_when_bazel_gave_up_before_any_test(self):
        self.assertEqual(self.closing_line(1), "0 passed, 1 failed")

    def test_fails_when_there_was_nothing_to_test(self):
        self.assertEqual(self.closing_line(4), "0 passed, 1 failed")


if __name__ == "__main__":
    unittest.main()
