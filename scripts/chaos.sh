#!/usr/bin/env bash
# Rounds of chaos: gctrace and the programs it records are killed, stopped and starved at random
# times, and the results are checked. See tests/chaos/chaos.py for the options, which are passed on.
#
#   scripts/chaos.sh [--seed N] [--rounds N] [--seconds N] [--kinds LIST] [--modes LIST] [--jobs N]
#   scripts/chaos.sh --short           for continuous integration: a fixed seed, then one that is printed
#
# Needs root, and interpreters (scripts/interpreters.sh; without them, the system's). GCTRACE names
# another binary than the one built here. Folders of failed rounds are kept in a folder of /tmp that
# is printed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

can_be_root || die "recording needs root"
need_packages building "${build_packages[@]}"
need_packages "the rounds" python3 tmux util-linux
if [ -z "${GCTRACE:-}" ]; then
    build build --quiet -p gctrace -p gctrace-inject
    GCTRACE=${CARGO_TARGET_DIR:-$checkout/target}/debug/gctrace
fi
chaos=(as_root python3 "$checkout/tests/chaos/chaos.py" --gctrace "$GCTRACE"
    --manifest "${GCTRACE_INTERPRETERS:-$checkout/.interpreters/manifest.tsv}")
if [ "${1:-}" = --short ]; then
    shift
    "${chaos[@]}" --seed 1 --seconds 40 --rounds 40 --jobs 2 "$@"
    "${chaos[@]}" --seconds 40 --rounds 40 --jobs 2 "$@"
else
    "${chaos[@]}" "$@"
fi
