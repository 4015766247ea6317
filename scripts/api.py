#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The reference of the public functions, made from the headers. Usage: api.py OUTPUT.html

A comment in a header belongs to the declarations that follow it without a blank line, all of them. The
first comment of a header (after its licence) tells of the whole layer. Nothing is said here that the
headers do not say; what is added are links, and for each function the errors it can return: those its
comment names, and those of the functions that its comment refers to.
"""

import html
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = ["space.h", "mmap.h", "window.h", "base.h"]

STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
pre { background: #f5f5f2; padding: .6em 1em; overflow-x: auto; font-size: 13px }
pre.doc { background: none; padding: 0 1em; white-space: pre-wrap; font: inherit }
h3 { margin-bottom: 0; border-top: 1px solid #ccc; padding-top: .8em }
.errors { padding-left: 1em; color: #555 } code, a { color: #046 }
"""


class Item:
    """A comment and the declarations that it is about."""

    def __init__(self, comment, code, header):
        self.comment, self.code, self.header = comment, code, header
        self.functions = re.findall(r"MF_PUBLIC [^;(]*?\b(mf_\w+)\(", code)


def text_of(comment):
    """A C comment without its marks."""
    lines = comment.strip()[2:-2].split("\n")
    return "\n".join(re.sub(r"^ ?\* ?", "", line.rstrip()) if i else line.strip()
                     for i, line in enumerate(lines)).strip("\n ")


def drop_wrappers(source):
    """A header without its guard, includes and what C++ needs."""
    source = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", source, flags=re.DOTALL)
    source = re.sub(r"#if defined\(__GNUC__\)\n.*?#endif\n", "", source, flags=re.DOTALL)
    return re.sub(r"^#(ifndef|endif|include|define MAPFOLD_\w+_H).*\n", "", source,
                  flags=re.MULTILINE)


def parse(header):
    """What the header says of its layer, and its items."""
    with open(os.path.join(ROOT, "include", "mapfold", header), encoding="utf-8") as file:
        source = drop_wrappers(file.read())
    about, items = "", []
    for block in re.split(r"\n\s*\n(?=/\*|MF_PUBLIC|struct|enum|#define)", source.strip()):
        found = re.match(r"(/\*.*?\*/)\n?(.*)", block.strip(), re.DOTALL)
        comment, code = (found[1], found[2].strip()) if found else ("", block.strip())
        if comment and comment.startswith("/* SPDX"):
            found = re.match(r"(/\*.*?\*/)\n?(.*)", code, re.DOTALL)
            about, code = text_of(found[1]), found[2].strip()
            comment = ""
        if code:
            items.append(Item(text_of(comment) if comment else "", code, header))
    return about, items


def results_of(name, comment):
    """What a comment says of the results: from a line that begins with 0; or all of it."""
    own = re.search(rf"^{name.rsplit('_', 1)[-1].capitalize()}: (.*?)(?=^[A-Z][a-z]+: |\Z)", comment,
                    re.DOTALL | re.MULTILINE)
    if own:
        return own[1]
    from_zero = re.search(r"^0\b.*", comment, re.DOTALL | re.MULTILINE)
    return from_zero[0] if from_zero else comment


def errors_of(name, by_name):
    """The errors that a function's comment names, and those of one whose errors it says it has."""
    results = results_of(name, by_name[name].comment)
    errors = set(re.findall(r"-(E[A-Z0-9]+)\b", results))
    for other in re.findall(r"(?:\belse\s+as|\bErrors\s+of)\s+(mf_\w+)", results):
        errors |= errors_of(other, by_name)
    return errors


def linked(text, by_name):
    return re.sub(r"\bmf_\w+", lambda m: f'<a href="#{m[0]}">{m[0]}</a>' if m[0] in by_name else m[0],
                  html.escape(text))


def show(item, by_name):
    out = []
    for name in item.functions:
        out.append(f'<h3 id="{name}">{name}</h3>')
    out.append(f"<pre>{html.escape(re.sub(r'MF_PUBLIC ', '', item.code))}</pre>")
    if item.comment:
        out.append(f'<pre class="doc">{linked(item.comment, by_name)}</pre>')
    for name in item.functions:
        errors = sorted(errors_of(name, by_name))
        namesakes = sorted(set(re.findall(r"\b[a-z_0-9]+\([23]\)",
                                         results_of(name, item.comment))))
        said = [f"<code>-{error}</code>" for error in errors] + namesakes
        if said:
            out.append(f'<p class="errors" data-function="{name}">{name}, errors: '
                       f'{" ".join(said)}</p>')
    return "\n".join(out)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: api.py OUTPUT.html")
    layers = {header: parse(header) for header in HEADERS}
    by_name = {name: item for _, items in layers.values() for item in items
               for name in item.functions}
    out = ["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8"><title>mapfold</title>',
           f"<style>{STYLE}</style></head><body>", "<h1>mapfold: the public functions</h1>",
           "<p>Made from the headers. Functions return 0 or a count, or a negative error number; those "
           "of <code>mapfold/mmap.h</code> answer as mmap(2) and its family do.</p>"]
    for header, (_, items) in layers.items():
        names = [name for item in items for name in item.functions]
        out.append(f"<p><b>mapfold/{header}</b>: " +
                   " ".join(f'<a href="#{name}">{name}</a>' for name in names) + "</p>")
    for header, (about, items) in layers.items():
        out.append(f"<h2>mapfold/{header}</h2>")
        out.append(f'<pre class="doc">{linked(about, by_name)}</pre>')
        out += [show(item, by_name) for item in items]
    out.append("</body></html>\n")
    os.makedirs(os.path.dirname(os.path.abspath(sys.argv[1])), exist_ok=True)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(out))


if __name__ == "__main__":
    main()
