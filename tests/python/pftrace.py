"""Reads a trace for Perfetto back, by the standard library alone and, where it is installed, by Perfetto's
own protocol buffers, and compares it with the traces that it was made from.

    pftrace.py TIMELINE TRACE...     the traces in JSON, by gctrace or the PyTorch profiler, on one clock
    pftrace.py --test GCTRACE        exports traces that it makes: of ranks on clocks of their own
                                     (tables_job.py), of the profiler, with hostile contents, and damaged

Compared: start, end, process, thread and generation of every pause; start, end, stream and name of every
operation on a GPU. Prints what was compared; any difference is an
AssertionError.
"""

import collections
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tables_job

# Fields of the messages that are read (protos/perfetto/trace): name and kind of each.
# number, text, or the fields of a message.
ANNOTATION = {1: ("key", int), 3: ("number", int), 17: ("value", int)}
EVENT = {3: ("category", int), 4: ("notes", ANNOTATION), 9: ("type", int), 10: ("name", int), 11: ("track", int),
         23: ("own_name", str), 47: ("flows", "fixed"), 48: ("ended_flows", "fixed")}
TEXT = {1: ("number", int), 2: ("text", str)}
TEXTS = {1: ("categories", TEXT), 2: ("names", TEXT), 3: ("keys", TEXT), 29: ("values", TEXT)}
PROCESS = {1: ("pid", int), 6: ("name", str)}
THREAD = {1: ("pid", int), 2: ("tid", int), 5: ("name", str)}
TRACK = {1: ("uuid", int), 2: ("name", str), 3: ("process", PROCESS), 4: ("thread", THREAD), 5: ("parent", int)}
CLOCKS = {1: ("clocks", {1: ("id", int), 2: ("at", int)})}
PACKET = {6: ("clocks", CLOCKS), 8: ("timestamp", int), 10: ("sequence", int), 11: ("event", EVENT),
          12: ("texts", TEXTS), 13: ("flags", int), 60: ("track", TRACK)}
GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
BEGIN, END, INSTANT = 1, 2, 3


def varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            assert number < 1 << 64
            return number, at


def message(data, fields):
    """The fields of a message: lists by name. Any that is not known here is an error."""
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        name, kind = fields[key >> 3]
        wire = key & 7
        if kind is int:
            assert wire == 0, (name, wire)
            value, at = varint(data, at)
        elif kind == "fixed":
            assert wire == 1, (name, wire)
            value, at = int.from_bytes(data[at:at + 8], "little"), at + 8
        else:
            assert wire == 2, (name, wire)
            length, at = varint(data, at)
            assert at + length <= len(data)
            value, at = data[at:at + length], at + length
            value = value.decode() if kind is str else message(value, kind)
        found[name].append(value)
    return found


def one(fields, name, default=None):
    values = fields.get(name, [default])
    assert len(values) == 1, (name, values)
    return values[0]


def packets(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key == 1 << 3 | 2, key
        length, at = varint(data, at)
        yield message(data[at:at + length], PACKET)
        at += length
    assert at == len(data)


class Timeline:
    """The tracks and intervals of a file, each with the process and thread of its track."""

    def __init__(self, data):
        self.tracks, self.slices, self.clocks = {}, [], {}
        self.bytes_of = collections.Counter()
        texts = {kind: {} for kind in ("categories", "names", "keys", "values")}
        events = []
        for number, packet in enumerate(packets(data)):
            assert one(packet, "sequence") == 1
            assert (one(packet, "flags") == 1) == (number == 0) or "flags" not in packet
            if "clocks" in packet:
                for clock in one(packet, "clocks")["clocks"]:
                    self.clocks[one(clock, "id")] = one(clock, "at")
            for kind, entries in one(packet, "texts", {}).items():
                for entry in entries:
                    assert one(entry, "number") not in texts[kind], "written once"
                    texts[kind][one(entry, "number")] = one(entry, "text")
            if "track" in packet:
                track = one(packet, "track")
                assert one(track, "uuid") not in self.tracks
                assert "parent" not in track or one(track, "parent") in self.tracks, "after its parent"
                self.tracks[one(track, "uuid")] = track
            if "event" in packet:
                event = one(packet, "event")
                assert one(event, "track") in self.tracks
                if one(event, "type") != END:
                    event["category"] = texts["categories"][one(event, "category")]
                    event["name"] = (texts["names"][one(event, "name")] if "name" in event
                                     else one(event, "own_name"))
                    event["notes"] = {texts["keys"][one(note, "key")]:
                                      one(note, "number") if "number" in note else texts["values"][one(note, "value")]
                                      for note in event["notes"]}
                events.append((one(packet, "timestamp"), event))
        # As the trace processor does: by time, of the same time in the order of the file; an end is of the
        # interval that began last.
        events.sort(key=lambda event: event[0])
        open_ones = collections.defaultdict(list)
        for at, event in events:
            track = one(event, "track")
            if one(event, "type") == END:
                begun = open_ones[track].pop()
                begun["end"] = at
                continue
            found = {"start": at, "end": at, "track": track, "category": event["category"], "name": event["name"],
                     "notes": event["notes"], "flows": event["flows"], "ended": event["ended_flows"],
                     **self.owner(track)}
            self.slices.append(found)
            if one(event, "type") == BEGIN:
                open_ones[track].append(found)
        assert not any(open_ones.values()), "every interval ends"

    def owner(self, track):
        """Ids of the process and the thread of a track, and its name, from those that it belongs to."""
        found = {"pid": None, "tid": None, "lane": one(self.tracks[track], "name")}
        while track is not None:
            described = self.tracks[track]
            if "thread" in described and found["tid"] is None:
                found["tid"] = one(one(described, "thread"), "tid")
            if "process" in described:
                found["pid"] = one(one(described, "process"), "pid")
                found["process"] = one(one(described, "process"), "name")
            track = one(described, "parent")
        return found


def ns(text):
    """Microseconds as text to nanoseconds, exactly."""
    whole, _, part = text.partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def events(path):
    data = open(path, "rb").read()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    trace = json.loads(data, parse_float=str)
    for event in trace["traceEvents"] if isinstance(trace, dict) else trace:
        if event.get("ph") == "X":
            event["start"] = ns(str(event["ts"]))
            event["end"] = event["start"] + ns(str(event["dur"]))
        yield event


def compare(what, expected, found):
    expected, found = collections.Counter(expected), collections.Counter(found)
    assert expected == found, (what, "missing", list((expected - found).items())[:5],
                               "too many", list((found - expected).items())[:5])
    print(f"{sum(found.values())} {what} are the same")


def by_perfetto(data, timeline):
    """The same by Perfetto's own classes."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        print("skipped Perfetto's own classes: no Python package perfetto")
        return
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(data)
    begun = [packet for packet in trace.packet if packet.HasField("track_event") and packet.track_event.type != END]
    compare("starts by Perfetto's own classes", [(slice["start"], slice["track"]) for slice in timeline.slices],
            [(packet.timestamp, packet.track_event.track_uuid) for packet in begun])
    assert sum(packet.HasField("track_descriptor") for packet in trace.packet) == len(timeline.tracks)


def is_pause(event):
    return event.get("ph") == "X" and (event.get("cat") == "gc" or event.get("name") == "Python GC")


def is_op(event):
    return event.get("ph") == "X" and event.get("cat") in GPU


def pauses_of(trace):
    return [(event["start"], event["end"], event["pid"], event["tid"], event.get("args", {}).get("generation"))
            for event in events(trace) if is_pause(event)]


def ops_of(trace):
    return [(event["start"], event["end"], event["name"],
             f"GPU {event['args']['device']} stream {event['args']['stream']}")
            for event in events(trace) if is_op(event)]


def shown_pauses(timeline):
    return [(one["start"], one["end"], one["pid"], one["tid"], one["notes"].get("generation"))
            for one in timeline.slices if one["category"] == "gc"]


def shown_ops(timeline, pid=None):
    return [(one["start"], one["end"], one["name"], one["lane"].split(" (")[0])
            for one in timeline.slices if one["category"] in GPU and pid in (None, one["pid"])]


def check_arrows(timeline):
    starts = {flow: one["start"] for one in timeline.slices for flow in one["flows"] if one["category"] == "gc"}
    ends = {flow: one["start"] for one in timeline.slices for flow in one["ended"] if one["category"] in GPU}
    assert starts.keys() == ends.keys(), "each arrow has both ends"
    assert all(starts[flow] < at for flow, at in ends.items())
    return len(starts)


def main(path, traces):
    data = open(path, "rb").read()
    timeline = Timeline(data)
    compare("pauses", [one for trace in traces for one in pauses_of(trace)], shown_pauses(timeline))
    compare("operations", [one for trace in traces for one in ops_of(trace)], shown_ops(timeline))
    print(f"{check_arrows(timeline)} arrows from pauses to operations after them")
    by_perfetto(data, timeline)
    counts = collections.Counter(one["category"] for one in timeline.slices)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    print(f"{len(data)} bytes, {len(timeline.tracks)} tracks")


def moved(what, expected, found, later, tolerance):
    """Both are the same, but later by one constant, which is `later` but for `tolerance`."""
    expected, found = sorted(expected), sorted(found)
    assert len(expected) == len(found) > 0, (what, len(expected), len(found))
    by = found[0][0] - expected[0][0]
    assert abs(by - later) <= tolerance, (what, by, later)
    compare(f"{what}, moved by {by} ns,", [(start + by, end + by, *more) for start, end, *more in expected], found)


def export(gctrace, folder, *traces, codes=(0,)):
    path = folder / "run.pftrace"
    done = subprocess.run([gctrace, "export", *traces, "-o", path, "--force"], capture_output=True, text=True)
    assert done.returncode in codes, (done.returncode, done.stderr)
    return path.read_bytes() if done.returncode == 0 or path.exists() else b""


def test_ranks(gctrace, folder):
    """Each rank's clock is off by up to half a second, its wall clock by 20 ms: collectives align them."""
    traces, truth = tables_job.write(folder, 3, 30)
    data = export(gctrace, folder, *traces)
    timeline = Timeline(data)
    for rank, (trace, offset) in enumerate(zip(traces, truth["offsets_ns"])):
        pid = 1000 + rank
        tolerance = 0 if rank == 0 else 3_000
        moved(f"pauses of rank {rank}", pauses_of(trace), [one for one in shown_pauses(timeline) if one[2] == pid],
              offset, tolerance)
        moved(f"operations of rank {rank}", ops_of(trace), shown_ops(timeline, pid), offset, tolerance)
    names = {one["process"] for one in timeline.slices}
    assert names == {f"#{rank + 1} rank {rank}: python train.py ({1000 + rank})" for rank in range(3)}, names
    lines = {one["notes"]["line"] for one in timeline.slices if one["category"] == "gc"}
    assert lines == {"Trainer.step (train.py:57)"}, lines
    steps = [one for one in timeline.slices if one["category"] == "step"]
    assert {one["name"] for one in steps} == {f"step {number}" for number in range(30)} and len(steps) == 90
    assert check_arrows(timeline) > 0, "a pause of 8 ms and more delays a launch"
    full = {one["start"] for one in timeline.slices if one["category"] == "gc" and one["flows"]}
    print(f"{len(full)} pauses have arrows")
    assert timeline.clocks[6] == timeline.clocks[3] and timeline.clocks[1] > 1_600_000_000 * 10**9
    assert any("idle" in one["category"] for one in timeline.slices)
    by_perfetto(data, timeline)
    return traces[0]


def test_profiler(gctrace, folder, recorded):
    """gctrace's pauses and the profiler's GPU work of one process, whose wall clocks differ by 2 ms."""
    all_of = [json.loads(line.rstrip(",\n")) for line in open(recorded) if line.startswith('{"ph"')]
    exact = list(events(recorded))
    ours = [event for event in all_of if event.get("cat") == "gc" or event["ph"] == "M"]
    path = folder / "ours.json"
    path.write_text(json.dumps({"traceEvents": ours}))
    header = next(event for event in all_of if event["name"] == "gctrace_header")["args"]
    unix = header["started_unix_ns"] - header["started_ns"]
    base = 90_000 * 10**6
    written = []
    for event in exact:
        if event.get("ph") != "X":
            continue
        length = event["end"] - event["start"]
        at = event["start"] - base
        new = {"ph": "X", "cat": event["cat"], "name": event["name"], "pid": event["pid"], "tid": event["tid"],
               "ts": at / 1000, "dur": length / 1000, "args": event["args"]}
        if is_pause(event):
            new |= {"cat": "python_function", "name": "Python GC", "args": {}}
        written.append(new)
    profile = folder / "profile.json"
    profile.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": unix + base + 2_000_000,
                                   "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": written}))
    timeline = Timeline(export(gctrace, folder, path, profile))
    compare("pauses beside a profile", pauses_of(path), shown_pauses(timeline))
    moved("operations of a profile", ops_of(recorded), shown_ops(timeline), 0, 2_000)
    assert len({one["pid"] for one in timeline.slices}) == 1, "one process"
    assert len({one["tid"] for one in timeline.slices if one["category"] in ("gc", "call", "wait")}) == 1


def test_hostile(gctrace, folder):
    """Names, ids and times that no program has."""
    name = "\u0000\n\u202e<script>alert(1)</script>\\'\"" + "x" * 5000
    lines = [{"ph": "M", "name": "gctrace_header", "pid": 0, "tid": 0, "ts": 0,
              "args": {"format": "gctrace.trace/1", "started_ns": 0}},
             {"ph": "M", "name": "gctrace_process", "pid": 7, "tid": 7, "ts": 0,
              "args": {"origin": "launched", "command": [name]}},
             {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": name}},
             {"ph": "M", "name": "gctrace_frame", "pid": 0, "tid": 0,
              "args": {"id": 1, "function": name, "file": name, "line": 4294967295}}]
    pause = lambda pid, tid, at, length: {"ph": "X", "cat": "gc", "name": "gc gen2", "pid": pid, "tid": tid, "ts": at,
                                          "dur": length, "sf": 1, "args": {"generation": 2, "reason": "automatic"}}
    # Within each other, overlapping, of no length, at the same time, in the wrong order.
    odd = [(100, 50), (110, 50), (110, 50), (110, 20), (160, 0), (160, 5), (90, 1000), (10, 1), (0, 0)]
    odd += [(1000 + at, 500) for at in range(40)] + [(9e15, 1e15)]
    lines += [pause(7, 8, at, length) for at, length in odd]
    lines += [pause(pid, tid, 10, 1) for pid, tid in ((0, 0), (8, 7), (4294967294, 4294967294), (4194305, 4194306), (9, 9))]
    path = folder / "hostile.json"
    path.write_text(json.dumps({"traceEvents": lines}))
    timeline = Timeline(export(gctrace, folder, path))
    shown = [one for one in timeline.slices if one["category"] == "gc"]
    assert len(shown) == len(odd) + 5, (len(shown), len(odd))
    expected = [ns(str(at)) for at, _ in odd[:-1]]
    found = [one["start"] for one in shown if one["tid"] == 8]
    compare("starts of odd pauses", expected, [at for at in found if at < 10**15])
    cut = [one for one in shown if one["tid"] == 8 and one["start"] < 10**15 and one["end"] > one["start"]]
    lengths = {(ns(str(at)), ns(str(at)) + ns(str(length))) for at, length in odd}
    assert all((one["start"], one["end"]) in lengths for one in cut), "an interval keeps its length"
    ids = [(one["thread"][0]["pid"][0], one["thread"][0]["tid"][0]) for one in timeline.tracks.values() if "thread" in one]
    assert len({tid for _, tid in ids}) == len(ids), "no thread is drawn as another"
    texts = [text for one in timeline.slices for text in (one["process"], str(one["notes"].get("line")))]
    assert not any(chr(code) in text for text in texts for code in (0, 10, 0x202E)), "escaped"


def test_damaged(gctrace, folder, recorded, runs=40):
    """Bytes of a trace are changed, removed or repeated: it is exported as far as it can be read, or not."""
    chance, whole = random.Random(3), pathlib.Path(recorded).read_bytes()
    exported = 0
    for _ in range(runs):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 12)):
            at = chance.randrange(len(data))
            if chance.random() < 0.4:
                data[at] = chance.choice(b'0123456789-,."{}[]eE\\\x00\xff')
            elif chance.random() < 0.5:
                del data[at:at + chance.randint(1, 400)]
            else:
                data[at:at] = data[max(0, at - chance.randint(1, 4000)):at]
        path = folder / "damaged.json"
        path.write_bytes(data)
        (folder / "run.pftrace").unlink(missing_ok=True)
        timeline = Timeline(export(gctrace, folder, path, codes=(0, 1)))
        check_arrows(timeline)
        exported += bool(timeline.slices)
    assert exported > runs // 4, exported
    print(f"{runs} damaged traces, {exported} of them exported")


def test(gctrace):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        recorded = test_ranks(gctrace, folder)
        test_profiler(gctrace, folder, recorded)
        test_hostile(gctrace, folder)
        test_damaged(gctrace, folder, recorded)
    print("timelines are true")


if __name__ == "__main__":
    if sys.argv[1] == "--test":
        test(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2:])
