# The reports of the agent of `gctrace apply`: files, JSON, the line on standard error. Runs in the
# same namespace as agent.py, before it.
import posix
import sys
from time import monotonic_ns

FREE_THREADED = "free-threading" in sys.version
INCREMENTAL = (3, 14, 0) <= sys.version_info[:3] <= (3, 14, 4) and not FREE_THREADED


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


def listed(lines, what):
    return [{what: key[0], "by": key[1], "step": each[0], "times": each[1]}
            for key, each in lines.items()]


def content(agent):
    command = read("/proc/self/cmdline").rstrip(b"\0").replace(b"\0", b" ")
    return {
        "pid": posix.getpid(), "parent": posix.getppid(), "rank": agent.rank,
        "command": command[:1000].decode("utf-8", "replace"),
        "python": sys.version.split()[0], "free_threaded": FREE_THREADED,
        "forked": agent.forked, "ended": agent.ended,
        "settings": agent.texts, "applied": agent.applied, "taken_back": agent.taken_back,
        "marker": agent.marker, "steps": agent.steps,
        "start_ns": agent.start_ns, "end_ns": monotonic_ns(), "agent_ns": max(agent.agent_ns, 0),
        "startup": agent.startup and agent.startup.json(), "before": agent.before.json(),
        "after": agent.after and agent.after.json(), "later": agent.later and agent.later.json(),
        "planned": agent.planned.json(), "freezing": agent.own.json(),
        "asked": [{"by": by, "times": each[0], "garbage": each[1], "pause_ns": each[2]}
                  for by, each in agent.asked.items()],
        "calls": listed(agent.calls, "function"), "undone": listed(agent.undone, "setting"),
        "frozen_objects": agent.frozen,
        "frozen_objects_at_end":
            agent.get_freeze_count() if agent.ended and agent.frozen is not None else None,
        "tracked_objects_at_start": agent.tracked,
        "tracked_objects_at_end":
            len(agent.get_objects()) if agent.ended and agent.tracked is not None else None,
        "rss_bytes_at_start": agent.rss, "rss_bytes_at_end": rss_bytes(),
        "peak_rss_bytes": peak_rss_bytes(),
        "most_waiting": agent.waiting, "own_threshold": agent.own_threshold[0],
        "warnings": agent.warnings, "failure": agent.failure,
    }


def sentence(agent):
    setting = "|".join(agent.texts)
    if agent.failure:
        what = "switched off by a fault of its own: " + agent.failure
    elif not agent.steps:
        what = "no step was seen" + (
            "; applied at the start" if agent.applied else ": nothing was applied")
    else:
        what = "%d steps by %s; applied: %s; undone %d times" % (
            agent.steps, agent.marker,
            ", ".join("%s after step %d" % (one["setting"], one["step"])
                      for one in agent.applied[:4]) or "nothing",
            sum(one[1] for one in agent.undone.values()))
    sums = agent.after or agent.before
    what += "; %d collections, %.1f ms" % (
        sum(sums.totals[0:3]), sum(sums.totals[6:9]) / 1e6)
    return "process %d: %s: %s" % (posix.getpid(), setting, what)


def write_error(text):
    posix.write(2, ("gctrace: " + text + "\n").encode("utf-8", "replace"))
