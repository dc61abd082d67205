# What the agent of `gctrace apply` needs beside its state: settings and their order in blocks,
# files, sums. Runs in the same namespace as agent.py, before it.
import posix
import sys

MOST_LINES = 100


NAMES = ("none", "threshold", "freeze", "disable", "plan", "gen2")


def parse(text):
    """The items of a setting: {name: (step, values)}."""
    items, last = {}, None
    for piece in text.split(","):
        head, _, point = piece.strip().partition("@")
        name, _, value = head.replace("=", ":").partition(":")
        if name.isdigit() and last == "threshold" and len(items[last][1]) < 3:
            value, values = name, list(items[last][1])
        elif name in items or name not in NAMES:
            raise ValueError("unknown setting " + repr(piece))
        else:
            values = []
        name = "threshold" if name.isdigit() else name
        if name in ("threshold", "plan", "gen2"):
            values.append(int(value))
        step = 0 if name in ("threshold", "none") else 2
        if point.startswith("step:"):
            step = int(point[5:])
        elif point == "start":
            step = 0
        elif point:
            raise ValueError("unknown point " + repr(point))
        elif name == last == "threshold":
            step = items[name][0]
        if name == "freeze" and step == 0:
            raise ValueError("freeze@start would freeze nothing")
        items[name] = (step, tuple(values))
        last = name
    items.pop("none", None)
    if "gen2" in items:
        full = items.pop("gen2")[1]
        items["plan"] = (items["plan"][0], items["plan"][1] + full)
    elif "plan" in items:
        items["plan"] = (items["plan"][0], items["plan"][1] + (items["plan"][1][0] * 10,))
    if items.get("plan", (0, (1,)))[1][0] < 1:
        raise ValueError("plan:0")
    return items


def block_setting(block, count):
    """Which setting a block has: the digit sum of its number (Thue-Morse order for two)."""
    total = 0
    while block > 0 and count > 1:
        block, digit = divmod(block, count)
        total += digit
    return total % count


def json(value):
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        plain = value.encode("utf-8", "replace").decode("utf-8")
        return '"' + "".join(
            c if " " <= c and c not in '"\\' else "\\u%04x" % ord(c) for c in plain) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(json(k) + ":" + json(v) for k, v in value.items()) + "}"
    return "[" + ",".join(json(one) for one in value) + "]"


def read(path):
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(descriptor, 65536)
    finally:
        posix.close(descriptor)


def write(path, data, flags):
    flags |= posix.O_WRONLY | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
    descriptor = posix.open(path, flags, 0o600)
    try:
        while data:
            data = data[posix.write(descriptor, data):]
    finally:
        posix.close(descriptor)


def rss_bytes():
    try:
        return int(read("/proc/self/statm").split()[1]) * posix.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def peak_rss_bytes():
    try:
        text = read("/proc/self/status")
        return int(text.split(b"VmHWM:")[1].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return None


class Sums:
    """Collections of a time, as differences of what `native` sums up."""

    def __init__(self):
        self.totals = (0,) * 9
        self.steps = self.duration_ns = self.longest_ns = 0

    def add(self, before, after):
        self.totals = tuple(x + b - a for x, a, b in zip(self.totals, before, after))

    def json(self):
        return {
            "steps": self.steps, "duration_ns": self.duration_ns,
            "collections": self.totals[0:3], "garbage": self.totals[3:6],
            "pause_ns": self.totals[6:9], "longest_ns": self.longest_ns,
        }


def caller():
    """The line that called a wrapped function."""
    try:
        frame = sys._getframe(3)
    except ValueError:
        return "the start of a thread"
    return "%s:%d %s" % (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def count(lines, key, step):
    if key in lines or len(lines) < MOST_LINES:
        first, times = lines.get(key, (step, 0))
        lines[key] = (first, times + 1)


def listed(lines, what):
    return [{what: key[0], "by": key[1], "step": each[0], "times": each[1]}
            for key, each in lines.items()]


def write_error(text):
    posix.write(2, ("gctrace: " + text + "\n").encode("utf-8", "replace"))
