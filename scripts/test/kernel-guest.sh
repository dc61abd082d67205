#!/bin/sh
# The first process of a kernel that scripts/kernels.sh boots: runs the checks of /kernels/plan, one
# line 'folder<TAB>program<TAB>test' each, and powers the machine off. Its output goes to the serial
# console; lines that start with '@check' are results:
#
#   @check<TAB>TEST<TAB>ok | skipped | FAILED | TIMEOUT<TAB>REASON
set -u

mkdir -p /proc /sys /dev /tmp /run /root /var/tmp /usr/local/lib
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
# gctrace trusts no library below a folder that others may write to.
chmod 755 /
chmod 1777 /tmp /var/tmp /dev/shm
mount -t tracefs tracefs /sys/kernel/tracing
exec </dev/null >/dev/console 2>&1
# shellcheck disable=SC1091  # made by kernels.sh
. /kernels/environment

echo "@kernel	$(uname -r)"
while IFS='	' read -r folder program name; do
    mkdir -p "$folder" && cd "$folder" || exit
    CARGO_MANIFEST_DIR=$folder timeout -k 5 "$GCTRACE_CHECK_LIMIT" "$program" \
        --include-ignored --test-threads=1 --show-output --exact "$name" >/tmp/check 2>&1
    code=$?
    skipped=$(grep -oE '\bskipped [a-z0-9_]+: .*' /tmp/check | head -1)
    case $code in
    0) if [ -n "$skipped" ]; then result="skipped	${skipped#*: }"; else result=ok; fi ;;
    124 | 137) result="TIMEOUT	no end within $GCTRACE_CHECK_LIMIT s" ;;
    *) result="FAILED	$(grep -m1 -A1 'panicked at' /tmp/check | tail -1 | cut -c1-300)" ;;
    esac
    grep -q '^test .* \.\.\. ' /tmp/check || result='FAILED	there is no such test'
    case $result in ok | skipped*) ;; *) cat /tmp/check ;; esac
    file=${program##*/}
    printf '@check\t%s\t%s\t%s s up\n' "${file%-*}:$name" "$result" "$(cut -d. -f1 /proc/uptime)"
done </kernels/plan
echo "@end"
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
