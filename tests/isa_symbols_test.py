#!/usr/bin/env python3
"""Objects compiled for AVX-512 must export nothing that another object may also define.

The linker keeps one copy of an inline function. Were that copy compiled for AVX-512, a machine
without it would die in a function that looks innocent. So every global or weak function of those
archives has to lie in namespace avx512.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NAMESPACE = "6avx512"  # as g++ mangles it
# Global, weak and indirect functions; local ones (t) are never merged.
SHARED_TEXT = {"T", "W", "i"}


def shared_functions(nm_output):
    """Mangled names of the functions that the linker may merge, from `nm --format=posix`."""
    fields = (line.split() for line in nm_output.splitlines())
    return [f[0] for f in fields if len(f) >= 2 and f[1] in SHARED_TEXT]


def leaks(nm_output):
    """Those of them outside namespace avx512."""
    return [name for name in shared_functions(nm_output) if NAMESPACE not in name]


def nm(path):
    """Defined symbols of an object or archive."""
    command = ["nm", "--defined-only", "--format=posix", str(path)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def demangled(names):
    """Names as C++ programmers know them."""
    text = "\n".join(names)
    pipe = {"stdout": subprocess.PIPE, "encoding": "utf-8"}
    return subprocess.run(["c++filt"], input=text, check=True, **pipe).stdout


class Archives(unittest.TestCase):
    archives = []

    def test_export_functions_in_namespace_avx512_only(self):
        self.assertTrue(self.archives, "no archive was given")
        for archive in self.archives:
            with self.subTest(archive=archive):
                symbols = nm(archive)
                self.assertTrue(shared_functions(symbols), "exports no function")
                self.assertEqual(leaks(symbols), [], demangled(leaks(symbols)))


class Checker(unittest.TestCase):
    def leaks_of(self, source):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "planted.cc")
            path.write_text(source, encoding="utf-8")
            subprocess.run(["g++", "-c", path.name], cwd=scratch, check=True)
            return leaks(nm(Path(scratch, "planted.o")))

    def test_finds_an_inline_function_outside_the_namespace(self):
        source = """
            inline int twice(int x) { return 2 * x; }
            namespace zpp::avx512 { int run(int x) { return twice(x); } }"""
        self.assertEqual(self.leaks_of(source), ["_Z5twicei"])

    def test_finds_a_template_instance_outside_the_namespace(self):
        source = """
            template <class T> T twice(T x) { return 2 * x; }
            namespace zpp::avx512 { int run(int x) { return twice(x); } }"""
        self.assertEqual(self.leaks_of(source), ["_Z5twiceIiET_S0_"])

    def test_accepts_local_functions(self):
        source = """
            namespace { int twice(int x) { return 2 * x; } }
            namespace zpp::avx512 {
            namespace { int thrice(int x) { return 3 * x; } }
            int run(int x) { return twice(x) + thrice(x); }
            }"""
        self.assertEqual(self.leaks_of(source), [])


if __name__ == "__main__":
    Archives.archives = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
