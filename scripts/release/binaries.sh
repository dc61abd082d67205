#!/usr/bin/env bash
# Makes what every package contains, in RELEASE_STAGE (environment.sh):
#
#   bin/gctrace                                     stripped
#   lib/gctrace/libgctrace_{inject,simgpu}.so       stripped; the program contains them too
#   share/{man,bash-completion,zsh,fish,doc}
#   debug/*.debug                                   names and line tables, for backtraces and
#                                                   debuggers
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"

libraries=(libgctrace_inject.so libgctrace_simgpu.so)
objcopy=objcopy
if [ "$RELEASE_ARCH" != "$(uname -m)" ]; then
    objcopy=$RELEASE_ARCH-linux-gnu-objcopy
    need_packages "binaries of $RELEASE_ARCH" "binutils-$RELEASE_ARCH-linux-gnu" qemu-user-static
    "$checkout/scripts/test/cross-root.sh" "$checkout/.cross-root" >&2
fi

# stripped FROM TO: the file without names and line tables, which go to debug/. One that would be
# the same keeps its time, or cargo would compile again what embeds it.
stripped() {
    local debug
    debug=$RELEASE_STAGE/debug/$(basename "$2").debug
    "$objcopy" --only-keep-debug --compress-debug-sections=zlib "$1" "$debug"
    "$objcopy" --strip-all --remove-section=.comment --add-gnu-debuglink="$debug" "$1" "$2.new"
    chmod 644 "$debug"
    chmod 755 "$2.new"
    loads "$2.new"
    if cmp --quiet "$2.new" "$2"; then rm "$2.new"; else mv "$2.new" "$2"; fi
}

# loads FILE: ends the script if the oldest glibc lacks a function that the file needs. The linker
# does not see that in a library: there, a function that no glibc it knows of has is left to the loader.
loads() {
    local missing
    missing=$(readelf -W --dyn-syms "$1" | awk '$5 == "GLOBAL" && $7 == "UND" && $8 !~ /@/ { print $8 }')
    [ -z "$missing" ] || [ -n "${RELEASE_HERE:-}" ] || die "$(basename "$1") needs functions that glibc $release_glibc does not have: $missing"
}

# The program writes its own documentation.
documenting() {
    if [ "$RELEASE_ARCH" = "$(uname -m)" ]; then
        "$RELEASE_STAGE/bin/gctrace" "$@"
    else
        "qemu-$RELEASE_ARCH-static" -L "$checkout/.cross-root" "$RELEASE_STAGE/bin/gctrace" "$@"
    fi
}

documentation() {
    local share=$RELEASE_STAGE/share
    mkdir -p "$share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d,doc/gctrace}
    documenting man "$share/man/man1"
    documenting completions bash >"$share/bash-completion/completions/gctrace"
    documenting completions zsh >"$share/zsh/site-functions/_gctrace"
    documenting completions fish >"$share/fish/vendor_completions.d/gctrace.fish"
    cp "$checkout"/{LICENSE-APACHE,LICENSE-MIT,README.md} "$share/doc/gctrace/"
    (cd "$checkout" && "$cargo" metadata --locked --format-version 1 --filter-platform "$release_target" \
        --features gctrace/vendored) | "$checkout/scripts/release/third_party.py" >"$share/doc/gctrace/THIRD-PARTY"
}

rm -rf "${RELEASE_STAGE:?}"/{bin,share,debug}
mkdir -p "$RELEASE_STAGE"/{bin,lib/gctrace,debug}
release_build "${release_libraries[@]}"
for library in "${libraries[@]}"; do
    stripped "$release_built/$library" "$RELEASE_STAGE/lib/gctrace/$library"
done
# tracer/recorder/build.rs embeds the two libraries.
export GCTRACE_BUNDLE=$RELEASE_STAGE/lib/gctrace
release_build "${release_program[@]}"
stripped "$release_built/gctrace" "$RELEASE_STAGE/bin/gctrace"
documentation
say "binaries: $RELEASE_STAGE"
