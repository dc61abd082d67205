#!/usr/bin/env bash
# Sets everything up and runs the tests, in tiers:
#
#   lints    formatting, clippy, rustdoc, licenses, shellcheck, names of files in prose: beside the others
#   plain    unit tests, tests/plain of each crate, examples in documentation: no privileges
#   kernel   tests/kernel: BPF programs in the running kernel, real interpreters: root
#   torch    tests/torch: PyTorch in a virtual environment, on the GPU if there is one: root
#   install  packages as users get them: root
#   gpu-bundle
#            scripts/gpu-bundle.sh, tried without a GPU: root
#   slow     what plain, kernel and torch leave out without 'all' (.config/nextest.toml), or slow-plain
#            and slow-root, its two parts: root
#   chaos    gctrace and programs killed, stopped and starved at random times (scripts/chaos.sh): root
#   programs-short, programs
#            real programs run untraced and traced (tests/programs), a few or all: root
#   kernels  the core of the kernel tier on stock kernels, emulated (scripts/kernels.sh), 5 minutes each
#   aarch64  cross-built for arm64 and run under qemu (scripts/aarch64.sh)
#   platforms
#            what needs no Linux, on other systems (scripts/platforms.sh): root
#   cluster  gctrace-cluster, a workspace of its own: lints, queries, scheduler and executors of which
#            some are killed, S3 on loopback: 3 GB of disk, 10 minutes of CPU time for its dependencies
#
#   scripts/test.sh [TIER...]         lints, plain, kernel, torch, install and gpu-bundle, or these
#   scripts/test.sh all [TIER...]     whole: also chaos and programs-short, or these
#
# Without 'all', tests run on four interpreters instead of twenty and with fewer random cases, those
# of the tier slow are left out, the install tier installs a wheel of this machine's build, and of the
# bundle the short parts are tried: what fails in practice. 'all' leaves nothing of a tier out.
#
# A tier that cannot run is skipped, with the reason; so is a single test, which prints a line
# 'skipped TEST: REASON'. The closing lines list both, and time and disk of each tier. Tests run in
# cargo-nextest where it is installed, else in cargo test.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

cd "$checkout"
whole=
tiers=(lints plain kernel torch install gpu-bundle)
if [ "${1:-}" = all ]; then
    whole=yes
    tiers=(lints plain kernel chaos torch programs-short install gpu-bundle)
    shift
fi
if [ $# -gt 0 ]; then tiers=("$@"); fi
# Every program is compiled once: incremental data would only take space.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
# Cases of each property test (proptest's variable).
export PROPTEST_CASES=${PROPTEST_CASES:-$([ -n "$whole" ] && echo 512 || echo 32)}
logs=$(mktemp -d)
simulator=
trusted=
clean_up() {
    local job
    for job in $packaging $linting $downloading; do kill "$job" 2>/dev/null || true; done
    rm -rf "$logs" ${simulator:+"$simulator"} ${packages:+"$packages"}
    if [ -n "$trusted" ]; then as_root rm -rf "$trusted"; fi
}
trap clean_up EXIT
summary=()
failed=
# A build with symbols, the system's, a stripped shared one, and one without the GIL.
few="pyenv-3.8 system-3.11 debian-3.13-shared manylinux-3.14t"
test_environment=()

note() { summary+=("$1"); }
fail() {
    note "$1: FAILED"
    failed=yes
}

# wants TIER: whether it runs.
wants() { [[ " ${tiers[*]} " = *" $1 "* ]]; }

# step LOG COMMAND...: runs the command, shows and keeps its output.
step() {
    local log=$logs/$1.log
    shift
    "$@" 2>&1 | tee -a "$log"
}

# Beside the tests, with the lowest priority.
linting=
start_lints() {
    local options=()
    if [ -z "$whole" ]; then options=(--quick); fi
    nice -n 19 scripts/test/lints.sh "${options[@]}" >"$logs/lints.log" 2>&1 &
    linting=$!
}

lints() {
    if [ -z "$linting" ]; then start_lints; fi
    if wait "$linting"; then
        note "lints: passed"
    else
        cat "$logs/lints.log"
        fail lints
    fi
}

# Interpreters and environments of Python packages, beside the compilation; who needs one calls its
# script again and is told what is missing.
downloading=
start_downloads() {
    {
        as_builder scripts/interpreters.sh "$checkout/.interpreters"
        if wants plain; then as_builder scripts/venv.sh metrics && as_builder scripts/venv.sh tables; fi
        if wants torch && can_be_root; then as_builder scripts/torch-venv.sh "$checkout/.venv-torch"; fi
    } >"$logs/downloads" 2>&1 &
    downloading=$!
}

interpreters() {
    say "interpreters for the tests (first time: about 60 MB of Debian's and PyPI's packages)"
    if [ -n "$downloading" ]; then wait "$downloading" || true; fi
    as_builder scripts/interpreters.sh "$checkout/.interpreters" >"$logs/interpreters" ||
        note "interpreters: scripts/interpreters.sh failed; tests use what is installed"
    export GCTRACE_INTERPRETERS=$checkout/.interpreters/manifest.tsv
    if [ -z "$whole" ]; then
        GCTRACE_INTERPRETERS=$logs/few.tsv
        awk -F'\t' -v few="$few" 'index(" " few " ", " " $1 " ") || /^#/' "$checkout/.interpreters/manifest.tsv" >"$GCTRACE_INTERPRETERS"
        chmod a+rx "$logs" && chmod a+r "$GCTRACE_INTERPRETERS"
    fi
}

# venv NAME WITHOUT: makes an environment of scripts/venv.sh; without it, the closing lines contain
# WITHOUT and the reason.
venv() {
    as_builder scripts/venv.sh "$1" >/dev/null 2> >(tee "$logs/venv-$1" >&2) ||
        note "$2: $(tail -1 "$logs/venv-$1")"
}

# compile: compiles the workspace once, all that the tiers run and all that a test loads.
compile() {
    build test --workspace --lib --bins --tests --examples --no-run --quiet
    if [ -n "$nextest" ]; then
        build nextest list --workspace --list-type binaries-only --message-format json 2>/dev/null >"$logs/binaries.json"
        build metadata --format-version 1 >"$logs/cargo.json"
    fi
}

# run_tests TIER builder|root FILTER: the tests of a tier, FILTER in nextest's words. Failures and
# what tests print are in the log; the terminal gets a line per test, and the failures at the end.
run_tests() {
    local tier=$1 who=$2 filter=$3 log=$logs/$1.log folder program options=()
    if [ -n "$whole" ] || [ "$tier" = slow ]; then options+=(--ignore-default-filter); fi
    # Many of these wait rather than compute.
    if [ "$who" = builder ]; then options+=(--test-threads 3); fi
    if [ -n "$nextest" ]; then
        "as_$who" env "${test_environment[@]}" "$nextest" nextest run --cargo-metadata "$logs/cargo.json" \
            --binaries-metadata "$logs/binaries.json" "${options[@]}" --filterset "$filter" 2>&1 </dev/null |
            tee -a "$log" | grep --line-buffered -E '^ +(PASS|FAIL|ABORT|SIG|SLOW|TIMEOUT|LEAK|Summary)' && return 0
        awk '/^ +Summary/ { on = 1 } on' "$log"
        return 1
    elif [ "$who" = builder ]; then
        step "$tier" build test --workspace --no-fail-fast --lib --bins --test plain -- --show-output
    else
        while IFS=$'\t' read -r folder program; do
            (cd "$folder" && step "$tier" as_root env "${test_environment[@]}" "CARGO_MANIFEST_DIR=$folder" \
                "$program" --test-threads=1 --show-output </dev/null) || return 1
        done < <(test_programs "$tier")
    fi
}

plain() {
    venv metrics "metrics: the page is not checked by a parser"
    venv tables "tables: not read by DuckDB, polars, pandas and DataFusion"
    if run_tests plain builder 'kind(lib) + kind(bin) + binary(plain)' &&
        step plain build test --workspace --no-fail-fast --doc --quiet; then
        note "plain: passed"
    else
        fail plain
    fi
}

# The simulated GPU's libraries, for tests that need a GPU of known behavior.
simulated_gpu() {
    if [ -n "${GCTRACE_SIMGPU:-}" ] || [ ! -d tests/simgpu ]; then return 0; fi
    simulator=$(as_builder mktemp -d)
    # With the features of the workspace: nothing is compiled again.
    if build build --quiet --workspace --lib --example lay_out &&
        as_builder "${CARGO_TARGET_DIR:-$checkout/target}/debug/examples/lay_out" "$simulator" >/dev/null; then
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

# privileged TIER [FILTER]: runs the tests of a tier as root.
privileged() {
    local tier=$1
    trusted_library
    test_environment=("GCTRACE_INTERPRETERS=$GCTRACE_INTERPRETERS" "PROPTEST_CASES=$PROPTEST_CASES"
        "GCTRACE_TORCH_PYTHON=${GCTRACE_TORCH_PYTHON:-}" "GCTRACE_SIMGPU=${GCTRACE_SIMGPU:-}" "PYENV_ROOT=${PYENV_ROOT:-}"
        "GCTRACE_SCHEDULERS=${GCTRACE_SCHEDULERS:-}" "GCTRACE_RAY_PYTHON=${GCTRACE_RAY_PYTHON:-}"
        "GCTRACE_TEST_SUDO=${GCTRACE_TEST_SUDO:-}" ${GCTRACE_INJECT_LIBRARY:+"GCTRACE_INJECT_LIBRARY=$GCTRACE_INJECT_LIBRARY"}
        ${GCTRACE_TEST_ONE_FILE:+"GCTRACE_TEST_ONE_FILE=$GCTRACE_TEST_ONE_FILE"})
    if run_tests "$tier" root "${2:-binary($tier)}"; then
        note "$tier: passed"
    else
        fail "$tier"
    fi
    test_environment=()
}

kernel() {
    if ! can_be_root; then
        note "kernel: skipped: needs root (run with sudo)"
    elif [ ! -e /sys/kernel/btf/vmlinux ]; then
        note "kernel: skipped: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    else
        # Creating namespaces for one interpreter needs root.
        if [ -n "$whole" ] && [ "$(id -u "$builder")" != 0 ]; then as_root scripts/interpreters.sh "$checkout/.interpreters" >"$logs/interpreters"; fi
        # These tests use one processor: the other one checks the code and makes packages, unless
        # they are of this very build, with another gctrace in its folder.
        if wants lints; then start_lints; fi
        if [ -n "$whole" ] && wants install; then start_packages; fi
        privileged kernel
    fi
}

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
    if nvidia-smi >/dev/null 2>&1; then note "torch: on the GPU"; else note "torch: on the CPU: no NVIDIA driver here"; fi
    if [ -z "$whole" ]; then
        privileged torch
        return 0
    fi
    # Slurm and Open MPI for the commands in the documents; Ray if the whole tier programs has run.
    if GCTRACE_SCHEDULERS=$(as_builder scripts/schedulers.sh "$checkout/.schedulers" 2> >(tee "$logs/schedulers" >&2)); then
        export GCTRACE_SCHEDULERS
    else
        note "torch: without schedulers: $(tail -1 "$logs/schedulers")"
    fi
    if [ -e "$checkout/.venv-programs/bin/ray" ]; then export GCTRACE_RAY_PYTHON=$checkout/.venv-programs/bin/python; fi
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
    if RELEASE_HERE=$([ -n "$whole" ] || echo yes) PROFILE=dev as_builder scripts/gpu-bundle.sh "$folder" &&
        step gpu_bundle as_root tests/gpu_bundle.sh "$folder" "$GCTRACE_TORCH_PYTHON" "$GCTRACE_SIMGPU" "${whole:-short}"; then
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
package_parts=(wheel)
packaging=
start_packages() {
    local options=(--profile dev)
    need_packages releases "${release_packages[@]}"
    if [ -z "$whole" ]; then
        options+=(--here)
    # In a subshell: it ends the script if a package is unavailable.
    elif (need_packages "the install tier" buildah rpm runc) && PATH=$PATH:/usr/sbin type -P buildah rpm runc >/dev/null; then
        package_parts+=(archive deb rpm image)
    else
        package_parts+=(archive)
        note "install: deb, rpm and image skipped: buildah, rpm or runc is not installed"
    fi
    packages=$(as_builder mktemp -d)
    as_builder nice -n 19 scripts/release.sh "${options[@]}" "$packages" "${package_parts[@]}" >"$logs/packages" 2>&1 &
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
        if [ -n "$whole" ]; then
            as_builder tar -xf "$packages"/gctrace-"$(uname -m)"-*.tar.xz -C "$packages"
            GCTRACE_TEST_ONE_FILE=$(echo "$packages"/gctrace-*/gctrace) privileged kernel 'binary(kernel) & test(/^one_file::/)'
        fi
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

# Tests on a full disk fail for no reason of their own. The tiers without 'all' write 8 GB at most,
# target/ and environments included.
free_mb() { df --output=avail -m "$checkout" | tail -1; }
needed=$([ -n "$whole" ] && echo 25 || echo 8)
if [ "$(free_mb)" -lt $((needed << 10)) ]; then
    note "disk: only $(free_mb) MB were free at the start; these tiers take up to $needed GB, target/ included"
    say "${summary[-1]}"
fi

# CPU time in s of the processes that have ended, from what `times` printed: a job in the background counts
# where it is waited for.
ended_cpu_s() { awk 'NR == 2 { gsub(/[ms]/, " "); print int(60 * $1 + $2 + 60 * $3 + $4) }' "$logs/times"; }

# timed NAME COMMAND...: its time and what it wrote go to the closing lines.
timings=()
timed() {
    local name=$1 begin=$SECONDS free cpu
    free=$(free_mb)
    times >"$logs/times"
    cpu=$(ended_cpu_s)
    shift
    "$@"
    times >"$logs/times"
    timings+=("$(printf '%-15s %3d min %02d s %5d s of CPU time %6d MB' "$name" $(((SECONDS - begin) / 60)) $(((SECONDS - begin) % 60)) $(($(ended_cpu_s) - cpu)) $((free - $(free_mb))))")
}

need_packages building "${build_packages[@]}"
need_packages "the tests" binutils bubblewrap python3 python3-venv tmux util-linux
if can_be_root; then need_packages "the kernel tier" gdb strace sudo; fi
need_cargo
nextest=
if found=$(as_builder sh -c 'command -v cargo-nextest'); then
    nextest=$found
else
    note "cargo-nextest is not installed (cargo install --locked cargo-nextest): tests run one program after the other"
fi
if wants plain || wants kernel || wants torch || [[ " ${tiers[*]} " = *" slow"* ]]; then
    start_downloads
    timed compilation compile
fi
timed downloads interpreters
if wants plain || wants kernel || [[ " ${tiers[*]} " = *" slow"* ]] || wants gpu-bundle; then simulated_gpu; fi
for tier in "${tiers[@]}"; do
    case $tier in
    # Beside the kernel tier; last.
    lints) if ! wants kernel; then timed lints lints; fi ;;
    slow-plain | slow-root) timed "$tier" slow "${tier#slow-}" ;;
    plain | kernel | slow | kernels | aarch64 | chaos | torch | platforms | cluster) timed "$tier" "$tier" ;;
    install) timed install install_tier ;;
    programs) timed programs programs whole ;;
    programs-short) timed programs-short programs short ;;
    gpu-bundle) timed gpu-bundle gpu_bundle ;;
    *) die "no tier '$tier': lints, plain, kernel, torch, install, gpu-bundle, slow, slow-plain, slow-root, chaos, programs-short, programs, kernels, aarch64, platforms, cluster" ;;
    esac
done
if wants lints && wants kernel; then timed "lints, the rest" lints; fi

echo
echo "== tests by tier"
printf '%s\n' "${summary[@]}"
echo "== time and disk"
printf '%s\n' "${timings[@]}" "$(printf '%-15s %3d min %02d s' total $((SECONDS / 60)) $((SECONDS % 60)))"
if [ -n "$failed" ]; then
    # Once more, where a log that is cut still has it.
    awk 'FNR == 1 { on = 0 } /^failures:$/ || /^ +Summary.* failed/ { on = 1 } on { print FILENAME ": " $0 } /^test result/ { on = 0 }' "$logs"/*.log | sed "s|^$logs/||"
    echo "disk: $(df -h --output=avail "$checkout" | tail -1) free"
fi
# Tests of interpreters that are left to 'all' are one line.
skipped=$(grep -hoE '\bskipped [a-z0-9_]+: .*' "$logs"/*.log 2>/dev/null | sort -u | grep -v "$logs/few.tsv" || true)
if [ -n "$skipped" ]; then
    echo "== tests skipped"
    echo "$skipped"
fi
if [ -z "$whole" ]; then echo "interpreters: $few; left out: the tier slow; 'scripts/test.sh all' has all of them"; fi
if [ -f "$logs/interpreters" ]; then
    awk -F'\t' '$4 == "-" { print "interpreter unavailable: " $1 ": " $5 }' "$logs/interpreters"
fi
[ -z "$failed" ]
