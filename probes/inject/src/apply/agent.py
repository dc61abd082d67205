# Applies settings of the collector inside the program, at its steps. Part of gctrace.
#
# Runs before site in CPython 3.8 to 3.15 and in free-threaded builds, so it imports built-in
# modules only. What fails here ends the agent, not the program; exceptions of the program's own
# signal handlers pass through. The library passes `native`, which sums up the collections:
# native(reset) -> count, garbage and pause_ns of each generation, then the longest pause in ns
# since the last call with a true argument.
#
# Settings, markers of steps, blocks and files are described in docs/architecture.md.
import atexit
import gc
import posix
import sys
from _thread import allocate_lock
from time import monotonic_ns, thread_time_ns

# Preference of what marks a step; only an optimizer's mark ends one, the others begin one.
MARKERS = {"function": 0, "optimizer": 1, "backward": 2, "dataloader": 3}
# So many marks of the last two are awaited before they count: a better marker may come.
UNCERTAIN = 32
# Between two looks at `control`, and two reports on the way, in ns.
INTERVAL = 1000000000
# A freeze that was undone is repeated this often: each costs a full collection.
MOST_FREEZES = 4


class Agent:
    def __init__(self, native, variable):
        self.native = native
        self.real = {name: getattr(gc, name) for name in (
            "enable", "disable", "set_threshold", "freeze", "unfreeze", "collect")}
        # As they are now: programs replace functions of modules.
        self.get_threshold, self.is_enabled = gc.get_threshold, gc.isenabled
        self.get_count, self.get_objects = gc.get_count, gc.get_objects
        self.get_freeze_count = gc.get_freeze_count
        self.texts = variable("GCTRACE_APPLY").split("|")
        self.settings = [parse(text) for text in self.texts]
        self.function = variable("GCTRACE_STEP_FUNCTION")
        self.folder = variable("GCTRACE_APPLY_FOLDER")
        self.block_steps = max(int(variable("GCTRACE_APPLY_BLOCK") or 25), 1)
        self.warm_up = int(variable("GCTRACE_APPLY_WARM_UP") or 50)
        wants_rows = len(self.settings) > 1 or variable("GCTRACE_APPLY_STEPS") == "1"
        self.wants_rows = bool(wants_rows and self.folder)
        rank = variable("RANK")
        self.rank = int(rank) if rank.isdigit() else None
        # What the program itself asked for, given back when the settings are taken back.
        self.own_threshold, self.own_enabled = self.get_threshold(), self.is_enabled()
        self.warnings, self.failure = [], None
        self.active = {}
        self.reset(forked=False)
        if self.function and sys.version_info < (3, 12):
            self.warn("calls of a function are seen in CPython 3.12 and later only")
        self.warn_of_build()

    def reset(self, forked):
        """The state of a process that has just begun."""
        self.lock = allocate_lock()
        self.forked, self.ended, self.taken_back = forked, False, False
        self.counts, self.marker, self.marks, self.steps = {}, None, 0, 0
        self.rows, self.has_rows = [], False
        self.index, self.block = 0, -1
        self.applied, self.undone, self.calls, self.asked = [], {}, {}, {}
        self.last_call, self.unfrozen = {}, None
        self.freezes, self.frozen, self.tracked, self.rss = 0, None, None, rss_bytes()
        self.waiting, self.agent_ns = 0, 0
        self.startup, self.before, self.after, self.later = None, Sums(), None, None
        self.planned, self.own = Sums(), Sums()
        self.start_ns = self.since_ns = self.written_ns = self.looked_ns = monotonic_ns()
        self.since = self.totals(True)
        self.row = None

    def totals(self, reset=False):
        counts = self.native(reset)
        self.longest = counts[9]
        return counts[:9]

    def warn(self, text):
        if text not in self.warnings and len(self.warnings) < MOST_LINES:
            self.warnings.append(text)

    def warn_of_build(self):
        for setting in self.settings:
            plan, threshold = setting.get("plan"), setting.get("threshold")
            if plan and plan[1][1] == 0 and not FREE_THREADED:
                self.warn("generation 2 is never collected: cyclic garbage that survives two "
                          "collections is never freed; plan:%d,gen2:%d frees it"
                          % (plan[1][0], plan[1][0] * 10))
            if plan and FREE_THREADED:
                self.warn("free-threaded builds have no generations: each planned collection is "
                          "a full one")
            if threshold and FREE_THREADED and len(threshold[1]) > 1:
                self.warn("free-threaded builds have no generations: only the first threshold "
                          "has an effect")
            if plan and INCREMENTAL:
                self.warn("3.14.0 to 3.14.4 collect in increments: a planned collection of "
                          "generation 1 is one increment")
            if threshold and INCREMENTAL and len(threshold[1]) > 2:
                self.warn("3.14.0 to 3.14.4 collect in increments: the third threshold has no "
                          "effect")

    # Faults

    def fail(self, error):
        """Ends the agent if the fault is its own; otherwise the exception is the program's."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        file = trace.tb_frame.f_code.co_filename if trace is not None else "<gctrace "
        if not isinstance(error, Exception) or not file.startswith("<gctrace "):
            return False
        self.failure = "%s: %s (line %d)" % (
            type(error).__name__, error, trace.tb_lineno if trace else 0)
        try:
            self.give_back(collects=False)
            self.report()
        except Exception:
            pass
        return True

    # The settings

    def threshold(self, values):
        self.real["set_threshold"](*values)
        self.wanted = self.get_threshold()

    def freeze(self):
        before = self.totals()
        self.real["collect"]()
        self.real["freeze"]()
        after = self.totals(True)
        self.own.add(before, after)
        # Neither before nor after.
        self.since = tuple(s + b - a for s, a, b in zip(self.since, before, after))
        self.freezes += 1
        self.unfrozen = None
        self.frozen = self.get_freeze_count()
        if not self.frozen:
            self.warn("gc.freeze() has no effect in this build")

    def apply_due(self, step):
        setting = self.settings[self.index]
        for name, (at, values) in setting.items():
            if name in self.active or step < at:
                continue
            began = monotonic_ns()
            if name == "threshold":
                self.threshold(values)
            elif name == "freeze":
                self.freeze()
            else:
                self.real["disable"]()
            self.active[name] = values
            if len(self.applied) < MOST_LINES:
                took_ns = monotonic_ns() - began
                self.agent_ns -= took_ns
                self.applied.append({
                    "setting": self.text(name, values), "step": step, "at_ns": began,
                    "took_ns": took_ns})
            if len(self.active) == len(setting) and self.after is None:
                self.turn()

    @staticmethod
    def text(name, values):
        if name == "threshold":
            return "threshold=" + ",".join(map(str, values))
        return "plan:%d,gen2:%d" % values if name == "plan" else name

    def turn(self):
        """All settings are applied: what comes now is the time after."""
        self.sum_up(monotonic_ns())
        self.after, self.waiting = Sums(), 0
        self.totals(True)
        self.measure_heap()
        self.row = None

    def measure_heap(self):
        self.rss, self.tracked = rss_bytes(), len(self.get_objects())

    def sums(self):
        return self.later or self.after or self.before

    def sum_up(self, now, totals=None):
        sums, totals = self.sums(), totals or self.totals()
        sums.add(self.since, totals)
        sums.duration_ns += now - self.since_ns
        sums.longest_ns = max(self.longest, sums.longest_ns)
        self.since, self.since_ns = totals, now

    def leave(self):
        """Ends the active setting, for another one."""
        if "freeze" in self.active:
            self.real["unfreeze"]()
            self.freezes, self.unfrozen = 0, None
        if "disable" in self.active or "plan" in self.active:
            if self.own_enabled:
                self.real["enable"]()
        if "threshold" in self.active:
            self.real["set_threshold"](*self.own_threshold)
        self.active = {}

    def give_back(self, collects=True):
        self.sum_up(monotonic_ns())
        self.later = Sums()
        self.leave()
        self.taken_back = True
        if collects:
            self.real["collect"]()

    def hold(self, step):
        """Applies again what was undone since the last step, and notes by whom."""
        if "threshold" in self.active and self.get_threshold() != self.wanted:
            self.note_undone("threshold", "set_threshold", step)
            self.threshold(self.active["threshold"])
        for name in ("disable", "plan"):
            if name in self.active and self.is_enabled():
                self.note_undone(name, "enable", step)
                self.real["disable"]()
        if "freeze" in self.active and self.unfrozen is not None:
            self.note_undone("freeze", "unfreeze", step)
            self.unfrozen = None
            if self.freezes < MOST_FREEZES:
                self.freeze()
            else:
                self.warn("gc.unfreeze() undid %d freezes: it was not repeated again"
                          % MOST_FREEZES)
        if not (self.own_enabled or "disable" in self.active or "plan" in self.active):
            self.warn("the program itself has disabled automatic collection")

    def note_undone(self, name, function, step):
        by = self.last_call.get(function, "not by a function of the module gc")
        count(self.undone, (name, by), step)

    def plan(self, step):
        every, full = self.active["plan"]
        generation = 2 if full and step % full == 0 else 1 if step % every == 0 else None
        if generation is not None:
            before = self.totals()
            self.real["collect"](generation)
            self.planned.add(before, self.totals())

    # Steps

    def step(self, marker):
        """A mark of a step, from the library, in the thread that made it."""
        lock = self.lock
        if self.failure or self.ended or not lock.acquire(False):
            return
        try:
            # Together: what the agent itself allocates may start a collection.
            totals, now = self.totals(), monotonic_ns()
            if self.counts_as_step(marker):
                self.mark(now, totals)
        except BaseException as error:
            if not self.fail(error):
                raise
        finally:
            lock.release()

    def counts_as_step(self, marker):
        rank = MARKERS[marker]
        if bool(self.function) != (rank == 0):
            return False
        seen = self.counts[marker] = self.counts.get(marker, 0) + 1
        if self.marker != marker:
            is_better = self.marker is None or rank < MARKERS[self.marker]
            if not is_better or rank > 1 and seen < UNCERTAIN:
                return False
            if self.marker is not None:
                self.warn("steps were counted by %s until the first by %s"
                          % (self.marker, marker))
                self.rows, self.row, self.has_rows = [], None, False
                self.leave()
                self.after = None
            self.marker, self.marks = marker, seen - 1
        self.marks += 1
        return True

    def mark(self, now, totals):
        cpu = thread_time_ns() if self.wants_rows else 0
        steps = self.steps = self.marks if self.marker == "optimizer" else self.marks - 1
        self.sum_up(now, totals)
        if self.startup is None:
            self.begin_steps()
        else:
            self.sums().steps += 1
        closing = not self.taken_back and self.next_block(steps)
        if closing and ("disable" in self.active or "plan" in self.active):
            # Its garbage is its own cost.
            self.real["collect"](1)
            totals, now, cpu = self.totals(), monotonic_ns(), thread_time_ns()
        self.end_row(steps, now, cpu, totals)
        if closing:
            self.flush()
            self.leave()
        if not self.taken_back:
            self.index = self.setting_of(steps)[1]
            if self.active:
                self.waiting = max(self.waiting, self.get_count()[0])
                self.hold(steps)
            self.apply_due(steps)
        self.block = self.setting_of(steps)[0]
        self.tick()
        cpu, began, totals = thread_time_ns() if self.wants_rows else 0, monotonic_ns(), self.totals()
        self.agent_ns += began - now
        self.row = (began, totals, cpu)
        if "plan" in self.active and steps:
            self.plan(steps)

    def begin_steps(self):
        """What was before the first mark is start-up."""
        if self.after is None:
            self.startup, self.before = self.before, Sums()
        else:
            self.startup, self.after = self.after, Sums()
            self.measure_heap()
        self.totals(True)

    def setting_of(self, step):
        """The block and the setting of the step that follows `step` steps."""
        count = len(self.settings)
        block = (step - self.warm_up) // self.block_steps if step >= self.warm_up else -1
        return block, block_setting(block, count) if count > 1 else 0

    def next_block(self, step):
        return self.setting_of(step)[1] != self.index

    def end_row(self, step, now, cpu, totals):
        if self.row is None or not self.wants_rows:
            return
        began, before, cpu_began = self.row
        difference = [b - a for a, b in zip(before, totals)]
        self.rows.append("%d,%d,%d,%d,%d,%d,%d,%d,%d,%d\n" % (
            step, self.index, self.block, began, now, sum(difference[6:9]),
            difference[0], difference[1], difference[2], max(cpu - cpu_began, 0)))
        if self.setting_of(step)[0] != self.block or len(self.rows) >= 1000:
            self.flush()

    def flush(self):
        if not self.rows:
            return
        flags = posix.O_APPEND if self.has_rows else posix.O_TRUNC
        head = "" if self.has_rows else (
            "step,setting,block,start_ns,end_ns,pause_ns,gen0,gen1,gen2,cpu_ns\n")
        text = head + "".join(self.rows)
        self.rows, self.has_rows = [], True
        try:
            write(self.path("steps"), text.encode(), flags)
        except OSError:
            self.folder, self.wants_rows = "", False

    # Functions of the module gc

    def guard(self):
        """Wraps the functions by which a program or a library undoes the settings."""
        for name in self.real:
            setattr(gc, name, self.wrapper(name, self.real[name]))

    def wrapper(self, name, real):
        def call(*args, **kwargs):
            self.called(name)
            result = real(*args, **kwargs)
            if name == "set_threshold":
                self.own_threshold = self.get_threshold()
            return result

        def collect(*args, **kwargs):
            by, before = self.called(name), self.native(False)
            result = real(*args, **kwargs)
            self.collected(by, before)
            return result

        wrapped = collect if name == "collect" else call
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapped, attribute, getattr(real, attribute))
        wrapped.__wrapped__ = real
        return wrapped

    def called(self, name):
        try:
            by = caller()
            self.last_call[name] = by
            if name in ("enable", "disable"):
                self.own_enabled = name == "enable"
            if name == "unfreeze":
                self.unfrozen = by
            if name != "collect":
                count(self.calls, (name, by), self.steps)
            return by
        except BaseException as error:
            if not self.fail(error):
                raise

    def collected(self, by, before):
        if by in self.asked or len(self.asked) < MOST_LINES:
            change = [b - a for a, b in zip(before, self.native(False))]
            old = self.asked.get(by, (0, 0, 0))
            self.asked[by] = (old[0] + 1, old[1] + sum(change[3:6]), old[2] + sum(change[6:9]))

    # Reports

    def path(self, kind):
        return "%s/%d.%s" % (self.folder, posix.getpid(), kind)

    def tick(self):
        """What is due from time to time."""
        now = monotonic_ns()
        if self.folder and now - self.looked_ns > INTERVAL // 10:
            self.looked_ns = now
            try:
                wants_back = read(self.folder + "/control")[:1] == b"1"
            except OSError:
                wants_back = False
            if wants_back and not self.taken_back:
                self.flush()
                self.give_back()
                self.report()
        if now - self.written_ns > INTERVAL:
            self.report()

    def idle(self):
        """Called by the library from time to time after collections."""
        lock = self.lock
        if self.failure or self.ended or not lock.acquire(False):
            return
        try:
            self.tick()
        except BaseException as error:
            if not self.fail(error):
                raise
        finally:
            lock.release()

    def report(self):
        self.written_ns = monotonic_ns()
        if not self.folder:
            return
        self.sum_up(self.written_ns)
        text = json(content(self))
        try:
            write(self.path("report.tmp"), text.encode(), posix.O_TRUNC)
            posix.rename(self.path("report.tmp"), self.path("report.json"))
        except OSError:
            # The folder is gone, with the gctrace that made it.
            self.folder, self.wants_rows = "", False

    def finish(self):
        """The end of the interpreter."""
        if self.ended:
            return
        self.ended, prints = True, not self.folder
        interrupted = None
        for _ in range(3):
            try:
                if not self.failure:
                    self.flush()
                self.report()
                if prints and (self.steps or not self.forked):
                    write_error(sentence(self))
                break
            except BaseException as error:
                if self.fail(error):
                    break
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def after_fork(self):
        """A child applies nothing at steps that it does not have, and reports for itself."""
        if "freeze" in self.active:
            # Stays, so that pages remain shared.
            del self.active["freeze"]
        self.leave()
        self.reset(forked=True)
        self.apply_due(0)


def begin(native):
    """Installs the agent; returns what the library calls: at a step, and from time to time."""
    def variable(name):
        return posix.environ.get(name.encode(), b"").decode("utf-8", "replace")

    try:
        agent = Agent(native, variable)
        agent.guard()
        agent.apply_due(0)
    except Exception as error:
        write_error("GCTRACE_APPLY=%s is not applied: %s" % (variable("GCTRACE_APPLY"), error))
        return None
    atexit.register(agent.finish)
    posix.register_at_fork(after_in_child=agent.after_fork)
    leave = posix._exit

    def _exit(*args, **kwargs):
        agent.finish()
        leave(*args, **kwargs)

    _exit.__doc__, _exit.__module__, _exit.__wrapped__ = leave.__doc__, "posix", leave
    posix._exit = _exit
    return agent.step, agent.idle
