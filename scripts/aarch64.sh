#!/usr/bin/env bash
# Tests gctrace for arm64 on another machine, with everything cross-built (scripts/test/cross.sh).
#
#   scripts/aarch64.sh [user|wheel|kernels]...       default: all
#
#   user      in-process recording, `apply`, `analyze` and the like on every arm64 interpreter,
#             under qemu-user, which has no probes: a few minutes
#   wheel     scripts/release.sh's wheel, installed by pip as that machine's, records on every
#             interpreter under qemu-user; compared with the program's own counts
#   kernels   probes too, on Debian's arm64 kernels under qemu-system (scripts/kernels.sh): 6.12
#             with pages of 4 KiB and of 16 KiB. GCTRACE_AARCH64_KERNELS names others.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=(user wheel kernels); fi
export GCTRACE_MACHINE=aarch64
interpreters=$checkout/.cross-interpreters
# What runs without probes, by module of tests/plain: the library's tests, recording without root.
user_tests=(collections:: allocations:: lifecycle:: apply:: without_root:: analyze::)
failed=

need_packages "arm64 programs" binutils llvm qemu-user-static python3 util-linux
need_cargo
# shellcheck source-path=SCRIPTDIR source=test/cross.sh
. "$checkout/scripts/test/cross.sh"

# Runs arm64 programs, and those that they start, in a user namespace of its own, where the loader
# and the libraries of that machine are among this one's, and python3 is one of its: no other process
# is affected. Root has all users in it, for tests that become another one.
emulated() {
    local process space identity=(--map-root-user)
    if [ "$(id -u)" = 0 ]; then identity=(--keep-caps); fi
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --user "${identity[@]}" --mount sh -c '
        while [ "$(id -u)" != 0 ]; do sleep 0.01; done
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc &&
            cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register &&
            mount -t overlay -o "lowerdir=/usr/lib:$1/usr/lib" overlay /usr/lib &&
            mount -t overlay -o "lowerdir=$2:/usr/bin" overlay /usr/bin && shift 2 && exec "$@"' \
        sh "$checkout/.cross-root" "$bin" "$@" </dev/null &
    process=$!
    if [ "$(id -u)" = 0 ]; then
        while space=$(readlink "/proc/$process/ns/user") && [ "$space" = "$(readlink /proc/self/ns/user)" ]; do sleep 0.01; done
        echo "0 0 65536" >"/proc/$process/gid_map" && echo "0 0 65536" >"/proc/$process/uid_map"
    fi
    wait "$process"
}

# Tests that qemu-user cannot pass, and why. Each is run on x86-64.
qemu_misses() {
    local forks="qemu-user ignores MADV_WIPEONFORK, by which a forked child is noticed"
    local host="it starts programs of the host"
    cat <<END
a_program_continues_without_a_listener qemu-user has a thread of its own
forked_children_have_rings_of_their_own $forks
killed_workers_lose_nothing $forks
a_forked_childs_table_starts_at_zero $forks
programs_without_python_have_no_ring_and_no_output $host
children_see_no_variables_where_they_are_not_followed $host
children_without_the_variables_are_counted_and_unchanged $host
a_set_user_id_program_is_refused_before_it_starts $host
a_seccomp_filter_does_not_kill_the_program qemu-user has no seccomp filters
settings_of_an_advice_are_applied emulated times lead to other advice
END
}

# Whether arm64 programs can be run.
can_emulate() {
    if emulated true; then return 0; fi
    say "skipped $1: a user namespace of its own, with binfmt_misc (Linux 6.7), is not permitted here"
    return 1
}

user() {
    local programs=$place/programs folder program name why skipped=()
    build build --workspace --quiet
    test_programs plain gctrace-inject gctrace >"$programs"
    while read -r name why; do
        say "skipped $name: under emulation: $why"
        skipped+=(--skip "$name")
    done < <(qemu_misses)
    while IFS=$'\t' read -r folder program; do
        say "aarch64: tests of $(basename "$folder")"
        (cd "$folder" && GCTRACE_INTERPRETERS=$interpreters/manifest.tsv CARGO_MANIFEST_DIR=$folder \
            GCTRACE_TEST_PATIENCE=${GCTRACE_TEST_PATIENCE:-300} emulated "$program" "${user_tests[@]}" --test-threads=2 --show-output "${skipped[@]}") || failed=yes
    done <"$programs"
}

wheel() {
    local out=$place/wheel name kind python
    as_builder env -u CARGO_TARGET_DIR "$checkout/scripts/release.sh" --profile dev --target aarch64 "$out" wheel
    as_builder "$cross_tools/python" -m pip install --quiet --disable-pip-version-check --no-index \
        --only-binary=:all: --platform manylinux_2_17_aarch64 --target "$out/installed" "$out"/*.whl
    while IFS=$'\t' read -r name _ kind python _; do
        if [ "$python" = - ]; then continue; fi
        if [[ $kind = *incremental* ]]; then
            say "skipped wheel: $name: increments that only mark are not in its gc.get_stats()"
            continue
        fi
        as_builder mkdir -p "$out/$name/truth"
        if emulated env PYTHONPATH="$out/installed" "$python" -m gctrace record --mode inject -o "$out/$name/trace.json" -- \
            "$python" "$checkout/scripts/install-test/garbage.py" "$out/$name/truth" &&
            python3 "$checkout/scripts/install-test/truth.py" "$out/$name/trace.json" "$out/$name/truth" inject; then
            say "ok wheel: $name"
        else
            say "FAILED wheel: $name"
            failed=yes
        fi
    done <"$interpreters/manifest.tsv"
}

place=$(as_builder mktemp -d)
trap 'rm -rf "$place"' EXIT
chmod a+rx "$place"
as_builder "$checkout/scripts/interpreters.sh" "$interpreters" >&2
as_builder "$checkout/scripts/test/cross-root.sh" "$checkout/.cross-root" >&2
bin=$place/bin
as_builder mkdir "$bin"
as_builder ln -s "$(awk -F'\t' '$1 == "debian-3.13" { print $4 }' "$interpreters/manifest.tsv")" "$bin/python3"
for part in "${parts[@]}"; do
    case $part in
    user | wheel) if can_emulate "$part"; then "$part"; fi ;;
    kernels)
        read -r -a versions <<<"${GCTRACE_AARCH64_KERNELS:-6.12 6.12-16k}"
        "$checkout/scripts/kernels.sh" "${versions[@]}" || failed=yes
        ;;
    *) die "no part '$part': user, wheel, kernels" ;;
    esac
done
[ -z "$failed" ]
