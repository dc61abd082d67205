"""Summarizes traces on a Ray cluster: python -m gctrace.on_ray DIR TRACE...

One task per trace. Ray starts a task again if its worker or node dies; a summary is complete or not
there, so nothing else is needed. All nodes need this package, the traces and DIR under these paths.
Exits with 1 if a summary could not be made.
"""

import subprocess
import sys
from typing import Tuple

import ray  # type: ignore[import-not-found,unused-ignore]

from gctrace import find_bin


@ray.remote(max_retries=3)  # type: ignore[untyped-decorator,misc,unused-ignore]
def summarize(trace: str, directory: str) -> Tuple[int, str]:
    command = [find_bin(), "summarize", trace, "-o", directory, "--jobs", "1"]
    done = subprocess.run(command, stderr=subprocess.PIPE)
    return done.returncode, done.stderr.decode(errors="replace")


def main(directory: str, *traces: str) -> int:
    ray.init(logging_level="warning")
    failed = 0
    for code, messages in ray.get([summarize.remote(trace, directory) for trace in traces]):
        if code != 0:
            failed += 1
            sys.stderr.write(messages)
    print("{}: summaries of {} traces, {} failed".format(directory, len(traces) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
