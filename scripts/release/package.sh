#!/usr/bin/env bash
# Sourced by deb.sh and rpm.sh: the tools, and a folder with the metadata and what they package.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# Revision of the packages; the tests make a second one, to upgrade to.
PACKAGE_REVISION=${PACKAGE_REVISION:-1}
# shellcheck disable=SC2034  # for the sourcing scripts
package_tools=$("$checkout/scripts/release/package-tools.sh") || die "the tools could not be installed"
package_folder=$(mktemp -d)
trap 'rm -rf "$package_folder"' EXIT
cp -r "$checkout/packaging/." "$package_folder/"
cp -r "$RELEASE_STAGE" "$package_folder/stage"
: >"$package_folder/empty.rs"
