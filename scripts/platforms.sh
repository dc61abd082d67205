#!/usr/bin/env bash
# What needs no kernel interface of Linux builds on other systems too: analyze, advice, compare,
# export, completions, man.
#
#   scripts/platforms.sh [PART...]      default: all parts
#
#   dependencies   no crate that records is built there; takes a second
#   windows        builds gctrace.exe, runs it under wine and compares its output with Linux's
#   macos          checks the code for Apple silicon; nothing here can run it
#
# Standard libraries are rustup's, where it has them (rustup target add TARGET), otherwise compiled
# from Debian's package (scripts/test/cross-rust.sh).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
. "$(dirname "$0")/setup.sh"

windows=x86_64-pc-windows-gnu
macos=aarch64-apple-darwin
# What records, and what it is made of.
only_linux='^(gctrace-(abi|cpython|ebpf|inject|probes|recorder|ring|simgpu)|libbpf-(rs|sys)|nix|perf-event2) '

# cross TARGET COMMAND ARG...: cargo for another system, in a folder of its own.
cross() {
    local target=$1 command=$2 options=()
    shift 2
    if [ ! -d "$(as_builder rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
        RUSTC=$(as_builder "$checkout/scripts/test/cross-rust.sh" "$checkout/.cross-rust" "$target") || die "no standard library for $target"
        export RUSTC RUSTC_BOOTSTRAP=1
        options=(-Z "build-std=std,panic_abort")
    fi
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$checkout/target}/platforms build "$command" --quiet --locked --target "$target" "${options[@]}" -p gctrace "$@"
}

dependencies() {
    local target found
    for target in "$windows" "$macos"; do
        found=$(build tree --locked --target "$target" --edges normal,build --prefix none -p gctrace | grep -E "$only_linux" || true)
        [ -z "$found" ] || die "dependencies for $target that only Linux has: $found"
    done
    say "dependencies: none of what records"
}

# same WHAT ARG...: both programs print the same, with the same exit code.
same() {
    local what=$1 code=0 expected=0
    shift
    "$here/gctrace" "$@" >"$place/expected" 2>/dev/null || expected=$?
    wine "$there" "$@" >"$place/printed" 2>"$place/errors" || code=$?
    [ "$code" = "$expected" ] || die "$what: exit code $code, on Linux $expected: $(cat "$place/errors")"
    cmp "$place/expected" "$place/printed" || die "$what: other output than on Linux"
    say "windows: $what: $(wc -c <"$place/printed") bytes, as on Linux"
}

run_windows() {
    local trace words code=0 stacks=analysis/event/tests/every-record.json
    for trace in analysis/event/tests/*.json analysis/tests/data/*/*.json.gz; do
        same "analyze $trace" analyze --full "$trace"
    done
    same "analyze as JSON" analyze --format json "$recorded"
    same "the first screen" analyze "$recorded"
    same "advice" advice "$recorded" 1
    same "compare" compare "$recorded" -- "$recorded"
    same "an unreadable trace" analyze "$place/none.json"
    same "completions" completions bash
    same "the manual page" man
    for words in svg speedscope collapsed; do
        same "export as $words" export --format "$words" "$stacks"
    done
    # An existing file is replaced.
    for words in "" --force; do
        wine "$there" export --format collapsed "$stacks" -o "$place/written" ${words:+"$words"} 2>/dev/null || die "windows: export -o $words failed"
    done
    cmp "$place/expected" "$place/written" || die "windows: the file is not what was printed"
    wine "$there" record -- python train.py 2>"$place/errors" || code=$?
    if [ "$code" != 1 ] || ! grep -q '^gctrace: record needs Linux' "$place/errors"; then
        die "windows: recording is not refused: $code, $(cat "$place/errors")"
    fi
    say "windows: recording is refused: $(head -1 "$place/errors")"
}

# Rust's standard library draws random numbers from this library, which wine has from version 9 on.
random_numbers() {
    printf '%s\n' '#include <windows.h>' '#include <ntsecapi.h>' \
        'BOOL WINAPI ProcessPrng(BYTE *data, SIZE_T bytes) { return RtlGenRandom(data, (ULONG)bytes); }' >"$place/random.c"
    x86_64-w64-mingw32-gcc -shared -o "${there%/*}/bcryptprimitives.dll" "$place/random.c" -ladvapi32
}

windows() {
    export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc
    need_packages "programs for Windows" gcc-mingw-w64-x86-64-win32 wine wine64
    (cross "$windows" build)
    build build --quiet --locked -p gctrace
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    export WINEPREFIX=$place/wine WINEDEBUG=-all
    here=${CARGO_TARGET_DIR:-$checkout/target}/debug
    there=${CARGO_TARGET_DIR:-$checkout/target}/platforms/$windows/debug/gctrace.exe
    recorded=$place/trace.json
    random_numbers
    cd "$checkout"
    "$here/gctrace" --quiet --mode inject -o "$recorded" -- python3 examples/train.py >/dev/null || die "no trace could be recorded"
    run_windows
}

macos() {
    # zstd is C, and nothing here compiles C for macOS; a check links nothing, so it does without.
    (
        export CC_aarch64_apple_darwin=true AR_aarch64_apple_darwin=true
        cross "$macos" check
    )
    say "macos: the Rust code is checked for $macos, not run"
}

parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=(dependencies windows macos); fi
need_cargo
for part in "${parts[@]}"; do
    case $part in
    dependencies | windows | macos) "$part" ;;
    *) die "no part '$part': dependencies, windows, macos" ;;
    esac
done
