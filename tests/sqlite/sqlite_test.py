#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The extension as its users meet it: the sqlite3 shell, Python, and mapfold bench sqlite.

Usage: sqlite_test.py MAPFOLD EXTENSION [TEST...]
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import tap_result  # noqa: E402

MAPFOLD = EXTENSION = ""

IN_PYTHON = """
import os, sqlite3, sys
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(sys.argv[1])
db = sqlite3.connect(f"file:{sys.argv[2]}?vfs=mapfold&mapfold_faults=1", uri=True)
db.execute("PRAGMA mmap_size=1000000000000")
print(db.execute("SELECT count(*), sum(id) FROM t WHERE length(x)=300").fetchone())
print(db.execute("PRAGMA mapfold_stats").fetchone()[0].split()[0])
print(sys.argv[2] in open("/proc/self/maps").read())
os.truncate(sys.argv[2], 20 * 4096)
try:
    print(db.execute("SELECT count(*) FROM t WHERE length(x)=300").fetchone())
except sqlite3.DatabaseError as error:
    print(error)
"""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=170, check=False,
                          **{"stdin": subprocess.DEVNULL, **options})


class Sqlite(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="mapfold-sqlite-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.path = os.path.join(self.directory, "a.db")

    def shell(self, script):
        if not shutil.which("sqlite3"):
            self.skipTest("there is no sqlite3 shell")
        lines = [line.strip() for line in script.splitlines()]  # a dot has to come first
        return run("sqlite3", "-batch", "-bail", stdin=None, input="\n".join(lines))

    def fill(self):
        result = self.shell(f""".open {self.path}
            CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB);
            WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c WHERE i<5000)
            INSERT INTO t SELECT i, randomblob(300) FROM c;""")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_the_shell_loads_it_and_reads_through_it(self):
        self.fill()
        for name in (EXTENSION, EXTENSION.removesuffix(".so")):
            result = self.shell(f""".load {name}
                .load {name}
                .open 'file:{self.path}?vfs=mapfold&mapfold_faults=1&mapfold_budget=8M'
                PRAGMA mmap_size=1000000000;
                SELECT count(*), sum(id), min(length(x)) FROM t;
                UPDATE t SET x=x WHERE id%100=0;
                PRAGMA integrity_check;
                PRAGMA mapfold_stats;""")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            lines = result.stdout.splitlines()
            self.assertEqual(lines[:3], ["1000000000", "5000|12502500|300", "ok"])
            self.assertRegex(lines[3], r"^fetched [1-9]\d+, read \d+")

    def test_a_wrong_parameter_is_told_by_the_log(self):
        for parameter, value in (("mapfold_budget", "lots"), ("mapfold_faults", "ture")):
            result = self.shell(f""".log stderr
                .load {EXTENSION}
                .open 'file:{self.path}?vfs=mapfold&{parameter}={value}'
                SELECT 1 FROM t;""")
            self.assertIn("unable to open database", result.stderr)
            self.assertIn(f"{parameter} wants", result.stderr)
            self.assertIn(f"'{value}'", result.stderr)

    def test_a_parameter_that_is_misspelt_is_noted_in_the_log(self):
        result = self.shell(f""".log stderr
            .load {EXTENSION}
            .open 'file:{self.path}?vfs=mapfold&mapfold_buget=1M&mapfold_faults=0'
            SELECT 1;""")
        self.assertIn("there is no parameter mapfold_buget; there are", result.stderr)
        self.assertEqual((result.returncode, result.stdout), (0, "1\n"))

    def test_python_reads_through_it_and_outlives_a_cut(self):
        self.fill()
        probe = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)"
        pythons = [python for python in ("/usr/bin/python3", sys.executable)
                   if os.path.exists(python) and run(python, "-c", probe).returncode == 0]
        if not pythons:
            self.skipTest("this Python's SQLite loads no extensions")
        result = run(pythons[0], "-c", IN_PYTHON, EXTENSION, self.path)
        lines = result.stdout.splitlines()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(lines[:3], ["(5000, 12502500)", "fetched", "True"])
        self.assertRegex(lines[3], "disk image is malformed|disk I/O error")

    def test_it_exports_its_entry_point_and_needs_no_sqlite(self):
        shown = run("nm", "-D", "--defined-only", EXTENSION).stdout.split()
        self.assertEqual(shown[2:], ["sqlite3_mapfoldsqlite_init"])
        tags = run("readelf", "-dW", EXTENSION).stdout
        self.assertNotIn("libsqlite3", tags)
        self.assertIn("NODELETE", tags)

    def bench(self, *arguments):
        return run(MAPFOLD, "bench", *arguments, "--quick", "--dir", self.directory)

    def test_every_system_has_a_row_for_one_thread_and_for_two(self):
        result = self.bench("sqlite", "--n", "20000", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        found = [(row["workload"], row["system"], row["threads"], row["n"]) for row in rows]
        self.assertEqual(found, [(part, system, threads, 20000)
                                 for part in ("sqlite.point", "sqlite.scan") for threads in (1, 2)
                                 for system in ("read", "mmap", "mapfold", "mapfold-64M")])
        self.assertTrue(all(row["ops"] > 0 and row["ns_per_op"] > 0 for row in rows))
        self.assertEqual(os.listdir(self.directory), [])

    def test_tables_fit_100_columns(self):
        result = self.bench("sqlite.point", "--n", "1000,5000", "--against", "read,mapfold-64M")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100)

    def test_a_directory_may_have_any_name(self):
        directory = os.path.join(self.directory, "100%41? #1")
        os.mkdir(directory)
        result = run(MAPFOLD, "bench", "sqlite.point", "--n", "1000", "--quick", "--dir", directory)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(os.listdir(directory), [])

    def test_without_a_place_it_says_what_to_do(self):
        result = run(MAPFOLD, "bench", "sqlite", "--quick", "--dir", "/nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere", result.stderr)
        self.assertIn("--dir", result.stderr)

    def test_killed_it_leaves_no_file_behind(self):
        with subprocess.Popen([MAPFOLD, "bench", "sqlite", "--n", "1e7", "--dir", self.directory],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 20
            while not os.listdir(self.directory) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)
            process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while os.listdir(self.directory) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(os.listdir(self.directory), [])


if __name__ == "__main__":
    MAPFOLD, EXTENSION = map(os.path.abspath, sys.argv[1:3])
    tap_result.main(Sqlite, sys.argv[3:])
