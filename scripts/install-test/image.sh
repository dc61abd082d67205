#!/usr/bin/env bash
# The image and the manifests for Kubernetes: validated, and run by runc as the manifest of the
# DaemonSet describes it, then with fewer rights.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
if ! command -v runc >/dev/null; then
    skipped "runc is not installed"
    exit
fi
manifests=$checkout/packaging/kubernetes
if ! tools=$("$checkout/scripts/install-test/kubernetes-venv.sh" 2>&1); then
    skipped "the manifests and the image: $tools"
    exit
fi
archive=$(find "$RELEASE_OUT" -maxdepth 1 -name "gctrace-image-*-$RELEASE_ARCH.tar")
[ -f "$archive" ] || {
    failed "there is no image in $RELEASE_OUT"
    exit
}
if [ "$RELEASE_ARCH" != "$(uname -m)" ]; then
    skipped "an image of $RELEASE_ARCH does not run here"
    exit
fi

# User ids without an account.
alice=61301
work=$(mktemp -d /var/tmp/gctrace-image.XXXXXX)
chmod 755 "$work"
program=
clean_up() {
    if [ -n "$program" ]; then kill "$program" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
mkdir "$work/out" "$work/private"

bundle() { "$tools/python" "$checkout/scripts/install-test/bundle.py" "$@"; }

# in_container [OPTION]... ARG...: gctrace with these arguments in the container of the DaemonSet;
# options are those of bundle.py. Prints both its outputs.
in_container() {
    local options=()
    while [[ ${1:-} == --* ]]; do
        case $1 in
        --keep) options+=("$1" "$2") && shift 2 ;;
        *) options+=("$1") && shift ;;
        esac
    done
    bundle container "${options[@]}" --out "$work/out" "$manifests/daemonset.yaml" gctrace "$work/bundle" "$@"
    timeout 60 runc --root "$work/runc" run --no-pivot --bundle "$work/bundle" "gctrace-$$-$RANDOM" 2>&1
}

# says TEXT... -- [OPTION]... ARG...: the output has every text, each with words as they are wrapped.
says() {
    local texts=() text output
    while [ "$1" != -- ]; do texts+=("$1") && shift; done
    shift
    output=$(in_container "$@" | tr -s ' \n' '  ') || true
    for text in "${texts[@]}"; do
        grep -qF -- "$text" <<<"$output" || {
            echo "no '$text' in: $output"
            return 1
        }
    done
}

records() {
    local output
    output=$(in_container record -p "$program" -d 2 -o /out/trace.json) || return 1
    if ! grep -q "nothing lost" <<<"$output" || ! grep -q '"name":"gc' "$work/out/trace.json"; then
        echo "$output"
        return 1
    fi
}

# Pauses of a process that is not recorded are unknown, never 0.
never_nothing_lost() {
    local output
    output=$(in_container --keep BPF,PERFMON,SYS_PTRACE record -p "$program" -d 1 -o /out/none.json) || true
    if ! grep -q "CAP_DAC_READ_SEARCH" <<<"$output" || grep -q "nothing lost" <<<"$output"; then
        echo "$output"
        return 1
    fi
}

# The manifest's own command, for two of its intervals.
exporter() {
    local page=
    bundle container "$manifests/daemonset.yaml" gctrace "$work/bundle"
    # Kubernetes expands it.
    sed -i 's/[$](POD_IP)/127.0.0.1/' "$work/bundle/config.json"
    runc --root "$work/runc" run --no-pivot --bundle "$work/bundle" gctrace-exporter >"$work/exporter" 2>&1 &
    for _ in $(seq 60); do
        sleep 1
        page=$(/usr/bin/python3 -c 'import urllib.request as u
print(u.urlopen("http://127.0.0.1:9464/metrics").read().decode())' 2>/dev/null) || continue
        if grep -q "^gctrace_process_pauses_total{pid=\"$program\",.*} [1-9]" <<<"$page"; then break; fi
        page=
    done
    runc --root "$work/runc" kill gctrace-exporter TERM
    wait $!
    [ -n "$page" ] || {
        cat "$work/exporter"
        return 1
    }
}

# What the sidecar may is what was tested with the DaemonSet.
same_rights() {
    "$tools/python" - "$checkout/scripts/install-test" "$manifests" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
import bundle
(pod, one), (other_pod, other) = (bundle.container_of(f"{sys.argv[2]}/{name}.yaml", "gctrace") for name in ("daemonset", "sidecar"))
assert one["securityContext"] == other["securityContext"], other["securityContext"]
assert pod["hostPID"] and other_pod["hostPID"]
END
}

# Each pod: without the token of its service account, and each container without other rights than the four
# of gctrace; the system calls are those that the runtime allows, except for gctrace's probes.
few_rights() {
    "$tools/python" - "$manifests"/*.yaml <<'END'
import pathlib, sys, yaml
pods = [(path, document) for path in sys.argv[1:] for document in yaml.safe_load_all(pathlib.Path(path).read_text())]
pods = [(path, document.get("spec", {})) for path, document in pods if document["kind"] != "Namespace"]
for path, spec in pods:
    pod = spec.get("template", {}).get("spec", spec)
    assert pod["automountServiceAccountToken"] is False, path
    for container in pod["containers"] + pod.get("initContainers", []):
        name = f"{path}: {container['name']}"
        security = pod.get("securityContext", {}) | container.get("securityContext", {})
        assert security.get("allowPrivilegeEscalation") is False, name
        assert security["capabilities"]["drop"] == ["ALL"], name
        added = security["capabilities"].get("add", [])
        assert added in ([], ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]), name
        assert security["seccompProfile"]["type"] == ("Unconfined" if added else "RuntimeDefault"), name
assert len(pods) == 4, pods
END
}

# The init container of in-process.yaml, and what it left run by an ordinary user.
in_process() {
    bundle container "$manifests/in-process.yaml" gctrace "$work/bundle"
    "$tools/python" - "$work" <<'END'
import json, sys
path = sys.argv[1] + "/bundle/config.json"
written = json.load(open(path))
for mount in written["mounts"]:
    if mount["destination"] == "/gctrace":
        mount.update(type="none", source=sys.argv[1] + "/gctrace", options=["rbind"])
json.dump(written, open(path, "w"))
END
    mkdir "$work/gctrace"
    runc --root "$work/runc" run --no-pivot --bundle "$work/bundle" gctrace-setup &&
        install -d -o "$alice" "$work/home" &&
        (cd "$work/home" && setpriv --reuid "$alice" --regid "$alice" --clear-groups env -i HOME="$work/home" PATH=/usr/bin \
            "$work/gctrace/bin/gctrace" -o gc.json -- /usr/bin/python3 -c 'import gc; gc.collect()') &&
        grep -q '"name":"gc' "$work/home/gc.json"
}

for manifest in "$manifests"/*.yaml; do
    check "kubernetes-validate $(basename "$manifest")" "$tools/kubernetes-validate" --strict "$manifest"
done
check "no tokens, and no other rights" few_rights
check "the sidecar has the DaemonSet's rights" same_rights
bundle unpack "$archive" "$work/bundle"
check "the program starts" says "Usage: gctrace" -- --keep "" help
check "setup into a shared folder, and in-process recording with it" in_process

if [ ! -e /sys/kernel/btf/vmlinux ]; then
    skipped "recording by kernel probes: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    exit
fi
# Another user's program, whose Python is in a folder closed to others.
cp "$(realpath /usr/bin/python3)" "$work/private/python3"
chown -R "$alice:$alice" "$work/private"
chmod 700 "$work/private"
setpriv --reuid "$alice" --regid "$alice" --clear-groups env -i PYTHONHOME=/usr "$work/private/python3" -S -c 'import gc, time
while True: gc.collect(); time.sleep(0.02)' &
program=$!
record=(record -p "$program" -d 1 -o /out/few.json)

check "record -p, as in the manifest" records
check "doctor, as in the manifest" says "ok privileges" "ok other users" "Recording will work" -- doctor
check "the DaemonSet's own command" exporter
check "no capabilities: record -p" says "missing CAP_BPF, CAP_PERFMON" "add: [BPF, PERFMON" -- --keep "" "${record[@]}"
check "no capabilities: top" says "missing CAP_BPF, CAP_PERFMON" -- --keep "" top --format text -n 1
check "no capabilities: doctor" says "MISSING privileges" "add: [BPF, PERFMON" -- --keep "" doctor
check "BPF: record -p" says "missing CAP_PERFMON" -- --keep BPF "${record[@]}"
check "BPF, PERFMON: record -p" says "CAP_SYS_PTRACE" -- --keep BPF,PERFMON "${record[@]}"
check "BPF, PERFMON: top" says "processes of other users are not recorded" -- --keep BPF,PERFMON top --format text -n 1
check "BPF, PERFMON: doctor" says "note other users" "CAP_SYS_PTRACE is needed" -- --keep BPF,PERFMON doctor
check "without DAC_READ_SEARCH: record -p" never_nothing_lost
check "without DAC_READ_SEARCH: top" says "CAP_DAC_READ_SEARCH" -- --keep BPF,PERFMON,SYS_PTRACE top --format text -n 2
check "without DAC_READ_SEARCH: doctor" says "note other users" "CAP_DAC_READ_SEARCH is needed" -- --keep BPF,PERFMON,SYS_PTRACE doctor
check "no hostPID: record -p" says "hostPID: true" -- --own-pids record -p 1 -d 1 -o /out/few.json
check "no hostPID: doctor" says "in a pid namespace of its own" -- --own-pids doctor
