#!/usr/bin/env python3
"""Whether the documents are easy to read: relative clauses, sentences, bullets and paragraphs of each page.

    scripts/prose.py --check        fails if a page exceeds a limit
    scripts/prose.py --list         the figures of each page, most relative clauses first, and those of the code
    scripts/prose.py --where FILE   each place that counts as a relative clause, and each long block

A page is a .md file that people write. Code blocks, headings and questions do not count. A table cell counts
as a bullet. GENERATED are pages that a program prints, NOT_YET pages that do not meet the limits: that list may only
shrink, so a page on it that meets them fails, too.
"""

import argparse
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
# Relative clauses in 1,000 words; words of the mean sentence, of a bullet or table cell, and of a paragraph.
RELATIVE, SENTENCE, BULLET, PARAGRAPH = 1.5, 18, 60, 120
# Words of all pages together, apart from CHANGELOG.md, the tables of FORMATS and the crates' READMEs.
TOTAL = 25_000
# The same in Rust, tests apart.
CODE = {"comments": 1.0, "messages": 1.5}
GENERATED = {"docs/commands.md", "docs/records.md", "docs/metrics.md", "docs/first-screens.md",
             "docs/example-report.md"}
# Descriptions of formats, whose tables are for looking up.
FORMATS = {"docs/heap-format.md", "docs/report-schema.md", "docs/tables.md", "docs/trace-format.md"}
NOT_YET = set()
# Folders with build results or installations.
BUILT = {"target", "dist", "gpu-bundle", "gpu-results", "__pycache__"}

CLAUSE = re.compile(
    # Not the question: "shows which line", "know whose".
    r"(?<!know )(?<!knows )(?<!show )(?<!shows )(?<!say )(?<!says )(?<!state )(?<!states )(?<!name )(?<!names )"
    r"(?<!decide )(?<!decides )(?<!see )(?<!choose )\b(?:which|whose|whom)\b"
    r"|\b(?:that|those|these) of\b|\bthose (?:that|who|in|with)\b|\bones? (?:that|who)\b"
    r"|(?<!know )(?<!knows )(?<!show )(?<!shows )(?<!say )(?<!says )(?<!see )\bwhat (?:is|are|was|were|has|have|had|it|they)\b"
    r"|(?:^|(?<=[.:!?] ))(?-i:Of) (?!course)", re.IGNORECASE)


def blocks(text):
    """(kind, line, words) of each paragraph, bullet and table cell."""
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    kind, start, words, fenced = None, 0, [], False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        is_fence = line.lstrip().startswith("```")
        bullet = re.match(r"\s*(?:[-*+]|\d+\.)\s+(.*)", line)
        cut = fenced or is_fence or bullet or not line.strip() or line.lstrip().startswith(("#", "|", "!["))
        if cut and words:
            yield kind, start, " ".join(words)
            kind, words = None, []
        if is_fence:
            fenced = not fenced
        elif fenced or not line.strip() or line.lstrip().startswith("#"):
            kind = None
        elif line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                if re.search(r"\w", cell):
                    yield "cell", number, cell.strip()
        elif bullet:
            kind, start, words = "bullet", number, [bullet[1]]
        elif not line.lstrip().startswith("!["):
            kind, start = kind or "paragraph", start if words else number
            words.append(line.strip())


def plain(text):
    """A block without the text of inline code and the targets of links."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "code", text)


def sentences(text):
    return [one for one in re.split(r"(?<=[.!?])\s+", text) if re.search(r"\w", one)]


def count(text):
    return len(re.findall(r"\S*\w\S*", text))


class Page:
    def __init__(self, text):
        self.words, self.cells, self.places, self.long, lengths = 0, 0, [], [], []
        for kind, line, block in blocks(text):
            block = plain(block)
            size = count(block)
            self.words += size
            self.cells += size if kind == "cell" else 0
            for sentence in sentences(block):
                if kind != "cell":
                    lengths.append(count(sentence))
                if not sentence.endswith("?"):
                    self.places += [(line, sentence[max(found.start() - 30, 0):found.end() + 20]) for found in CLAUSE.finditer(sentence)]
            limit = PARAGRAPH if kind == "paragraph" else BULLET
            if size > limit:
                self.long.append((line, f"{kind} of {size} words"))
        self.sentence = sum(lengths) / len(lengths) if lengths else 0.0
        self.rate = 1000 * len(self.places) / self.words if self.words else 0.0

    def faults(self):
        # On a short page one is too few to judge.
        if len(self.places) > max(1, RELATIVE * self.words / 1000):
            yield f"{self.rate:.1f} relative clauses in 1,000 words, at most {RELATIVE}"
        if self.sentence > SENTENCE:
            yield f"sentences of {self.sentence:.1f} words, at most {SENTENCE}"
        for line, long in self.long:
            yield f"line {line}: a {long}, at most {PARAGRAPH if long.startswith('p') else BULLET}"


def files(root, end):
    """Names of all files with this end, without build results."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in BUILT and not name.startswith("."))
        yield from (pathlib.Path(folder, name).relative_to(root).as_posix() for name in sorted(names) if name.endswith(end))


def pages(root):
    for name in files(root, ".md"):
        if name not in GENERATED and not name.startswith(("analysis/fuzz/", "analysis/tests/")):
            yield name, Page((root / name).read_text(encoding="utf-8"))


def code(root):
    """Words and relative clauses of the comments and of the messages in Rust."""
    names = list(files(root, ".rs"))
    for kind, pattern in (("comments", r"^\s*//[/!]?(.*)"), ("messages", r'"((?:[^"\\\n]|\\.){20,})"')):
        words = clauses = 0
        for name in names:
            if "/tests" in name:
                continue
            for found in re.finditer(pattern, (root / name).read_text(encoding="utf-8"), re.M):
                text = plain(found[1])
                words, clauses = words + count(text), clauses + len(CLAUSE.findall(text))
        yield kind, words, clauses


def counted(name, page):
    """Words that count towards TOTAL."""
    if name == "CHANGELOG.md" or name.endswith("/README.md") and not name.startswith("docs/"):
        return 0
    return page.words - page.cells if name in FORMATS else page.words


def check(found):
    faults, total = [], 0
    for name, page in found:
        total += counted(name, page)
        own = list(page.faults())
        if name in NOT_YET and not own:
            faults.append(f"{name}: meets all limits: remove it from NOT_YET")
        elif name not in NOT_YET:
            faults += [f"{name}: {fault}" for fault in own]
    if total > TOTAL:
        faults.append(f"all pages: {total:,} words, at most {TOTAL:,}")
    return faults


def listing(root):
    total = 0
    print("words  per 1,000  sentence  long blocks")
    for name, page in sorted(pages(root), key=lambda one: -one[1].rate):
        total += counted(name, page)
        mark = "  not yet" if name in NOT_YET else "" if not list(page.faults()) else "  too much"
        print(f"{page.words:5}  {page.rate:9.1f}  {page.sentence:8.1f}  {len(page.long):11}  {name}{mark}")
    print(f"{total:5}  words that count towards TOTAL")
    for kind, words, clauses in code(root):
        print(f"{words:5}  {1000 * clauses / words:9.1f}  {kind} in Rust, tests apart")


def self_test():
    """Each kind of fault is found, and nothing else."""
    good = "# What is it?\n\nA short sentence. It shows which line ran. What is it?\n\n```\nwhich of these, those of that\n```\n"
    word = "word " * 9 + "word. "
    cases = [
        (good, []),
        (good + "\nThe file, which is long. A reader whose bytes end.\n", ["relative"]),
        (good + "\nThose of the ranks that wait. Of many, one.\n", ["relative"]),
        (good + "\nOne name has what is known, and that of others.\n", ["relative"]),
        ("# A\n\n" + "word " * 30 + "end.\n", ["sentences"]),
        ("# A\n\n- " + word * 7 + "\n", ["bullet"]),
        ("# A\n\n| " + word * 7 + "| b |\n|---|---|\n", ["cell"]),
        ("# A\n\n" + word * 13 + "\n", ["paragraph"]),
        ("# A\n\n" + word * 6 + "\n\n" + word * 7 + "\n\n- " + word * 3 + "\n- " + word * 4 + "\n", []),
    ]
    for text, expected in cases:
        found = list(Page(text).faults())
        assert len(found) == len(expected) and all(kind in one for kind, one in zip(expected, found)), (text, found)
    assert check([("README.md", Page(word * (TOTAL // 10 + 1)))])[-1].startswith("all pages")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--where", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    asked = parser.parse_args()
    if asked.self_test:
        return self_test()
    if asked.where:
        page = Page(asked.where.read_text(encoding="utf-8"))
        for line, place in sorted(page.places + page.long):
            print(f"{asked.where}:{line}: {place}")
        print(f"{page.words} words, {page.rate:.1f} in 1,000, sentences of {page.sentence:.1f}", *page.faults(), sep="\n")
        return None
    if asked.list:
        return listing(HERE)
    faults = check(pages(HERE)) + [
        f"{kind} in Rust: {1000 * clauses / words:.1f} relative clauses in 1,000 words, at most {CODE[kind]}"
        for kind, words, clauses in code(HERE) if clauses > CODE[kind] * words / 1000
    ]
    for fault in faults:
        print(f"prose.py: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
