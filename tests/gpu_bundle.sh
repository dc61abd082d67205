#!/usr/bin/env bash
# Tests scripts/gpu-bundle.sh without a GPU: the bundle runs without network, compiler or built
# checkout; with a part that hangs and one that fails; then again, by name.
#
#   tests/gpu_bundle.sh BUNDLE TORCH_PYTHON SIMGPU [short]          as root
#
# SIMGPU: folder of the simulated GPU's libraries, for the part that needs launches but no torch. With
# 'short' three of the parts.
set -euo pipefail
bundle=$(realpath "$1") python=$2 simgpu=$3 form=${4:-}
checkout=$(cd "$(dirname "$0")/.." && pwd)

if [ "${5:-}" != inside ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cp -r "$bundle" "$work/bundle"
    GCTRACE_GPU_WORK=$work unshare --mount --net \
        bash "$0" "$work/bundle" "$python" "$simgpu" "$form" inside
    exit
fi

fail() {
    echo "gpu_bundle: $*" >&2
    cat "$out/table.md" >&2 || true
    tail -60 "$out/log.txt" >&2 || true
    exit 1
}

out=$GCTRACE_GPU_WORK/out
empty=$GCTRACE_GPU_WORK/empty
mkdir "$out" "$empty"
mount --make-rprivate /
mount -t sysfs none /sys 2>/dev/null || true
for folder in /usr/lib/gcc /usr/lib/llvm-* "$HOME/.cargo" "$HOME/.rustup" "$checkout/target" "$checkout/ebpf"; do
    if [ -d "$folder" ]; then mount --bind "$empty" "$folder"; fi
done
ip link set lo up 2>/dev/null || true
for compiler in gcc clang; do
    if echo 'int main(void) { return 0; }' | "$compiler" -x c - -o "$GCTRACE_GPU_WORK/a.out" 2>/dev/null; then
        fail "$compiler still works"
    fi
done

cat >"$bundle/parts/hang.py" <<'PYTHON'
"""Hangs, with a stopped child in its own session."""
import os, signal, subprocess, time
LIMIT_S = 6
def run(bench):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    os.kill(child.pid, signal.SIGSTOP)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
PYTHON
cat >"$bundle/parts/fail.py" <<'PYTHON'
"""Fails."""
LIMIT_S = 20
def run(bench):
    raise ValueError("made to fail")
PYTHON

export GCTRACE_TORCH_PYTHON=$python GCTRACE_SIMGPU=$simgpu
parts=(facts hang fail breakdown rate)
if [ "$form" != short ]; then parts+=(inject predicted probes watching cost variants demo); fi
code=0
"$bundle/run.sh" "$out" "${parts[@]}" || code=$?
[ "$code" = 1 ] || fail "a run in which parts fail ended with $code"
"$python" - "$out/results.json" <<'PYTHON' || fail "not the results that were expected"
import json, sys
results = {result["part"]: result for result in json.load(open(sys.argv[1]))}
assert results.pop("hang")["reason"].startswith("not done within"), results
assert "made to fail" in results.pop("fail")["reason"]
for name, result in results.items():
    # Comparisons with a second run or on a busy machine may differ here; but every part must end.
    assert result["status"] in ("ok", "differs") or (result["status"] == "skipped" and result["reason"]), (name, result)
    assert result["status"] != "ok" or result["tables"], name
must = {"facts", "rate"} | ({"inject"} & results.keys())
assert all(results[name]["status"] == "ok" for name in must), results
PYTHON
if pgrep -f 'sleep 1000|gctrace-gpu' >/dev/null; then fail "processes are left: $(pgrep -af 'sleep 1000|gctrace-gpu')"; fi
"$bundle/run.sh" "$out" facts || fail "the second run, by name, ended with $?"
[ "$(grep -c '^| facts\|^| rate' "$out/table.md")" = 1 ] || fail "the second run's table"
[ "$(du -sk "$out" | cut -f1)" -le 16384 ] || fail "more than 16 MiB of results"
cat "$out/table.md"
echo "gpu_bundle: every part ended"
