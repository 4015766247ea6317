#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The examples do what they say. Usage: examples_test.py BUILD_DIRECTORY [TEST...]"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir))
import tap_result  # noqa: E402

EXAMPLES = os.path.join(HERE, os.pardir, os.pardir, "examples")
BUILD = ""
SECONDS = 60


def run(program, *arguments, stdout=subprocess.PIPE):
    path = [os.path.join(BUILD, "examples", program)]
    if program.endswith(".py"):
        path = [sys.executable, os.path.join(EXAMPLES, program)]
    return subprocess.run([*path, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout,
                          stderr=subprocess.PIPE, text=True, timeout=300, check=False)


class Follower:
    """tailgrep, following a log; its lines as they come."""

    def __init__(self, text, path):
        self.process = subprocess.Popen([os.path.join(BUILD, "examples", "tailgrep"), text, path],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.more = threading.Condition()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line)
                self.more.notify()

    def wait_for(self, *lines):
        """All lines so far, once these are the last."""
        with self.more:
            self.more.wait_for(lambda: self.lines[-len(lines):] == list(lines), SECONDS)
            return list(self.lines)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SECONDS)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode


class Examples(unittest.TestCase):
    def setUp(self):
        # Not in /tmp, which may be a tmpfs.
        self.directory = tempfile.mkdtemp(prefix="mapfold-examples-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.directory)
        self.log = os.path.join(self.directory, "log")

    def write(self, text, mode="a"):
        with open(self.log, mode, encoding="utf-8") as file:
            file.write(text)

    def follow(self):
        follower = Follower("error", self.log)
        self.addCleanup(lambda: follower.process.poll() is None and follower.end())
        return follower

    def test_tailgrep_says_of_a_whole_log_what_grep_says(self):
        self.write("".join(f"line {i} {'error' if i % 97 == 0 else 'fine'} {'x' * (i % 300)}\n"
                           for i in range(40000)))
        self.write("y" * 3000000 + " error at the end of a long line\n")
        want = subprocess.run(["grep", "-F", "error", self.log], capture_output=True, text=True,
                              check=True).stdout
        result = run("tailgrep", "-1", "error", self.log)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, want)

    def test_tailgrep_waits_for_the_end_of_a_line_and_for_more_lines(self):
        self.write("an error\nnothing\nhalf an er")
        follower = self.follow()
        follower.wait_for("an error\n")
        self.write("ror\n")
        self.assertEqual(follower.wait_for("half an error\n"), ["an error\n", "half an error\n"])
        follower.end()

    def test_tailgrep_goes_on_in_the_file_that_takes_the_logs_name(self):
        self.write("error 1\n")
        follower = self.follow()
        follower.wait_for("error 1\n")
        self.write("error 2\n")
        os.rename(self.log, self.log + ".1")
        self.write("fine\nerror 3\n")
        self.assertEqual(follower.wait_for("error 2\n", "error 3\n"),
                         ["error 1\n", "error 2\n", "error 3\n"])
        follower.end()

    def test_tailgrep_begins_again_when_the_log_is_cut(self):
        self.write("error before the cut\n" * 1000)
        follower = self.follow()
        follower.wait_for(*["error before the cut\n"] * 1000)
        self.write("", "w")
        self.write("error after\n")
        self.assertEqual(len(follower.wait_for("error after\n")), 1001)
        follower.end()

    def test_tailgrep_lives_through_a_log_that_is_cut_and_written_without_pause(self):
        lines = "".join(f"an error of 40 bytes and its number {i % 10}\n" for i in range(50000))
        self.write(lines)
        follower = self.follow()
        for i in range(60):
            self.write(lines[:len(lines) // (1 + i % 4)], "w")
        self.write("", "w")
        self.write("the last error\n")
        printed = follower.wait_for("the last error\n")
        self.assertIsNone(follower.process.poll(), "it died")
        self.assertEqual(follower.end(), -signal.SIGTERM)
        # Lines that were there at some time, and nothing of what was not: no zeros, no halves.
        allowed = {*lines.splitlines(keepends=True), "the last error\n"}
        self.assertEqual([line for line in printed if line not in allowed], [])

    def test_tailgrep_tells_what_it_cannot_search(self):
        for path, words in ((self.log, "No such file"), (self.directory, "Is a directory")):
            result = run("tailgrep", "x", path)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(words, result.stderr)
        self.assertEqual(run("tailgrep").returncode, 2)

    def test_gapalloc_gives_addresses_that_devices_can_reach(self):
        result = run("gapalloc")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        addresses = [int(text, 16) for text in
                     re.findall(r"bits, [^:]*: 0x([0-9a-f]+)$", result.stdout, re.MULTILINE)]
        self.assertEqual(len(addresses), 3)
        small, large, high = addresses
        self.assertTrue(small + 9000 <= 1 << 32 and large + (24 << 20) <= 0xfee00000)
        self.assertTrue(large % (2 << 20) == high % (2 << 20) == 0 and high >= 1 << 32)
        for line in ("buffer 2, offset 0x12345", "reserved for interrupts",
                     "5 GiB: No space left on device", "over it: File exists",
                     "of 50000 new pages 50000 lie in gaps of old buffers"):
            self.assertIn(line, result.stdout)

    def test_manyfiles_serves_a_hundred_thousand_files_within_its_limits(self):
        result = run("manyfiles", self.directory, 100000, 200000)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("100000 files open", result.stdout)
        self.assertIn(" 0 answers wrong", result.stdout)
        maps, most, files, all_files = map(int, re.search(
            r"now (\d+) of (\d+) maps, (\d+) of (\d+) descriptors", result.stdout).groups())
        self.assertTrue(0 < maps <= most and 0 < files <= all_files)

    def test_manyfiles_tells_a_directory_that_is_not_there(self):
        result = run("manyfiles", self.directory + "/none", 10, 10)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("No such file", result.stderr)

    def test_windows_py_counts_lines_by_ctypes(self):
        self.write("a line\n" * 300000 + "the rest")
        result = subprocess.run([sys.executable, os.path.join(EXAMPLES, "windows.py"), self.log,
                                 os.path.join(BUILD, "libmapfold.so")], capture_output=True,
                                text=True, timeout=SECONDS, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, "300000 lines in 2100008 bytes\nread: 0 to 2100008\n")

    def test_forkcost_tells_what_a_fork_costs(self):
        result = subprocess.run([sys.executable, os.path.join(EXAMPLES, "forkcost.py"), "100"],
                                capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^100 maps: fork, exit and wait \d+\.\d\d ms\n$")

    def test_wrong_usage_exits_with_2_and_shows_it(self):
        for program, *arguments in (("gapalloc", "x"), ("tailgrep",), ("tailgrep", "x"),
                                    ("manyfiles",), ("manyfiles", "/tmp", "0"), ("forkcost.py",),
                                    ("forkcost.py", "x"), ("forkcost.py", "1", "2"), ("windows.py",)):
            result = run(program, *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), program)
            self.assertIn(f"usage: {program.split('/')[-1]}", result.stderr)

    def test_a_full_disk_is_told(self):
        self.write("error\n" * 100000)
        with open("/dev/full", "w", encoding="ascii") as full:
            for program, *arguments in (("gapalloc",), ("tailgrep", "-1", "error", self.log),
                                        ("manyfiles", self.directory, 10, 10)):
                result = run(program, *arguments, stdout=full)
                self.assertEqual(result.returncode, 1, program)
                self.assertIn("standard output: No space left on device", result.stderr)

    def test_windows_py_tells_an_error_by_its_name(self):
        result = subprocess.run([sys.executable, os.path.join(EXAMPLES, "windows.py"), self.log,
                                 os.path.join(BUILD, "libmapfold.so")], capture_output=True,
                                text=True, timeout=SECONDS, check=False)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("No such file", result.stderr)


if __name__ == "__main__":
    BUILD = sys.argv[1]
    tap_result.main(Examples, sys.argv[2:])
