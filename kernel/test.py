#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Boots the kernel in QEMU and checks what it counts; TAP on standard output.

usage: kernel/test.py [--full]      --full: also every frame of 8 GiB of highmem, which takes 9 GB

Each line that the kernel prints is shown as a comment, so the log has all figures. What is asked of
a count is a test; nothing here depends on time. Two passes count instructions (-i), so that their
figures are the same every time; one runs processors in parallel (-p), so that they do race.
"""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GIB_FRAMES = 1 << 18
THREADS = 16 * 8  # of 16 processors

number = failed = 0


def check(sentence, held, why=""):
    global number, failed
    number += 1
    if not held:
        failed += 1
        print(f"# {why}")
    print(f"{'ok' if held else 'not ok'} {number} - {sentence}", flush=True)


class Boot:
    """One run of the kernel: its words, whether it said that all was right, and its lines."""

    def __init__(self, words, *options):
        argv = [f"{HERE}/run", *options, *words.split()]
        start = time.monotonic()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        self.name = " ".join([*options, words])
        self.well = done.returncode == 0
        self.lines = []
        print(f"# kernel/run {self.name} ({time.monotonic() - start:.1f} s)")
        for line in done.stdout.splitlines():
            print(f"#   {line}")
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.well = False

    def line(self, workload, **members):
        """The line with these members; one that has none of them if the kernel did not print it."""
        for line in self.lines:
            if line["workload"] == workload and members.items() <= line.items():
                return line
        self.well = False
        return Missing()


class Missing(dict):
    def __missing__(self, key):
        return float("nan")  # no comparison holds


def barriers_are_there(line):
    """Each flush of the core's has one heavy barrier before it, or more: rounds of interrupts, unless
    all barriers are fences. That of 2002 has none."""
    rounds = line["barrier_rounds"]
    if line["pool"] == "core" and line["barrier"] == "ipi":
        return rounds >= line["flush_rounds"]
    return rounds == 0


def check_boot(sentence, words, *options):
    boot = Boot(words, *options)
    check(sentence, boot.well, f"kernel/run {boot.name}: see above")
    for line in boot.lines:
        if line["workload"] in ("zipf", "verify", "exhaust"):
            check(f"{line['workload']} flushed, and every flush had its barrier: {boot.name}",
                  line["flush_rounds"] > 0 and barriers_are_there(line), line)
    return boot


def check_read1():
    core = check_boot("one byte is read over and over, by 16 processors: pool=core",
                      "run=read1 pool=core ops=2000")
    old = check_boot("one byte is read over and over, by 16 processors: pool=2002",
                     "run=read1 pool=2002 ops=2000")
    for kind in "same", "different":
        line = core.line("read1", map="kmap", kind=kind)
        check(f"a hit of the core's pool takes no lock ({kind})",
              line["hits"] == line["ops"] and line["locks"] == 0, line)
        line = core.line("read1_written", map="kmap", kind=kind)
        check(f"a hit of the core's pool writes nothing that another processor writes ({kind})",
              line["pages_written_by_several"] == 0 and line["pages_written"] > 16, line)
        for boot in core, old:
            line = boot.line("read1", map="local", kind=kind)
            sent = sum(line[ipis] for ipis in ("flush_ipis", "barrier_ipis", "other_ipis",
                                               "wake_ipis"))
            check(f"kmap_local interrupts no other processor ({kind}, pool={line['pool']})",
                  line["local_maps"] == line["ops"] and sent == 0 and line["locks"] == 0, line)
        line = old.line("read1_written", map="kmap", kind=kind)
        check(f"with the pool of 2002 several write the same: the check can see it ({kind})",
              line["pages_written_by_several"] > 0, line)


def check_zipf():
    words = "run=zipf ops=20000 pages=4096 slots=512"
    core = check_boot("hot pages, Zipf 0.99 of 4096 over 512 slots: pool=core", words, "-i")
    old = check_boot("hot pages, Zipf 0.99 of 4096 over 512 slots: pool=2002",
                     words + " pool=2002", "-i")
    new, was = core.line("zipf"), old.line("zipf")
    for what, missed in (("installs alone", new["misses"]),
                         ("revivals too", new["misses"] + new["revived"])):
        misses = missed / was["misses"]
        check(f"the core's pool misses at most 0.8 times as often as that of 2002 ({what})",
              misses <= 0.8, f"{misses:.3f} times")
        rounds = (new["flush_rounds"] / missed) / (was["flush_rounds"] / was["misses"])
        check("it flushes at most twice as often for a miss, at a batch of half the slots "
              f"({what})", rounds <= 2 and new["batch"] == 256, f"{rounds:.3f} times")
        print(f"# {what}: misses {misses:.3f} times, flush rounds for a miss {rounds:.3f} times "
              "those of 2002")


def check_worst_steps():
    worst = {}
    for pool in "core", "2002":
        for slots in 64, 512, 4096:
            boot = check_boot(f"hot pages with half of {slots} slots held: pool={pool}",
                              f"run=zipf ops=1500 pages=16384 held=50 slots={slots} "
                              f"pool={pool}", "-i")
            worst[pool, slots] = boot.line("zipf")["lock_steps_max"]
    check("the worst steps under the core's lock stay the same from 64 to 4096 slots",
          worst["core", 64] == worst["core", 512] == worst["core", 4096] <= 32, worst)
    check("those under the lock of 2002 grow with the slots",
          all(worst["2002", slots] >= slots for slots in (64, 512, 4096)), worst)


def check_verify():
    # With 64 slots the core's rounds flush page by page, with 512 everything.
    for words in ("frames=30000 pool=core", "frames=30000 pool=core barrier=fence",
                  "frames=30000 pool=2002", "frames=10000 slots=64 pool=core"):
        boot = check_boot(f"highmem, written on one processor, is read on another: {words}",
                          f"run=verify {words}", "-m", "9G")
        line = boot.line("verify")
        check(f"every slot was flushed everywhere before it was used again: {words}",
              line["stale_slots"] == 0 and line["errors"] == 0, line)
    for pool in "core", "2002":
        boot = Boot(f"run=verify frames=20000 slots=64 flush=off pool={pool}")
        line = boot.line("verify")
        check(f"left-out flushes are found in the contents: pool={pool}",
              not boot.well and line["errors"] > 0 and line["flush_rounds"] == 0, line)
        check(f"left-out flushes are found by the slots' generations: pool={pool}",
              line["stale_slots"] > 0, line)


def check_waiting():
    core = check_boot("more pins than slots: pool=core", "run=exhaust slots=64", "-i")
    check_boot("more pins than slots: pool=2002", "run=exhaust slots=64 pool=2002",
               "-i")
    check_boot("installs that fail for memory: what is idle is given up, and all goes on",
               "run=exhaust,zipf,copyuser slots=64 ops=1000 inject=7")
    line = core.line("exhaust_order")
    check("waiters get on in the order in which they came",
          line["in_order"] == line["waiters"] and line["waiters"] >= 48, line)
    line = core.line("exhaust")
    check("the core looks at few slots in a hold, and at no more sleepers than there are threads",
          line["lock_steps_max"] <= 32 and 0 < line["passed_max"] <= THREADS, line)
    for pool in "core", "2002":
        boot = check_boot(f"copies sleep in their page faults with the page mapped: pool={pool}",
                          f"run=copyuser slots=64 pool={pool}", "-i")
        line = boot.line("copyuser")
        check(f"there were faults, sleeps and short copies: pool={pool}",
              line["faults"] > 1000 and line["sleeps"] > line["faults"] and
              boot.line("copyuser_short")["short"] > 1000, line)


def check_space():
    boot = check_boot("areas of the kernel's address space, and a million live pieces",
                      "run=space areas=1000000 ops=500", "-i")
    few = boot.line("space_pieces", areas=1000)["instructions"]
    many = boot.line("space_pieces", areas=1000000)["instructions"]
    check("a piece among a million costs at most twice what it costs among a thousand",
          many <= 2 * few, f"{few} instructions among a thousand, {many} among a million")


def check_elsewhere():
    everything = "run=read1,zipf,verify,exhaust,copyuser,space frames=2000 areas=2000"
    check_boot("everything on one processor", f"{everything} ops=1000", "-c", "1")
    check_boot("everything on 32 processors, with full fences",
               f"{everything} ops=500 barrier=fence slots=128", "-c", "32")
    for barrier in "ipi", "fence":
        check_boot(f"everything on two processors that run in parallel: barrier={barrier}",
                   f"run=read1,zipf,verify,exhaust,copyuser slots=64 ops=400 frames=400 "
                   f"barrier={barrier}", "-c", "2", "-p")
    check_boot("two processors in parallel with the pool of 2002",
               "run=zipf,verify slots=64 ops=400 frames=400 pool=2002", "-c", "2", "-p")
    check_boot("more pins than slots, on four processors in parallel",
               "run=exhaust slots=64 ops=100", "-c", "4", "-p")
    boot = check_boot("copies that sleep in faults, on four processors in parallel",
                      "run=copyuser slots=64 ops=1500", "-c", "4", "-p")
    check("there were faults and flushes", boot.line("copyuser")["faults"] > 100 and
          boot.line("copyuser")["flush_rounds"] > 0, boot.lines)
    check("a word that the kernel does not know is no success", not Boot("run=read1 slot=64").well)
    check("a workload that it does not know is no success", not Boot("run=reed1").well)


def check_all_frames():
    boot = check_boot("every frame of highmem is written and read",
                      "run=verify frames=0", "-m", "9G", "-t", "1800")
    line = boot.line("verify", kind="all")
    check("that was 8 GiB, without an error",
          line["ops"] >= 2 * 8 * GIB_FRAMES and line["errors"] == 0, line)


def main(arguments):
    if arguments not in ([], ["--full"]):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    check("the kernel builds without a warning",
          subprocess.run(["make", "-s", "-C", HERE], check=False).returncode == 0)
    check_read1()
    check_zipf()
    check_worst_steps()
    check_verify()
    check_waiting()
    check_space()
    check_elsewhere()
    if arguments:
        check_all_frames()
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
