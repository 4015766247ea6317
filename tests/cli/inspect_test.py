#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mapfold inspect on real processes. Usage: inspect_test.py MAPFOLD INSPECT_TARGET [TEST...]"""

import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

from cli_test import LIMIT, NOBODY

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import tap_result  # noqa: E402

MAPFOLD = TARGET = ""
OVER, DENIED, GONE, NO_MAPS = 3, 4, 5, 6


# Pieces of files that overlap and do not, of two kinds; FILES and PAGES decide how deeply.
PYTHON = """
import mmap, os, random, sys
files, pages = map(int, sys.argv[1:])
rng = random.Random(1)
fds = [os.open(f"data{i}", os.O_RDWR | os.O_CREAT) for i in range(files)]
for fd in fds: os.ftruncate(fd, 4 << 20)
maps = [mmap.mmap(fds[i % files], 4096 * rng.randint(1, 8), prot=mmap.PROT_READ,
                  flags=mmap.MAP_SHARED if i % 3 else mmap.MAP_PRIVATE,
                  offset=4096 * rng.randrange(pages)) for i in range(4000)]
print("ready", flush=True)
sys.stdin.read()
"""


def inspect(*arguments, **options):
    return subprocess.run([MAPFOLD, "inspect", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False, **options)


def read_limit():
    with open(LIMIT, encoding="ascii") as file:
        return int(file.read())


def count_maps(pid):
    with open(f"/proc/{pid}/maps", "rb") as file:
        return sum(1 for line in file if not line.endswith(b"[vsyscall]\n"))


def kernel_thread():
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                if int(file.read().rsplit(")", 1)[1].split()[6]) & 0x200000:
                    return pid
        except OSError:
            continue
    return None


class Inspect(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="mapfold-inspect-")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, *arguments, expect=None):
        """A target with its maps made; its process."""
        process = subprocess.Popen([TARGET, *map(str, arguments)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, process)
        word, made = process.stdout.readline().split()
        self.assertEqual(word, "ready")
        if expect is not None:
            self.assertEqual(int(made), expect)
        return process

    @staticmethod
    def stop(process):
        process.kill()
        process.communicate()

    def report(self, *arguments, code=0, **options):
        """The JSON object of one process."""
        result = inspect(*arguments, "--json", **options)
        self.assertEqual((result.returncode, result.stderr), (code, ""))
        return json.loads(result.stdout)

    def save(self, content):
        path = self.path("saved.maps")
        with open(path, "wb") as file:
            file.write(content)
        return path

    def assert_fits(self, text):
        self.assertLessEqual(max(map(len, text.splitlines())), 100, text)

    def low_limit(self):
        if read_limit() > 1000000:
            self.skipTest("vm.max_map_count is too high to be reached here")
        return read_limit()

    def test_maps_are_counted_as_the_kernel_counts_them(self):
        process = self.start("pieces", self.path("data"), 1000)
        report = self.report(process.pid)
        self.assertEqual(report["used"], count_maps(process.pid))
        self.assertEqual(report["limit"], read_limit())
        self.assertEqual(report["left"], read_limit() + 1 - report["used"])
        self.assertEqual(sum(cause["maps"] for cause in report["causes"].values()), report["used"])

    def test_at_50_and_90_and_99_point_9_percent_the_share_and_the_exit_code_are_right(self):
        limit = self.low_limit()
        for share, warn, code in ((500, 60, 0), (900, 60, OVER), (900, 90.5, 0), (999, 99, OVER)):
            process = self.start("pieces", self.path("data"), limit * share // 1000)
            report = self.report(process.pid, "--warn", warn, code=code)
            self.assertEqual(report["used"], count_maps(process.pid))
            self.assertAlmostEqual(report["percent"], share / 10, delta=0.1)
            self.assertEqual(report["files"][0]["name"], self.path("data"))
            self.assertLess(report["fold"]["maps_after"], 60)
            text = inspect(process.pid).stdout
            self.assert_fits(text)
            if share > 500:
                self.assertIn("mapfold run PROGRAM", text)
            self.stop(process)

    def test_at_the_limit_the_kernel_has_one_map_more_and_that_is_told(self):
        limit = self.low_limit()
        process = self.start("pieces", self.path("data"), limit + 100)
        report = self.report(process.pid)
        self.assertEqual(report["used"], limit + 1)
        self.assertEqual(report["left"], 0)
        self.assertIn("It is at the limit", inspect(process.pid).stdout)

    def estimate_and_truth(self, argv, feed=b"", enough=b"ready"):
        """What inspect says that run would make of a program, and what run makes of it."""
        counts = []
        for prefix in ([], [MAPFOLD, "run", "--"]):
            process = subprocess.Popen(prefix + argv, cwd=self.directory, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
            self.addCleanup(self.stop, process)
            writer = threading.Thread(target=lambda: (process.stdin.write(feed),
                                                      process.stdin.flush()))
            writer.start()
            seen = b""
            while enough not in seen:
                piece = process.stdout.read1(1 << 16)
                self.assertTrue(piece, "the program ended early")
                seen = seen[-len(enough):] + piece
            writer.join()
            counts.append(self.report(process.pid)["fold"]["maps_after"] if not prefix
                          else count_maps(process.pid))
            self.stop(process)
        return counts

    def assert_estimate_is_near(self, *arguments):
        estimate, truth = self.estimate_and_truth(*arguments)
        print(f"# {estimate} estimated, {truth} with mapfold run", flush=True)
        self.assertLessEqual(abs(estimate - truth), 5 + truth / 20)

    def test_the_estimate_of_run_is_near_what_run_makes_of_python(self):
        for files, pages in ((20, 1000), (1, 30)):
            self.assert_estimate_is_near([sys.executable, "-c", PYTHON, str(files), str(pages)])

    def test_a_process_that_is_folded_already_is_told_so(self):
        process = subprocess.Popen([MAPFOLD, "run", "--", TARGET, "pieces", self.path("data"), "5000"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, process)
        self.assertEqual(process.stdout.readline(), "ready 5000\n")
        report = self.report(process.pid, "--limit", 40)
        self.assertEqual(report["fold"]["state"], "folded")
        self.assertEqual(report["fold"]["maps_after"], report["used"])
        self.assertNotIn("fold", [advice["action"] for advice in report["advice"]])
        self.assertIn("runs under it already", inspect(process.pid).stdout)

    def test_a_static_program_is_not_told_to_be_folded(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inspect_target.c")
        program = self.path("target")
        if not shutil.which("cc") or subprocess.run(
                ["cc", "-static", "-pthread", "-D_GNU_SOURCE", "-o", program, source], check=False,
                capture_output=True).returncode:
            self.skipTest("no static libc")
        process = subprocess.Popen([program, "pieces", self.path("data"), "5000"], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.stop, process)
        process.stdout.readline()
        report = self.report(process.pid, "--limit", 6000)
        self.assertEqual(report["fold"]["state"], "static")
        self.assertEqual(report["fold"]["maps_after"], report["used"])
        self.assertEqual([advice["action"] for advice in report["advice"]], ["raise", "program"])
        self.assertIn("linked statically", report["advice"][1]["text"])

    def test_copies_are_foretold_up_to_a_quarter_of_the_memory_and_in_bytes(self):
        code = b"".join(b"%x000-%x000 r-xp 0 08:01 %d /lib/x.so\n" % (i, i + 1, i) for i in (1, 3))
        pages = os.sysconf("SC_PHYS_PAGES") // 4
        count = pages * os.sysconf("SC_PAGESIZE") // (1 << 20) + 10000
        pieces = b"".join(b"%x-%x rw-p 0 08:01 9 /one\n" % (at, at + (1 << 20)) for at in
                          range(1 << 40, (1 << 40) + (count << 21), 1 << 21))
        path = self.save(code + pieces)
        fold = self.report("--file", path)["fold"]
        self.assertLessEqual(fold["copied_bytes"], pages * os.sysconf("SC_PAGESIZE"))
        self.assertEqual(fold["copied_bytes"], fold["copied"] << 20)
        self.assertGreaterEqual(fold["maps_after"], 10000)
        self.assertIn("stay because copies end at", " ".join(inspect("--file", path).stdout.split()))

    def test_the_estimate_of_run_is_near_what_run_makes_of_git(self):
        if not shutil.which("git"):
            self.skipTest("git is not installed")
        stream = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "programs",
                              "git_stream.py")
        environment = {**os.environ, "HOME": self.directory, "GIT_CONFIG_NOSYSTEM": "1"}
        result = subprocess.run(
            ["sh", "-ec", "git init -q -b main git; \"$0\" \"$1\" |"
             " git -C git fast-import --quiet --force; git -C git repack -q;"
             " git -C git cat-file --batch-all-objects --batch-check", sys.executable, stream],
            cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            check=True)
        objects = b"".join(line.split()[0] + b"\n" for line in result.stdout.splitlines())
        for window in ("4k", "16k"):
            self.assert_estimate_is_near(
                ["git", "-C", "git", "-c", f"core.packedGitWindowSize={window}", "-c",
                 "core.packedGitLimit=1g", "cat-file", "--batch"],
                objects + b"the end\n", b"the end missing")

    # CASES 5
    def test_deleted_files_are_grouped_by_directory_and_suffix(self):
        process = self.start("deleted", self.directory, 3000, expect=3000)
        report = self.report(process.pid)
        self.assertEqual(report["causes"]["deleted"]["maps"], 3000)
        self.assertEqual(report["ambiguous"], 0)
        self.assertEqual(report["directories"][0], {"name": self.directory + "/", "maps": 3000})
        self.assertEqual(report["suffixes"][0], {"name": ".tmp", "maps": 3000})
        self.assertTrue(report["files"][0]["deleted"])

    # CASES 8
    def test_protection_splits_of_one_range_are_no_files_and_folding_would_not_help(self):
        process = self.start("splits", 20000, expect=20000)
        report = self.report(process.pid, "--limit", 42000)
        self.assertGreaterEqual(report["causes"]["splits"]["maps"], 39990)
        self.assertEqual(report["causes"]["splits"]["ranges"], 1)
        self.assertEqual([advice["action"] for advice in report["advice"]], ["raise", "program"])
        self.assertIn("Folding files would not help", report["advice"][1]["text"])
        self.assertIn("sysctl -w vm.max_map_count=", report["advice"][0]["command"])

    def test_stacks_of_threads_code_and_heap_are_told_apart(self):
        process = self.start("stacks", 50, expect=50)
        report = self.report(process.pid)
        self.assertEqual(report["threads"], 51)
        self.assertGreaterEqual(report["causes"]["stacks"]["maps"], 51)
        self.assertGreater(report["causes"]["code"]["maps"], 5)
        self.assertGreater(report["causes"]["kernel"]["maps"], 0)
        self.assertEqual(report["causes"]["splits"]["maps"], 0)

    def test_names_with_blanks_newlines_backslashes_and_deleted_are_right(self):
        names = ["sp ace", " lead", "trail ", "a  b", "[heap]", "new\nline", "back\\012slash",
                 "back\\slash", "kept (deleted)", "gone", "gone (deleted)", "n\nl (deleted)",
                 "x" * 255, "caf\u00e9"]
        for name in names + ["bad\udcff"]:
            with open(self.path(name), "wb") as file:
                file.write(b"x" * 8192)
        process = self.start("each", self.directory, expect=2 * len(names) + 2)
        for name in ("gone", "gone (deleted)", "x" * 255):
            os.unlink(self.path(name))
        with open(self.path("gone (deleted)"), "wb") as file:  # another file, not the one mapped
            file.write(b"x")
        shown = {}
        for extra in ((), ("--smaps",)):  # by the kernel's query, and by text
            result = inspect(process.pid, "--json", *extra)
            self.assertEqual(result.returncode, 0)
            report = json.loads(result.stdout)
            self.assertEqual(report["ambiguous"], 0)
            self.assertEqual(report["causes"]["deleted"]["maps"], 6)
            shown[extra] = {file["name"]: file["deleted"] for file in report["files"]}
            self.assertEqual(len(report["files"]), 10)
        self.assertEqual(shown[()], shown[("--smaps",)])
        # Ten of fifteen are listed: look at each alone.
        self.stop(process)
        escaped = {"new\nline": "new\\012line", "back\\012slash": "back\\134012slash",
                   "n\nl (deleted)": "n\\012l (deleted)", "back\\slash": "back\\134slash",
                   "bad\udcff": "bad\\377"}
        for name in names + ["bad\udcff"]:
            self.check_name(name, escaped.get(name, name))

    def check_name(self, name, shown):
        directory = tempfile.mkdtemp(dir=self.directory)
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(b"x" * 8192)
        process = self.start("each", directory, expect=2)
        for deleted in (False, True):
            if deleted:
                os.unlink(path)
            for extra in ((), ("--smaps",)):
                files = json.loads(inspect(process.pid, "--json", *extra).stdout)["files"]
                files = [file for file in files if file["name"].startswith(directory)]
                if extra and deleted and "\\012" in name:
                    self.assertTrue(files[0]["ambiguous"])  # the text of a lost name cannot tell
                    continue
                if deleted and "\n" in name and extra:
                    continue
                self.assertEqual([(file["name"], file["deleted"], file["ambiguous"])
                                  for file in files],
                                 [(f"{directory}/{shown}", deleted, False)])
        self.stop(process)

    def test_a_target_that_maps_and_unmaps_meanwhile_is_read_to_its_end(self):
        process = self.start("churn", self.path("data"))
        time.sleep(0.3)
        for extra in ((), ("--smaps",)) * 10:
            result = inspect(process.pid, "--json", *extra)
            self.assertEqual(result.returncode, 0)
            report = json.loads(result.stdout)
            self.assertGreater(report["used"], 500)
            self.assertGreater(report["causes"]["code"]["maps"], 5)
            self.assertLess(report["mapped_bytes"], 1 << 40)

    def test_65530_maps_with_long_paths_need_4_descriptors_and_little_memory(self):
        limit = min(self.low_limit(), 65530)
        directory = self.directory
        for _ in range(12):
            directory += "/" + "d" * 250
        os.makedirs(directory)
        process = self.start("pieces", directory + "/data", limit - 60)

        def restrict():
            resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
            resource.setrlimit(resource.RLIMIT_AS, (64 << 20, 64 << 20))

        report = self.report(process.pid, "--plot", self.path("a.svg"), preexec_fn=restrict)
        self.assertEqual(report["used"], count_maps(process.pid))
        self.assertEqual(report["files"][0]["maps"], limit - 60)
        self.assertEqual(inspect("--all", preexec_fn=restrict).returncode, 0)

    def test_a_kernel_thread_another_users_process_and_an_exited_one_are_told_apart(self):
        messages = set()
        ended = subprocess.Popen(["true"])
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        results = [(inspect(ended.pid), GONE, "zombie")]
        ended.wait()
        results.append((inspect(ended.pid), GONE, "no such process"))
        thread = kernel_thread()
        if thread:
            results.append((inspect(thread), NO_MAPS, "kernel thread"))
        if os.geteuid() == 0 and subprocess.run([MAPFOLD, "--version"], user=NOBODY, check=False,
                                                capture_output=True).returncode == 0:
            results.append((inspect(os.getpid(), user=NOBODY), DENIED, "permission"))
            if thread:
                results.append((inspect(thread, user=NOBODY), NO_MAPS, "kernel thread"))
            everybody = inspect("--all", user=NOBODY)
            self.assertEqual(everybody.returncode, 0)
            self.assertIn("of other users", everybody.stdout)
            # Who asks for an alarm is told what it cannot see, also where the table is thrown away.
            everybody = inspect("--all", "--warn", 99.9, "--limit", 10**9, user=NOBODY)
            self.assertEqual(everybody.returncode, 0)
            self.assertRegex(everybody.stderr, r"--warn does not see \d+ process(es)? that could")
        for result, code, words in results:
            self.assertEqual((result.returncode, result.stdout), (code, ""))
            self.assertIn(words, result.stderr)
            messages.add(result.stderr.split(": ")[-1])
        self.assertGreaterEqual(len(messages), 2)

    def inspect_in_namespace(self, mount, *arguments, user=None):
        """In a mount namespace whose /proc is made otherwise."""
        script = f'{mount} && exec "$@"'
        if user:
            script = f'{mount} && exec setpriv --reuid={user} --regid={user} --clear-groups "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh"]
        if (os.geteuid() != 0 or not shutil.which("setpriv") or
                subprocess.run([*command, "true"], capture_output=True, check=False).returncode or
                subprocess.run([*command, MAPFOLD, "--version"], capture_output=True,
                               check=False).returncode):
            self.skipTest("cannot mount /proc otherwise, or run the command there")
        return subprocess.run([*command, MAPFOLD, "inspect", *map(str, arguments)],
                              capture_output=True, text=True, timeout=120, check=False)

    def test_without_proc_it_is_not_said_that_processes_have_exited(self):
        empty = "mount -t tmpfs tmpfs /proc"
        for arguments in (["1"], ["--all"]):
            result = self.inspect_in_namespace(empty, *arguments)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("is it mounted", result.stderr)

    def test_processes_that_proc_hides_are_told(self):
        hidden = "mount -t proc -o hidepid=2 proc /proc"
        result = self.inspect_in_namespace(hidden, "--all", "--warn", 90, "--limit", 10**9,
                                           user=NOBODY)
        self.assertEqual(result.returncode, 0)
        self.assertIn("which /proc hides", result.stdout)
        self.assertIn("/proc hides other users' processes (hidepid), so --warn", result.stderr)
        result = self.inspect_in_namespace(hidden, os.getpid(), user=NOBODY)
        self.assertEqual(result.returncode, DENIED)

    def test_a_process_that_exits_in_the_middle_is_told_to_have_exited(self):
        seen = set()
        for attempt in range(40):
            process = self.start("pieces", self.path("data"), 20000)
            timer = threading.Timer(0.0005 * attempt, process.kill)
            timer.start()
            result = inspect(process.pid, *(["--smaps"] if attempt % 2 else []))
            timer.join()
            self.assertIn(result.returncode, (0, GONE))
            if result.returncode == 0:
                self.assertRegex(result.stdout, r"20,0\d\d of")  # all or nothing
            seen.add(result.returncode)
            self.stop(process)
        self.assertTrue(seen)

    def test_all_processes_are_ranked_and_one_over_the_threshold_exits_with_3(self):
        process = self.start("pieces", self.path("data"), 30000)
        result = inspect("--all", "--json", "--limit", 40000, "--warn", 70)
        self.assertEqual(result.returncode, OVER)
        self.assertRegex(result.stderr, "^(mapfold inspect: note: --warn .*\n)?$")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        used = [row["used"] for row in rows if "used" in row]
        self.assertEqual(used, sorted(used, reverse=True))
        ours = [row for row in rows if row["pid"] == process.pid]
        self.assertEqual(ours[0]["used"], count_maps(process.pid))
        self.assertEqual(ours[0]["causes"]["files"], 30000)
        text = inspect("--all", "--limit", 40000)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assert_fits(text.stdout)

    def test_a_saved_copy_says_the_same_as_the_process(self):
        process = self.start("pieces", self.path("data"), 500)
        with open(f"/proc/{process.pid}/maps", "rb") as file:
            saved = self.save(file.read())
        with open(saved, "rb") as file:
            piped = subprocess.run([MAPFOLD, "inspect", "--file", "-", "--json"], stdin=file,
                                   capture_output=True, text=True, check=True)
        live = self.report(process.pid)
        for copy in (self.report("--file", saved), json.loads(piped.stdout)):
            for key in ("used", "causes", "files", "directories", "fold", "largest_gaps"):
                self.assertEqual(copy[key], live[key])

    def test_saved_copies_that_are_none_fail_with_a_message(self):
        for content, words in ((b"", "no line"), (b"garbage\n" * 1000, "no line"),
                               (os.urandom(100000), "no line"),
                               (b"1000-2000 r--- 0 08:01 5 /x\n", "no line"),
                               (b"x" * 500000, "no line")):
            result = inspect("--file", self.save(content))
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(words, result.stderr)
        for path, words in (("/nowhere", "No such file"), ("/", "Is a directory")):
            result = inspect("--file", path)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(words, result.stderr)

    def test_bad_lines_of_a_saved_copy_are_told_and_the_others_are_reported(self):
        path = self.save(b"1000-2000 r--p 0 08:01 5 /x\nhello\n3000-4000 rw-p 0 00:00 0\n5000-")
        result = inspect("--file", path)
        self.assertEqual(result.returncode, 1)
        self.assertIn("2 of", result.stdout)
        self.assertIn("2 lines are no maps and were left out, line 2 the first\n", result.stderr)
        # A damaged copy is no ground for an alarm.
        self.assertEqual(inspect("--file", path, "--warn", 0.0001).returncode, 1)
        path = self.save(b"1000-2000 r--p 0 08:01 5 /x\nRegards: Bob\n")
        result = inspect("--file", path)
        self.assertEqual(result.stderr, f"mapfold inspect: {path}: line 2 is no map and was left out\n")
        self.assertNotIn("resident", result.stdout)
        path = self.save(b"1000-2000 r--p 0 08:01 5 /" + b"x" * 300000 + b"\n")
        result = inspect("--file", path, "--warn", 0.0001)
        self.assertEqual((result.returncode, result.stderr),
                         (1, f"mapfold inspect: {path}: 1 line was too long and cut\n"))

    def test_copies_from_other_kernels_and_machines_are_read(self):
        arm = (b"00008000-0000c000 r-xp 00000000 b3:02 1234       /bin/busybox\n"
               b"be8f0000-be911000 rw-p 00000000 00:00 0          [stack]\n"
               b"ffff0000-ffff1000 r-xp 00000000 00:00 0          [vectors]\n")
        old = (b"08048000-0804c000 r-xp 00000000 03:05 1234       /bin/cat\n"
               b"b7f00000-b7f01000 rw-p b7f00000 00:00 0 \n"
               b"ffffe000-fffff000 r-xp 00000000 00:00 0          [vdso]\n")
        power = (b"10000000-10010000 r-xp 00000000 fd:00 5  /usr/bin/x\n"
                 b"7ffff7f00000-7ffff7f10000 rw-p 00000000 00:00 0 \n")
        android = (b"12c00000-32c00000 rw-p 00000000 00:00 0   [anon:dalvik-main space]\n"
                   b"7a00000000-7a00001000 rw-p 00000000 00:00 0 [anon:scudo:primary]\n"
                   b"7b00000000-7b00100000 rw-p 00000000 00:00 0 [anon:stack_and_tls:77]\n")
        for content, used in ((arm, 2), (old, 3), (power, 2), (android, 3)):
            self.assertEqual(self.report("--file", self.save(content))["used"], used)

    def test_smaps_is_read_only_on_request_and_with_a_warning(self):
        process = self.start("stacks", 1)
        result = inspect(process.pid, "--smaps", "--json")
        self.assertEqual(result.returncode, 0)
        self.assertIn("page tables", result.stderr)
        self.assertGreater(json.loads(result.stdout)["causes"]["code"]["resident_bytes"], 0)
        self.assertNotIn("resident_bytes", self.report(process.pid)["causes"]["code"])

    def test_a_plot_is_a_whole_svg_or_no_file(self):
        process = self.start("splits", 5000)
        path = self.path("a.svg")
        result = inspect(process.pid, "--plot", path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        xml.etree.ElementTree.parse(path)
        self.assertLess(os.path.getsize(path), 1 << 20)
        for wrong in ("/nowhere/a.svg", self.directory, "/dev/full"):
            result = inspect(process.pid, "--plot", wrong)
            self.assertEqual(result.returncode, 1)
            self.assertIn(wrong, result.stderr)
        self.assertEqual(glob.glob(self.path("*.svg")), [path])

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            for option in ([str(os.getpid())], [str(os.getpid()), "--json"], ["--all"]):
                result = subprocess.run([MAPFOLD, "inspect", *option], stdout=full, text=True,
                                        stderr=subprocess.PIPE, check=False)
                self.assertEqual(result.returncode, 1)
                self.assertIn("No space left", result.stderr)

    def test_wrong_usage_exits_with_2_and_shows_the_usage(self):
        for arguments in ([], ["0"], ["-5"], ["12x"], ["1", "2"], ["1", "--all"],
                          ["--all", "--file", "x"], ["--all", "--plot", "x"], ["--all", "--smaps"],
                          ["1", "--warn", "0"], ["1", "--warn", "nan"], ["1", "--warn", "x"],
                          ["1", "--limit", "0"], ["1", "--limit", "-1"], ["1", "--limit", "1e9"],
                          ["99999999999"], ["1", "--frob"]):
            result = inspect(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertIn("Usage: mapfold inspect", result.stderr)
        self.assert_fits(inspect("--help").stdout)

    def test_too_little_memory_is_told(self):
        process = self.start("pieces", self.path("data"), 30000)

        def restrict():
            resource.setrlimit(resource.RLIMIT_AS, (8 << 20, 8 << 20))

        result = inspect(process.pid, preexec_fn=restrict)
        if result.returncode == 127 or "shared" in result.stderr:
            self.skipTest("the libraries alone need more")
        self.assertIn(result.returncode, (0, 1))
        self.assertTrue(result.returncode == 0 or "memory" in result.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    MAPFOLD, TARGET = map(os.path.abspath, sys.argv[1:3])
    tap_result.main(Inspect, sys.argv[3:])
