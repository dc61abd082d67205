#!/usr/bin/env bash
# Sourced by the parts of scripts/install-test.sh, which describes the lines that they print.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
part=$(basename "$0" .sh)
# Name of the user who installs and records; sudo is allowed without a password.
user=tester

passed() { echo "ok $part: $*"; }
skipped() { echo "skipped $part: $*"; }
failed() { echo "FAILED $part: $*"; }

# Runs the part again, as root of a copy of this machine in which any change is allowed: an overlay
# of / in memory, with a user, without compilers.
enter_overlay() {
    if [ "${INSTALL_TEST_INSIDE:-}" = yes ]; then
        make_user
        return 0
    fi
    local whole
    whole=$(realpath "$0")
    # shellcheck disable=SC2016  # expanded by the inner shell
    exec env INSTALL_TEST_INSIDE=yes unshare --mount --propagation private bash -c '
        set -euo pipefail
        whole=$1 checkout=$2
        mount -t tmpfs tmpfs /mnt
        mkdir /mnt/{upper,work,root}
        if ! mount -t overlay overlay -o "lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root; then
            echo "skipped '"$part"': no overlay of / can be mounted here"
            exit
        fi
        for folder in /proc /sys /dev; do mount --rbind "$folder" "/mnt/root$folder"; done
        for folder in "$checkout" "$RELEASE_OUT"; do
            # Not seen through the overlay if it is another file system.
            if [ ! -e "/mnt/root$folder/." ] || [ -z "$(ls -A "/mnt/root$folder")" ]; then
                mkdir -p "/mnt/root$folder"
                mount --bind "$folder" "/mnt/root$folder"
            fi
        done
        exec chroot /mnt/root bash "$whole"' inside "$whole" "$checkout"
}

# Lets the user reach a folder below closed ones.
open_way() {
    local folder
    folder=$(realpath "$1")
    while [ "$folder" != / ]; do
        chmod o+rx "$folder"
        folder=$(dirname "$folder")
    done
}

make_user() {
    local tool folder
    # What installs or records must not build.
    for folder in "${PATH//:/ }" /usr/bin /usr/local/bin; do
        for tool in $folder; do
            rm -f "$tool"/{as,c++,c89,c99,cargo,cc,clang*,cmake,cpp,g++*,gcc*,ld,ld.*,lld*,make,rustc,x86_64-linux-gnu-*}
        done
    done
    rm -rf /usr/lib/gcc /usr/lib/llvm-* /usr/local/lib/gctrace /usr/lib/gctrace
    rm -f /usr/local/bin/gctrace /usr/bin/gctrace
    open_way "$checkout"
    open_way "$RELEASE_OUT"
    useradd --create-home --shell /bin/bash "$user"
    echo "$user ALL=(ALL) NOPASSWD: ALL" >"/etc/sudoers.d/$user"
    chmod 440 "/etc/sudoers.d/$user"
    chmod 1777 /tmp
}

# Runs a command as the user, with an ordinary environment; FOLDER... (in `user_path`) before its
# search path.
user_path=
as_user() {
    (cd "/home/$user" && setpriv --reuid "$user" --regid "$user" --init-groups --inh-caps=-all \
        env -i HOME="/home/$user" USER="$user" LANG=C.UTF-8 TERM=dumb \
        PATH="${user_path:+$user_path:}/usr/local/bin:/usr/bin:/bin" "$@")
}

# check WHAT COMMAND...: a result by the command's exit code; its output only if it failed.
check() {
    local what=$1 output status=0
    shift
    output=$("$@" 2>&1 </dev/null) || status=$?
    if [ "$status" = 0 ]; then
        passed "$what"
    else
        failed "$what"
        printf '%s\n' "$output" | tail -n 40 | sed 's/^/    /'
    fi
}

# recording MODE PYTHON GCTRACE...: records examples of garbage with GCTRACE... (a program and what
# comes before it, such as sudo), as the user, and compares the trace with the program's own counts.
recording() {
    local mode=$1 python=$2 folder
    shift 2
    folder=$(as_user mktemp -d "/home/$user/recording.XXXXXX")
    as_user mkdir "$folder/truth"
    (cd "$folder" && as_user "$@" record --mode "$mode" -o "$folder/trace.json" -- \
        "$python" "$checkout/scripts/install-test/garbage.py" "$folder/truth") || return 1
    python3 "$checkout/scripts/install-test/truth.py" "$folder/trace.json" "$folder/truth" "$mode"
}
