"""Programs that start programs: as other users, in other sessions, with job control, repeatedly."""

from program import INJECT
from program import Program

WORK = "{python} {scripts}/work.py"
NO_PRELOAD = "programs of another user, and those with more rights, do not load a preloaded library"
# Under sudo and su - the environment is replaced.
TRUTH = "PYTHONPATH=$PYTHONPATH GCTRACE_TRUTH=$GCTRACE_TRUTH"


def as_other_user(name, line, **options):
    """A shell `line` that runs WORK as the ordinary user."""
    options = {"root": True, "short": True, "unseen": {INJECT: NO_PRELOAD}} | options
    return Program(name, ["sh", "-c", line], **options)


PROGRAMS = [
    as_other_user("sudo", f"sudo -u {{user}} {TRUTH} {WORK}; echo $?", tools=["sudo"]),
    as_other_user("sudo_then_python", f"sudo -u {{user}} true; {WORK}", tools=["sudo"]),
    as_other_user("su", f"su {{user}} -s /bin/sh -c '{WORK}'; echo $?", tools=["su"]),
    as_other_user("su_login", f'su - {{user}} -c "{TRUTH} {WORK}"; echo $?', tools=["su"]),
    as_other_user("runuser", f"runuser -u {{user}} -- {WORK}; echo $?", tools=["runuser"]),
    as_other_user("runuser_pty", f"runuser -P -u {{user}} -- {WORK}; echo $?", tools=["runuser"], short=False),
    as_other_user("nsenter", f"nsenter -t $$ -p {WORK}; echo $?", tools=["nsenter"]),
    as_other_user("setpriv", f"setpriv --reuid {{user}} --clear-groups {WORK}; echo $?", tools=["setpriv"], short=False),
    Program("script", ["script", "-qec", f"{WORK}; echo $?", "/dev/null"], tools=["script"], short=True),
    Program("job_control", ["bash", "{scripts}/job_control.sh", "{python}", "{scripts}/work.py"], short=True),
    Program(
        "bash_interactive",
        ["bash", "--norc", "-i", "{scripts}/job_control.sh", "{python}", "{scripts}/work.py"],
        terminal=True,
    ),
    Program("wuntraced", ["{python}", "{scripts}/supervisor.py", "{python}", "{scripts}/work.py"], processes=2, short=True),
    Program("expect", ["expect", "-c", f"spawn -noecho {WORK}; expect eof; exit [lindex [wait] 3]"], tools=["expect"]),
    Program("tini", ["tini", "-s", "--", "{python}", "{scripts}/work.py"], tools=["tini"]),
    Program("timeout", ["timeout", "60", "{python}", "{scripts}/work.py"]),
    Program("timeout_expires", ["timeout", "1", "{python}", "{scripts}/work.py", "forever"], code=124),
    Program("nohup", ["nohup", "{python}", "{scripts}/work.py"]),
    Program("setsid", ["setsid", "-w", "{python}", "{scripts}/work.py"]),
    Program("exec_20_times", ["{python}", "{scripts}/execs.py", "20"]),
    Program("fork_every_10_ms", ["{python}", "{scripts}/forks.py", "100"], processes=101),
    Program("xargs", ["sh", "-c", "seq 8 | xargs -P 4 -n 1 {python} {scripts}/work.py"], processes=8),
    Program("make", ["make", "-s", "-j2", "-f", "{suite}/Makefile", "PYTHON={python}", "SCRIPTS={scripts}"], tools=["make"], processes=4),
    Program("killed", ["{python}", "{scripts}/work.py", "kill"], code=137),
    Program("exit_code", ["{python}", "{scripts}/work.py", "exit"], code=7),
]
