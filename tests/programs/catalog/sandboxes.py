"""Programs in sandboxes and namespaces, and those that confine themselves."""

from program import INJECT
from program import Program

WORK = ["{python}", "{scripts}/work.py"]
# Another user's mount namespace, or no capabilities at all.
NO_NAMESPACES = "the ordinary user of this tier may not make namespaces"
HIDDEN = "the sandbox hides the folder through which the library reports"

PROGRAMS = [
    Program("seccomp_itself", ["{python}", "{scripts}/confined.py"]),
    # memfd_create, socket, connect: the system calls of a preloaded library.
    *(
        Program(
            f"seccomp_{action}_before_exec",
            ["{python}", "{scripts}/confine.py", action, "319,41,42", *WORK],
            unseen={INJECT: "the filter forbids the library's system calls"},
        )
        for action in ("eperm", "kill")
    ),
    Program(
        "bwrap",
        ["bwrap", "--ro-bind", "/", "/", "--bind", "/tmp", "/tmp", "--proc", "/proc", "--dev", "/dev", "--unshare-pid", *WORK],
        tools=["bwrap"],
        root=True,
        unseen={INJECT: HIDDEN},
    ),
    Program(
        "bwrap_without_tmp",
        ["bwrap", "--ro-bind", "/", "/", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--bind", "{work}", "{work}",
         "--bind", "{work}/../truth", "{work}/../truth", "--proc", "/proc", "--unshare-all", *WORK],
        tools=["bwrap"],
        root=True,
        unseen={INJECT: HIDDEN},
    ),
    Program("unshare_pid", ["unshare", "-f", "-p", *WORK], root=True),
    Program("unshare_user", ["unshare", "-U", "-r", *WORK], root=True),
    Program(
        "chroot",
        ["unshare", "-m", "sh", "-c", "mkdir root && mount --rbind / root && exec chroot root {python} {scripts}/work.py"],
        root=True,
        unseen={INJECT: HIDDEN},
    ),
    Program(
        "setuid_python",
        ["{built}/python", "{scripts}/work.py"],
        build=[["sh", "-c", "cp -L {python} python && chmod 4755 python"]],
        environment={"PYTHONHOME": "/usr"},
        excluded={INJECT: "gctrace refuses: the loader ignores LD_PRELOAD in programs with more rights than their user"},
    ),
    Program("file_limit", ["sh", "-c", "ulimit -n 24; exec {python} {scripts}/work.py"]),
    Program("memory_limit", ["sh", "-c", "ulimit -v 400000; exec {python} {scripts}/work.py"]),
    Program("stdin_closed", ["sh", "-c", "exec {python} {scripts}/work.py <&- 2>&-"]),
]
