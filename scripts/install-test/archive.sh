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
