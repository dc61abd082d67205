#!/usr/bin/env bash
# Makes RELEASE_OUT/gctrace_VERSION-1_ARCH.deb of RELEASE_STAGE (environment.sh).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=package.sh
. "$(dirname "$0")/package.sh"

case $RELEASE_ARCH in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
esac
deb=$RELEASE_OUT/gctrace_$release_version-${PACKAGE_REVISION}_$architecture.deb
maintainer=$(sed -n 's/^maintainer = "\(.*\)"/\1/p' "$package_folder/Cargo.toml")
printf 'gctrace (%s-%s) stable; urgency=medium\n\n  * Changes: CHANGELOG.md of the sources.\n\n -- %s  %s\n' \
    "$release_version" "$PACKAGE_REVISION" "$maintainer" "$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")" \
    >"$package_folder/debian/changelog"
"$package_tools/cargo-deb" --quiet --manifest-path "$package_folder/Cargo.toml" --no-build --no-strip \
    --target "$release_target" --deb-version "$release_version-$PACKAGE_REVISION" --output "$deb" >&2
echo "$deb"
