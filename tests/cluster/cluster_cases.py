"""Runs the test cases of a program on emulated clusters, or says why it cannot."""

import os
import sys
import unittest
from xml.sax.saxutils import quoteattr

from emulated_cluster import Cluster, NotAllowed, end_cleanly_on_sigterm


def _report_skipped(program, reason):
    """Says so to whoever reads the output, and to the counts of the test run."""
    print("SKIPPED: an emulated cluster is not allowed here: {}".format(reason))
    path = os.environ.get("XML_OUTPUT_FILE")
    if not path:
        return
    with open(path, "w", encoding="utf-8") as f:
        f.write(
            '<testsuites><testsuite name={0} tests="1" skipped="1">'
            '<testcase name="emulated cluster"><skipped message={1}/></testcase>'
            "</testsuite></testsuites>\n".format(quoteattr(program), quoteattr(str(reason)))
        )


def main():
    """Of a test program."""
    end_cleanly_on_sigterm()
    try:
        with Cluster(1, rate="1gbit"):
            pass
    except NotAllowed as reason:
        _report_skipped(os.path.basename(sys.argv[0]), reason)
        return
    unittest.main(argv=sys.argv[:1])
