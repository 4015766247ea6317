# SPDX-License-Identifier: MIT
"""Python's mmap module, used hard: prints what it saw, the same plain and under mapfold run."""

import hashlib
import mmap
import os
import random
import sys

PAGE = mmap.PAGESIZE
PAGES = 512

rng = random.Random(2001)
digest = hashlib.sha256()


def keep_many(fd):
    """Hundreds of pieces at once, some resized, moved within, flushed, closed in any order."""
    live = []
    for turn in range(6000):
        if len(live) > 400:
            live.pop(rng.randrange(len(live))).close()
        pages = rng.randint(1, 16)
        access = rng.choice((mmap.ACCESS_READ, mmap.ACCESS_READ, mmap.ACCESS_COPY,
                             mmap.ACCESS_WRITE))
        offset = rng.randrange(PAGES - pages) * PAGE
        piece = mmap.mmap(fd, pages * PAGE, access=access, offset=offset)
        at = rng.randrange(len(piece) - 16)
        # What overlaps a shared piece that is written would depend on what is copied; these
        # bytes of each page are left alone.
        digest.update(piece[at // PAGE * PAGE:at // PAGE * PAGE + 16])
        if access != mmap.ACCESS_READ:
            piece[at // PAGE * PAGE + 100:at // PAGE * PAGE + 108] = b"%08d" % turn
        if access == mmap.ACCESS_WRITE:
            piece.flush()
        if access == mmap.ACCESS_COPY:
            digest.update(piece[at // PAGE * PAGE + 100:at // PAGE * PAGE + 108])
            piece.move(PAGE // 2, 0, 64)
            digest.update(piece[PAGE // 2:PAGE // 2 + 16])
        digest.update(str(piece.find(b"needle")).encode())
        live.append(piece)
    for piece in live:
        piece.close()


def resize(path):
    with open(path, "r+b") as file:
        piece = mmap.mmap(file.fileno(), 0)
        for pages in (PAGES * 2, 3, PAGES, 1, 7):
            piece.resize(pages * PAGE)
            piece[-8:] = b"the end."
            digest.update(b"%d %d" % (len(piece), os.fstat(file.fileno()).st_size))
            digest.update(piece[:PAGE][:16])
        piece.close()


def errors(fd):
    for arguments, keywords in (((fd, 0, 99), {}), ((fd, PAGE), {"offset": 1}),
                                ((fd, PAGE * (PAGES + 1)), {}), ((-2, PAGE), {}),
                                ((fd, 0), {"offset": PAGE * PAGES * 4})):
        try:
            mmap.mmap(*arguments, **keywords)
            digest.update(b"mapped")
        except (OSError, ValueError, TypeError) as error:
            digest.update(repr(error).encode())


def main(path):
    with open(path, "w+b") as file:
        for page in range(PAGES):
            file.write(b"%016d" % page + b"needle" * (page % 7) + bytes(PAGE - 16 - 6 * (page % 7)))
        file.flush()
        keep_many(file.fileno())
        errors(file.fileno())
        file.seek(0)
        digest.update(file.read())
    resize(path)
    with open(path, "rb") as file:
        digest.update(file.read())
    print(digest.hexdigest())


main(sys.argv[1])
