#!/usr/bin/env bash
# Sets everything up and runs all tests, in tiers:
#
#   plain    formatting, lints, unit and integration tests: no privileges
#   kernel   BPF programs in the running kernel, real interpreters: root
#   kernels  the core of the kernel tier on stock kernels, emulated (scripts/kernels.sh), 5 minutes each
#   chaos    gctrace and programs killed, stopped and starved at random times (scripts/chaos.sh): root
#   torch    PyTorch in a virtual environment, on the GPU if there is one, and the launchers and
#            schedulers of docs/tasks: root
#   aarch64  cross-built for arm64 and run under qemu (scripts/aarch64.sh)
#   gpu-bundle
#            scripts/gpu-bundle.sh, tried without a GPU: root
#   platforms
#            what needs no Linux, on other systems (scripts/platforms.sh): root
#   cluster  gctrace-cluster, a workspace of its own: lints, queries, scheduler and executors of which
#            some are killed, S3 on loopback: 3 GB of disk, 10 minutes of CPU time for its dependencies
#   install  scripts/release.sh with the dev profile, and the quick form of scripts/install-test.sh: root
#   programs-short, programs
#            real programs run untraced and traced (tests/programs), a few or all: root
#
#   scripts/test.sh [TIER...]                       default: all but aarch64, cluster, kernels,
#                                                   platforms, and programs, which takes two hours
#
# A tier that cannot run is skipped, with the reason; so is a single test, which prints a line
# 'skipped TEST: REASON'. The closing lines list both. Kernel and torch tests are the files
# tests/kernel_*.rs and tests/torch_*.rs of any crate; everything else is plain.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

cd "$checkout"
tiers=("$@")
if [ ${#tiers[@]} = 0 ]; then tiers=(plain kernel chaos torch programs-short install gpu-bundle); fi
logs=$(mktemp -d)
simulator=
trusted=
private_target=
clean_up() {
    if [ -n "$packaging" ]; then kill "$packaging" 2>/dev/null || true; fi
    rm -rf "$logs" ${simulator:+"$simulator"} ${private_target:+"$private_target"} ${packages:+"$packages"}
    if [ -n "$trusted" ]; then as_root rm -rf "$trusted"; fi
}
trap clean_up EXIT
summary=()
failed=

note() { summary+=("$1"); }
fail() {
    note "$1: FAILED"
    failed=yes
}

# step LOG COMMAND...: runs the command, shows and keeps its output.
step() {
    local log=$logs/$1.log
    shift
    "$@" 2>&1 | tee -a "$log"
}

lints() {
    scripts/check-references.py --self-test && scripts/check-references.py || return 1
    if build fmt --version >/dev/null 2>&1; then
        build fmt --all --check || return 1
        # Imports, which only the nightly checks.
        if build +nightly fmt --version >/dev/null 2>&1; then
            build +nightly fmt --all --check -- --config imports_granularity=Module || return 1
        fi
    else
        note "plain: rustfmt skipped: the toolchain has none (rustup component add rustfmt)"
    fi
    if build clippy --version >/dev/null 2>&1; then
        build clippy --workspace --all-targets --quiet -- -D warnings || return 1
    else
        note "plain: clippy skipped: the toolchain has none (rustup component add clippy)"
    fi
    if as_builder rustdoc --version >/dev/null 2>&1; then
        build --config 'build.rustdocflags=["-Dwarnings"]' doc --workspace --no-deps --document-private-items --quiet || return 1
    else
        note "plain: rustdoc skipped: the toolchain has none"
    fi
    scripts/platforms.sh dependencies || return 1
    if build deny --version >/dev/null 2>&1; then
        build deny --log-level error check bans licenses sources || return 1
    else
        note "plain: cargo-deny skipped: not installed (cargo install --locked cargo-deny)"
    fi
    if command -v shellcheck >/dev/null; then
        shellcheck -x scripts/*.sh scripts/{gpu,install-test,release}/*.sh tests/*.sh tests/docs/*/*.sh probes/fuzz/*.sh .ci/run || return 1
    else
        note "plain: shellcheck skipped: not installed"
    fi
}

interpreters() {
    say "interpreters for the tests (first time: about 60 MB of Debian's and PyPI's packages)"
    as_builder scripts/interpreters.sh "$checkout/.interpreters" >"$logs/interpreters" ||
        note "interpreters: scripts/interpreters.sh failed; tests use what is installed"
    export GCTRACE_INTERPRETERS=$checkout/.interpreters/manifest.tsv
}

# venv NAME WITHOUT: makes an environment of scripts/venv.sh; without it, the closing lines contain
# WITHOUT and the reason.
venv() {
    as_builder scripts/venv.sh "$1" >/dev/null 2> >(tee "$logs/venv-$1" >&2) ||
        note "$2: $(tail -1 "$logs/venv-$1")"
}

plain() {
    venv metrics "metrics: the page is not checked by a parser"
    venv tables "tables: not read by DuckDB, polars, pandas and DataFusion"
    lints || fail "plain (lints)"
    local targets=(--lib --bins) name
    # One of the examples is a library that a test loads; cargo builds them only where no target is named.
    build build --workspace --examples --quiet || fail "plain (examples)"
    for name in $(integration_tests | grep -vE '^(kernel|torch)_' || true); do targets+=(--test "$name"); done
    if step plain build test --workspace --no-fail-fast "${targets[@]}" -- --show-output &&
        step plain build test --workspace --no-fail-fast --doc --quiet; then
        note "plain: passed"
    else
        fail plain
    fi
}

# The simulated GPU's libraries, for tests that need a GPU of known behavior.
simulated_gpu() {
    if [ -n "${GCTRACE_SIMGPU:-}" ] || [ ! -d probes/simgpu ]; then return 0; fi
    simulator=$(as_builder mktemp -d)
    if build build --quiet -p gctrace-simgpu && build run --quiet -p gctrace-simgpu --example lay_out -- "$simulator" >/dev/null; then
        chmod a+rx "$simulator"
        export GCTRACE_SIMGPU=$simulator
    else
        note "the simulated GPU could not be built"
    fi
}

# As root gctrace loads no library that the builder could have replaced: the tests get a copy that
# only root can write.
trusted_library() {
    if [ "$(id -u "$builder")" = 0 ] || [ -n "${GCTRACE_INJECT_LIBRARY:-}" ]; then return 0; fi
    local built=${CARGO_TARGET_DIR:-$checkout/target}/debug/deps/libgctrace_inject.so
    trusted=$(as_root mktemp -d /usr/local/lib/gctrace-tests.XXXXXX)
    as_root chmod 755 "$trusted"
    as_root install -m 755 "$built" "$trusted/"
    export GCTRACE_INJECT_LIBRARY=$trusted/${built##*/}
}

only_root_writes() {
    local part=$1
    while [ "$(stat -c %u "$part")" = 0 ] && [ -z "$(find "$part" -maxdepth 0 -perm /022)" ]; do
        if [ "$part" = / ]; then return 0; fi
        part=$(dirname "$part")
    done
    return 1
}

# The same if root builds in a folder like /tmp.
trusted_target() {
    if [ "$(id -u "$builder")" != 0 ] || [ -n "${CARGO_TARGET_DIR:-}" ] || only_root_writes "$checkout"; then return 0; fi
    private_target=$(mktemp -d /var/lib/gctrace-tests.XXXXXX)
    chmod 755 "$private_target"
    export CARGO_TARGET_DIR=$private_target
}

# Runs the tests of a tier as root, one at a time: they share the kernel.
privileged() {
    local tier=$1 folder program programs
    integration_tests | grep -q "^${tier}_" || {
        note "$tier: skipped: there are no such tests"
        return 0
    }
    programs=$(test_programs "${tier}_*") || {
        fail "$tier (build)"
        return 0
    }
    trusted_library
    while IFS=$'\t' read -r folder program; do
        say "$tier: $(basename "$program")"
        (cd "$folder" && step "$tier" as_root env "GCTRACE_INTERPRETERS=$GCTRACE_INTERPRETERS" \
            "GCTRACE_TORCH_PYTHON=${GCTRACE_TORCH_PYTHON:-}" "GCTRACE_SIMGPU=${GCTRACE_SIMGPU:-}" "PYENV_ROOT=${PYENV_ROOT:-}" \
            "GCTRACE_SCHEDULERS=${GCTRACE_SCHEDULERS:-}" "GCTRACE_RAY_PYTHON=${GCTRACE_RAY_PYTHON:-}" \
            ${GCTRACE_INJECT_LIBRARY:+"GCTRACE_INJECT_LIBRARY=$GCTRACE_INJECT_LIBRARY"} "CARGO_MANIFEST_DIR=$folder" \
            ${GCTRACE_TEST_ONE_FILE:+"GCTRACE_TEST_ONE_FILE=$GCTRACE_TEST_ONE_FILE"} \
            "$program" --include-ignored --test-threads=1 --show-output </dev/null) || {
            fail "$tier ($(basename "$program"))"
            return 0
        }
    done <<<"$programs"
    note "$tier: passed"
}

kernel() {
    if ! can_be_root; then
        note "kernel: skipped: needs root (run with sudo)"
    elif [ ! -e /sys/kernel/btf/vmlinux ]; then
        note "kernel: skipped: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    else
        # Creating namespaces for one interpreter needs root.
        if [ "$(id -u "$builder")" != 0 ]; then as_root scripts/interpreters.sh "$checkout/.interpreters" >"$logs/interpreters"; fi
        simulated_gpu
        # These tests use one processor: the other one makes what the install tier needs. Not while
        # cargo builds the tests.
        if [[ " ${tiers[*]} " = *" install "* ]] && test_programs 'kernel_*' >/dev/null; then start_packages; fi
        privileged kernel
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
        step aarch64 build test -p gctrace-probes --test aarch64 --test aarch64_offsets -- --show-output ||
            fail "aarch64 (files)"
    else
        note "aarch64: scripts/interpreters.sh --aarch64 failed: no files are examined"
    fi
    # In a subshell: it ends the script if a package is unavailable.
    if [ "$(uname -sm)" != "Linux x86_64" ]; then
        note "aarch64: skipped: cross-building was only tried on x86-64"
    elif ! (need_packages "arm64 in an emulated machine" qemu-system-arm qemu-user-static) || ! command -v qemu-system-aarch64 >/dev/null; then
        note "aarch64: skipped: qemu-system-aarch64 is not installed"
    elif ! as_builder scripts/cross-rust.sh .cross-rust >/dev/null 2> >(tee "$logs/cross-rust" >&2); then
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

# torch_python TIER: sets GCTRACE_TORCH_PYTHON to a Python with PyTorch; the tier is skipped if
# there is none.
torch_python() {
    if [ -n "${GCTRACE_TORCH_PYTHON:-}" ]; then return 0; fi
    if ! GCTRACE_TORCH_PYTHON=$(as_builder scripts/torch-venv.sh "$checkout/.venv-torch" 2> >(tee "$logs/torch-venv" >&2)); then
        note "$1: skipped: $(tail -1 "$logs/torch-venv")"
        return 1
    fi
    export GCTRACE_TORCH_PYTHON
}

torch() {
    if ! can_be_root; then
        note "torch: skipped: needs root (run with sudo)"
        return 0
    fi
    torch_python torch || return 0
    # Slurm and Open MPI for the commands in the documents; Ray if the whole tier programs has run.
    if GCTRACE_SCHEDULERS=$(as_builder scripts/schedulers.sh "$checkout/.schedulers" 2> >(tee "$logs/schedulers" >&2)); then
        export GCTRACE_SCHEDULERS
    else
        note "torch: without schedulers: $(tail -1 "$logs/schedulers")"
    fi
    if [ -e "$checkout/.venv-programs/bin/ray" ]; then export GCTRACE_RAY_PYTHON=$checkout/.venv-programs/bin/python; fi
    if nvidia-smi >/dev/null 2>&1; then note "torch: on the GPU"; else note "torch: on the CPU: no NVIDIA driver here"; fi
    privileged torch
}

# The bundle for machines with a GPU, tested without one.
gpu_bundle() {
    local folder
    if ! can_be_root; then
        note "gpu-bundle: skipped: needs root (run with sudo)"
        return 0
    fi
    torch_python gpu-bundle || return 0
    simulated_gpu
    folder=$(as_builder mktemp -d)
    if PROFILE=dev as_builder scripts/gpu-bundle.sh "$folder" &&
        step gpu_bundle as_root tests/gpu_bundle.sh "$folder" "$GCTRACE_TORCH_PYTHON" "$GCTRACE_SIMGPU"; then
        note "gpu-bundle: ran to its end without a GPU"
    else
        fail gpu-bundle
    fi
    rm -rf "$folder"
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

# Starts to make the packages of the install tier, with the lowest priority: their folder and names,
# and the process that makes them.
packages=
package_parts=(wheel archive)
packaging=
start_packages() {
    need_packages releases "${release_packages[@]}"
    # In a subshell: it ends the script if a package is unavailable.
    if (need_packages "the install tier" buildah rpm runc) && PATH=$PATH:/usr/sbin type -P buildah rpm runc >/dev/null; then
        package_parts+=(deb rpm image)
    else
        note "install: deb, rpm and image skipped: buildah, rpm or runc is not installed"
    fi
    packages=$(as_builder mktemp -d)
    as_builder nice -n 19 scripts/release.sh --profile dev "$packages" "${package_parts[@]}" >"$logs/packages" 2>&1 &
    packaging=$!
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

# Packages as users get them.
install_tier() {
    if ! can_be_root; then
        note "install: skipped: needs root (run with sudo)"
        return 0
    fi
    if [ -z "$packaging" ]; then start_packages; fi
    if ! wait "$packaging"; then
        cat "$logs/packages"
        fail "install (packages)"
    elif step install env RELEASE_OUT="$packages" scripts/install-test.sh --quick "${package_parts[@]}"; then
        note "install: passed"
        as_builder tar -xf "$packages"/gctrace-"$(uname -m)"-*.tar.xz -C "$packages"
        GCTRACE_TEST_ONE_FILE=$(echo "$packages"/gctrace-*/gctrace) privileged kernel_one
    else
        fail install
    fi
}

# Real programs, each untraced and in every mode. FORM is short or whole.
programs() {
    local form=$1 options=() closing
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
    as_builder scripts/programs-venv.sh "$checkout/.venv-programs" "$form" >/dev/null 2> >(tee "$logs/programs-venv" >&2) ||
        note "programs: without their environment: $(tail -1 "$logs/programs-venv")"
    build build --quiet -p gctrace -p gctrace-inject || {
        fail "programs (build)"
        return 0
    }
    step programs as_root /usr/bin/python3 -u tests/programs/run.py "${options[@]}" </dev/null || fail "programs ($form)"
    closing=$(tail -1 "$logs/programs.log")
    note "programs ($form): $closing"
}

# All default tiers write 20 GB, with incremental compilation 25. Tests on a full disk fail for no
# reason of their own.
free_gb=$(($(df --output=avail -k "$checkout" | tail -1) >> 20))
if [ "$free_gb" -lt 25 ]; then
    note "disk: only $free_gb GB were free at the start; all tiers take up to 25 GB, target/ included"
    say "${summary[-1]}"
fi
need_packages building "${build_packages[@]}"
need_packages "the tests" binutils bubblewrap python3 python3-venv tmux util-linux
if can_be_root; then need_packages "the kernel tier" gdb strace sudo; fi
need_cargo
trusted_target
interpreters
for tier in "${tiers[@]}"; do
    case $tier in
    plain | kernel | kernels | aarch64 | chaos | torch | platforms | cluster) "$tier" ;;
    install) install_tier ;;
    programs) programs whole ;;
    programs-short) programs short ;;
    gpu-bundle) gpu_bundle ;;
    *) die "no tier '$tier': plain, kernel, kernels, aarch64, chaos, torch, install, gpu-bundle, platforms, cluster, programs-short, programs" ;;
    esac
done

echo
echo "== tests by tier"
printf '%s\n' "${summary[@]}"
if [ -n "$failed" ]; then
    # Once more, where a log that is cut still has it.
    awk '/^failures:$/ { on = 1 } on { print FILENAME ": " $0 } /^test result/ { on = 0 }' "$logs"/*.log | sed "s|^$logs/||"
    echo "disk: $(df -h --output=avail "$checkout" | tail -1) free"
fi
skipped=$(grep -hoE '\bskipped [a-z0-9_]+: .*' "$logs"/*.log 2>/dev/null | sort -u || true)
if [ -n "$skipped" ]; then
    echo "== tests skipped"
    echo "$skipped"
fi
if [ -f "$logs/interpreters" ]; then
    awk -F'\t' '$4 == "-" { print "interpreter unavailable: " $1 ": " $5 }' "$logs/interpreters"
fi
[ -z "$failed" ]
