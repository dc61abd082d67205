#!/usr/bin/env bash
# Runs the core of the kernel tier on Debian's stock kernels, in an emulated machine (qemu without
# KVM: no special rights, and the same everywhere).
#
#   scripts/kernels.sh [VERSION...]        default: 5.10 6.1 6.12 newest
#
# VERSION is a prefix of a kernel's version, or `newest`. Kernels are downloaded from the archive
# that this machine uses, of whichever Debian release has them, unpacked into .kernels/VERSION and
# never installed; remove that folder to download them again. The machine boots from an in-memory
# image with the tests, gctrace and two interpreters of the manifest (scripts/interpreters.sh).
#
# With GCTRACE_MACHINE=aarch64 everything is for that machine: cross-built tests, its kernels (a
# VERSION ending in -16k is a kernel with pages of 16 KiB) in .cross-kernels, its interpreters in
# .cross-interpreters, and a small Debian of that machine (scripts/test/cross-root.sh) around them. scripts/aarch64.sh calls it.
#
# The closing table has a line per check and a column per kernel. An unavailable kernel is a named
# skip. GCTRACE_KERNELS_CORE=short leaves out the checks that take longest.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

machine=${GCTRACE_MACHINE:-$(uname -m)}
case $machine in
aarch64)
    # shellcheck source-path=SCRIPTDIR source=test/cross.sh
    . "$checkout/scripts/test/cross.sh"
    folder=$checkout/.cross-kernels
    manifest=$checkout/.cross-interpreters/manifest.tsv
    debian_machine=arm64
    ;;
*)
    folder=$checkout/.kernels
    manifest=$checkout/.interpreters/manifest.tsv
    debian_machine=amd64
    ;;
esac
mkdir -p "$folder"
log=$folder/log.txt
: >"$log"
# shellcheck source-path=SCRIPTDIR source=test/debian.sh
. "$checkout/scripts/test/debian.sh"

# Limits in seconds: for one check, for all checks of one kernel.
check_limit=${GCTRACE_KERNELS_CHECK_LIMIT:-300}
limit=${GCTRACE_KERNELS_LIMIT:-1500}

# Debian releases with kernels from 5.10 to the newest.
main_suites=(bullseye bookworm bookworm-backports trixie trixie-backports forky sid)
security_suites=(bullseye-security bookworm-security trixie-security)

# The checks: tests of the kernel tier. Interpreters: one static and stripped, one shared, with symbols if there
# is one.
core=(
    load::the_verifier_accepts_every_program
    support::doctor_agrees_with_what_recording_does
    support::a_kernel_that_lacks_something_is_refused_in_one_sentence
    support::return_probes_pass_seccomp_filters
    truth::system_python
    truth::cpython_3_12
    truth::debian_3_13_shared
    follow::launchers_of_several_interpreters_are_complete
    control::attaching_records_and_detaches_cleanly
    control::attaching_ends_after_its_time_and_with_the_process
    control::killed_gctrace_leaves_the_program_running_and_a_readable_trace
    control::capabilities_on_the_binary_are_enough
    setcap::a_user_records_their_own_processes_only
    setcap::a_child_that_becomes_another_user_is_not_recorded
    start::the_guardian_resumes_stopped_programs
    alloc::no_probe_is_left_when_gctrace_is_killed_in_a_window
    alloc::a_kernel_without_multi_links_is_named
    garbage::kinds_on_any_kernel
    top::system_python
    inject::without_capabilities::system_python
    inject::beside_the_probes::system_python
)
if [ "${GCTRACE_KERNELS_CORE:-}" != short ]; then
    core+=(
        follow::a_storm_of_forks_is_complete
        follow::a_pause_cut_short_by_a_kill_is_unfinished
        control::killed_at_any_time_leaves_nothing_stopped
    )
fi
core+=(support::nothing_is_left_behind)
# Names in the manifest; tests of others are skipped by name.
interpreters=(system-3.11 pyenv-3.12 debian-3.13-shared)
if [ "$machine" = aarch64 ]; then
    # Every kind of interpreter that there is.
    core=()
    for name in debian_3_13 debian_3_13_shared debian_3_14 debian_3_14_shared debian_3_15 incremental_3_14 \
        manylinux_3_15 free_threaded_3_13 free_threaded_3_14 free_threaded_3_15; do
        core+=("truth::$name" "inject::without_capabilities::$name")
    done
    core=(
        load::the_verifier_accepts_every_program
        support::doctor_agrees_with_what_recording_does
        "${core[@]}"
        inject::beside_the_probes::debian_3_13
        inject::beside_the_probes::debian_3_13_shared
        follow::launchers_of_several_interpreters_are_complete
        control::attaching_records_and_detaches_cleanly
        control::killed_gctrace_leaves_the_program_running_and_a_readable_trace
        top::debian_3_14
        top::incremental_3_14
        top::free_threaded_3_14
        support::nothing_is_left_behind
    )
    interpreters=(debian-3.13 debian-3.13-shared debian-3.14 debian-3.14-shared debian-3.15 manylinux-3.14-incremental
        manylinux-3.15 manylinux-3.13t manylinux-3.14t manylinux-3.15t)
fi
if [ -n "${GCTRACE_KERNELS_CHECKS:-}" ]; then read -r -a core <<<"$GCTRACE_KERNELS_CHECKS"; fi
# Programs that the tests and the interpreters call.
commands=(sh bash env true touch sleep timeout cut grep head tail cat mkdir chmod chown mount umount uname setpriv setcap unshare
    stat dirname realpath setsid nice kill)

# ------------------------------------------------------------------ kernels

apt_lists() {
    local archive
    apt_options "$folder/apt"
    options+=(-o "APT::Architecture=$debian_machine" -o "APT::Architectures::=$debian_machine")
    if [ -n "$(find "$folder/apt/lists" -name '*_Packages*' -mmin -720 -print -quit)" ]; then return 0; fi
    archive=$(debian_archive debian || true)
    [ -n "$archive" ] || return 1
    debian_source "$archive" "${main_suites[@]}" >"$folder/apt/sources/main.sources"
    archive=$(debian_archive debian-security || true)
    if [ -n "$archive" ]; then
        debian_source "$archive" "${security_suites[@]}" >"$folder/apt/sources/security.sources"
    fi
    # A release that has left the archive fails alone.
    apt-get "${options[@]}" update >>"$log" 2>&1 || true
}

# The newest package with a kernel of this version prefix.
kernel_package() {
    local version=${1%-16k} prefix='[0-9]+\.' flavor=cloud-$debian_machine
    if [ "$version" != newest ]; then prefix=${version//./\\.}'\.'; fi
    if [ "$version" != "$1" ]; then flavor=$debian_machine-16k; fi
    # Up to 7.2 the image is in linux-image-*, later in linux-binary-*, which then has the same
    # name.
    apt-cache "${options[@]}" pkgnames linux- 2>>"$log" |
        sed -nE "s/^linux-(image|binary)-(${prefix}[0-9].*)-$flavor\$/\2 \1/p" | grep -v -- -rc | sort -k1,1V -k2,2r |
        awk -v flavor="$flavor" '{ if ($1 != version) kind = $2; version = $1; if ($2 == "binary") kind = $2 }
             END { if (version) print "linux-" kind "-" version "-" flavor }'
}

# fetch VERSION: puts the kernel at .kernels/VERSION/vmlinuz; prints the reason if it fails.
fetch() {
    local version=$1 package work=$folder/.$1.new found
    if [ -e "$folder/$version/vmlinuz" ]; then return 0; fi
    apt_lists || {
        echo "this machine has no Debian archive in its package sources"
        return 1
    }
    package=$(kernel_package "$version")
    [ -n "$package" ] || {
        echo "no available Debian release has such a kernel"
        return 1
    }
    rm -rf "$work"
    mkdir -p "$work/root"
    (cd "$work" && apt-get "${options[@]}" download "$package") >>"$log" 2>&1 || {
        echo "$package could not be downloaded (see $log)"
        return 1
    }
    dpkg-deb -x "$work"/*.deb "$work/root" 2>>"$log"
    found=$(find "$work/root" -name 'vmlinuz*' -type f -print -quit)
    [ -n "$found" ] || {
        echo "$package has no kernel image"
        return 1
    }
    mkdir -p "$folder/$version"
    mv "$found" "$folder/$version/vmlinuz"
    rm -rf "$work"
}

# -------------------------------------------------------------------- image

# The files of an interpreter that go into the image.
interpreter_files() {
    local path=$1
    case $path in
    */freeze_core/bin/python) printf '%s\n' "${path%/bin/python}" "$checkout/scripts/frozen_startup.py" ;;
    */.interpreters/* | */.cross-interpreters/*) echo "${path%%/usr/*}/usr" ;;
    *) "$path" -c 'import os, sys, sysconfig
print(sys.executable, os.path.realpath(sys.executable), sysconfig.get_path("stdlib"), sep="\n")
print(*{line.split()[-1] for line in open("/proc/self/maps") if "/libpython" in line}, sep="\n")' ;;
    esac
}

# make_image FILE: the tests, their dependencies, and the plan.
make_image() {
    local programs=$folder/programs plan=$folder/plan entry name line gctrace
    # The libraries that are loaded into programs; a test's build alone does not put them in place.
    build build --workspace --quiet
    test_programs kernel >"$programs"
    : >"$plan"
    for entry in "${core[@]}"; do
        # One of ebpf, the others of tracer.
        line=$(grep "$([ -e "$checkout/ebpf/tests/kernel/${entry%%:*}.rs" ] && echo /ebpf || echo /tracer)	" "$programs")
        printf '%s\t%s\n' "$line" "$entry" >>"$plan"
    done
    mkdir -p "$folder/stripped"
    : >"$folder/manifest.tsv"
    for name in "${interpreters[@]}"; do
        awk -F'\t' -v name="$name" '$1 == name && $4 != "-"' "$manifest" >>"$folder/manifest.tsv"
    done
    cat >"$folder/environment" <<ENVIRONMENT
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root TERM=dumb LC_ALL=C.UTF-8
export GCTRACE_INTERPRETERS=/kernels/manifest.tsv GCTRACE_TEST_PATIENCE=$check_limit GCTRACE_CHECK_LIMIT=$check_limit
ENVIRONMENT
    gctrace=${CARGO_TARGET_DIR:-$checkout/target}/${target:+$target/}debug
    {
        printf '%s\t%s\n' "$checkout/scripts/test/kernel-guest.sh" /init "$plan" /kernels/plan \
            "$folder/manifest.tsv" /kernels/manifest.tsv "$folder/environment" /kernels/environment
        if [ "$machine" = "$(uname -m)" ]; then
            for name in "${commands[@]}"; do PATH=$PATH:/usr/sbin:/sbin command -v "$name" | grep / || true; done
            printf '%s\n' /bin/sh /bin/bash /usr/bin/python3
        else
            printf '%s\t%s\n' "$checkout/.cross-root" /
        fi
        printf '%s\n' /etc/passwd /etc/group "$checkout/tests/python" "$checkout/tests/as_user.sh" \
            "$gctrace"/*.so "$gctrace"/deps/libgctrace_*.so
        # Nine tenths of what cargo builds is debug information.
        awk -F'\t' -v gctrace="$gctrace/gctrace" 'BEGIN { print gctrace } { print $2 }' "$plan" | sort -u | while read -r line; do
            "$objcopy" --strip-debug "$line" "$folder/stripped/${line##*/}"
            printf '%s\t%s\n' "$folder/stripped/${line##*/}" "$line"
        done
        awk -F'\t' '{ print $1 }' "$plan"
        while IFS=$'\t' read -r _ _ _ line _; do interpreter_files "$line"; done <"$folder/manifest.tsv"
    } >"$folder/list"
    # The packages' folders only, without their sources.
    grep -vxE "$checkout(/(tracer|ebpf|heap|probes))?" "$folder/list" | sort -u | python3 "$checkout/scripts/test/kernel_image.py" "$1"
}

# --------------------------------------------------------------------- boot

# boot VERSION: runs the checks; its console goes to .kernels/VERSION/console. Both CPUs are
# emulated by one thread: with two, a kernel that modifies its own code (probes, static calls)
# sometimes executed the old code and panicked.
boot() {
    local version=$1 console=$folder/$1/console code=0 check
    local emulated=(-cpu max -m 2048) append="console=ttyS0"
    if [ "$machine" = aarch64 ]; then
        # Signed return addresses by an algorithm that is fast to emulate.
        emulated=(-machine "virt,gic-version=3" -cpu "max,pauth-impdef=on" -m 4096) append="console=ttyAMA0"
    fi
    timeout -k 10 "$limit" "qemu-system-$machine" -accel tcg,thread=single "${emulated[@]}" -smp 2 \
        -nodefaults -no-user-config -display none -no-reboot -serial "file:$console" \
        -kernel "$folder/$version/vmlinuz" -initrd "$folder/image" \
        -append "$append quiet panic=-1 no_timer_check nowatchdog mitigations=off rdinit=/init" </dev/null >>"$log" 2>&1 || code=$?
    tr -d '\r' <"$console" >"$console.text"
    if grep 'unpacking failed' "$console.text"; then say "kernel $version: the image does not fit into the machine's memory"; fi
    sed -n 's/^@kernel\t//p' "$console.text" >"$folder/$version/release"
    # Debian's kernels from 5.15 on have everything that recording needs.
    sed -n 's/^@check\t\(kernel:\)\?//p' "$console.text" |
        if printf '5.15\n%s\n' "$(cat "$folder/$version/release")" | sort -CV; then
            sed 's/\tskipped\trecording needs root/\tFAILED\trecording needs root/'
        else
            cat
        fi >"$folder/$version/results"
    if ! grep -qx '@end' "$console.text"; then
        say "kernel $version did not reach the end (qemu ended with $code); its last lines:"
        tail -30 "$console.text" >&2
        printf 'the end\tFAILED\tsee %s\n' "$console.text" >>"$folder/$version/results"
    fi
    for check in "${core[@]}"; do
        if ! cut -f1 "$folder/$version/results" | grep -qxF "$check"; then
            printf '%s\tFAILED\tit has no result\n' "$check" >>"$folder/$version/results"
        fi
    done
}

# The table: a line per check, a column per kernel; below it, the reasons for skips and failures.
table() {
    local version check result
    printf '\n%-64s' check
    for version in "${booted[@]}"; do printf ' %-12s' "$(cut -d- -f1 "$folder/$version/release")"; done
    echo
    for check in "${core[@]}" "the end"; do
        printf '%-64s' "$check"
        for version in "${booted[@]}"; do
            result=$(awk -F'\t' -v check="$check" '$1 == check { print $2 }' "$folder/$version/results")
            printf ' %-12s' "${result:--}"
        done
        echo
    done
    for version in "${booted[@]}"; do
        awk -F'\t' -v kernel="$(cat "$folder/$version/release")" \
            '$2 != "ok" { printf "%s on %s: %s: %s\n", $2, kernel, $1, $3 }' "$folder/$version/results"
    done
}

versions=("$@")
if [ ${#versions[@]} = 0 ]; then versions=(5.10 6.1 6.12 newest); fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "skipped kernels: only Linux on x86-64 is supported"
    exit 0
fi
case $machine in
aarch64) need_packages "arm64 kernels in an emulated machine" binutils llvm qemu-system-arm qemu-user-static python3 ;;
*) need_packages "kernels in an emulated machine" binutils qemu-system-x86 python3 ;;
esac
objcopy=objcopy
if [ "$machine" = aarch64 ]; then objcopy=llvm-objcopy; fi
need_cargo
[ -e "$manifest" ] || GCTRACE_MACHINE=$machine as_builder "$checkout/scripts/interpreters.sh" "${manifest%/*}" >>"$log"
if [ "$machine" != "$(uname -m)" ]; then as_builder "$checkout/scripts/test/cross-root.sh" "$checkout/.cross-root" >>"$log"; fi
say "building the tests and the image"
make_image "$folder/image"
booted=()
for version in "${versions[@]}"; do
    if ! reason=$(fetch "$version"); then
        echo "skipped kernel_${version//./_}: $reason"
        continue
    fi
    booted+=("$version")
done
# As many machines at a time as there are CPUs: each emulates with one thread.
running=0
for version in "${booted[@]}"; do
    if [ "$running" = "$(nproc)" ]; then wait -n; else running=$((running + 1)); fi
    say "kernel $version: $(date +%T)"
    boot "$version" &
done
wait
[ ${#booted[@]} = 0 ] || table
say "$(date +%T): consoles are in $folder/VERSION/console.text"
failed=$(for version in "${booted[@]}"; do awk -F'\t' '$2 != "ok" && $2 != "skipped"' "$folder/$version/results"; done)
[ -z "$failed" ]
