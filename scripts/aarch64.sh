#!/usr/bin/env bash
# Tests gctrace for arm64 on another machine, with everything cross-built (scripts/cross.sh).
#
#   scripts/aarch64.sh [user|kernels]...       default: both
#
#   user      in-process recording, `apply`, `analyze` and the like on every arm64 interpreter,
#             under qemu-user, which has no probes: a few minutes
#   kernels   probes too, on Debian's arm64 kernels under qemu-system (scripts/kernels.sh): 6.12
#             with pages of 4 KiB and of 16 KiB. GCTRACE_AARCH64_KERNELS names others.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=(user kernels); fi
export GCTRACE_MACHINE=aarch64
interpreters=$checkout/.cross-interpreters
# What runs without probes: libraries' and programs' own tests, recording without root.
user_tests=(collections allocations lifecycle apply without_root analyze)
failed=

need_packages "arm64 programs" binutils llvm qemu-user-static python3 util-linux
need_cargo
# shellcheck source-path=SCRIPTDIR source=cross.sh
. "$checkout/scripts/cross.sh"

# Runs arm64 programs, and those that they start, in a user namespace of its own, where the loader
# and the libraries of that machine are among this one's: no other process is affected.
emulated() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --user --map-root-user --mount sh -c '
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
            cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register &&
            mount -t overlay -o "lowerdir=/usr/lib:$1/usr/lib" overlay /usr/lib && shift && exec "$@"' sh "$checkout/.cross-root" "$@"
}

user() {
    local folder program
    if ! emulated true; then
        say "skipped user: a user namespace of its own, with binfmt_misc (Linux 6.7), is not permitted here"
        return 0
    fi
    while IFS=$'\t' read -r folder program; do
        say "aarch64: $(basename "$program")"
        (cd "$folder" && GCTRACE_INTERPRETERS=$interpreters/manifest.tsv CARGO_MANIFEST_DIR=$folder \
            GCTRACE_TEST_PATIENCE=${GCTRACE_TEST_PATIENCE:-300} emulated "$program" --test-threads=2 --show-output </dev/null) || failed=yes
    done <"$programs"
}

as_builder "$checkout/scripts/interpreters.sh" "$interpreters" >&2
as_builder "$checkout/scripts/cross-root.sh" "$checkout/.cross-root" >&2
for part in "${parts[@]}"; do
    case $part in
    user)
        programs=$(mktemp)
        trap 'rm -f "$programs"' EXIT
        build build --workspace --quiet
        test_programs "${user_tests[@]}" >"$programs"
        user
        ;;
    kernels)
        read -r -a versions <<<"${GCTRACE_AARCH64_KERNELS:-6.12 6.12-16k}"
        "$checkout/scripts/kernels.sh" "${versions[@]}" || failed=yes
        ;;
    *) die "no part '$part': user, kernels" ;;
    esac
done
[ -z "$failed" ]
