#!/usr/bin/env bash
# Proves the artifacts of scripts/release.sh as their users meet them: installed, used and removed
# on machines without compilers, each recording compared with the program's own gc.get_stats().
#
#   scripts/install-test.sh [--quick] [PART...]      default: all parts; needs root, or sudo
#
# A part is a script in scripts/install-test; RELEASE_OUT is the folder with the artifacts
# (default: dist), RELEASE_ARCH their architecture (default: this machine's), RELEASE_HERE as it
# was for release.sh. --quick leaves out what repeats itself, such as most interpreters. A part prints a line per
# result: 'ok PART: WHAT', 'skipped PART: REASON' or 'FAILED PART: WHAT'; one without any 'ok' has failed.
#
# Everything happens in an overlay of this machine's file system that goes away with its last
# process: users, sudoers rules and packages leave nothing behind.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

INSTALL_TEST_QUICK=
if [ "${1:-}" = --quick ]; then
    INSTALL_TEST_QUICK=yes
    shift
fi
parts=("$@")
if [ ${#parts[@]} = 0 ] || [ "${parts[*]}" = all ]; then
    mapfile -t parts < <(cd "$checkout/scripts/install-test" && find . -name '*.sh' ! -name 'common*.sh' -printf '%f\n' | sed 's/\.sh$//' | sort)
fi
RELEASE_OUT=$(realpath "${RELEASE_OUT:-$checkout/dist}")
RELEASE_ARCH=${RELEASE_ARCH:-$(uname -m)}
[ -e "$RELEASE_OUT/SHA256SUMS" ] || die "no artifacts in $RELEASE_OUT: scripts/release.sh"
can_be_root || die "it needs root: sudo $0"
need_packages "tests of installed packages" passwd python3 python3-venv sudo util-linux xz-utils
INSTALL_TEST_TOOLS=$(as_builder "$checkout/scripts/release/release-venv.sh" ${RELEASE_HERE:+--here}) || INSTALL_TEST_TOOLS=

(cd "$RELEASE_OUT" && sha256sum --check --quiet SHA256SUMS) || die "$RELEASE_OUT is not as it was made"
results=$(mktemp)
trap 'rm -f "$results"' EXIT
failed=
for part in "${parts[@]}"; do
    script=$checkout/scripts/install-test/$part.sh
    [ -e "$script" ] || die "no part '$part': $(cd "$(dirname "$script")" && echo *.sh)"
    say "== $part"
    status=0
    as_root env INSTALL_TEST_QUICK="$INSTALL_TEST_QUICK" INSTALL_TEST_TOOLS="$INSTALL_TEST_TOOLS" \
        RELEASE_OUT="$RELEASE_OUT" RELEASE_ARCH="$RELEASE_ARCH" \
        GCTRACE_INTERPRETERS="${GCTRACE_INTERPRETERS:-$checkout/.interpreters/manifest.tsv}" \
        bash "$script" </dev/null | tee "$results" || status=$?
    if [ "$status" != 0 ] || grep -q '^FAILED ' "$results"; then failed=yes; fi
    if ! grep -qE '^(ok|FAILED|skipped) ' "$results"; then
        say "FAILED $part: it did nothing"
        failed=yes
    fi
done
[ -z "$failed" ]
