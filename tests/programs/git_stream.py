# SPDX-License-Identifier: MIT
"""A history for git fast-import: 60 commits over 60 files that grow, move and vanish."""

import random
import sys

rng = random.Random(2001)
out = sys.stdout.buffer
words = [("%x" % rng.getrandbits(40)).encode() for _ in range(2000)]
lines = {}


def path(number):
    return b"directory-%d/file-%d.txt" % (number % 12, number)


def data(content):
    out.write(b"data %d\n%s\n" % (len(content), content))


for commit in range(1, 61):
    out.write(b"commit refs/heads/main\nmark :%d\n" % commit)
    out.write(b"committer A <a@b> %d +0000\n" % (1000000000 + commit * 60))
    data(b"Commit %d\n\n%s\n" % (commit, b" ".join(rng.choices(words, k=20))))
    if commit > 1:
        out.write(b"from :%d\n" % (commit - 1))
    for number in rng.sample(range(60), 8):
        text = lines.setdefault(number, [b" ".join(rng.choices(words, k=8)) for _ in range(60)])
        for _ in range(5):
            text.insert(rng.randrange(len(text)), b" ".join(rng.choices(words, k=8)))
        out.write(b"M 644 inline %s\n" % path(number))
        data(b"\n".join(text) + b"\n")
    if commit % 10 == 0:
        gone = rng.choice(sorted(lines))
        out.write(b"D %s\n" % path(gone))
        del lines[gone]
out.write(b"done\n")
