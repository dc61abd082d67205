#!/usr/bin/env bash
# Makes everything that users install, and its checksums. Builds as the user who calls it; needs no
# root unless packages for building are missing.
#
#   scripts/release.sh [--profile dev|dist] [--target x86_64|aarch64] [--here] [OUT [ARTIFACT...]]
#
# --here links with this machine's libraries, in the folder of ordinary builds: quick, for tests, and
# only for machines like this one. Defaults: dist, this machine's, the folder dist, and all artifacts: wheel, archive, deb, rpm,
# image, crates. Each is made by the script of its name in scripts/release, from what binaries.sh
# there made. An artifact whose tools are missing ends the script with the reason.
# scripts/install-test.sh proves them.
set -euo pipefail

scripts=$(cd "$(dirname "$0")" && pwd)
while [ $# -gt 0 ]; do
    case $1 in
    --profile) export RELEASE_PROFILE=${2:?dev or dist} ;;
    --target) export RELEASE_ARCH=${2:?x86_64 or aarch64} ;;
    --here) export RELEASE_HERE=yes && shift && continue ;;
    -*) echo "release.sh: no option '$1'" >&2 && exit 2 ;;
    *) break ;;
    esac
    shift 2
done
RELEASE_OUT=${1:-$scripts/../dist}
export RELEASE_OUT
# shellcheck source-path=SCRIPTDIR source=release/environment.sh
. "$scripts/release/environment.sh"
artifacts=("${@:2}")
if [ ${#artifacts[@]} = 0 ]; then artifacts=(wheel archive deb rpm image crates); fi

"$scripts/release/binaries.sh"
for artifact in "${artifacts[@]}"; do
    "$scripts/release/$artifact.sh"
done
cd "$RELEASE_OUT"
sums=$(find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum)
echo "$sums" >SHA256SUMS
say "artifacts in $RELEASE_OUT:"
find . -maxdepth 1 -type f -printf '%10s %P\n' | sort -k 2 >&2
