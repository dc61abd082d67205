"""Runs gctrace.on_ray on a Ray of this machine with two workers, of which the first task's gctrace kills one: on files,
and on an S3 server on loopback (moto). Arguments: a folder with the package gctrace and, under bin, the program; traces
rankN.json of the working directory, where the program writes a line to the file started and makes the folder killed.
Leaves the summaries of files in sums, and the reports in local.json and bucket.json.
"""

import logging
import os
import re
import sys

packages, *traces = sys.argv[1:]
sys.path.insert(0, packages)
# Workers import it from there as well.
os.environ["PYTHONPATH"] = packages
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    os.environ[name] = "of moto"
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"

import moto.server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = moto.server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:{}".format(server.get_host_and_port()[1])
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"

import ray
import s3fs

ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
# The driver's own init joins this one.
init, ray.init = ray.init, lambda **_: None

from gctrace import on_ray


def run(*arguments, output=os.devnull):
    """The exit code and the messages; the report goes to a file."""
    kept = os.dup(1), os.dup(2)
    with open(output, "w") as out, open("messages", "w") as messages:
        os.dup2(out.fileno(), 1)
        os.dup2(messages.fileno(), 2)
        try:
            code = on_ray.main(*arguments)
        except SystemExit as error:
            code = error.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
    with open("messages") as messages:
        return code, messages.read()


def started():
    """How often gctrace was started to summarize a trace since the last call."""
    with open("started") as lines:
        number = len(lines.readlines())
    os.remove("started")
    return number


found = run("sums", *traces, "--", "--format", "json", output="local.json")
assert found[0] == 0 and "sums: summaries of {} traces, 0 failed\n".format(len(traces)) in found[1], found
assert os.path.exists("killed") and started() == len(traces) + 1, "no worker was killed"

files = s3fs.S3FileSystem()
files.mkdir("bucket")
files.put(list(traces), ["bucket/job 42%/" + trace for trace in traces])
os.rmdir("killed")
bucket = ("s3://bucket/sums/", "s3://bucket/job 42%/rank*.json")
found = run(*bucket, "--", "--format", "json", output="bucket.json")
assert found[0] == 0 and "s3://bucket/sums/: summaries of {} traces, 0 failed\n".format(len(traces)) in found[1], found
assert os.path.exists("killed") and started() == len(traces) + 1, "no worker was killed"

# Run again, it writes only what has changed; and a trace without a summary is named.
written = {one["name"]: one["LastModified"] for one in files.ls("bucket/sums", detail=True, refresh=True)}
assert len(written) == len(traces), written
files.pipe_file("bucket/job 42%/rank0.json", files.cat_file("bucket/job 42%/rank0.json") + b"\n")
files.pipe_file("bucket/job 42%/rank9.json", b'{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"add","pid":9,"tid":9,"ts":1,"dur":2}]}')
code, messages = run(*bucket)
assert code == 1 and "s3://bucket/job 42%/rank9.json: " in messages and ", 1 failed" in messages, messages
again = {one["name"]: one["LastModified"] for one in files.ls("bucket/sums", detail=True, refresh=True)}
assert [os.path.basename(name) for name in again if again[name] != written[name]] == ["s3:%2F%2Fbucket%2Fjob 42%25%2Frank0.json.gcsum"]

found = run("file://" + os.path.abspath("of-files"), "file://" + os.path.abspath("rank[01].json"))
assert ": summaries of 2 traces, 0 failed" in found[1] and len(os.listdir("of-files")) == 2, found
for places, part in (
    (("sums", "gs://bucket/rank*.json"), "gs://bucket/rank[*].json: .*; on all nodes: pip install gcsfs"),
    (("gs://bucket/sums", "rank0.json"), "gs://bucket/sums: .*; on all nodes: pip install gcsfs"),
    (("sums", "s3://bucket/none*.json"), "s3://bucket/none[*].json: there are no such files"),
    (("sums", "strange://a/b"), "strange"),
):
    code, messages = run(*places)
    assert re.search("^gctrace: .*" + part, str(code)), (places, code, messages)
code, messages = run("s3://none/sums", "rank0.json")
assert code == 1 and "rank0.json: " in messages and "1 failed" in messages, messages
# An object's name is chosen by others: no copy is outside its folder.
code, messages = run("sums", "s3://bucket/../../escaped.json")
assert code == 1 and "'..' is in its name" in messages, messages
ray.shutdown()
server.stop()
