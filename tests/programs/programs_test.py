#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real programs say and do the same plain and under mapfold run.

Usage: run_test.py MAPFOLD EXAMPLE_MMAP_SCAN PIECES [TEST...]

A recipe is a shell script. It runs in an empty directory, always of the same name, once plain and
once folded, and what it prints and its exit status must be equal. $RUN before a command is what
folds it; what has no $RUN is not under test. Programs that map each file a few times only are run
once more with --promote=1, which folds each piece that can be.
"""

import glob
import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir))
import tap_result  # noqa: E402

MAPFOLD = EXAMPLE = PIECES = ""
LIMIT = "/proc/sys/vm/max_map_count"
NOBODY = 65534


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise unittest.SkipTest(f"{program} is not installed")


def library(name):
    found = glob.glob(f"/usr/lib/*/{name}") + glob.glob(f"/usr/lib/{name}")
    if not found:
        raise unittest.SkipTest(f"{name} is not installed")
    return found[0]


class Run(unittest.TestCase):
    def setUp(self):
        # Not in /tmp, which may be a tmpfs or an overlay: programs keep their files on disks.
        self.directory = tempfile.mkdtemp(prefix="mapfold-run-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.work = os.path.join(self.directory, "work")
        self.report = os.path.join(self.directory, "stats")

    def run_words(self, *options):
        return " ".join([MAPFOLD, "run", f"--stats={self.report}", *options, "--"])

    def environment(self, fold, extra):
        return {**os.environ, "LC_ALL": "C.UTF-8", "HOME": self.work, "MAPFOLD": MAPFOLD,
                "EXAMPLE": EXAMPLE, "PIECES": PIECES, "HERE": HERE, "PYTHON": sys.executable,
                "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "2001-10-17T12:00:00Z",
                "GIT_COMMITTER_DATE": "2001-10-17T12:00:00Z", "GIT_AUTHOR_NAME": "a",
                "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
                "RUN": self.run_words() if fold else "", **extra}

    def recipe(self, script, fold, extra=None):
        os.mkdir(self.work)
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.work,
                                env=self.environment(fold, extra or {}), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=3000, check=False)
        shutil.rmtree(self.work)
        return result

    def folded(self):
        """Processes that reported, and the pieces that all of them carved and copied."""
        if not os.path.exists(self.report):
            return 0, 0, 0
        with open(self.report, encoding="utf-8") as file:
            text = file.read()
        carved = sum(int(n) for n in re.findall(r"(\d+) carved", text))
        copied = sum(int(n) for n in re.findall(r"(\d+) copied", text))
        return len(re.findall(r"\(process \d+\)", text)), carved, copied

    def assert_folds_alike(self, script, plain, folds, extra):
        if os.path.exists(self.report):
            os.unlink(self.report)
        ours = self.recipe(script, True, extra)
        self.assertEqual((ours.returncode, ours.stdout), (plain.returncode, plain.stdout))
        processes, carved, copied = self.folded()
        print(f"# {processes} processes, {carved} pieces carved, {copied} copied", flush=True)
        self.assertGreater(processes, 0, "the drop-in was not loaded")
        if folds:
            self.assertGreater(carved, 0, "nothing was folded")

    def assert_same(self, script, folds=False, succeeds=True, promote=None, **extra):
        """promote: whether --promote=1 folds something; None: that is not run."""
        plain = self.recipe(script, False, extra)
        if succeeds:
            self.assertEqual(plain.returncode, 0, plain.stdout)
        self.assert_folds_alike(script, plain, folds, extra)
        if promote is not None:
            self.assert_folds_alike(script, plain, promote,
                                    {**extra, "RUN": self.run_words("--promote=1")})
        return plain

    def test_git_clones_collects_checks_and_tells_the_same(self):
        need("git")
        self.assert_same("""
            $PYTHON "$HERE/git_stream.py" >stream
            git init -q -b main source
            for part in 1 2; do
                git -C source fast-import --quiet --force <stream
                git -C source repack -q
            done
            for window in 8k 1m; do
                $RUN git -c core.packedGitWindowSize=$window clone -q --no-local source copy-$window
                cd copy-$window
                git config core.packedGitWindowSize $window
                git config pack.threads 1
                $RUN git fsck --full --strict 2>&1
                $RUN git log -p --stat -M | sha256sum
                $RUN git log --oneline -- directory-3 | sha256sum
                $RUN git gc -q --prune=now
                $RUN git fsck --full 2>&1
                $RUN git count-objects -v
                $RUN git diff --stat HEAD~30 HEAD
                $RUN git archive HEAD | sha256sum
                $RUN git bundle create -q ../bundle main && $RUN git bundle verify -q ../bundle
                cd ..
            done
        """, folds=True, promote=True)

    SQLITE = """
        fill() { # PROCESS FIRST LAST [FOLD]
            { echo 'PRAGMA mmap_size=268435456; PRAGMA busy_timeout=600000;'
              for i in $(seq $2 50 $3); do
                  echo "BEGIN IMMEDIATE; WITH RECURSIVE n(i) AS (SELECT $i UNION ALL
                        SELECT i+1 FROM n WHERE i < $i+49)
                        INSERT INTO t SELECT i, hex(i*i)||substr('$(printf %0200d 7)',1,i%200), $1
                        FROM n; COMMIT;
                        SELECT count(*) > 0 FROM t;"
              done; } | $4 sqlite3 data.db >out.$1
        }
        sqlite3 data.db "PRAGMA journal_mode=$JOURNAL; PRAGMA page_size=4096;
                         CREATE TABLE t(i INTEGER PRIMARY KEY, text, process);
                         CREATE INDEX x ON t(text);"
        fill 1 1 10000 "$FIRST" & first=$!
        fill 2 20001 30000 "$SECOND" & second=$!
        wait $first
        wait $second
        tail -n 1 out.1 out.2
        $RUN sqlite3 data.db "PRAGMA mmap_size=268435456; PRAGMA integrity_check;
            SELECT count(*), sum(i), sum(length(text)) FROM t;
            DELETE FROM t WHERE i % 3 = 0; PRAGMA wal_checkpoint(TRUNCATE); VACUUM;
            PRAGMA integrity_check; SELECT count(*), sum(length(text)) FROM t;"
        sqlite3 data.db 'SELECT * FROM t ORDER BY i' | sha256sum
    """

    def sqlite(self, journal):
        """Two folded processes, then one of them plain: its locks and pages are the file's own."""
        need("sqlite3")
        ours = self.run_words("--promote=1")
        want = self.recipe(self.SQLITE, False, {"JOURNAL": journal, "FIRST": "", "SECOND": ""})
        self.assertEqual(want.returncode, 0, want.stdout)
        self.assertEqual(want.stdout.count("ok"), 2, want.stdout)
        for second in (ours, ""):
            got = self.recipe(self.SQLITE, True,
                              {"JOURNAL": journal, "FIRST": ours, "SECOND": second})
            self.assertEqual((got.returncode, got.stdout), (want.returncode, want.stdout))
        self.assertGreater(self.folded()[1], 0)

    def test_sqlite_with_a_log_and_two_writers_loses_nothing(self):
        self.sqlite("wal")

    def test_sqlite_with_a_rollback_journal_and_two_writers_loses_nothing(self):
        self.sqlite("delete")

    def test_the_mmap_module_of_python_used_hard_sees_the_same(self):
        self.assert_same('$RUN $PYTHON "$HERE/mmap_module.py" file', folds=True, promote=True)

    def test_the_tests_of_python_for_its_mmap_module_pass(self):
        for python in ("/usr/bin/python3", sys.executable):
            if subprocess.run([python, "-c", "import test.test_mmap"], capture_output=True,
                              check=False).returncode == 0:
                break
        else:
            self.skipTest("no Python here has its tests (Debian: libpython3.11-testsuite)")
        self.assert_same("$RUN $PYTHON -m unittest -v test.test_mmap 2>&1 |"
                         " sed 's/ in [0-9.]*s$//'", promote=True, PYTHON=python)

    def test_perl_reads_files_through_its_mmap_layer_alike(self):
        need("perl")
        self.assert_same(r"""
            $RUN perl -e '
                for $f (1..40) { open $o, ">", "f$f"; print $o "$f line $_\n" for 1..2000; }
                for (1..3) {
                    for $f (1..40) { open $h[$f], "<:mmap", "f$f" or die; }
                    for $r (1..2000) { for $f (1..40) { $l = readline $h[$f]; $n += length $l; } }
                    close $_ for grep { $_ } @h;
                }
                print "$n\n"; system "cat f* | sha256sum"'
        """, promote=True)

    def linker(self, name):
        need("cc", f"ld.{name}")
        self.assert_same(r"""
            for i in $(seq 40); do
                { for j in $(seq 30); do
                      echo "int f${i}_$j(int x) { static const char t[] = \"text $j of $i\";
                            return x + t[x % sizeof t]; }"
                  done; } >f$i.c
            done
            { for i in $(seq 40); do echo "int f${i}_7(int);"; done
              echo 'int main(void) { int x = 1;'
              for i in $(seq 40); do echo "x = f${i}_7(x & 0xff);"; done
              echo 'return x & 0x7f; }'; } >main.c
            cc -g -ffunction-sections -c main.c f*.c
            ar rc libf.a f*.o
            $RUN cc -fuse-ld=$LINKER -Wl,--build-id=sha1 -o by-objects main.o f*.o
            $RUN cc -fuse-ld=$LINKER -Wl,--gc-sections -Wl,--build-id=sha1 -o by-archive main.o libf.a
            sha256sum by-objects by-archive
            ./by-objects || echo $?
            ./by-archive || echo $?
        """, promote=name == "gold", LINKER=name)  # bfd maps nothing, lld ends by _exit(2)

    def test_the_linker_bfd_writes_the_same_program(self):
        self.linker("bfd")

    def test_the_linker_gold_writes_the_same_program(self):
        self.linker("gold")

    def test_the_linker_lld_writes_the_same_program(self):
        self.linker("lld")

    def test_redis_starts_loads_saves_stops_and_starts_again_with_the_same_data(self):
        need("redis-server", "redis-cli")
        self.assert_same(r"""
            cli="redis-cli -s $PWD/socket"
            start() {
                $RUN redis-server --port 0 --unixsocket $PWD/socket --save '' --appendonly yes \
                    --enable-debug-command yes --dbfilename dump.rdb --dir $PWD >>log 2>&1 &
                server=$!
                trap 'kill -9 $server' EXIT
                for try in $(seq 6000); do
                    [ "$($cli ping 2>&1)" = PONG ] && return
                    sleep 0.05
                done
                cat log; exit 1
            }
            start
            for i in $(seq 20000); do
                printf 'SET key:%d value-%d-%0100d\r\nRPUSH list:%d %d\r\n' $i $i $i $((i % 50)) $i
            done | $cli --pipe | tail -n 1
            $cli SAVE
            $cli BGREWRITEAOF
            while $cli INFO persistence | grep -q 'in_progress:1\|scheduled:1'; do sleep 0.05; done
            $cli DBSIZE
            $cli DEBUG DIGEST
            $cli SHUTDOWN SAVE
            wait $server
            start
            $cli DBSIZE
            $cli DEBUG DIGEST
            $cli SHUTDOWN NOSAVE
            wait $server && trap - EXIT
        """)

    def allocator(self, name):
        found = library(name)
        self.assert_same(r"""
            $RUN "$PIECES" file 20000
            $RUN $PYTHON "$HERE/mmap_module.py" file
            $RUN sort -R --random-source=$PIECES --parallel=4 -S 1M <(seq 50000) | sha256sum
        """, folds=True, LD_PRELOAD=found)

    # CASES 41
    def test_programs_preloaded_with_jemalloc_run_alike(self):
        self.allocator("libjemalloc.so.2")

    def test_programs_preloaded_with_mimalloc_run_alike(self):
        self.allocator("libmimalloc.so.2*")

    # CASES 41: an allocator maps before anything else is ready, under its own lock.
    def test_programs_start_at_once_with_an_allocator_before_and_behind_the_drop_in(self):
        shown = subprocess.run([MAPFOLD, "run", "--", "env"], capture_output=True, text=True,
                               check=True).stdout
        drop_in = re.search(r"^LD_PRELOAD=(.*)$", shown, re.M)[1]
        for found in (library("libjemalloc.so.2"), library("libmimalloc.so.2*")):
            for preload in (f"{found}:{drop_in}", f"{drop_in}:{found}"):
                result = subprocess.run(
                    ["sh", "-c", "true && exec sort -R --random-source=/bin/true /dev/null"],
                    env={**os.environ, "LD_PRELOAD": preload}, timeout=60, capture_output=True,
                    check=False)
                self.assertEqual((result.returncode, result.stderr), (0, b""), preload)

    # CASES 44
    def test_a_program_ends_well_while_its_threads_map(self):
        self.assert_same(r"""
            for turn in 1 2 3 4 5; do
                $RUN $PYTHON -c '
import atexit, mmap, os, threading, time
fd = os.open("data", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 4096 * 64, 0)
def one(page): return mmap.mmap(fd, 4096, offset=4096 * page)[0]
def work():
    while True:
        for page in range(64): one(page)
kept = [mmap.mmap(fd, 4096, offset=4096 * page) for page in range(20)]
for i in range(3): threading.Thread(target=work, daemon=True).start()
atexit.register(lambda: print(one(1)))
time.sleep(0.05)'
            done
        """, folds=True)

    # CASES 45
    def test_each_name_of_mmap_takes_offsets_beyond_4_gib(self):
        self.assert_same(r"""
            $RUN $PYTHON -c '
import ctypes, os
fd = os.open("sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 6 << 30)
os.pwrite(fd, b"here", 5 << 30)
c = ctypes.CDLL(None)
c.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
for name in "mmap", "mmap64", "__mmap":
    try:
        call = getattr(c, name)
    except AttributeError:
        continue
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_int64]
    pieces = [call(None, 8192, 1, 1, fd, (5 << 30) - 4096) for i in range(20)]
    print(name, [ctypes.string_at(piece + 4096, 4) for piece in pieces])
    print([c.munmap(piece, 8192) for piece in pieces])'
        """, folds=True)

    def test_a_shell_and_the_core_utilities_do_the_same(self):
        self.assert_same(r"""
            seq 100000 >numbers
            $RUN bash -euo pipefail -c '
                shuf --random-source=numbers numbers >mixed
                sort -n --parallel=2 -S 500K mixed | cmp - numbers
                split -l 999 mixed part.
                cat part.* | md5sum
                for f in part.*; do tac $f | sed -n 1p; wc -c <$f; done | cksum
                cp --sparse=always mixed other && cmp mixed other
                comm -12 <(sort mixed) <(sort numbers) | wc -l
                find . -name "part.a*" -print0 | sort -z | xargs -0 -n 3 -P 2 cat | wc -l
                dd if=mixed bs=1000 count=50 status=none | od -An -tx1 | tail -n 1
                grep -c 77 mixed; sed -n "5p;77p" numbers; tr 0-9 a-j <numbers | tail -n 1
                (exit 7) || echo $?
                kill -TERM $$'
        """, succeeds=False)

    def test_a_program_of_many_pieces_sees_what_it_sees_plain(self):
        self.assert_same('$RUN "$PIECES" file 60000', folds=True)

    def test_the_program_of_the_mail_passes_the_limit(self):
        with open(LIMIT, encoding="ascii") as file:
            limit = int(file.read())
        if limit > 200000:
            self.skipTest("vm.max_map_count is too high to be reached here")
        count = str(limit + 3000)
        script = f'$RUN "$EXAMPLE" --count {count} --window {count} --step {count} --read'
        plain = self.recipe(script, False)
        self.assertEqual(plain.returncode, 1, plain.stdout)
        self.assertIn("Cannot allocate memory", plain.stdout)
        # What may only be read is copied when half of the maps are in use, and shared pieces are
        # not copied at all: those overlap less than they can be carved.
        sparse = f"--file {self.directory}/sparse --spread --pages 8"
        subprocess.run(["truncate", "-s", "1G", f"{self.directory}/sparse"], check=True)
        for more, most in (("", limit // 2 + 2000), ("--write", 1000),
                           ("--write --spread --pages 8", 1000), (sparse, 1000),
                           ("--shared " + sparse, 1000)):
            ours = self.recipe(script + " " + more, True)
            self.assertEqual(ours.returncode, 0, ours.stdout)
            self.assertIn(f"{count} live", ours.stdout)
            maps = int(re.search(r"(\d+) kernel maps", ours.stdout)[1])
            self.assertLess(maps, most, more)

    # CASES 51
    def test_under_a_small_limit_of_address_space_it_works_as_it_does_plain(self):
        self.assert_same('ulimit -v 262144; $RUN "$PIECES" file 20000')
        self.assert_same('ulimit -v 65536; $RUN "$PIECES" file 20000')
        self.assert_same('ulimit -v 262144; ulimit -d 16384; $RUN "$PIECES" file 20000')

    # CASES 50
    def test_few_descriptors_and_closed_standard_ones_are_enough(self):
        self.assert_same('ulimit -n 4; $RUN "$PIECES" file 20000 2>&-')
        self.assert_same('$RUN "$PIECES" file 20000 <&- 2>&-')

    def sanitized(self, options, fixed=True):
        need("cc", "setarch")
        built = self.recipe(f"cc -O1 -g {options} -o {self.directory}/sanitized $HERE/pieces.c",
                            False)
        if built.returncode:
            self.skipTest(f"no run-time libraries of {options} here")
        # Older sanitizers fail by chance under the kernel's wider randomisation.
        setarch = "setarch -R" if fixed else ""
        self.assert_same(f"{setarch} $RUN {self.directory}/sanitized file 5000", folds=True,
                         ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")

    def test_a_program_built_with_the_address_sanitizer_runs_alike(self):
        self.sanitized("-fsanitize=address,undefined -static-libasan -static-libubsan")

    def test_a_program_with_a_shared_address_sanitizer_runs_alike(self):
        self.sanitized("-fsanitize=address")

    def test_a_program_built_with_the_thread_sanitizer_runs_alike(self):
        self.sanitized("-fsanitize=thread")

    def assert_unfolded(self, script, word):
        plain = self.recipe(script, False)
        self.assertEqual(plain.returncode, 0, plain.stdout)
        ours = self.recipe(script, True)
        said, rest = ours.stdout.split("\n", 1)
        self.assertIn(word, said)
        self.assertIn("unfolded", said)
        self.assertEqual((ours.returncode, rest), (plain.returncode, plain.stdout))
        self.assertEqual(self.folded()[0], 0)

    def test_a_static_program_runs_unfolded_and_that_is_said(self):
        need("cc")
        program = os.path.join(self.directory, "static")
        if self.recipe(f"cc -static -o {program} $HERE/pieces.c", False).returncode:
            self.skipTest("no static C library here")
        self.assert_unfolded(f"$RUN {program} file 3000 2>&1", "static")

    def test_a_program_with_rights_of_its_own_runs_unfolded_and_that_is_said(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a program of another user's")
        program = os.path.join(self.directory, "id")
        os.chmod(self.directory, 0o755)
        shutil.copy(shutil.which("id"), program)
        os.chown(program, NOBODY, NOBODY)
        os.chmod(program, 0o4755)
        if f"euid={NOBODY}" not in subprocess.run([program], capture_output=True, text=True,
                                                  check=False).stdout:
            self.skipTest("programs have no rights of their own in /var/tmp")
        self.assert_unfolded(f"$RUN {program} 2>&1", "rights of its own")

    def test_it_starts_and_its_cost_is_shown(self):
        need("true")
        program = shutil.which("true")

        def milliseconds(argv, env):
            times = []
            for _ in range(60):
                begin = time.monotonic()
                subprocess.run(argv, env=env, check=True, stdin=subprocess.DEVNULL)
                times.append((time.monotonic() - begin) * 1e3)
            return statistics.median(times)

        shown = subprocess.run([MAPFOLD, "run", "--", "env"], capture_output=True, text=True,
                               check=True).stdout
        preload = re.search(r"^LD_PRELOAD=(.*)$", shown, re.M)[1]
        plain = milliseconds([program], os.environ)
        loaded = milliseconds([program], {**os.environ, "LD_PRELOAD": preload})
        command = milliseconds([MAPFOLD, "run", "--", program], os.environ)
        print(f"# start-up of true: {plain:.2f} ms; with the drop-in {loaded - plain:.2f} more; "
              f"by mapfold run {command - plain:.2f} more", flush=True)


if __name__ == "__main__":
    MAPFOLD, EXAMPLE, PIECES = map(os.path.abspath, sys.argv[1:4])
    tap_result.main(Run, sys.argv[4:])
