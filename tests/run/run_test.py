#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mapfold run as its users meet it. Usage: run_test.py MAPFOLD EXAMPLE_MMAP_SCAN [TEST...]"""

import glob
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

MAPFOLD = EXAMPLE = ""
LIMIT = "/proc/sys/vm/max_map_count"

# Maps pages of a file, changes some, and tells what it sees.
PYTHON = """
import mmap, os, sys
f = open(sys.argv[1], "r+b")
maps = [mmap.mmap(f.fileno(), 8192, mmap.MAP_PRIVATE if i % 2 else mmap.MAP_SHARED,
                  offset=4096 * (i % 50)) for i in range(400)]
for i, m in enumerate(maps):
    m[i % 4096] = i % 256
print([m[i % 4096] for i, m in enumerate(maps)])
del maps[::2]
maps = None
f.seek(0)
print(hash(f.read()) == hash(open(sys.argv[1], "rb").read()), os.getpid() > 0)
"""

# A parent that maps, and a child that it runs.
INHERIT = """
import mmap, subprocess, sys
f = open(sys.argv[1], "r+b")
maps = [mmap.mmap(f.fileno(), 4096, offset=4096 * i) for i in range(50)]
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]]).returncode)
"""

# A program whose data file has the number of standard error.
STDERR_IS_DATA = """
import mmap, os, sys
os.close(2)
assert os.open(sys.argv[1], os.O_RDWR | os.O_TRUNC) == 2
os.write(2, b"data" * 4096)
maps = [mmap.mmap(2, 4096) for i in range(50)]
"""


def command(*arguments, **options):
    return subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=1800, check=False, **options)


def folded(*arguments, options=(), **more):
    return command(MAPFOLD, "run", *options, "--", *arguments, **more)


class Run(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="mapfold-run-", dir=os.getcwd())
        self.addCleanup(shutil.rmtree, self.directory)
        self.file = os.path.join(self.directory, "data")
        with open(self.file, "wb") as file:
            file.write(os.urandom(4096 * 64))

    def same(self, *arguments, **options):
        plain, run = command(*arguments, **options), folded(*arguments, **options)
        self.assertEqual((run.returncode, run.stdout, run.stderr),
                         (plain.returncode, plain.stdout, plain.stderr))
        return run

    def test_the_status_and_output_are_the_programs_own(self):
        for status in (0, 1, 2, 77):
            self.same("sh", "-c", f"echo out; echo err >&2; exit {status}")

    def test_wrong_usage_exits_with_2(self):
        for arguments in ([], ["--linger=x", "true"], ["--nonsense", "true"], ["--max-copy=1X", "true"],
                          ["--promote=0", "true"]):
            run = command(MAPFOLD, "run", *arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn("mapfold run", run.stderr)

    def test_a_program_that_is_not_there_exits_with_127_and_one_that_cannot_be_executed_with_126(self):
        for program, status in (("/nowhere/at/all", 127), ("no-program-of-PATH", 127),
                                (self.file, 126), (self.directory, 126)):
            run = folded(program)
            self.assertEqual((run.returncode, run.stdout), (status, ""))
            self.assertIn(f"cannot run {program}", run.stderr)

    def test_a_file_of_stats_in_a_word_of_its_own_is_not_run(self):
        for option in ("-s", "--stats"):
            run = command(MAPFOLD, "run", option, "true", "--", "true")
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn("--stats=true", run.stderr)
        run = command(MAPFOLD, "run", "--stats", "--", sys.executable, "-c", "", "--")
        self.assertEqual(run.returncode, 0)
        self.assertIn("calls", run.stderr)

    def program(self, name="program", source="/bin/true", change=None):
        """A copy of a program, its bytes changed."""
        path = os.path.join(self.directory, name)
        with open(source, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content) if change else content)
        os.chmod(path, 0o755)
        return path

    def static(self, *options):
        """A program that is linked statically and ends with 5."""
        source = os.path.join(self.directory, "static.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("int main(void) { return 5; }\n")
        program = os.path.join(self.directory, "static")
        if not shutil.which("cc") or command("cc", *options, "-o", program, source).returncode:
            self.skipTest("no static libc")
        return program

    def script(self, interpreter):
        path = os.path.join(self.directory, f"script{len(os.listdir(self.directory))}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#! {interpreter} x\n")
        os.chmod(path, 0o755)
        return path

    def test_a_program_with_rights_of_its_own_is_named(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        program = self.program()
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
        self.assertIn("rights of its own", folded(program).stderr)
        # Where the kernel gives no rights the drop-in is loaded, and nothing else may be said.
        if shutil.which("setpriv"):
            run = command("setpriv", "--no-new-privs", MAPFOLD, "run", "--stats", "--", program)
            self.assertTrue(run.stderr.startswith("mapfold: program (process"), run.stderr)

    def test_root_has_the_capabilities_of_a_file_already(self):
        program = self.program()
        setcap = shutil.which("setcap", path="/usr/sbin:/sbin:" + os.environ["PATH"])
        if os.geteuid() != 0 or not setcap or command(setcap, "cap_net_raw+ep", program).returncode:
            self.skipTest("cannot give a file capabilities")
        run = folded(program, options=["--stats"])
        self.assertTrue(run.stderr.startswith("mapfold: program (process"), run.stderr)

    def test_a_static_program_is_named_and_a_script_is_what_its_interpreter_is(self):
        for options in (["-static"], ["-static-pie"]):
            program = self.static(*options)
            script = self.script(program)
            for path in (program, script, self.script(script)):
                run = folded(path)
                self.assertEqual((run.returncode, run.stderr.count("\n")), (5, 1))
                self.assertIn(f"{program} is linked statically", run.stderr)
        run = folded(self.script("/bin/true"), options=["--stats"])
        self.assertTrue(run.stderr.startswith("mapfold: true (process"), run.stderr)

    def test_a_program_for_another_processor_is_named(self):
        for change in (lambda b: b[:4] + b"\1" + b[5:], lambda b: b[:18] + b"\xf3\0" + b[20:]):
            self.assertIn("no 64-bit program", folded(self.program(change=change)).stderr)

    def test_the_linker_itself_is_no_static_program(self):
        linker = glob.glob("/lib64/ld-linux*") + glob.glob("/lib/ld-linux-aarch64*")
        if not linker:
            self.skipTest("the dynamic linker is elsewhere")
        run = folded(linker[0], "/bin/true", options=["--stats"])
        self.assertTrue(run.stderr.startswith("mapfold: true (process"), run.stderr)

    def test_a_program_of_another_libc_runs_without_the_drop_in(self):
        place = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, place)
        with open("/usr/bin/env", "rb") as file:
            found = re.search(rb"/lib\d*/ld-linux[^\0]*\0", file.read())
        other = f"{place}/musl".encode()
        if not found or len(found[0]) <= len(other):
            self.skipTest("the dynamic linker is elsewhere")
        shutil.copy(found[0][:-1], other)
        run = folded(self.program("env", "/usr/bin/env", lambda content: content.replace(
            found[0], other.ljust(len(found[0]), b"\0"))))
        self.assertEqual((run.returncode, run.stderr.count("another libc than glibc")), (0, 1))
        self.assertNotIn("LD_PRELOAD", run.stdout)

    def test_python_sees_the_same(self):
        self.same(sys.executable, "-c", PYTHON, self.file)

    def test_children_inherit_it_and_each_reports(self):
        report = os.path.join(self.directory, "report")
        run = folded(sys.executable, "-c", INHERIT, self.file, PYTHON, options=[f"--stats={report}"])
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(report, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(sum(line.startswith("mapfold:") for line in lines), 2)
        self.assertTrue(all(len(line) <= 100 for line in lines))
        self.assertGreater(sum(int(line.split()[1]) for line in lines if "carved" in line), 0)

    def test_a_file_that_the_report_cannot_go_to_is_refused_at_once(self):
        run = folded("true", options=["--stats=/nonexistent/report"])
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("cannot write to /nonexistent/report: No such file or directory", run.stderr)

    def test_a_report_that_its_file_does_not_take_goes_to_standard_error(self):
        run = folded("true", options=["--stats=/dev/full"])
        self.assertEqual((run.returncode, run.stdout), (0, ""))
        self.assertIn("cannot write the statistics to /dev/full: No space left on device\n"
                      "mapfold: true (process", run.stderr)
        self.assertIn("kernel maps now", run.stderr)

    def test_off_folds_nothing(self):
        run = folded(sys.executable, "-c", PYTHON, self.file, options=["--off", "--stats"])
        self.assertEqual(run.returncode, 0)
        self.assertIn(" 0 carved, 0 copied", run.stderr)

    def test_explain_says_why(self):
        run = folded(sys.executable, "-c", PYTHON, self.file, options=["--explain"])
        self.assertIn("mapfold: mappings are left to the kernel: too few live pieces", run.stderr)

    def test_nothing_is_written_into_a_file_that_took_the_number_of_stderr(self):
        run = folded(sys.executable, "-c", STDERR_IS_DATA, self.file, options=["--stats", "--explain"])
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("too few live pieces", run.stderr)
        self.assertNotIn("calls", run.stderr)
        with open(self.file, "rb") as file:
            self.assertEqual(file.read(), b"data" * 4096)

    def test_the_mails_program_goes_on_beyond_the_limit(self):
        with open(LIMIT, encoding="ascii") as file:
            limit = int(file.read())
        if limit > 100000:
            self.skipTest("vm.max_map_count is raised")
        count = limit + 2000
        run = folded(EXAMPLE, "--count", str(count), "--window", str(count + 1), "--write",
                     "--step", str(count))
        self.assertEqual(run.returncode, 0, run.stderr)
        maps = int(run.stdout.split("live,")[1].split()[0])
        self.assertLessEqual(maps, 64)

    def test_sqlite_keeps_its_locks_and_its_data(self):
        database = os.path.join(self.directory, "base")
        program = ("import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
                   "c.execute('pragma journal_mode=' + sys.argv[2]); c.execute('pragma mmap_size=1e8');"
                   "c.execute('create table if not exists t(a, b)');"
                   "[c.execute('insert into t values(?, ?)', (i, 'x' * 300)) and i % 7 or c.commit()"
                   " for i in range(2000)]; c.commit();"
                   "print(c.execute('select count(*), sum(a) from t').fetchone());"
                   "print(c.execute('pragma integrity_check').fetchone())")
        for mode in ("delete", "wal"):
            run = folded(sys.executable, "-c", program, database + mode, mode)
            self.assertEqual(run.stdout.split()[-1], "('ok',)", run.stderr)
            connection = sqlite3.connect(database + mode)
            self.assertEqual(connection.execute("select count(*) from t").fetchone(), (2000,))
            connection.close()

    def test_git_sees_the_same(self):
        if not shutil.which("git"):
            self.skipTest("no git")
        environment = dict(os.environ, HOME=self.directory, GIT_CONFIG_NOSYSTEM="1",
                           GIT_AUTHOR_DATE="1000000000 +0000", GIT_COMMITTER_DATE="1000000000 +0000")
        repository = os.path.join(self.directory, "repository")
        script = """set -e
            git init -q "$1"; cd "$1"; git config user.email a@b.c; git config user.name a
            for i in $(seq 30); do seq $i $((i * 40)) > f$i; git add .; git commit -qm $i; done
            git gc -q; git fsck; git log -p | cksum; git clone -q . ../"$2"; git -C ../"$2" log --oneline"""
        plain = command("sh", "-c", script, "sh", repository + "1", "clone1", env=environment)
        run = folded("sh", "-c", script, "sh", repository + "2", "clone2", env=environment)
        self.assertEqual((run.returncode, run.stdout), (plain.returncode, plain.stdout), run.stderr)
        self.assertEqual(run.returncode, 0)


if __name__ == "__main__":
    MAPFOLD, EXAMPLE = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
