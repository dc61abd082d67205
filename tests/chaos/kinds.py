"""Actions on gctrace and its programs, by kind. Each takes a `Round`."""

import glob
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

from rounds import WITHOUT_TRACE, Refused

RECORDING = ("ebpf", "inject", "both", "top")
EVERYWHERE = RECORDING + tuple(WITHOUT_TRACE)
PROBES = ("ebpf", "both", "top")
# Modes in which gctrace attaches to a running process.
ATTACHING = ("ebpf", "top")


def while_it_runs(round, reference):
    """Waits for a random time in gctrace's life: its start, the program's run, its end."""
    return round.sleep(0, reference["seconds"] + 1.0)


def recorded(round, command, **settings):
    """Runs the program alone, then with gctrace; returns its reference."""
    reference = round.reference(command, settings.get("limits", ()))
    round.record(command, **settings)
    return reference


def finish(round, reference):
    """Lets gctrace end by itself, with the program's exit code."""
    code = round.wait(round.gctrace, "gctrace")
    if not round.is_refused(code):
        round.wait_for_all()
        round.same(reference, code)
    return code


def after_its_death(round, reference):
    """After gctrace was killed: the program runs to its end, if it had been started."""
    round.is_gctrace_killed = True
    round.wait(round.gctrace, "the killed gctrace")
    round.wait_for_all()
    if os.listdir(round.file("truth")):
        round.same(reference, None)


def nothing(round):
    finish(round, recorded(round, round.victim()))


def kill_gctrace(round):
    reference = recorded(round, round.victim())
    while_it_runs(round, reference)
    if round.gctrace.poll() is None:
        round.signal(round.gctrace.pid, signal.SIGKILL)
        after_its_death(round, reference)
    else:
        finish(round, reference)


def kill_guardian(round):
    """Without a guardian a recording continues as before."""
    reference = recorded(round, round.victim())
    while_it_runs(round, reference)
    guardian = round.guardian()
    if guardian:
        round.signal(guardian, signal.SIGKILL)
    finish(round, reference)


def kill_together(round):
    """gctrace and its guardian at once: the guardian's successor resumes what is stopped."""
    reference = recorded(round, round.victim())
    while_it_runs(round, reference)
    guardian = round.guardian()
    if round.gctrace.poll() is None:
        if guardian:
            round.signal(guardian, signal.SIGKILL)
        round.signal(round.gctrace.pid, signal.SIGKILL)
        after_its_death(round, reference)
    else:
        finish(round, reference)


def kill_program(round):
    reference = recorded(round, round.victim())
    while_it_runs(round, reference)
    program = round.program()
    if not program:
        finish(round, reference)
        return
    round.is_cut_short = True  # its children continue unrecorded
    round.signal(program, signal.SIGKILL)
    code = round.wait(round.gctrace, "gctrace")
    # It may have exited by itself just before.
    if code not in (128 + signal.SIGKILL, reference["code"]):
        round.fault("exit code %d although the program was killed" % code)


def stop_gctrace(round):
    reference = recorded(round, round.victim(collections=round.random.choice((0, 2000, 30000))))
    while_it_runs(round, reference)
    round.excused.add(round.gctrace.pid)
    if round.signal(round.gctrace.pid, signal.SIGSTOP):
        round.sleep(0.1, 3.5)
        round.signal(round.gctrace.pid, signal.SIGCONT)
    finish(round, reference)


def leave(round):
    """Interrupted twice, gctrace exits; the program continues alone."""
    reference = recorded(round, round.victim(deaf=True))
    while_it_runs(round, reference)
    for _ in range(2):
        round.signal(round.gctrace.pid, round.random.choice((signal.SIGINT, signal.SIGTERM)))
        round.sleep(0, 0.3)
    round.wait(round.gctrace, "gctrace, interrupted twice,")
    round.wait_for_all()
    round.is_cut_short = True
    if os.listdir(round.file("truth")):
        round.same(reference, None)


def full_disk(round):
    folder, size = round.file("disk"), round.random.choice((16, 64, 256, 1024))
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dk" % size, "tmpfs", folder], check=True)
    round.done.append("a disk of %d KiB" % size)
    try:
        kept, round.trace = round.trace, os.path.join(folder, os.path.basename(round.trace))
        round.is_cut_short = round.may_refuse = True
        finish(round, recorded(round, round.victim(collections=round.random.choice((0, 20000)))))
        if os.path.exists(round.trace):
            shutil.copy(round.trace, kept)
        round.traces = [kept]
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def aborted(round, limit, reference):
    """Whether gctrace ran out of memory: Rust's runtime aborts then. The program must not notice."""
    if limit != resource.RLIMIT_AS:
        return False
    round.may_panic = True
    if round.wait(round.gctrace, "gctrace") != -signal.SIGABRT:
        return False
    after_its_death(round, reference)
    return True


def limited(round, limit, inherited, late):
    """A limit that the program has as well, or one that is set for gctrace alone while it runs."""
    round.is_cut_short = round.may_refuse = True
    if round.mode == "top" or round.random.random() < 0.5:
        limits = ((limit, round.random.choice(inherited)),)
        round.done.append("limits %s" % (limits,))
        reference = recorded(round, round.victim(), limits=limits)
        if not aborted(round, limit, reference):
            finish(round, reference)
        return
    reference = recorded(round, round.victim())
    while_it_runs(round, reference)
    value = round.random.choice(late)
    if round.gctrace.poll() is None and round.program():  # it would inherit it
        round.done.append("limit %d of gctrace is now %d" % (limit, value))
        resource.prlimit(round.gctrace.pid, limit, (value, value))
        # Below what is already written there is no room even for the end record.
        round.may_lack_end = limit == resource.RLIMIT_FSIZE
        if aborted(round, limit, reference):
            return
    finish(round, reference)


def file_size(round):
    limited(round, resource.RLIMIT_FSIZE, (8 << 10, 64 << 10, 256 << 10), (4096, 64 << 10))


def descriptors(round):
    limited(round, resource.RLIMIT_NOFILE, (8, 16, 24, 32, 64, 128), (32, 64))  # poll(2) takes no more of them


def memory(round):
    limited(round, resource.RLIMIT_AS, (100 << 20, 200 << 20, 400 << 20, 800 << 20),
            (1 << 20, 50 << 20, 200 << 20))


def storm(round, **shape):
    """Many processes at once; gctrace ends with them, is killed, or detaches."""
    reference = recorded(round, round.victim(steps=round.random.randint(30, 60), pace=0.001, **shape))
    end = round.random.choice(("normal", "kill", "stop"))
    while_it_runs(round, reference)
    if end == "kill" and round.gctrace.poll() is None:
        round.signal(round.gctrace.pid, signal.SIGKILL)
        after_its_death(round, reference)
        return
    if end == "stop":
        round.excused.add(round.gctrace.pid)
        if round.signal(round.gctrace.pid, signal.SIGSTOP):
            round.sleep(0.1, 1.5)
            round.signal(round.gctrace.pid, signal.SIGCONT)
    finish(round, reference)


def forks(round):
    storm(round, forks=60, children=0, copies=0)


def execs(round):
    storm(round, forks=0, children=round.random.randint(0, 3), copies=60)


def crowd(round):
    """Hundreds of short processes on an overloaded machine, while gctrace gets no CPU time or is
    stopped again and again."""
    probed = round.how in ("ebpf", "both")
    command = round.victim(crowd=round.options.crowd, whole=probed, steps=1, children=0, forks=0, copies=0)
    reference = round.reference(command)
    round.patience += round.options.crowd / 4
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(round.options.load)]
    try:
        round.record(command)
        how = round.random.choice(("left alone", "idle", "stopped"))
        round.figures["gctrace"] = how
        while_it_runs(round, {"seconds": 0})
        if how == "idle" and round.gctrace.poll() is None and round.program():  # which would inherit it
            round.done.append("SCHED_IDLE for %d" % round.gctrace.pid)
            os.sched_setscheduler(round.gctrace.pid, os.SCHED_IDLE, os.sched_param(0))
        while how == "stopped" and round.gctrace.poll() is None:
            round.excused.add(round.gctrace.pid)
            round.signal(round.gctrace.pid, signal.SIGSTOP)
            round.sleep(0.1, 2.5)
            round.signal(round.gctrace.pid, signal.SIGCONT)
            round.sleep(0, 2)
        round.wait(round.gctrace, "gctrace")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    finish(round, reference)


def survivors(round):
    """The command ends before its children, which continue alone."""
    victim = " ".join(round.victim(copies=25, steps=25))
    seconds = round.random.uniform(0.1, 1.0)
    command = ["sh", "-c", "%s & sleep %.2f; exit 5" % (victim, seconds)]
    # Its end does not wait for them: neither does the reference.
    reference = dict(round.reference(command), code=5)
    round.record(command)
    round.is_cut_short = True
    code = round.wait(round.gctrace, "gctrace")
    if not round.is_refused(code):
        round.wait_for_all()
        round.same(reference, code)


def ancestor(round):
    """gctrace records a shell that is its own ancestor."""
    victim = " ".join(round.victim(copies=6))
    words = " ".join(round.whims() + ["-n", "3", "-d", "0.2"] if round.mode == "top" else
                     round.whims() + ["-d", "%.2f" % round.random.uniform(0.1, 1)])
    verb = "top --format text --record" if round.mode == "top" else "record -o"
    gctrace = "%s %s %s -p $$ %s" % (round.options.gctrace, verb, round.trace, words)
    script = "%s; /bin/echo between; wait; /bin/echo over; exit 9"
    reference = round.reference(["sh", "-c", "%s & " % victim + script % ":"])
    shell = round.run_plainly(["sh", "-c", "%s & " % victim + script % (gctrace + " >/dev/null")])
    round.is_cut_short = True
    code = round.wait(shell, "the shell above gctrace")
    round.wait_for_all()
    with open(round.file("output")) as file:
        lines = sorted(file.read().splitlines())
    if code != 9 or lines != sorted(reference["output"].splitlines()):
        round.fault("the shell ended with %d, its output is %r" % (code, lines))


def confined(round):
    """A program that lets itself be killed for every system call but those that it makes alone; gctrace is
    killed meanwhile, or not."""
    if not shutil.which("strace"):
        raise Refused("strace is not installed")
    how = round.random.choice(("prctl", "syscall", "library-prctl", "library-syscall", "tsync"))
    command = [round.python(), round.copy("../python/confining.py"), how, round.random.choice(("exit", "return"))]
    calls, allowed = round.file("calls"), round.file("allowed")
    subprocess.run(["strace", "-f", "-n", "-o", calls] + command, stdout=subprocess.DEVNULL)
    with open(calls) as file:
        lines = file.read().splitlines()
    set_at = [number for number, line in enumerate(lines) if re.search(r"(SECCOMP_(SET_)?MODE_.*= 0|seccomp resumed)", line)]
    numbers = {found.group(1) for line in lines[set_at[-1] + 1:] for found in [re.search(r"\[ *(\d+)\]", line)] if found}
    with open(allowed, "w") as file:
        file.write(" ".join(sorted(numbers)))
    reference = recorded(round, command + [allowed])
    round.is_cut_short = True  # of its child there are losses alone
    while_it_runs(round, reference)
    if round.random.random() < 0.5 and round.gctrace.poll() is None:
        round.signal(round.gctrace.pid, signal.SIGKILL)
        round.is_gctrace_killed = True
        round.wait(round.gctrace, "the killed gctrace")
        round.wait_for_all()
        if os.path.getsize(round.file("output")):
            round.same(reference, None)
    else:
        finish(round, reference)


LAUNCHERS = {
    "runuser": "runuser -u nobody -- %s",
    "su": "su -s /bin/sh nobody -c '%s'",
    "sudo": "sudo -u nobody %s",
    "sudo-pty": "sudo -u nobody sh -c '%s'",
    "script": "script -qec '%s' /dev/null",
    "nsenter": "nsenter -t %d -m %%s" % os.getpid(),
    "setpriv": "setpriv --reuid 65534 --clear-groups %s",
    "setsid": "setsid -w %s",
    "job control": "bash -c 'set -m; %s; exit $?'",
    "background": "bash -c 'set -m; %s & wait $!; exit $?'",
    "timeout": "timeout 30 %s",
    "unshare": "unshare --fork --pid --mount-proc %s",
    "xargs": "xargs -a /etc/hostname -I{} %s",
}
# The kinds that change the user.
OTHER_USERS = ("runuser", "su", "sudo", "sudo-pty", "setpriv")


def launcher(round):
    """Programs between gctrace and Python that watch their children, change the user, or use the
    terminal."""
    name = round.random.choice(sorted(LAUNCHERS))
    line = LAUNCHERS[name]
    if not shutil.which(line.split()[0]):
        raise Refused("%s is not installed" % line.split()[0])
    # /usr/bin/python3: other users cannot enter root's folders.
    victim = " ".join(round.victim(python="/usr/bin/python3"))
    # A shell's messages about jobs are on standard error, which `top --output` takes as well.
    command = ["sh", "-c", line % victim + " 2>/dev/null"]
    reference = round.reference(command)
    round.record(command)
    # In unshare the truth has its own pids; the library records only gctrace's user.
    round.is_cut_short = name == "unshare" or round.how == "inject" and name in OTHER_USERS
    end = round.random.choice(("normal", "normal", "kill"))
    while_it_runs(round, reference)
    if end == "kill" and round.gctrace.poll() is None:
        round.signal(round.gctrace.pid, signal.SIGKILL)
        after_its_death(round, reference)
    else:
        finish(round, reference)


def terminal(round):
    """A terminal hangs up: with gctrace as the session leader, behind a shell, or in tmux."""
    verb = ["top"] if round.mode == "top" else ["record", "--mode", round.mode]
    verb += ["--record" if round.mode == "top" else "-o", round.trace]
    # Longer than any wait: the hang-up ends it.
    line = [round.options.gctrace] + verb + ["--"] + round.victim(steps=50000, pace=0.02, copies=4)
    leader = round.random.choice(("gctrace", "shell", "tmux"))
    round.done.append("%s leads the session of: %s" % (leader, " ".join(line)))
    round.is_gctrace_killed = round.is_cut_short = True
    if leader == "tmux":
        in_tmux(round, line)
        return
    if leader == "shell":
        line = ["bash", "-c", " ".join(line) + "; true"]
    pid, descriptor = pty.fork()
    if not pid:
        os.chdir(round.place)
        os.environ["TERM"] = "xterm"
        os.execv(shutil.which(line[0]), line)
    end = time.monotonic() + round.random.uniform(0.1, 2.5)
    with open(round.file("messages"), "ab") as file:
        while time.monotonic() < end:
            if select.select([descriptor], [], [], 0.05)[0]:
                try:
                    file.write(os.read(descriptor, 65536))
                except OSError:
                    break
    round.done.append("the terminal goes away")
    os.close(descriptor)


def in_tmux(round, line):
    if not shutil.which("tmux"):
        raise Refused("tmux is not installed")
    socket = ["tmux", "-S", round.file("tmux"), "-f", "/dev/null"]
    subprocess.run(socket + ["new-session", "-d", "-x", "120", "-y", "40", " ".join(line)], check=True,
                   cwd=round.place)
    round.sleep(0.1, 2.5)
    subprocess.run(socket + ["kill-server"], stderr=subprocess.DEVNULL)


def attach(round):
    """Attaches to a program and detaches, repeatedly, in every way."""
    command = round.victim(steps=60, pace=0.02, threads=0, log=True)
    reference = round.reference(command)
    program = round.run_plainly(command)
    ways = []
    round.traces = []
    for turn in range(round.random.randint(1, 4)):
        round.sleep(0, 0.3)
        if program.poll() is not None:
            break
        trace = round.file("attached-%d.json" % turn)
        ways.append((trace, attach_once(round, program, trace)))
    code = round.wait(program, "the program")
    round.wait_for_all()
    round.same(reference, code)
    for trace, way in ways:
        check_between(round, program.pid, round.read_trace(trace, way == "kill"))


def attach_once(round, program, trace):
    """Attaches and detaches; returns how."""
    way = round.random.choice(("time", "interrupt", "kill", "stop"))
    words = []
    if way == "time":
        words = ["-n", "2", "-d", "0.1"] if round.mode == "top" else [
            "-d", "%.2f" % round.random.uniform(0.05, 0.6)]
    gctrace = round.attach(program.pid, trace, *words)
    if way != "time":
        round.sleep(0, 1.2)
    if way == "stop":
        round.excused.add(gctrace.pid)
        round.signal(gctrace.pid, signal.SIGSTOP)
        round.sleep(0.1, 0.5)
        round.signal(gctrace.pid, signal.SIGCONT)
    if way != "time":
        round.signal(gctrace.pid, signal.SIGKILL if way == "kill" else signal.SIGINT)
    code = round.wait(gctrace, "the attached gctrace")
    if code not in (0, 1, 130, -signal.SIGKILL, -signal.SIGINT):
        round.fault("the attached gctrace ended with %d" % code)
    return way


def take_heaps(round):
    """Takes the heap of a program, repeatedly, with gctrace killed or stopped meanwhile."""
    command = round.victim(steps=60, pace=0.02, kept=round.random.choice((0, 500000)))
    reference = round.reference(command)
    program = round.run_plainly(command)
    round.traces = []
    for turn in range(round.random.randint(1, 4)):
        round.sleep(0.05, 0.3)
        if program.poll() is not None:
            break
        gctrace = round.start(["heap", "-p", str(program.pid), "-o", round.file("%d.gcheap" % turn)],
                              output="lines")
        way = round.random.choice(("whole", "kill", "stop"))
        if way != "whole":
            round.sleep(0, 0.4)
            round.excused.add(gctrace.pid)
            round.signal(gctrace.pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
        if way == "stop":
            round.sleep(0.1, 2.5)
            round.signal(gctrace.pid, signal.SIGCONT)
        round.wait(gctrace, "gctrace heap")
    code = round.wait(program, "the program")
    round.wait_for_all()
    round.same(reference, code)


def dump_keep(round):
    """Has a recorder keep its segments, again and again, which ends, is killed or stopped meanwhile."""
    reference = recorded(round, round.victim())
    folder = os.path.join(os.path.dirname(round.trace), "result")
    recorder, way, killed = round.gctrace, round.random.choice(("none", "kill", "stop")), False
    for turn in range(round.random.randint(1, 4)):
        round.sleep(0, reference["seconds"] / 2)
        if turn == 1 and way != "none":
            round.excused.add(recorder.pid)
            sent = recorder.poll() is None and round.signal(
                recorder.pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
            killed = sent and way == "kill"
        # A recorder that is stopped answers nothing: the command ends all the same.
        with open(round.file("messages"), "ab") as messages:
            code = subprocess.run([round.options.gctrace, "dump", "--keep", folder], stdin=subprocess.DEVNULL,
                                  stdout=messages, stderr=messages, timeout=round.patience).returncode
        if code not in (0, 1):
            round.fault("dump --keep ends with %d" % code)
    if way == "stop":
        round.signal(recorder.pid, signal.SIGCONT)
    if killed:
        after_its_death(round, reference)
    else:
        finish(round, reference)
    for segment in glob.glob(os.path.join(folder, "**", "*.json.zst"), recursive=True):
        round.analyze(segment)


def check_between(round, pid, events):
    """Between the first and the last recorded pause, every collection of the program is
    recorded."""
    pauses = sorted((event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000)
                    for event in events or () if event.get("cat") == "gc" and event["pid"] == pid)
    end = next((event["args"] for event in events or () if event["name"] == "gctrace_end"), {})
    truth = round.truths().get(pid)
    if not pauses or not truth or end.get("lost"):
        return
    marks = truth["log"]
    collections = [(start[1], stop[1]) for start, stop in zip(marks[::2], marks[1::2])]
    first, last = pauses[0], pauses[-1]
    numbers = [number for number, (start, stop) in enumerate(collections)
               if stop >= first[0] and start <= last[1]]
    before = sum(stop < truth["start_ns"] for _, stop in pauses)
    if len(numbers) + before != len(pauses):
        round.fault("%d pauses where the program counts %d collections" % (len(pauses), len(numbers) + before))


KINDS = {
    "none": (nothing, EVERYWHERE, 1),
    "kill-gctrace": (kill_gctrace, EVERYWHERE, 3),
    "kill-guardian": (kill_guardian, PROBES, 2),
    "kill-together": (kill_together, PROBES, 2),
    "kill-program": (kill_program, EVERYWHERE, 3),
    "stop-gctrace": (stop_gctrace, EVERYWHERE, 2),
    "leave": (leave, EVERYWHERE, 1),
    "full-disk": (full_disk, EVERYWHERE, 1),
    "file-size": (file_size, EVERYWHERE, 1),
    "descriptors": (descriptors, EVERYWHERE, 1),
    "memory": (memory, EVERYWHERE, 1),
    "forks": (forks, EVERYWHERE, 2),
    "execs": (execs, EVERYWHERE, 2),
    "crowd": (crowd, RECORDING, 1),
    "survivors": (survivors, EVERYWHERE, 2),
    "ancestor": (ancestor, ATTACHING, 2),
    "confined": (confined, ("ebpf", "inject", "both", "apply", "auto"), 3),
    "launcher": (launcher, RECORDING, 3),
    "terminal": (terminal, RECORDING, 2),
    "attach": (attach, ATTACHING, 2),
    "take-heaps": (take_heaps, ("heap",), 4),
    "dump-keep": (dump_keep, ("kept",), 4),
}
