# shellcheck shell=bash disable=SC2154  # variables of scripts/test.sh
# Sourced by scripts/test.sh: the tiers that it runs only by name or with 'all'. The others are in tiers.sh.

# slow [plain|root]: both, or one of the two.
slow() {
    local part=${1:-}
    if [ -z "$nextest" ]; then
        note "slow: skipped: without cargo-nextest plain, kernel and torch leave nothing out"
    elif ! can_be_root || [ ! -e /sys/kernel/btf/vmlinux ]; then
        note "slow: skipped: needs root and BTF (/sys/kernel/btf/vmlinux)"
    elif [ "$part" = plain ] || torch_python slow; then
        # What needs no privileges has none here either.
        if [ "$part" != root ]; then
            if run_tests slow builder 'not default() & not binary(kernel) & not binary(torch)'; then
                note "slow (plain): passed"
            else
                fail "slow (plain)"
            fi
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
    elif step kernels env GCTRACE_KERNELS_CORE=short scripts/kernels.sh 5.10 6.1 6.12 newest; then
        note "kernels: passed"
    else
        fail kernels
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
    elif ! as_builder scripts/test/cross-rust.sh .cross-rust >/dev/null 2> >(tee "$logs/cross-rust" >&2); then
        note "aarch64: skipped: $(tail -1 "$logs/cross-rust")"
    elif step aarch64 scripts/aarch64.sh; then
        note "aarch64: passed"
    else
        fail aarch64
    fi
}

chaos() {
    if ! can_be_root || [ ! -e /sys/kernel/btf/vmlinux ]; then
        note "chaos: skipped: needs root and BTF (/sys/kernel/btf/vmlinux)"
    elif step chaos scripts/chaos.sh --short; then
        note "chaos: passed"
    else
        fail chaos
    fi
}

platforms() {
    if ! can_be_root; then
        note "platforms: skipped: needs root (run with sudo)"
    elif step platforms scripts/platforms.sh; then
        note "platforms: passed; checked for macOS, not run"
    else
        fail platforms
    fi
}

# Its dependencies are built once for lints and once for tests.
cluster() {
    local target=${CARGO_TARGET_DIR:-$checkout/target} manifest=cluster/Cargo.toml
    venv s3 "cluster: without S3"
    if build fmt --version >/dev/null 2>&1 && ! build fmt --manifest-path "$manifest" --check; then fail "cluster (rustfmt)"; fi
    if build clippy --version >/dev/null 2>&1; then
        build clippy --manifest-path "$manifest" --locked --all-targets --quiet -- -D warnings || fail "cluster (clippy)"
    fi
    if build deny --version >/dev/null 2>&1; then
        build deny --manifest-path "$manifest" --config "$checkout/deny.toml" --log-level error check bans licenses sources ||
            fail "cluster (cargo-deny)"
    else
        note "cluster: cargo-deny skipped: not installed (cargo install --locked cargo-deny)"
    fi
    build build --quiet -p gctrace || {
        fail "cluster (build)"
        return 0
    }
    if step cluster as_builder env "GCTRACE_PROGRAM=$target/debug/gctrace" \
        "$cargo" test --manifest-path "$manifest" --locked --no-fail-fast -- --show-output; then
        note "cluster: passed"
    else
        fail cluster
    fi
}

# programs [short]: real programs, each untraced and in every mode.
programs() {
    local form=${1:-whole} options=() closing
    if ! can_be_root; then
        note "programs: skipped: needs root (run with sudo)"
        return 0
    elif [ ! -e /sys/kernel/btf/vmlinux ]; then
        note "programs: skipped: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
        return 0
    fi
    need_packages "the programs tier" gdb passwd sudo util-linux bsdutils
    if [ "$form" = short ]; then
        options=(--short)
    else
        need_packages "the programs tier" bubblewrap expect gcc libpython3-dev make python3-dev strace tini uwsgi-core uwsgi-plugin-python3
        as_builder scripts/torch-venv.sh "$checkout/.venv-torch" >/dev/null 2> >(tee "$logs/torch-venv" >&2) || true
    fi
    as_builder scripts/test/programs-venv.sh "$checkout/.venv-programs" "$form" >/dev/null 2> >(tee "$logs/programs-venv" >&2) ||
        note "programs: without their environment: $(tail -1 "$logs/programs-venv")"
    build build --quiet -p gctrace -p gctrace-inject || {
        fail "programs (build)"
        return 0
    }
    step programs as_root /usr/bin/python3 -u tests/programs/run.py "${options[@]}" </dev/null || fail "programs ($form)"
    closing=$(tail -1 "$logs/programs.log")
    note "programs ($form): $closing"
}
