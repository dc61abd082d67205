#!/usr/bin/env bash
# Makes RELEASE_OUT/gctrace-VERSION-1.ARCH.rpm of RELEASE_STAGE (environment.sh).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=package.sh
. "$(dirname "$0")/package.sh"

rpm=$RELEASE_OUT/gctrace-$release_version-$PACKAGE_REVISION.$RELEASE_ARCH.rpm
# -n: without a name and a time in the file.
gzip -9n "$package_folder"/stage/share/man/man1/*.1
cd "$package_folder"
"$package_tools/cargo-generate-rpm" --target "$release_target" --output "$rpm" \
    --set-metadata "version = \"$release_version\"" --set-metadata "release = \"$PACKAGE_REVISION\"" >&2
echo "$rpm"
