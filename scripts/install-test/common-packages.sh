#!/usr/bin/env bash
# Sourced by the parts for the .deb and the .rpm, after common.sh: what both promise.

other=someone
# shellcheck disable=SC2154  # of common.sh
unit_filter=$checkout/scripts/install-test/unit_filter.py
# shellcheck disable=SC2034  # for the sourcing scripts
group_rights=/usr/lib/gctrace/group-rights
units=/usr/lib/systemd/system

# Every file of the system with its owner and mode, and its users and groups: what must be the same
# after the package is gone. DATABASE: pattern of the package manager's own files.
machine() {
    find /etc /opt /srv /usr /var -xdev \( -path /var/log -o -path /var/tmp -o -path /var/cache/man -o -regex "$1" \) -prune \
        -o -printf '%p %u %g %m\n' | sort
    sort /etc/passwd /etc/group
}

# A machine without gctrace's state; `user` may use sudo, `other` belongs to no group.
prepare() {
    rm -rf /etc/gctrace /var/cache/gctrace /var/lib/gctrace
    useradd --create-home --shell /bin/bash "$other"
}

as_other() {
    local user=$other
    as_user "$@"
}

same() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" && return 1; }; }

# Owner, group, mode and capabilities of the program.
rights() {
    local capabilities
    capabilities=$(getcap /usr/bin/gctrace | sed 's/.* //; s/=.*//' | tr ',' '\n' | sort | paste -sd,)
    echo "$(stat -c '%U:%G %a' /usr/bin/gctrace) $capabilities"
}
# shellcheck disable=SC2034  # for the sourcing scripts
closed="root:root 755 "
opened="root:gctrace 750 cap_bpf,cap_perfmon"

# The newest symbols of glibc that the binaries need.
newest_glibc() {
    grep -aohE 'GLIBC_2\.[0-9]+' /usr/bin/gctrace /usr/lib/gctrace/*.so | sort -uV | tail -1
}

has_files() {
    local file
    for file in /usr/bin/gctrace /usr/lib/gctrace/libgctrace_{inject,simgpu}.so "$units"/gctrace-{exporter,recorder}.service \
        /usr/share/man/man1/gctrace-record.1.gz /usr/share/bash-completion/completions/gctrace \
        /usr/share/fish/vendor_completions.d/gctrace.fish /usr/share/doc/gctrace/{LICENSE-MIT,LICENSE-APACHE,THIRD-PARTY,examples/recorder.yaml}; do
        test -s "$file" || { echo "there is no $file" && return 1; }
    done
    same "$(stat -c '%U:%G %a' /usr/lib/gctrace/libgctrace_inject.so | cut -d' ' -f1)" root:root
}

# The .so beside the program is taken, not the one within.
uses_installed_library() { as_user gctrace doctor | grep -q /usr/lib/gctrace/libgctrace_inject.so; }

demo() {
    local printed
    printed=$(as_user gctrace demo 2>&1) || return 1
    grep -q " steps in " <<<"$printed" && grep -q "Do this" <<<"$printed"
}

kernel_probes() {
    if [ -e /sys/kernel/btf/vmlinux ]; then return 0; fi
    skipped "recording by kernel probes: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    return 1
}

quick() { [ -n "${INSTALL_TEST_QUICK:-}" ]; }

# Without the group: everyone in-process, root and sudo by probes too.
used_by_everyone() {
    check "record, as a user" recording inject /usr/bin/python3 gctrace
    check "its library is the one in /usr/lib/gctrace" uses_installed_library
    if quick; then return 0; fi
    check "gctrace demo, as a user" demo
    if kernel_probes; then
        check "sudo gctrace record --mode both" recording both /usr/bin/python3 sudo gctrace
    fi
}

refuses_others() {
    local pid printed
    as_other /usr/bin/python3 -c 'import time; time.sleep(60)' &
    sleep 1
    pid=$(pgrep -u "$other" -x python3)
    printed=$(as_user gctrace record -p "$pid" -d 1 -o /tmp/others.json 2>&1) && return 1
    kill "$pid"
    grep -q "may not be inspected by this user" <<<"$printed"
}

denied_to_others() {
    local printed
    printed=$(as_other gctrace --version 2>&1) && return 1
    grep -q "Permission denied" <<<"$printed"
}

# To be called once the group is asked for.
used_by_members() {
    check "the group gctrace may execute it, with capabilities" same "$(rights)" "$opened"
    usermod --append --groups gctrace "$user"
    if kernel_probes; then
        check "record --mode ebpf, as a member" recording ebpf /usr/bin/python3 gctrace
        check "a member records no processes of others" refuses_others
        check "doctor, as a member" grep -q "^ok  *privileges" <(as_user gctrace doctor)
    fi
    quick || check "record --mode inject, as a member" recording inject /usr/bin/python3 gctrace
    check "others may not execute it" denied_to_others
}

# Calls that would change other programs or the machine fail below the unit's filter.
filters() {
    setpriv --no-new-privs "$unit_filter" "$1" /usr/bin/python3 -c '
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for name in ("ptrace", "process_vm_writev", "mount", "chroot", "setuid", "swapoff"):
    ctypes.set_errno(0)
    assert getattr(libc, name)(*[0] * 6) == -1 and ctypes.get_errno() == errno.EPERM, name'
}

# as_unit UNIT KEY: executes what the unit has as KEY, with its capabilities and its filter.
as_unit() {
    local command capabilities
    # shellcheck disable=SC2046  # words
    read -ra command <<<"$(sed -n "s/^$2=//p" "$1")"
    capabilities=$(sed -n 's/^CapabilityBoundingSet=//p' "$1" | tr ' ' '\n' | sed 's/^CAP_/+/' | tr 'A-Z\n' 'a-z,')
    exec setpriv --inh-caps=-all --bounding-set "-all,${capabilities%,}" --no-new-privs \
        "$unit_filter" "$1" "${command[@]}"
}

# A collecting program of an ordinary user, whose Python is in a folder closed to others; sets `collecting`.
collecting=
start_collecting() {
    local python=/home/$user/private/python3
    as_user mkdir -p -m 700 private
    as_user cp "$(realpath /usr/bin/python3)" "$python"
    as_user env PYTHONHOME=/usr "$python" -S -c 'import gc, time
while True: gc.collect(); time.sleep(0.05)' &
    for _ in $(seq 20); do
        collecting=$(pgrep -u "$user" -f "^$python") && return 0
        sleep 0.5
    done
    return 1
}

# Runs the exporter's command as the unit does, and reads its page: the program must be on it.
exports() {
    local exporter page=
    start_collecting || return 1
    (as_unit "$units/gctrace-exporter.service" ExecStart) >/tmp/exporter 2>&1 &
    exporter=$!
    for _ in $(seq 60); do
        sleep 1
        page=$(/usr/bin/python3 -c 'import urllib.request as u
print(u.urlopen("http://127.0.0.1:9464/metrics").read().decode())' 2>/dev/null) || continue
        if grep -q "^gctrace_process_pauses_total{pid=\"$collecting\",.*} [1-9]" <<<"$page"; then break; fi
        page=
    done
    kill "$exporter" "$collecting"
    [ -n "$page" ] || { cat /tmp/exporter && return 1; }
}

# Runs the recorder's command as the unit does, and what keeps its segments: the program must be in them.
records() {
    local recorder segments kept=1
    segments=$(sed -n 's/^ExecStart=.* -o //p' "$units/gctrace-recorder.service")
    # StateDirectory=
    mkdir -p "$(dirname "$segments")"
    start_collecting || return 1
    (umask 077 && as_unit "$units/gctrace-recorder.service" ExecStart) >/tmp/recorder 2>&1 &
    recorder=$!
    for _ in $(seq 60); do
        sleep 1
        if gctrace analyze --format json "$segments" 2>/dev/null | grep -q "\"pid\": *$collecting,"; then break; fi
    done
    (as_unit "$units/gctrace-recorder.service" ExecReload) >>/tmp/recorder 2>&1 &&
        gctrace analyze --format json "$segments/kept-1" | grep -q "\"pid\": *$collecting," && kept=0
    kill "$collecting" "$recorder"
    wait "$recorder" || true
    # Ended by systemd's signal, it is whole.
    gctrace analyze "$segments" >>/tmp/recorder 2>&1 || kept=1
    rm -rf "$segments"
    [ "$kept" = 0 ] || { cat /tmp/recorder && return 1; }
}

the_service() {
    local unit name
    if ! command -v systemd-analyze >/dev/null; then
        skipped "the services: there is no systemd here"
        return 0
    fi
    for name in gctrace-exporter gctrace-recorder; do
        unit=$units/$name.service
        check "$name: systemd-analyze verify" systemd-analyze verify "$unit"
        check "$name: systemd-analyze security: at most 3.5" systemd-analyze security --offline=true --threshold=35 "$unit"
        check "$name: the filter of system calls" filters "$unit"
        check "$name is disabled" same "$(systemctl is-enabled "$name" 2>&1)" disabled
        systemctl --quiet enable "$name"
        check "$name can be enabled" same "$(systemctl is-enabled "$name" 2>&1)" enabled
    done
    if ! quick && kernel_probes; then
        check "the exporter's command with its capabilities and filter" exports
        check "the recorder's command with its capabilities and filter" records
    fi
}
