"""The package gctrace in one interpreter, against what the interpreter itself counts.

    package.py FOLDER       (PYTHONPATH with the package, GCTRACE_PROGRAM; FOLDER for traces)
    gctrace record --mode inject -- python package.py FOLDER recorded
"""

import gc
import os
import sys
import time

import gctrace

FOLDER = sys.argv[1]
RECORDED = sys.argv[2:] == ["recorded"]
# 3.14.0 to 3.14.4 count no increments.
INCREMENTAL = (3, 14, 0) <= sys.version_info[:3] <= (3, 14, 4)
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()


def garbage(count):
    for _ in range(count):
        one = []
        one.append(one)


def collects():
    gc.collect()


class Bracket:
    """Pauses by two entries of its own: one is called before all others, one after those added in the block."""

    def __enter__(self):
        self.pauses, self.time_s, self.longest_s = 0, [0.0, 0.0], [0.0, 0.0]
        gc.callbacks.insert(0, self.first)
        return self

    def close(self):
        gc.callbacks.append(self.last)
        return self

    def __exit__(self, *_):
        gc.callbacks.remove(self.first)
        gc.callbacks.remove(self.last)

    def first(self, phase, info):
        now = time.perf_counter()
        if phase == "start":
            self.first_start = now
        else:
            self.first_stop = now

    def last(self, phase, info):
        now = time.perf_counter()
        if phase == "start":
            self.last_start = now
        else:
            self.pauses += 1
            for at, took in enumerate((self.first_stop - self.last_start, now - self.first_start)):
                self.time_s[at] += took
                self.longest_s[at] = max(self.longest_s[at], took)

    def has(self, time_s, longest_s=None):
        """Whether a sum of pauses lies between the least and the most; figures are rounded to a nanosecond."""
        least, most = self.time_s
        fits = least - 1e-9 * self.pauses <= time_s <= most + 1e-9 * self.pauses
        return fits and (longest_s is None or self.longest_s[0] <= longest_s <= self.longest_s[1])


def measures():
    names = set(sys.modules)
    import gctrace as again

    assert again is gctrace and set(sys.modules) == names
    assert not [one for one in gc.callbacks if type(one).__module__.startswith("gctrace")]
    with Bracket() as bracket:
        outer = gctrace.mark()
        bracket.close()
        before = gc.get_stats()
        garbage(20_000)
        gc.collect()
        found = gctrace.summary(outer)
    assert found.pauses == bracket.pauses >= 1, (found, bracket.pauses)
    assert found.source == ("the injected library" if RECORDED else "gc.callbacks"), found
    after = gc.get_stats()
    if not INCREMENTAL:
        counted = [now["collections"] - then["collections"] for now, then in zip(after, before)]
        assert [one.pauses for one in found.generations] == counted, (found, counted)
    assert found.collected == sum(now["collected"] - then["collected"] for now, then in zip(after, before))
    assert bracket.has(found.time_s, found.longest_s) and 0 < found.share <= 1, (found, vars(bracket))
    inner = gctrace.mark()
    assert gctrace.summary(inner).pauses == 0 and gctrace.summary(inner).longest_s == 0.0
    gc.collect(0)
    inner = gctrace.summary(inner)
    assert inner.pauses == 1 and 0 < inner.longest_s == inner.time_s < gctrace.summary(outer).time_s, inner
    assert gctrace.summary(outer).longest_s >= inner.longest_s
    assert str(found).startswith("{} pauses, ".format(found.pauses)), found
    if RECORDED:
        # Nothing is added to the list: the entry of the library is asked.
        names = [getattr(one, "__name__", "") for one in gc.callbacks]
        assert names == ["gctrace_callback"], gc.callbacks
    mark = gctrace.mark()
    del gc.callbacks[:]
    gc.collect()
    assert gctrace.summary(mark).pauses == (1 if RECORDED else 0), gctrace.summary(mark)
    mark = gctrace.mark()
    gc.collect()
    assert gctrace.summary(mark).pauses == 1


def records():
    path = os.path.join(FOLDER, "callbacks.json")
    with Bracket() as bracket:
        with gctrace.record(path, by="callbacks") as recording:
            bracket.close()
            garbage(5_000)
            collects()
            gc.collect()
    assert recording.source == "gc.callbacks", recording.source
    garbage(5_000)
    report = gctrace.analyze(path)
    totals = report["totals"]["pauses"]
    assert totals["count"] == bracket.pauses >= 1, (totals, bracket.pauses)
    assert bracket.has(totals["time_ns"] / 1e9), (totals, vars(bracket))
    lines = report["lines"]["own"]
    places = {(os.path.basename(line["location"]["file"]), line["location"]["function"]) for line in lines}
    assert ("package.py", "collects") in places and ("package.py", "records") in places, places
    # Twice in one process, and by probes where they may be attached.
    path = os.path.join(FOLDER, "probes.json")
    with gctrace.record(path) as recording:
        for _ in range(5):
            gc.collect()
    assert (recording.source == "kernel probes") != bool(recording.why), (recording.source, recording.why)
    assert gctrace.analyze(path)["totals"]["pauses"]["count"] >= 5
    for wrong in (lambda: gctrace.record("a.zst"), lambda: gctrace.record("a.json", by="magic")):
        try:
            wrong()
            raise AssertionError("it is wrong")
        except ValueError:
            pass
    try:
        gctrace.analyze(os.path.join(FOLDER, "none.json"))
        raise AssertionError("there is none")
    except gctrace.ProgramError as error:
        assert "none.json" in str(error), error


def forks():
    """Children that leave the block, end within it, or go on behind it write nothing into their parent's trace."""
    for by in ("callbacks", "probes"):
        for ends in ("leaves", "exits", "goes on"):
            path = os.path.join(FOLDER, "forked.json")
            try:
                recording = gctrace.record(path, by=by)
            except RuntimeError:
                # Probes may not be attached here.
                continue
            begun = os.getpid()
            try:
                with recording, Bracket() as bracket:
                    bracket.close()
                    garbage(3_000)
                    gc.collect()
                    child = os.fork()
                    if child == 0:
                        garbage(1_000)
                        gc.collect()
                        if ends == "exits":
                            sys.exit(0)
                        if ends == "goes on":
                            recording.stop()
                            recording.stop()
                    else:
                        assert os.waitpid(child, 0)[1] == 0
                        garbage(3_000)
                        gc.collect()
            finally:
                # What ends by SystemExit leaves as a program does, with the buffers of its files.
                if os.getpid() != begun and ends != "exits":
                    gc.collect()
                    sys.exit(0)
            report = gctrace.analyze(path)
            count, lost = report["totals"]["pauses"]["count"], report["missing"]["lost"]
            assert count >= 2 and lost == {}, (by, ends, count, lost)
            assert by == "probes" or count == bracket.pauses, (ends, count, bracket.pauses)


def settings():
    own = gc.get_threshold()
    with gctrace.apply("threshold=7000,20") as applied:
        assert gc.get_threshold()[:2] == (7000, 20), gc.get_threshold()
        gctrace.step()
    assert gc.get_threshold() == own
    with gctrace.apply("loading=100000"):
        assert gc.get_threshold()[0] == 100_000
        gctrace.step()
        assert gc.get_threshold() == own
    applied = gctrace.apply("freeze,plan:3,gen2:6")
    seen = []
    for _ in range(14):
        before = gctrace.mark()
        gctrace.step()
        seen.append([one.pauses for one in gctrace.summary(before).generations])
    assert not gc.isenabled()
    if not FREE_THREADED:
        assert gc.get_freeze_count() > 1000
        assert seen[1] == [0, 0, 1], seen
    each = [sum(one) for one in seen]
    assert each[2:] == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0], seen
    if not FREE_THREADED and not INCREMENTAL:
        assert seen[2] == [0, 1, 0] and seen[5] == [0, 0, 1], seen
    applied.undo()
    applied.undo()
    assert gc.isenabled() and gc.get_freeze_count() <= 500 and gc.get_threshold() == own
    for wrong in ("thresold=3", "freeze@start", "plan:0", "gen2:5", "freeze,freeze", "threshold=1,2,3,4", "freeze@2"):
        try:
            gctrace.apply(wrong)
            raise AssertionError(wrong)
        except ValueError as error:
            assert str(error), wrong


class Stream:
    """PyTorch's CUDA with one stream, which is busy until a time, in real time."""

    busy_until_s = 0.0
    is_capturing = False

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at_s = max(time.perf_counter(), Stream.busy_until_s)

        def query(self):
            return time.perf_counter() >= self.at_s

        def elapsed_time(self, other):
            assert self.query() and other.query()
            return 1e3 * (other.at_s - self.at_s)

    is_initialized = staticmethod(lambda: True)
    is_current_stream_capturing = staticmethod(lambda: Stream.is_capturing)


def idle_gpu():
    """What the GPU was idle, of a stream that ends its work before, in and after a collection."""
    from gctrace._torch import GpuIdle
    from gctrace.trainers import StepMetrics

    metrics = StepMetrics(gpu=True)
    assert "gpu/idle_gc" not in metrics.take()
    sys.modules["torch"] = type(sys)("torch")
    sys.modules["torch"].cuda = Stream
    gc.collect()
    found = metrics.take()
    assert 0 < found["gpu/idle_gc"] <= 1 and "gpu/idle_gc" not in StepMetrics().take(), found
    metrics.close()
    kept = [[number] for number in range(300_000)]
    gpu = GpuIdle()

    def idle(busy_s, collect=gc.collect):
        """Idle time, and the least and the most that it may be, in seconds."""
        Stream.busy_until_s = time.perf_counter() + busy_s
        with Bracket() as bracket:
            bracket.close()
            collect()
            ended_s = time.perf_counter()
        while time.perf_counter() < Stream.busy_until_s:
            pass
        least = bracket.first_stop - max(bracket.last_start, Stream.busy_until_s)
        most = ended_s - max(bracket.first_start, Stream.busy_until_s)
        return gpu.take(), max(least, 0.0), max(most, 0.0)

    for busy_s in (0, 0.002, 0.01, 1):
        found, least, most = idle(busy_s)
        assert least - 1e-6 <= found <= most + 1e-6, (busy_s, found, least, most)
    # The youngest generation is left out, and a graph that is captured.
    assert idle(0, lambda: gc.collect(0))[0] == 0.0
    Stream.is_capturing = True
    assert idle(0)[0] == 0.0
    gpu.close()
    assert not [one for one in gc.callbacks if isinstance(one, GpuIdle)]
    del sys.modules["torch"], kept


def finds_the_program():
    """Without one beside the package, that on PATH; without any, no advice to install what an index may have."""
    named, path = os.environ.pop("GCTRACE_PROGRAM"), os.environ["PATH"]
    folder = os.path.join(sys.argv[1], "path")
    os.makedirs(folder, exist_ok=True)
    try:
        os.environ["PATH"] = folder
        try:
            gctrace.find_bin()
            raise AssertionError("there is none")
        except FileNotFoundError as error:
            assert "GCTRACE_PROGRAM" in str(error) and "pip" not in str(error), error
        program = os.path.join(folder, "gctrace")
        os.symlink(named, program)
        assert gctrace.find_bin() == program
    finally:
        os.environ["GCTRACE_PROGRAM"], os.environ["PATH"] = named, path


finds_the_program()
measures()
records()
forks()
settings()
idle_gpu()
print("ok")
