#!/usr/bin/env bash
# Makes from RELEASE_STAGE (environment.sh) in RELEASE_OUT:
#
#   gctrace-ARCH-unknown-linux-gnu-vVERSION.tar.xz         a folder of that name with the program,
#                                                          which contains its libraries, and share
#   gctrace-debug-ARCH-unknown-linux-gnu-vVERSION.tar.xz   names and line tables
#
# cargo-binstall looks for an archive and a program so named.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"

packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT

# pack NAME FILE...: files and folders as an archive.
pack() {
    local name=$1
    shift
    mkdir "$packed/$name"
    cp -r "$@" "$packed/$name/"
    tar --create --directory "$packed" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" "$name" | xz -9 --threads=1 >"$RELEASE_OUT/$name.tar.xz"
    say "archive: $RELEASE_OUT/$name.tar.xz"
}

pack "gctrace-$release_target-v$release_version" "$RELEASE_STAGE"/{bin/gctrace,share}
pack "gctrace-debug-$release_target-v$release_version" "$RELEASE_STAGE"/debug/*
