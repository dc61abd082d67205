#!/usr/bin/env bash
# Installs cargo-deb and cargo-generate-rpm, which make the .deb and the .rpm.
#
#   scripts/release/package-tools.sh [FOLDER]     (default: .package-tools; two minutes)
#
# Prints the folder of the programs. Versions are pinned: the same tools make the same bytes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

folder=$(realpath -m "${1:-$checkout/.package-tools}")
tools=(cargo-deb@3.8.0 cargo-generate-rpm@0.21.1)

exec 9>"$folder.lock"
flock 9
for tool in "${tools[@]}"; do
    program=$folder/bin/${tool%@*}
    if ! "$program" --version 2>/dev/null | grep -qF "${tool#*@}"; then
        # Unoptimized but for the compressors, they compile in half the time.
        CFLAGS=-O2 CARGO_TARGET_DIR=$folder/build CARGO_PROFILE_DEV_DEBUG=false \
            build install --quiet --locked --debug --root "$folder" "$tool" >&2 || die "$tool could not be installed"
    fi
done
rm -rf "$folder/build"
echo "$folder/bin"
