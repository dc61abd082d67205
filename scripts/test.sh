#!/usr/bin/env bash
# Sets everything up and runs the tests, in tiers:
#
#   lints    formatting, clippy, rustdoc, licenses, shellcheck, names of files in prose
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
#
#   scripts/test.sh [TIER...]         lints, plain, kernel, torch, install and gpu-bundle, or these
#   scripts/test.sh all [TIER...]     whole: also chaos and programs-short, or these
#
# Without 'all', tests run on four interpreters instead of twenty and with fewer random cases, those
# of the tier slow are left out, the install tier installs a wheel of this machine's build, and of the
# bundle the short parts are tried: what fails in practice. 'all' leaves nothing of a tier out.
#
# What need not wait runs beside these: lints, examples and the making of packages beside plain and kernel, with
# the lowest priority; install and gpu-bundle beside torch. A tier that cannot run is skipped, with the reason; so
# is a single test, which prints a line 'skipped TEST: REASON'. The closing lines list both, and the time of each
# tier. Tests run in cargo-nextest where it is installed, else in cargo test.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"
# shellcheck source-path=SCRIPTDIR source=test/tiers.sh
. "$checkout/scripts/test/tiers.sh"
# shellcheck source-path=SCRIPTDIR source=test/more-tiers.sh
. "$checkout/scripts/test/more-tiers.sh"

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
# What one codegen unit may inline from another is compiled in both: gctrace-event takes 12.6 s of CPU time in one
# and 18.9 in 16, others a tenth less.
export CARGO_PROFILE_DEV_CODEGEN_UNITS=${CARGO_PROFILE_DEV_CODEGEN_UNITS:-1}
# Cases of each property test (proptest's variable).
export PROPTEST_CASES=${PROPTEST_CASES:-$([ -n "$whole" ] && echo 512 || echo 32)}
# In the folder: summary, a line per tier; timings; failed, if anything has; logs.
logs=$(mktemp -d)
touch "$logs"/{summary,timings,beside-cpu}
simulator=
trusted=
# Processes in the background, by the first of their tiers.
declare -A background=()
clean_up() {
    local job
    for job in "${background[@]}"; do
        pkill -P "$job" || true
        kill "$job" || true
    done 2>/dev/null
    rm -rf "$logs" ${simulator:+"$simulator"} ${packages:+"$packages"}
    if [ -n "$trusted" ]; then as_root rm -rf "$trusted"; fi
}
trap clean_up EXIT
# A build with symbols, the system's, a stripped shared one, and one without the GIL.
few="pyenv-3.8 system-3.11 debian-3.13-shared manylinux-3.14t"
# The environment whose engines read tables.
tables=$([ -n "$whole" ] && echo tables || echo tables-short)
test_environment=()

note() { echo "$1" >>"$logs/summary"; }
fail() {
    note "$1: FAILED"
    : >"$logs/failed"
}

# wants TIER: whether it runs.
wants() { [[ " ${tiers[*]} " = *" $1 "* ]]; }

# CPU time in s of the processes of this shell that have ended, without those in the background, which count for
# themselves.
beside_cpu=$logs/beside-cpu
cpu_s=0
count_cpu() {
    local times=$logs/times-$BASHPID
    times >"$times"
    cpu_s=$(awk 'FNR == NR && FNR == 2 { gsub(/[ms]/, " "); ended = 60 * $1 + $2 + 60 * $3 + $4 }
        FNR != NR { ended -= $1 } END { print int(ended) }' "$times" "$beside_cpu")
}

# timed TIER: runs it; its time goes to the closing lines.
timed() {
    local begin=$SECONDS before seconds
    count_cpu
    before=$cpu_s
    case $1 in
    install) install_tier ;;
    slow-* | programs-*) "${1%-*}" "${1#*-}" ;;
    *) "${1//-/_}" ;;
    esac
    count_cpu
    seconds=$((SECONDS - begin))
    printf '%-15s %3d min %02d s %5d s of CPU time\n' "$1" $((seconds / 60)) $((seconds % 60)) $((cpu_s - before)) >>"$logs/timings"
}

# beside PRIORITY TIER...: runs them in the background, one after the other.
beside() {
    local priority=$1
    shift
    (
        beside_cpu=/dev/null
        renice -n "$priority" -p "$BASHPID" >/dev/null
        for tier in "$@"; do timed "$tier"; done
        count_cpu
        echo "$cpu_s" >>"$logs/beside-cpu"
    ) </dev/null >"$logs/beside-$1" 2>&1 &
    background[$1]=$!
}

# joined [TIER]: waits for those in the background of which it is the first, if any, and shows what they print.
joined() {
    if [ -z "${1:-}" ] || [ -z "${background[$1]:-}" ]; then return 0; fi
    wait "${background[$1]}" || fail "$1"
    unset "background[$1]"
    cat "$logs/beside-$1"
}

known="lints plain kernel torch install gpu-bundle slow slow-plain slow-root chaos programs-short programs kernels aarch64 platforms"
for tier in "${tiers[@]}"; do
    [[ " $known " = *" $tier "* ]] || die "no tier '$tier': ${known// /, }"
done
# Tests on a full disk fail for no reason of their own. The tiers without 'all' write 8 GB at most,
# target/ and environments included.
free_mb() { df --output=avail -m "$checkout" | tail -1; }
free=$(free_mb)
needed=$([ -n "$whole" ] && echo 25 || echo 8)
if [ "$free" -lt $((needed << 10)) ]; then
    note "disk: only $free MB were free at the start; these tiers take up to $needed GB, target/ included"
    say "$(tail -1 "$logs/summary")"
fi

need_packages building "${build_packages[@]}"
need_packages "the tests" binutils bubblewrap graphviz python3 python3-venv shellcheck tmux util-linux
if can_be_root; then need_packages "the kernel tier" gdb strace sudo; fi
# Elsewhere it is no package of the system (Ubuntu: a snap): the tests of pages are skipped then.
if can_be_root && grep -qx ID=debian /etc/os-release; then need_packages "the tests of pages" chromium; fi
need_cargo
nextest=
if found=$(as_builder sh -c 'command -v cargo-nextest'); then
    nextest=$found
else
    note "cargo-nextest is not installed (cargo install --locked cargo-nextest): tests run one program after the other"
fi
if wants plain || wants kernel || wants torch || [[ " ${tiers[*]} " = *" slow"* ]] || { wants install && [ -n "$whole" ]; }; then
    beside 0 downloads
    timed compile
    joined downloads
fi
interpreters
if wants plain || wants kernel || [[ " ${tiers[*]} " = *" slow"* ]] || wants gpu-bundle; then simulated_gpu; fi

# One after the other, as cargo has one lock.
cheap=()
if wants plain; then cheap+=(examples); fi
if wants install && choose_packages; then cheap+=(packages); fi
if wants lints; then cheap+=(lints); fi
if [ ${#cheap[@]} != 0 ]; then beside 19 "${cheap[@]}"; fi
for tier in "${tiers[@]}"; do
    case $tier in
    lints) ;;
    install | gpu-bundle)
        joined "${cheap[0]:-}"
        if ! wants torch; then timed "$tier"; fi
        ;;
    torch)
        joined "${cheap[0]:-}"
        late=()
        if wants install; then late+=(install); fi
        if wants gpu-bundle; then late+=(gpu-bundle); fi
        if can_be_root; then trusted_library; fi # Both use it.
        if [ ${#late[@]} != 0 ]; then beside 0 "${late[@]}"; fi
        timed torch
        joined "${late[0]:-}"
        ;;
    *) timed "$tier" ;;
    esac
done
joined "${cheap[0]:-}"

echo
echo "== tests by tier"
cat "$logs/summary"
echo "== time and disk"
cat "$logs/timings"
printf '%-15s %3d min %02d s %5d s of CPU time, %d MB\n' total $((SECONDS / 60)) $((SECONDS % 60)) \
    "$(awk '{ sum += $(NF - 4) } END { print sum }' "$logs/timings")" $((free - $(free_mb)))
if [ -e "$logs/failed" ]; then
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
# Last, where a log of which only the end is kept still has it.
if [ -e "$logs/failed" ]; then grep ': FAILED$' "$logs/summary" && false; fi
