"""Summarizes traces on a Ray cluster and prints the report: python -m gctrace.on_ray DIR TRACE... [-- OPTION...]

DIR and each TRACE are a path that all nodes see, or a URL that fsspec opens (s3://, gs://, az://, ...); TRACE also with
wildcards. The report is that of `gctrace analyze OPTION... DIR`, on all summaries that are there.

One task per trace. Ray starts a task again if its worker or node dies; a summary is complete or not there, so nothing
else is needed. All nodes need this package, and for URLs fsspec's. Exits with 1 if a summary could not be made.
"""

import contextlib
import glob
import os
import re
import subprocess
import sys
import tempfile
from typing import Any, List, Optional, Sequence, Tuple

import ray  # type: ignore[import-not-found,unused-ignore]

from gctrace import find_bin

# By the scheme of a URL, what fsspec reads it with.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}


def _opened(place: str) -> Tuple[Any, str]:
    """The file system of a URL and the path in it; None and the path, if it is one of this machine."""
    scheme, is_url, path = place.partition("://")
    if not is_url:
        return None, place
    if scheme == "file":
        return None, path
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-not-found,import-untyped,unused-ignore]

        opened: Tuple[Any, str] = url_to_fs(place)
        return opened
    except ImportError as error:
        package = _PACKAGES.get(scheme, "fsspec")
        raise ImportError("{}: {}; on all nodes: pip install {}".format(place, error, package)) from error


def _found(pattern: str) -> List[str]:
    """The traces that a pattern with wildcards stands for; what has none is a trace itself."""
    files, path = _opened(pattern)
    if files is None:
        return glob.glob(path) or [path]
    wildcard = re.search(r"[*?[]", pattern)
    if wildcard is None:
        return [pattern]
    # What a file system makes of a URL may lack its host: only what follows is exchanged.
    folder = pattern[: pattern.rindex("/", 0, wildcard.start())]
    files, root = _opened(folder)
    found = [folder + path[len(root) :] for path in files.glob(root + pattern[len(folder) :])]
    if not found:
        raise FileNotFoundError("{}: there are no such files".format(pattern))
    return found


def _in_folder(trace: str, directory: str, scratch: str) -> Tuple[int, str]:
    files, path = _opened(trace)
    if files is not None:
        # Below its own name, which the summary and reports have.
        copy = os.path.join(scratch, trace)
        if ".." in trace.split("/"):
            raise ValueError("'..' is in its name")
        os.makedirs(os.path.dirname(copy))
        files.get_file(path, copy)
    summaries, output = _opened(directory)
    summary = before = None
    if summaries is None:
        output = os.path.abspath(output)
    else:
        name = re.sub("^[.]/", "", trace).replace("%", "%25").replace("/", "%2F") + ".gcsum"
        summary, output = output.rstrip("/") + "/" + name, os.path.join(scratch, "summaries")
        before = _content(summaries, summary)
        os.mkdir(output)
        if before is not None:
            # gctrace decides whether it is one of this trace as it is now.
            with open(os.path.join(output, name), "wb") as file:
                file.write(before)
    command = [find_bin(), "summarize", "--jobs", "1", "-o", output, "--", trace]
    done = subprocess.run(command, stderr=subprocess.PIPE, cwd=None if files is None else scratch)
    if done.returncode == 0 and summary is not None:
        with open(os.path.join(output, name), "rb") as file:
            after = file.read()
        if after != before:
            summaries.pipe_file(summary, after)
    return done.returncode, done.stderr.decode(errors="replace")


def _content(files: Any, path: str) -> Optional[bytes]:
    try:
        content: bytes = files.cat_file(path)
        return content
    except FileNotFoundError:
        return None


@ray.remote(max_retries=3)  # type: ignore[untyped-decorator,misc,unused-ignore]
def summarize(trace: str, directory: str) -> Tuple[int, str]:
    """The exit code of `gctrace summarize`, and its messages."""
    try:
        with tempfile.TemporaryDirectory(prefix="gctrace-") as scratch:
            return _in_folder(trace, directory, scratch)
    except Exception as error:  # Stores have errors of their own kinds.
        return 1, "gctrace: {}: {}\n".format(trace, error)


def _report(directory: str, options: Sequence[str]) -> int:
    files, path = _opened(directory)
    with tempfile.TemporaryDirectory(prefix="gctrace-") as scratch:
        if files is not None:
            # Those of tasks may have come since it was listed.
            files.invalidate_cache()
            found = files.glob(path.rstrip("/") + "/*.gcsum")
            path = os.path.join(scratch, "summaries")
            os.mkdir(path)
            files.get(found, [os.path.join(path, os.path.basename(one)) for one in found])
        return subprocess.run([find_bin(), "analyze", *options, path]).returncode


def _run(directory: str, traces: Sequence[str], options: Sequence[str]) -> int:
    ray.init(logging_level="warning")
    failed = 0
    for trace, task in [(trace, summarize.remote(trace, directory)) for trace in traces]:
        try:
            code, messages = ray.get(task)
        except ray.exceptions.RayError as error:
            code, messages = 1, "gctrace: {}: {}\n".format(trace, error)
        if code != 0:
            failed += 1
            sys.stderr.write(messages)
    message = "{}: summaries of {} traces, {} failed\n"
    sys.stderr.write(message.format(directory, len(traces) - failed, failed))
    if failed == len(traces):
        return 1
    code = _report(directory, options)
    return 1 if failed else code


def main(directory: str, *words: str) -> int:
    options: Sequence[str] = ()
    if "--" in words:
        options, words = words[words.index("--") + 1 :], words[: words.index("--")]
    try:
        _opened(directory)
        traces = sorted({trace for word in words for trace in _found(word)})
    except Exception as error:
        sys.exit("gctrace: {}".format(error))
    # Ray prints its messages as output, also on another thread: the report has that for itself.
    with contextlib.redirect_stdout(sys.stderr):
        return _run(directory, traces, options)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
