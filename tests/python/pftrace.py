"""Reads a trace for Perfetto back, by the standard library alone and, where it is installed, by Perfetto's
own protocol buffers, and compares it with the traces that it was made from.

    pftrace.py TIMELINE TRACE...     the traces in JSON, by gctrace or the PyTorch profiler, the first one's clock

Compared: start, end, process, thread and generation of every pause; start, end, stream and name of every
operation on a GPU of traces on the first one's clock. Prints what was compared; any difference is an
AssertionError.
"""

import collections
import gzip
import json
import sys

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


def main(path, traces):
    data = open(path, "rb").read()
    timeline = Timeline(data)
    pauses = [slice for slice in timeline.slices if slice["category"] == "gc"]
    generation = lambda event: event.get("args", {}).get("generation")
    expected = [(event["start"], event["end"], event["pid"], event["tid"], generation(event))
                for trace in traces for event in events(trace)
                if event.get("ph") == "X" and (event.get("cat") == "gc" or event.get("name") == "Python GC")]
    compare("pauses", expected,
            [(one["start"], one["end"], one["pid"], one["tid"], one["notes"].get("generation")) for one in pauses])
    ops = [slice for slice in timeline.slices if slice["category"] in GPU]
    expected = [(event["start"], event["end"], event["name"], f"GPU {event['args']['device']} stream {event['args']['stream']}")
                for trace in traces for event in events(trace) if event.get("cat") in GPU and event.get("ph") == "X"]
    compare("operations", expected, [(one["start"], one["end"], one["name"], one["lane"].split(" (")[0]) for one in ops])
    starts = {flow: one["start"] for one in pauses for flow in one["flows"]}
    ends = {flow: one["start"] for one in ops for flow in one["ended"]}
    assert starts.keys() == ends.keys(), "each arrow has both ends"
    assert all(starts[flow] < at for flow, at in ends.items())
    print(f"{len(starts)} arrows from pauses to operations after them")
    by_perfetto(data, timeline)
    counts = collections.Counter(one["category"] for one in timeline.slices)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    print(f"{len(data)} bytes, {len(timeline.tracks)} tracks")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
