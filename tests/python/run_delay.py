"""How long the threads of this process waited for a CPU.

Owns reading that from Linux. analysis/tests/plain/simgpu/figure.rs uses it.
"""

import os
import threading

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")

# Wait allowed to a thread per sleep. Linux ends any sleep up to 50 us late by default
# (PR_SET_TIMERSLACK(2const)), so programs tolerate this much; waking took 9 us on a virtual machine
# with two CPUs, and a rank that waits for another wakes thousands of times. A thread that was
# preempted gets no allowance: that is competition.
WAKING_NS = 50_000


def of_thread(tid):
    """Nanoseconds for which a thread was runnable but had no CPU, and its number of sleeps.

    Second field of /proc/PID/task/TID/schedstat (Documentation/scheduler/sched-stats.rst), and
    voluntary_ctxt_switches of its status, proc_pid_status(5). None if the thread has exited or the
    kernel does not count, in which case it writes three zeros.
    """
    try:
        with open(f"/proc/self/task/{tid}/schedstat") as file:
            ran, waited, times = map(int, file.read().split())
        with open(f"/proc/self/task/{tid}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        return (waited, int(status["voluntary_ctxt_switches"])) if times or ran else None
    except (OSError, ValueError, KeyError):
        return None


def beyond_waking(before, after):
    return max(0, after[0] - before[0] - WAKING_NS * (after[1] - before[1]))


def stolen():
    """Nanoseconds for which a hypervisor withheld CPUs: `steal` of /proc/stat, proc_stat(5)."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        with open("/proc/stat") as file:
            lines = [line.split() for line in file]
        return sum(int(line[8]) for line in lines if line[0] in ours) * TICK_NS
    except (OSError, ValueError, IndexError):
        return 0


def threads():
    try:
        return [int(tid) for tid in os.listdir("/proc/self/task")]
    except OSError:
        return []


class RunDelay:
    """For one run: begin(), thread_ends() in each thread that it starts, then record()."""

    def __init__(self):
        self.lock = threading.Lock()
        self.begin()

    def begin(self):
        self.before = {tid: of_thread(tid) for tid in threads()}
        self.stolen_before, self.of_ended = stolen(), 0

    def thread_ends(self):
        """Called by the thread: the kernel discards a thread's figures with the thread."""
        own = of_thread(threading.get_native_id())
        with self.lock:
            self.of_ended += beyond_waking((0, 0), own) if own else 0

    def record(self):
        """`waited`: of all threads together; None if the kernel does not report it. `stolen`: of
        the machine."""
        after = {tid: of_thread(tid) for tid in self.before}
        both = [(before, after[tid]) for tid, before in self.before.items() if before and after[tid]]
        waited = sum(beyond_waking(*pair) for pair in both) + self.of_ended
        return {"waited": waited if both else None, "stolen": stolen() - self.stolen_before}
