#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command as its users meet it. Usage: cli_test.py MAPFOLD EXAMPLE_MMAP_SCAN [TEST...]"""

import fcntl
import functools
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import tap_result  # noqa: E402

MAPFOLD = EXAMPLE = ""
LIMIT = "/proc/sys/vm/max_map_count"
NOBODY = 65534

# What a row may hold, and of which type. The first group is in every row.
ALWAYS = {"workload": str, "system": str, "n": int, "threads": int, "ops": int}
MEASURED = {"ns_per_op": float}
SOMETIMES = {"p50_ns": float, "p99_ns": float, "p999_ns": float, "sampled": int, "count": int,
             "misses_per_op": float, "kernel_maps": int, "bytes_per_area": float, "note": str,
             "lock_total": int, "lock_spin": float, "lock_reject": float, "lock_util": float,
             "lock_hold_mean_ns": float, "lock_hold_max_ns": float, "lock_wait_mean_ns": float,
             "lock_wait_max_ns": float, "lock_wait_cpu": float, "lock_steps_mean": float,
             "lock_steps_max": int}
SHARES = ("lock_spin", "lock_reject", "misses_per_op")


def run(*arguments, **options):
    return subprocess.run([MAPFOLD, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False, **options)


def read_limit():
    with open(LIMIT, encoding="ascii") as file:
        return int(file.read())


def alone_with_limit(test):
    """For tests that raise the limit, which the whole machine has: those that count on it hold a
    shared lock of its file."""

    def locked(self):
        with open(LIMIT, encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            test(self)

    return functools.wraps(test)(locked)


def may_raise_limit():
    return os.geteuid() == 0 and os.access(LIMIT, os.W_OK)


def check_row(row):
    """Raises ValueError if a row is not what the manual promises."""
    for key, kind in ALWAYS.items():
        if not isinstance(row.get(key), kind):
            raise ValueError(f"{key} is missing or not {kind.__name__}: {row}")
    for key, value in row.items():
        kind = {**ALWAYS, **MEASURED, **SOMETIMES}.get(key)
        if kind is None or not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"unexpected {key}={value!r}: {row}")
        if kind in (int, float) and value < 0:
            raise ValueError(f"{key} is negative: {row}")
    if any(row.get(key, 0) > 1 for key in SHARES):
        raise ValueError(f"a share above 1: {row}")
    if row["ops"] > 0 and row["workload"] != "files" and "p99_ns" not in row:
        raise ValueError(f"operations without percentiles: {row}")
    if row["ops"] > 0 and not all(key in row for key in MEASURED):
        raise ValueError(f"operations without times: {row}")
    if row["ops"] == 0 and "note" not in row:
        raise ValueError(f"nothing measured, and no note says why: {row}")


class Cli(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="mapfold-cli-")
        self.addCleanup(shutil.rmtree, self.directory)

    def assert_usage(self, result, *words):
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertIn("Usage: mapfold", result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def assert_failure(self, result, *words, status=1):
        self.assertEqual(result.returncode, status, result)
        self.assertTrue(result.stderr.startswith("mapfold"), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_help_and_version_go_to_stdout_with_exit_0(self):
        for arguments, word in ((["--help"], "bench"), (["bench", "--help"], "mmap_scan"),
                                (["bench", "--usage"], "--raise-limit"),
                                (["--version"], "mapfold 0.")):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn(word, result.stdout)

    def test_help_fits_100_columns(self):
        for arguments in (["--help"], ["bench", "--help"]):
            self.assertLessEqual(max(map(len, run(*arguments).stdout.splitlines())), 100)

    def test_wrong_usage_shows_the_usage_on_stderr_with_exit_2(self):
        self.assert_usage(run())
        self.assert_usage(run("frobnicate"), "frobnicate")
        self.assert_usage(run("--frob"), "--frob")
        self.assert_usage(run("bench", "--plot", "x.svg"), "one workload")
        self.assert_usage(run("bench", "--against", "mapfold,nobody"), "nobody")
        self.assert_usage(run("bench", "nonsense"), "nonsense")
        self.assert_usage(run("bench", "space", "mmap_scan"), "mmap_scan")
        self.assert_usage(run("bench", "files", "/etc", "/usr"), "/usr")
        self.assert_usage(run("bench", "space", "--frob"), "--frob")
        self.assert_usage(run("bench", "space", "--against", "mapfold,btrfs"), "btrfs")
        self.assert_usage(run("bench", "space", "--against", "mapfold,,kernel"), "--against")
        for sizes in ("0", "-3", "1e12", "1.5", "many", "", "1,,2", "nan"):
            self.assert_usage(run("bench", "space", "--n", sizes), "--n")
        for seconds in ("0", "-1", "soon", "nan", "inf"):
            self.assert_usage(run("bench", "space", "--seconds", seconds), "--seconds")

    def test_a_part_without_the_systems_asked_for_is_wrong_usage(self):
        for more in ([], ["--json"]):
            result = run("bench", "space.find", "--n", "1e3", "--quick", "--against", "kernel", *more)
            self.assert_failure(result, "space.find has none of the systems", status=2)
            self.assertEqual(result.stdout, "")
        # Of all workloads those that have it speak, and no others.
        result = run("bench", "--n", "64", "--quick", "--seconds", "0.3", "--against", "pool-2002")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("kmap_lock.", result.stdout)
        for other in ("space.", "mmap_scan", "window.", "sqlite", "mapping"):
            self.assertNotIn(other, result.stdout)

    def test_messages_show_no_control_characters_and_fit_100_columns_on_a_terminal(self):
        wrong = "no\x1b[31msuch\n" + "file " * 30
        for arguments in (["inspect", "--file", wrong], ["run", wrong], ["inspect", wrong], [wrong],
                          ["bench", "files", wrong], ["bench", "space", "--against", wrong],
                          ["run", "--promote", wrong, "true"], ["inspect", "1", "--warn", wrong]):
            result = run(*arguments)
            self.assertGreater(result.returncode, 0)
            self.assertIn("no\\033[31msuch\\012file", result.stderr)
            self.assertNotIn("\x1b", result.stderr)
        ours, theirs = pty.openpty()
        subprocess.run([MAPFOLD, "inspect", "--file", wrong], stderr=theirs, check=False)
        lines = os.read(ours, 4096).decode().splitlines()
        self.assertEqual((lines[0][:16], max(map(len, lines)) <= 100), ("mapfold inspect:", True))
        os.close(ours)
        os.close(theirs)

    def test_every_row_is_valid_json_and_nothing_else_is_printed(self):
        for arguments in (["space", "--n", "1,50,1000"], ["mmap_scan", "--n", "10000"],
                          ["mapping", "--n", "20000"],
                          ["kmap_lock", "--n", "64,256"],
                          ["window", "--n", "300"],
                          ["--n", "1000", "--against", "rbtree,space"]):
            result = run("bench", *arguments, "--quick", "--seconds", "0.3", "--json")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            rows = [json.loads(line) for line in result.stdout.splitlines()]
            for row in rows:
                check_row(row)
            self.assertGreater(len(rows), 10)

    def test_a_wrong_row_would_be_noticed(self):
        good = {"workload": "a", "system": "b", "n": 1, "threads": 1, "ops": 1,
                "ns_per_op": 1.0, "p50_ns": 1.0, "p99_ns": 1.0}
        with self.assertRaises(ValueError):
            check_row({key: value for key, value in good.items() if key != "p99_ns"})
        check_row(good)
        for change in ({"n": "1"}, {"surprise": 1}, {"ops": 0}, {"ns_per_op": -1.0},
                       {"threads": True}, {"lock_spin": 1.5}, {"sampled": "64"}):
            with self.assertRaises(ValueError):
                check_row({**good, **change})

    def test_only_the_systems_and_parts_asked_for_are_run(self):
        result = run("bench", "space.fifo", "--n", "1000", "--quick", "--json", "--against",
                     "mapfold,rbtree")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([(row["workload"], row["system"]) for row in rows],
                         [("space.fifo", "mapfold"), ("space.fifo", "rbtree")])

    def test_tables_fit_100_columns_and_no_progress_is_shown_without_a_terminal(self):
        for arguments in (["space", "--n", "1000"], ["mmap_scan", "--n", "60000"],
                          ["kmap_lock", "--n", "64,128"], ["window", "--n", "300"]):
            result = run("bench", *arguments, "--quick", "--seconds", "0.3")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual([line for line in result.stdout.splitlines() if len(line) > 100], [])

    def test_progress_is_shown_on_a_terminal(self):
        ours, theirs = pty.openpty()
        subprocess.run([MAPFOLD, "bench", "space.fifo", "--n", "1000", "--quick", "--against",
                        "mapfold"], stdout=subprocess.DEVNULL, stderr=theirs, timeout=60,
                       check=True)
        self.assertIn(b"space.fifo", os.read(ours, 4096))
        os.close(ours)
        os.close(theirs)

    def test_a_series_that_takes_too_long_says_where_it_was_stopped(self):
        result = run("bench", "space.steady", "--n", "1e6", "--seconds", "0.01", "--json",
                     "--against", "rbtree")
        self.assertEqual(result.returncode, 0)
        self.assertIn("stopped by --seconds while filling at", result.stdout)

    def test_where_the_kernel_hits_its_limit_the_row_says_so(self):
        if read_limit() > 1000000:
            self.skipTest("vm.max_map_count is too high to be reached here")
        count = str(read_limit() + 10000)
        result = run("bench", "mmap_scan.grow", "--n", count, "--json", "--against", "kernel")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout.splitlines()[-1], r'"note":"ENOMEM at \d+ maps"')

    def rows(self, *arguments):
        result = run("bench", *arguments, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        for row in rows:
            check_row(row)
        return rows

    def test_kmap_lock_has_a_row_for_each_way_and_counts_what_its_locks_went_through(self):
        rows = self.rows("kmap_lock", "--n", "64,256", "--quick", "--dir", self.directory)
        ways = [row["system"] for row in rows if row["workload"] == "kmap_lock.processes-same"]
        self.assertEqual(ways, ["read+lseek", "pread", "mmap", "pool-2002", "window", "local"])
        self.assertEqual(len({row["workload"] for row in rows}), 6)
        for row in rows:
            pool = row["system"] in ("pool-2002", "window", "local")
            self.assertEqual("lock_total" in row and "lock_steps_max" in row, pool, row)
            self.assertEqual("lock_util" in row, row["system"] == "pool-2002", row)
            if row["workload"].startswith("kmap_lock.threads") and row["system"] == "pool-2002":
                self.assertGreater(row["lock_total"], 0)
        # The pool of 2002 looks at all slots when it wraps; ours at some, however many there are.
        worst = {(row["system"], row["n"]): row["lock_steps_max"] for row in rows
                 if row["workload"] == "kmap_lock.slots-held"}
        for slots in (64, 256):
            self.assertGreaterEqual(worst["pool-2002", slots], slots)
            self.assertLessEqual(worst["window", slots], 32)

    def test_the_slots_of_kmap_lock_have_bounds(self):
        for slots in ("63", "32769"):
            self.assert_failure(run("bench", "kmap_lock", "--n", slots), "slots", slots, status=2)

    def test_window_runs_all_systems_by_one_thread_and_two_and_leaves_no_file(self):
        rows = self.rows("window.files", "--n", "500", "--quick", "--dir", self.directory)
        every = ["window", "local", "mf_read", "mmap", "whole", "pread", "lru_cache",
                 "shared_refcount"]
        self.assertEqual([(row["system"], row["threads"]) for row in rows],
                         [(system, threads) for system in every for threads in (1, 2)])
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_cache_that_is_large_enough_misses_nothing(self):
        for part in ("window.hot", "window.hot.dependent"):
            for row in self.rows(part, "--quick", "--against", "window,lru_cache,shared_refcount"):
                self.assertEqual(row["misses_per_op"], 0, row)

    def test_more_files_than_kernel_maps_are_a_note(self):
        if read_limit() > 1000000:
            self.skipTest("vm.max_map_count is too high to be reached here")
        count = str(read_limit() + 1000)
        rows = self.rows("window.files-uniform", "--n", count, "--quick", "--against", "whole",
                         "--dir", self.directory)
        self.assertEqual([row["ops"] for row in rows], [0, 0])
        self.assertIn("ENOMEM", rows[0]["note"])

    def test_the_test_files_go_however_the_run_ends(self):
        for part in ("window.files", "sqlite"):
            if part == "sqlite" and "  sqlite:" not in run("bench", "--help").stdout:
                continue  # built without it
            for number in (signal.SIGINT, signal.SIGKILL):
                process = subprocess.Popen([MAPFOLD, "bench", part, "--n", "20000", "--dir",
                                            self.directory], stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL)
                deadline = time.monotonic() + 120
                while not os.listdir(self.directory):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.001)
                process.send_signal(number)
                process.wait(60)
                while os.listdir(self.directory):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.01)

    def test_every_file_of_a_tree_is_compared_with_pread(self):
        tree = os.path.join(self.directory, "tree")
        os.makedirs(os.path.join(tree, "below"))
        for i, size in enumerate((0, 1, 4095, 4096, 4097, 70000, 3 << 20)):
            with open(os.path.join(tree, "below", str(i)), "wb") as file:
                file.write(os.urandom(size))
        os.symlink("0", os.path.join(tree, "link"))
        os.mkfifo(os.path.join(tree, "fifo"))
        result = run("bench", "files", tree)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("7 files, 6 of them read, 1 empty, 0 unreadable, 0 changed", result.stdout)
        for row in self.rows("files", tree):
            self.assertEqual((row["n"], row["ops"]), (6, 36 if row["system"] == "pread" else 12))

    def test_a_file_that_cannot_be_read_is_named(self):
        if os.geteuid() == 0:
            self.assertEqual(subprocess.run(["chmod", "755", self.directory], check=False)
                             .returncode, 0)
        path = os.path.join(self.directory, "secret")
        with open(path, "w", encoding="ascii") as file:
            file.write("x")
        os.chmod(path, 0)
        options = {"user": NOBODY} if os.geteuid() == 0 else {}
        if options and subprocess.run([MAPFOLD, "--version"], user=NOBODY, check=False,
                                      capture_output=True).returncode:
            self.skipTest("cannot run the command as another user")
        result = run("bench", "files", self.directory, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("1 unreadable", result.stdout)
        self.assertIn("secret: Permission denied", result.stdout)

    def test_a_tree_that_is_not_there_is_told(self):
        self.assert_failure(run("bench", "files", "/nowhere"), "/nowhere", "No such file")
        self.assert_failure(run("bench", "files", MAPFOLD), MAPFOLD, "Not a directory")

    def test_a_test_file_that_cannot_be_made_is_told_with_its_directory(self):
        self.assert_failure(run("bench", "window.files", "--quick", "--dir", "/nowhere"),
                            "/nowhere", "No such file", "--dir")
        self.assert_failure(run("bench", "mmap_scan", "--quick", "--dir", "/nowhere"), "/nowhere",
                            "No such file", "--dir")
        self.assert_failure(run("bench", "space", "--quick", "--dir", MAPFOLD), MAPFOLD,
                            "Not a directory")

    def test_a_file_system_that_cannot_map_or_make_files_is_told(self):
        self.assert_failure(run("bench", "mmap_scan", "--quick", "--dir", "/proc"), "/proc")

    def test_a_full_disk_ends_with_a_message_and_leaves_nothing(self):
        script = ('mount -t tmpfs -o size=16k tmpfs "$1" && '
                  '{ "$2" bench mmap_scan --quick --dir "$1"; code=$?; ls -A "$1"; exit $code; }')
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no private mounts here")
        result = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", self.directory,
                                 MAPFOLD], capture_output=True, text=True, check=False)
        self.assert_failure(result, self.directory, "No space left")
        self.assertEqual(result.stdout, "")
        if not shutil.which("gnuplot"):
            return
        script = script.replace("mmap_scan --quick --dir \"$1\"",
                                "space.fifo --quick --n 100 --plot \"$1/a.svg\" >&2")
        result = subprocess.run(["unshare", "-m", "sh", "-c", script.replace("16k", "4k"), "sh",
                                 self.directory, MAPFOLD], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("No space left", result.stderr)

    def test_results_that_cannot_be_written_are_a_failure(self):
        for arguments in (["--help"], ["bench", "space.fifo", "--n", "1000", "--quick", "--json"],
                          ["bench", "space.fifo", "--n", "1000", "--quick"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                result = subprocess.run([MAPFOLD, *arguments], stdout=full,
                                        stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn("No space left", result.stderr)

    def test_a_low_address_space_limit_ends_with_a_message(self):
        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (64 << 20, 64 << 20))
        result = run("bench", "space.steady", "--n", "1e7", "--against", "rbtree",
                     preexec_fn=limit_memory)
        self.assert_failure(result, "memory", "ulimit -v", "65536 KiB")
        result = run("bench", "space.steady", "--n", "1e6", "--against", "mapfold", "--json",
                     "--quick", preexec_fn=limit_memory)
        self.assertIn(result.returncode, (0, 1))
        self.assertTrue("ENOMEM" in result.stdout or "memory" in result.stderr or
                        '"ops":' in result.stdout)

    def interrupt(self, number, *arguments):
        """Starts a long run and ends it by a signal; its exit code and messages."""
        process = subprocess.Popen([MAPFOLD, "bench", "mmap_scan.grow", "--n", "1e7", "--against",
                                    "kernel-anon", "--dir", self.directory, *arguments],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(0.6)
        raised = read_limit()
        process.send_signal(number)
        errors = process.communicate(timeout=150)[1]
        return process.returncode, errors, raised

    def test_an_interrupted_run_says_so_and_leaves_no_file(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            code, errors, _ = self.interrupt(number)
            self.assertEqual(code, -number)
            self.assertEqual(errors, "mapfold bench: interrupted\n")
            self.assertEqual(os.listdir(self.directory), [])

    @alone_with_limit
    def test_the_limit_is_restored_however_the_run_ends(self):
        if not may_raise_limit():
            self.skipTest("needs root and a writable vm.max_map_count")
        before = read_limit()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL,
                       signal.SIGSEGV):
            code, _, raised = self.interrupt(number, "--raise-limit")
            self.assertEqual((code, raised > before), (-number, True))
            deadline = time.monotonic() + 5
            # Only after a death that cannot be handled may it take a moment.
            while read_limit() != before and number in (signal.SIGKILL, signal.SIGSEGV):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            self.assertEqual(read_limit(), before)
        result = run("bench", "space.fifo", "--n", "100000", "--quick", "--against", "kernel",
                     "--raise-limit", "--dir", self.directory)
        self.assertEqual((result.returncode, read_limit()), (0, before))
        self.assertIn(f"raised from {before}", result.stdout)
        result = run("bench", "space.fifo", "--raise-limit", "--dir", "/nowhere")
        self.assertEqual((result.returncode, read_limit()), (1, before))

    @alone_with_limit
    def test_two_runs_do_not_raise_the_limit_at_once(self):
        if not may_raise_limit():
            self.skipTest("needs root and a writable vm.max_map_count")
        before = read_limit()
        first = subprocess.Popen([MAPFOLD, "bench", "mmap_scan.grow", "--n", "1e7", "--against",
                                  "kernel-anon", "--raise-limit"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        time.sleep(0.6)
        # Asks for more than the first has raised it to, so that it would have to raise it too.
        second = run("bench", "mmap_scan.grow", "--n", "2e7", "--against", "kernel",
                     "--raise-limit")
        first.terminate()
        first.wait(30)
        self.assert_failure(second, "another run")
        self.assertEqual(read_limit(), before)

    def test_the_limit_is_not_raised_without_root(self):
        if os.geteuid() != 0 or subprocess.run([MAPFOLD, "--version"], user=NOBODY, check=False,
                                               capture_output=True).returncode:
            self.skipTest("cannot run the command as another user")
        if read_limit() > 2000000:
            self.skipTest("vm.max_map_count is high enough already")
        result = run("bench", "space.fifo", "--raise-limit", user=NOBODY)
        self.assert_failure(result, "root", "Permission denied")

    def test_without_gnuplot_or_perf_the_message_names_what_is_missing(self):
        environment = {**os.environ, "PATH": self.directory}
        self.assert_failure(run("bench", "space", "--plot", "x.svg", env=environment), "gnuplot")
        self.assert_failure(run("bench", "space", "--profile", env=environment), "perf")

    def test_a_plot_is_a_whole_svg_or_no_file(self):
        if not shutil.which("gnuplot"):
            self.skipTest("no gnuplot")
        for workload, against, n in (("space", "mapfold,kernel", 10000),
                                     ("mmap_scan", "space,kernel", 10000),
                                     ("mapping", "mapping", 10000),
                                     ("kmap_lock.threads-same", "pool-2002,window", 128),
                                     ("window", "window,pread", 300)):
            path = os.path.join(self.directory, workload + ".svg")
            result = run("bench", workload, "--n", str(n), "--quick", "--seconds", "1",
                         "--plot", path, "--against", against)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            xml.etree.ElementTree.parse(path)
        self.assert_failure(run("bench", "space", "--quick", "--plot", "/nowhere/a.svg"),
                            "/nowhere/a.svg")
        self.assert_failure(run("bench", "space", "--quick", "--plot", self.directory),
                            self.directory)
        result = run("bench", "space.fifo", "--quick", "--n", "1000", "--plot", "/dev/full")
        self.assert_failure(result, "/dev/full", "No space left")
        self.assertTrue(os.path.exists("/dev/full") and not os.path.isfile("/dev/full"))

    def test_a_profile_shows_symbols_ticks_and_shares_or_what_is_missing(self):
        result = run("bench", "space.fifo", "--n", "20000", "--against", "linear", "--profile",
                     "--seconds", "2")
        if result.returncode == 1:
            self.assertIn("cannot", result.stderr)
            return
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"linear_place\S* +mapfold-bench +\d+ +\d+\.\d%")

    def test_the_example_of_the_mail_runs_and_explains_the_limit(self):
        result = subprocess.run([EXAMPLE, "--count", "30000", "--window", "1000", "--read",
                                 "--write", "--pages", "4"], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.count("Time:"), 6)
        self.assertIn("30000 mapped, 1000 live", result.stdout)
        for wrong in (["--count", "0"], ["--frob"], ["extra"], ["--pages", "x"]):
            result = subprocess.run([EXAMPLE, *wrong], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn("Usage:", result.stderr)
        if read_limit() > 1000000:
            self.skipTest("vm.max_map_count is too high to be reached here")
        count = str(read_limit() + 1000)
        result = subprocess.run([EXAMPLE, "--count", count, "--window", count],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        for words in ("Cannot allocate memory", "vm.max_map_count allows", "sysctl"):
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    # What nohup or a shell's & have us ignore, the command must get all the same.
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)
    MAPFOLD, EXAMPLE = map(os.path.abspath, sys.argv[1:3])
    tap_result.main(Cli, sys.argv[3:])
