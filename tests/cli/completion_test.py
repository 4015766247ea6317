#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What bash offers behind `mapfold`. Usage: completion_test.py MAPFOLD COMPLETION [TEST...]"""

import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import tap_result  # noqa: E402

MAPFOLD = COMPLETION = ""

# The function that readline would call, with the words as readline cuts them: at blanks and at =.
BASH = r"""
set -u
. "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_mapfold
printf '%s\n' "${COMPREPLY[@]-}"
"""


def offered(*words):
    result = subprocess.run(["bash", "--norc", "-c", BASH, "bash", COMPLETION, MAPFOLD, *words],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                            check=False)
    if result.stderr:
        raise AssertionError(result.stderr)
    return result.stdout.split()


class Completion(unittest.TestCase):
    def setUp(self):
        if not shutil.which("bash"):
            self.skipTest("bash is not installed")

    def test_commands_are_offered_and_narrowed(self):
        self.assertLessEqual({"bench", "run", "inspect", "--version", "--help"}, set(offered("")))
        self.assertEqual(offered("ins"), ["inspect"])
        self.assertEqual(offered("--v"), ["--version"])

    def test_every_command_of_the_help_is_offered(self):
        said = subprocess.run([MAPFOLD, "--help"], capture_output=True, text=True, check=True).stdout
        listed = said.split("Commands:\n")[1].split("\n\n")[0].splitlines()
        self.assertEqual(set(line.split()[0] for line in listed),
                         set(word for word in offered("") if not word.startswith("-")))

    def test_options_of_each_command_are_all_that_its_usage_knows(self):
        for command in ("bench", "run", "inspect"):
            said = subprocess.run([MAPFOLD, command, "--usage"], capture_output=True, text=True,
                                  check=True).stdout
            known = set(word.split("=")[0].strip("[]") for word in said.split()
                        if word.startswith("[--"))
            options = set(word.rstrip("=") for word in offered(command, "--")) - {"--"}
            self.assertEqual(options, known)

    def test_values_of_options_are_files_or_nothing_but_never_commands(self):
        for command in ("bench", "run", "inspect"):
            said = subprocess.run([MAPFOLD, command, "--help"], capture_output=True, text=True,
                                  check=True).stdout
            values = re.findall(r"^ {1,6}(?:-., )?(--[a-z-]+)=", said, re.MULTILINE)
            self.assertGreater(len(values), 1)
            for option in values:
                for words in ((option, ""), (option, "=", "")):
                    self.assertFalse({"true", "sh", "space.steady", "1"} & set(offered(command, *words)),
                                     words)

    def test_directories_are_offered_to_the_workload_of_files(self):
        self.assertEqual(offered("bench", "files", "/us"), ["/usr"])
        self.assertEqual(offered("bench", "--quick", "files", "/us"), ["/usr"])

    def test_workloads_of_bench_are_offered(self):
        self.assertLessEqual({"space", "mmap_scan", "mapping"}, set(offered("bench", "")))
        self.assertEqual(offered("bench", "space.st"), ["space.steady"])
        self.assertEqual(offered("bench", "--quick", "space.st"), ["space.steady"])

    def test_systems_are_offered_one_after_the_other(self):
        self.assertIn("mapfold", offered("bench", "--against", ""))
        self.assertEqual(offered("bench", "--against", "=", "mapfold,rbt"), ["mapfold,rbtree"])

    def test_processes_and_files_are_offered_to_inspect(self):
        self.assertIn(str(os.getpid()), offered("inspect", ""))
        self.assertEqual(offered("inspect", "--file", "/etc/host"),
                         offered("inspect", "--plot", "=", "/etc/host"))
        self.assertIn("/etc/hosts", offered("inspect", "--file", "/etc/host"))
        self.assertEqual(offered("inspect", "--warn", ""), [])

    def test_programs_and_their_arguments_are_offered_to_run(self):
        self.assertIn("true", offered("run", "tru"))
        self.assertIn("true", offered("run", "--explain", "--", "tru"))
        self.assertEqual(offered("run", "--expl"), ["--explain"])
        for words in (("cat",), ("--", "cat"), ("--stats", "=", "x", "cat")):
            self.assertIn("/etc/hosts", offered("run", *words, "/etc/host"))

    def test_nothing_is_offered_to_what_is_no_command(self):
        self.assertEqual(offered("nonsense", ""), [])


if __name__ == "__main__":
    MAPFOLD, COMPLETION = sys.argv[1:3]
    tap_result.main(Completion, sys.argv[3:])
