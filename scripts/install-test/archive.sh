#!/usr/bin/env bash
# The archive: the program alone, and its names and lines.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
enter_overlay

name=$(cd "$RELEASE_OUT" && echo gctrace-"$RELEASE_ARCH"-unknown-linux-gnu-v*.tar.xz)
name=${name%.tar.xz}
home=/home/$user
check "unpack" as_user tar -xf "$RELEASE_OUT/$name.tar.xz"
check "the folder has the archive's name" test -x "$home/$name/gctrace"
# One file is enough.
as_user mkdir -p "$home/.local/bin"
as_user cp "$home/$name/gctrace" "$home/.local/bin/"
user_path=$home/.local/bin
check "record, as a user" recording inject python3 gctrace

# Names and lines, which a debugger looks for beside the program.
named() {
    local line
    line=$(sed -n '/^fn main/{=;q}' "$checkout/tracer/src/main.rs")
    as_user tar -xf "$RELEASE_OUT/${name/gctrace-/gctrace-debug-}.tar.xz" &&
        as_user cp "$home/${name/gctrace-/gctrace-debug-}/gctrace.debug" "$home/.local/bin/" &&
        as_user gdb -batch -nx -ex "info line main.rs:$line" "$home/.local/bin/gctrace" 2>&1 |
        # Of the release profile it is inlined into the C function.
        grep "Line $line of .*main.rs.* <.*main.*>"
}
if command -v gdb >/dev/null; then check "names and lines of the program" named; else skipped "gdb is not installed"; fi
