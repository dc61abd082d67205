"""Reports the signals that it receives, and ends as its options state.

    signals.py LOG [--seconds 30] [--exit CODE] [--end-after N] [--kill-self SIGNAL]

Writes "ready PID PGID TTY" to LOG once its handlers are installed, then a line for each signal:
name, sender's pid (0 for the kernel), monotonic ns. Exits with CODE after N signals or SECONDS;
with --kill-self by that signal at once.
"""

import argparse
import os
import signal
import sys
import time

from recorder import collect

WATCHED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGTSTP", "SIGWINCH")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--end-after", type=int, default=1)
    parser.add_argument("--kill-self", type=int)
    options = parser.parse_args()

    watched = {getattr(signal, name) for name in WATCHED}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    collect()
    terminal = os.isatty(0)
    os.write(log, b"ready %d %d %s\n" % (os.getpid(), os.getpgrp(), b"tty" if terminal else b"-"))
    if options.kill_self is not None:
        signal.signal(options.kill_self, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {options.kill_self})
        os.kill(os.getpid(), options.kill_self)
    end, seen = time.monotonic() + options.seconds, 0
    while seen < options.end_after and time.monotonic() < end:
        got = signal.sigtimedwait(watched, 0.05)
        if got is not None:
            name = signal.Signals(got.si_signo).name.encode()
            os.write(log, b"%s %d %d\n" % (name, got.si_pid, time.monotonic_ns()))
            seen += 1
    os.close(log)
    collect()
    sys.exit(options.exit)


if __name__ == "__main__":
    main()
