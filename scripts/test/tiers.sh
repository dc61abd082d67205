# shellcheck shell=bash disable=SC2154  # variables of scripts/test.sh
# Sourced by scripts/test.sh: its ordinary tiers, and how tests are run. Further tiers are in more-tiers.sh.

# step LOG COMMAND...: runs the command, shows and keeps its output.
step() {
    local log=$logs/$1.log
    shift
    "$@" 2>&1 | tee -a "$log"
}

# quietly LOG COMMAND...: keeps its output, and shows it if it fails.
quietly() {
    local log=$logs/$1.log
    shift
    "$@" >"$log" 2>&1 || { cat "$log" && false; }
}

# judge TIER COMMAND...: what the closing lines say of the tier.
judge() {
    local tier=$1
    shift
    if "$@"; then note "$tier: passed"; else fail "$tier"; fi
}

# can_run TIER [btf]: whether there is root and, if named, BTF; if not, the tier is skipped.
can_run() {
    local lacks=
    if ! can_be_root; then
        lacks="needs root (run with sudo)"
    elif [ -n "${2:-}" ] && [ ! -e /sys/kernel/btf/vmlinux ]; then
        lacks="this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    fi
    [ -z "$lacks" ] || { note "$1: skipped: $lacks" && false; }
}

examples() { judge examples step examples build test --workspace --no-fail-fast --doc --quiet; }

lints() {
    local options=()
    if [ -z "$whole" ]; then options=(--quick); fi
    judge lints quietly lints scripts/test/lints.sh "${options[@]}"
}

# Interpreters and environments of Python packages. Who needs one calls its script again and is told what is
# missing.
downloads() {
    as_builder scripts/interpreters.sh "$checkout/.interpreters" || true
    if wants plain; then as_builder scripts/venv.sh metrics && as_builder scripts/venv.sh package && as_builder scripts/venv.sh "$tables" && as_builder scripts/promtool.sh "$checkout/.promtool"; fi || true
    if wants torch && can_be_root; then as_builder scripts/torch-venv.sh "$checkout/.venv-torch"; fi || true
} >"$logs/downloads" 2>&1

interpreters() {
    say "interpreters for the tests (first time: about 60 MB of Debian's and PyPI's packages)"
    as_builder scripts/interpreters.sh "$checkout/.interpreters" >"$logs/interpreters" ||
        note "interpreters: scripts/interpreters.sh failed; tests use what is installed"
    export GCTRACE_INTERPRETERS=$checkout/.interpreters/manifest.tsv
    if [ -z "$whole" ]; then
        GCTRACE_INTERPRETERS=$logs/few.tsv
        awk -F'\t' -v few="$few" 'index(" " few " ", " " $1 " ") || /^#/' "$checkout/.interpreters/manifest.tsv" >"$GCTRACE_INTERPRETERS"
        chmod a+rx "$logs" && chmod a+r "$GCTRACE_INTERPRETERS"
    fi
}

# made WITHOUT SCRIPT...: runs a script that makes something and prints where it is; if it cannot, the closing
# lines contain WITHOUT and the reason, the script's last line.
made() {
    local without=$1 errors
    shift
    errors=$(mktemp -p "$logs")
    as_builder "$@" 2> >(tee "$errors" >&2) || { note "$without: $(tail -1 "$errors")" && false; }
}

# compile: compiles the workspace once, all that the tiers run and all that a test loads.
compile() {
    build test --workspace --lib --bins --tests --examples --no-run
    if [ -n "$nextest" ]; then
        build nextest list --workspace --list-type binaries-only --message-format json 2>/dev/null >"$logs/binaries.json"
        build metadata --format-version 1 >"$logs/cargo.json"
    fi
}

# name_flaky TIER LOG: names the tests that failed and then passed, with what they printed when they failed.
name_flaky() {
    local names
    names=$(awk '/^ +TRY [0-9]+ PASS/ { print $NF }' "$2" | sort -u | paste -sd' ')
    if [ -z "$names" ]; then return 0; fi
    awk '/^ +(TRY [0-9]+ )?PASS/ { on = 0 } /^ +TRY [0-9]+ [^P]/ { on = 1 } on' "$2"
    note "$1: FLAKY, failed once and then passed: $names"
}

# run_tests TIER builder|root FILTER: the tests of a tier, FILTER in nextest's words. Failures and
# what tests print are in the log; the terminal gets a line per test, and the failures at the end.
run_tests() {
    local tier=$1 who=$2 filter=$3 log=$logs/$1.log folder program options=()
    if [ -n "$whole" ] || [ "$tier" = slow ]; then options+=(--ignore-default-filter); fi
    # Many of these wait rather than compute.
    options+=(--test-threads 3)
    if [ -n "$nextest" ]; then
        "as_$who" env "${test_environment[@]}" "$nextest" nextest run --cargo-metadata "$logs/cargo.json" \
            --binaries-metadata "$logs/binaries.json" "${options[@]}" --filterset "$filter" 2>&1 </dev/null |
            tee -a "$log" | grep --line-buffered -E '^ +(TRY|PASS|FAIL|ABORT|SIG|SLOW|TIMEOUT|LEAK|Summary)' &&
            { name_flaky "$tier" "$log" && return 0; }
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
    made "metrics: the page is not checked by a parser" scripts/venv.sh metrics >/dev/null || true
    made "package: not used in pytest, IPython and mypy" scripts/venv.sh package >/dev/null || true
    made "tables: not read by other programs" scripts/venv.sh "$tables" >/dev/null || true
    local promtool
    if promtool=$(made "metrics: rules and dashboards are not checked by promtool" scripts/promtool.sh "$checkout/.promtool"); then
        local -x PATH=$PATH:$promtool
    fi
    judge plain run_tests plain builder 'kind(lib) + kind(bin) + binary(plain)'
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
    trusted_library
    test_environment=("GCTRACE_INTERPRETERS=$GCTRACE_INTERPRETERS" "PROPTEST_CASES=$PROPTEST_CASES"
        "GCTRACE_TORCH_PYTHON=${GCTRACE_TORCH_PYTHON:-}" "GCTRACE_SIMGPU=${GCTRACE_SIMGPU:-}" "PYENV_ROOT=${PYENV_ROOT:-}"
        "GCTRACE_SCHEDULERS=${GCTRACE_SCHEDULERS:-}" "GCTRACE_RAY_PYTHON=${GCTRACE_RAY_PYTHON:-}"
        "GCTRACE_TEST_SUDO=${GCTRACE_TEST_SUDO:-}" ${GCTRACE_INJECT_LIBRARY:+"GCTRACE_INJECT_LIBRARY=$GCTRACE_INJECT_LIBRARY"}
        ${GCTRACE_TEST_ONE_FILE:+"GCTRACE_TEST_ONE_FILE=$GCTRACE_TEST_ONE_FILE"})
    judge "$1" run_tests "$1" root "${2:-binary($1)}"
    test_environment=()
}

kernel() {
    can_run kernel btf || return 0
    # Creating namespaces for one interpreter needs root.
    if [ -n "$whole" ] && [ "$(id -u "$builder")" != 0 ]; then as_root scripts/interpreters.sh "$checkout/.interpreters" >"$logs/interpreters"; fi
    privileged kernel
}

# torch_python TIER: sets GCTRACE_TORCH_PYTHON to a Python with PyTorch; the tier is skipped if
# there is none.
torch_python() {
    if [ -n "${GCTRACE_TORCH_PYTHON:-}" ]; then return 0; fi
    GCTRACE_TORCH_PYTHON=$(made "$1: skipped" scripts/torch-venv.sh "$checkout/.venv-torch") || return 1
    export GCTRACE_TORCH_PYTHON
}

torch() {
    can_run torch && torch_python torch || return 0
    if nvidia-smi >/dev/null 2>&1; then note "torch: on the GPU"; else note "torch: on the CPU: no NVIDIA driver here"; fi
    if [ -z "$whole" ]; then
        privileged torch
        return 0
    fi
    # Slurm and Open MPI for the commands in the documents; trainers; Ray.
    if GCTRACE_SCHEDULERS=$(made "torch: without schedulers" scripts/schedulers.sh "$checkout/.schedulers"); then
        export GCTRACE_SCHEDULERS
    fi
    made "torch: without trainers and trackers" scripts/venv.sh trainers >/dev/null || true
    if GCTRACE_RAY_PYTHON=$(made "torch: without Ray" scripts/venv.sh ray); then export GCTRACE_RAY_PYTHON; fi
    privileged torch
}

# What the install tier installs: its folder and names.
packages=
package_parts=(wheel)
choose_packages() {
    can_run install || return 1
    need_packages releases "${release_packages[@]}"
    packages=$(as_builder mktemp -d)
    if [ -z "$whole" ]; then return 0; fi
    # In a subshell: it ends the script if a package is unavailable.
    if (need_packages "the install tier" buildah rpm runc) && PATH=$PATH:/usr/sbin type -P buildah rpm runc >/dev/null; then
        package_parts+=(archive deb rpm image)
    else
        package_parts+=(archive)
        note "install: deb, rpm and image skipped: buildah, rpm or runc is not installed"
    fi
}

packages() {
    local options=(--profile dev)
    if [ -z "$whole" ]; then options+=(--here); fi
    judge packages quietly packages as_builder scripts/release.sh "${options[@]}" "$packages" "${package_parts[@]}"
}

# Packages as users get them. Without the checksums, written last, they could not be made.
install_tier() {
    if [ ! -e "$packages/SHA256SUMS" ]; then return 0; fi
    judge install step install env RELEASE_OUT="$packages" RELEASE_HERE="$([ -n "$whole" ] || echo yes)" \
        scripts/install-test.sh --quick "${package_parts[@]}"
    if [ -n "$whole" ]; then
        as_builder tar -xf "$packages"/gctrace-"$(uname -m)"-*.tar.xz -C "$packages"
        GCTRACE_TEST_ONE_FILE=$(echo "$packages"/gctrace-*/gctrace) privileged kernel 'binary(kernel) & test(/^one_file::/)'
    fi
}

# The bundle for machines with a GPU, tested without one.
gpu_bundle() {
    local folder
    can_run gpu-bundle && torch_python gpu-bundle || return 0
    simulated_gpu
    folder=$(as_builder mktemp -d)
    if RELEASE_HERE=$([ -n "$whole" ] || echo yes) PROFILE=dev as_builder scripts/gpu-bundle.sh "$folder"; then
        judge gpu-bundle step gpu_bundle as_root tests/gpu_bundle.sh "$folder" "$GCTRACE_TORCH_PYTHON" "$GCTRACE_SIMGPU" "${whole:-short}"
    else
        fail gpu-bundle
    fi
    rm -rf "$folder"
}
