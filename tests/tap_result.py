# SPDX-License-Identifier: MIT
"""unittest's results as TAP, for the tests that are written in Python."""

import sys
import unittest


class Tap(unittest.TestResult):
    """A line each, with the test's name read as the sentence it is."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def line(self, test, status, note=""):
        self.number += 1
        name = test.id().rsplit(".", 1)[-1].removeprefix("test_").replace("_", " ")
        print(f"{status} {self.number} - {name}{note}", flush=True)

    def bad(self, test, error):
        self.line(test, "not ok")
        for line in self._exc_info_to_string(error, test).splitlines():
            print("#", line, flush=True)

    def addSuccess(self, test):
        self.line(test, "ok")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.bad(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self.bad(test, err)

    def addSkip(self, test, reason):
        self.line(test, "ok", f" # SKIP {reason}")


def main(cases, names):
    """Runs the named tests of a TestCase, or all, and exits."""
    tests = unittest.TestSuite(
        cases(name) for name in names or unittest.defaultTestLoader.getTestCaseNames(cases))
    print(f"1..{tests.countTestCases()}", flush=True)
    result = Tap()
    tests.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
