# shellcheck shell=bash disable=SC2154  # variables of scripts/test.sh
# Sourced by scripts/test.sh: the tiers that it runs only by name or with 'all'. The others are in tiers.sh.

# slow [plain|root]: both, or one of the two.
slow() {
    local part=${1:-}
    if [ -z "$nextest" ]; then
        note "slow: skipped: without cargo-nextest plain, kernel and torch leave nothing out"
    elif can_run slow btf && { [ "$part" = plain ] || torch_python slow; }; then
        # What needs no privileges has none here either.
        if [ "$part" != root ]; then
            made "slow: without Ray" scripts/venv.sh ray >/dev/null || true
            judge "slow (plain)" run_tests slow builder 'not default() & not binary(kernel) & not binary(torch)'
        fi
        if [ "$part" != plain ]; then
            privileged slow 'not default() & (binary(kernel) | binary(torch)) & not (binary(torch) & test(/^docs::/))'
        fi
    fi
}

kernels() {
    # In a subshell: it ends the script if a package is unavailable.
    if ! (need_packages "kernels in an emulated machine" qemu-system-x86) || ! command -v qemu-system-x86_64 >/dev/null; then
        note "kernels: skipped: qemu-system-x86_64 is not installed"
    else
        judge kernels step kernels env GCTRACE_KERNELS_CORE=short scripts/kernels.sh 5.10 6.1 6.12 newest
    fi
}

aarch64() {
    # Interpreters as files, which any machine can examine.
    if as_builder scripts/interpreters.sh --aarch64 >"$logs/aarch64-files"; then
        step aarch64 build test -p gctrace-probes --test plain -- --show-output aarch64:: aarch64_offsets:: ||
            fail "aarch64 (files)"
    else
        note "aarch64: scripts/interpreters.sh --aarch64 failed: no files are examined"
    fi
    # In a subshell: it ends the script if a package is unavailable.
    if [ "$(uname -sm)" != "Linux x86_64" ]; then
        note "aarch64: skipped: cross-building was only tried on x86-64"
    elif ! (need_packages "arm64 in an emulated machine" qemu-system-arm qemu-user-static) || ! command -v qemu-system-aarch64 >/dev/null; then
        note "aarch64: skipped: qemu-system-aarch64 is not installed"
    elif made "aarch64: skipped" scripts/test/cross-rust.sh .cross-rust >/dev/null; then
        judge aarch64 step aarch64 scripts/aarch64.sh
    fi
}

chaos() {
    if can_run chaos btf; then judge chaos step chaos scripts/chaos.sh --short; fi
}

# macOS is checked, not run.
platforms() {
    if can_run platforms; then judge platforms step platforms scripts/platforms.sh; fi
}

# programs [short]: real programs, each untraced and in every mode.
programs() {
    local form=${1:-whole} options=() closing
    can_run programs btf || return 0
    need_packages "the programs tier" gdb passwd sudo util-linux bsdutils
    if [ "$form" = short ]; then
        options=(--short)
    else
        need_packages "the programs tier" bubblewrap expect gcc libpython3-dev make python3-dev strace tini uwsgi-core uwsgi-plugin-python3
        made "programs: without PyTorch" scripts/torch-venv.sh "$checkout/.venv-torch" >/dev/null || true
    fi
    made "programs: without their environment" scripts/test/programs-venv.sh "$checkout/.venv-programs" "$form" >/dev/null || true
    build build --quiet -p gctrace -p gctrace-inject || {
        fail "programs (build)"
        return 0
    }
    step programs as_root /usr/bin/python3 -u tests/programs/run.py "${options[@]}" </dev/null || fail "programs ($form)"
    closing=$(tail -1 "$logs/programs.log")
    note "programs ($form): $closing"
}
