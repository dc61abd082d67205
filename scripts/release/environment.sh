#!/usr/bin/env bash
# Sourced by scripts/release.sh and the scripts here: what they share, and how cargo is called.
#
# From the environment:
#   RELEASE_ARCH     x86_64 or aarch64                       (default: this machine's)
#   RELEASE_PROFILE  dist or dev                             (default: dist)
#   RELEASE_HERE     yes: with this machine's libraries, for tests
#   RELEASE_OUT      folder of the artifacts                 (default: dist)
#   RELEASE_STAGE    folder of what binaries.sh makes        (default: in the target folder)
# And as usual: RUSTC, CARGO_TARGET_DIR, SOURCE_DATE_EPOCH (default: time of the commit).
#
# Two builds of a commit give the same bytes, wherever the checkout and the toolchain lie: compilers
# write paths without them, and archives have the time of the commit.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

RELEASE_ARCH=${RELEASE_ARCH:-$(uname -m)}
RELEASE_PROFILE=${RELEASE_PROFILE:-dist}
RELEASE_OUT=$(realpath -m "${RELEASE_OUT:-$checkout/dist}")
case $RELEASE_ARCH in
x86_64 | aarch64) ;;
*) die "no architecture '$RELEASE_ARCH': x86_64, aarch64" ;;
esac
case $RELEASE_PROFILE in
dist | dev) ;;
*) die "no profile '$RELEASE_PROFILE': dist, dev" ;;
esac
mkdir -p "$RELEASE_OUT"

# The oldest glibc that the artifacts run with.
release_glibc=2.17
release_target=$RELEASE_ARCH-unknown-linux-gnu
# shellcheck disable=SC2034  # for the sourcing scripts
release_version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$checkout/Cargo.toml")
release_target_folder=${CARGO_TARGET_DIR:-$checkout/target}
release_built=$release_target_folder/$release_target/${RELEASE_PROFILE/#dev/debug}
# Options of cargo. With --here they are those of the tests' build, and an example selects the features of
# dependencies for tests: nothing but the program is compiled again. It has a folder of its own, so that tests
# which run meanwhile do not find another gctrace in theirs. Both times the same packages: others would select
# other features of dependencies, and compile them twice.
release_crates=(-p gctrace -p gctrace-inject -p gctrace-simgpu --features gctrace/vendored)
# shellcheck disable=SC2034  # for the sourcing scripts
release_program=("${release_crates[@]}" --bin gctrace)
# shellcheck disable=SC2034  # for the sourcing scripts
release_libraries=("${release_crates[@]}" --lib)
# shellcheck disable=SC2034  # for the sourcing scripts
if [ -n "${RELEASE_HERE:-}" ]; then
    release_built=$release_target_folder/here/${RELEASE_PROFILE/#dev/debug}
    release_program=(--workspace --bin gctrace --example lay_out)
    release_libraries=(--workspace --lib --example lay_out)
fi
# The same for every OUT: tracer/recorder/build.rs depends on its path.
RELEASE_STAGE=$(realpath -m "${RELEASE_STAGE:-$release_built/stage}")
export RELEASE_ARCH RELEASE_PROFILE RELEASE_OUT RELEASE_STAGE
# A commit's time in UTC; without git, the first that a zip archive can hold.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$checkout" log -1 --format=%ct 2>/dev/null || echo 315532800)}
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022

# Prints 'FOLDER=NAME' for each folder whose path must not show.
release_paths() {
    local home=${CARGO_HOME:-$HOME/.cargo} folder
    # Later ones win, and a target folder may lie in the checkout.
    printf '%s=%s\n' "$checkout" gctrace "$release_target_folder" target
    for folder in "$home"/registry/src/*/ "$home"/git/checkouts/; do
        if [ -d "$folder" ]; then printf '%s=%s\n' "${folder%/}" crates; fi
    done
}

# Sets the array `release_cargo`: options that every call of cargo gets.
release_options() {
    local mapping flags=() c_flags=
    release_cargo=(--locked --profile "$RELEASE_PROFILE")
    if [ -n "${RELEASE_HERE:-}" ]; then return 0; fi
    # The folders of crates must exist to be found.
    build fetch --quiet --locked --target "$release_target"
    while IFS= read -r mapping; do
        flags+=("'--remap-path-prefix=$mapping'")
        c_flags+=" -ffile-prefix-map=$mapping"
    done < <(release_paths)
    release_cargo+=(--config "build.rustflags=[$(IFS=,; echo "${flags[*]}")]")
    # libelf, zlib and libbpf.
    export "CFLAGS_${release_target//-/_}=${c_flags# }"
}

# release_build ARG...: cargo build with zig as linker and C compiler: the program of release-venv.sh,
# not the one that cargo-zigbuild finds by Python. What zig compiles of libunwind and glibc is in its
# cache, which may come from another folder unless it is the build's own.
release_build() {
    if [ -n "${RELEASE_HERE:-}" ]; then
        # With the time of the commit, libraries in C would be compiled again, and all that depends on them.
        (
            unset SOURCE_DATE_EPOCH
            CARGO_TARGET_DIR=$release_target_folder/here CARGO_BUILD_BUILD_DIR=$release_target_folder \
                build build "${release_cargo[@]}" "$@"
        )
        return
    fi
    PATH=$release_tools:$PATH CARGO_ZIGBUILD_PYTHON_PATH=/bin/false ZIG_GLOBAL_CACHE_DIR=$release_target_folder/zig \
        build zigbuild --target "$release_target.$release_glibc" "${release_cargo[@]}" "$@"
}

need_packages releases "${release_packages[@]}"
need_cargo
[ -z "${RELEASE_HERE:-}" ] || [ "$RELEASE_ARCH" = "$(uname -m)" ] || die "--here is for this machine's architecture"
[ "$builder" = "$(id -un)" ] || die "run it as $builder, without sudo"
release_tools=$("$checkout/scripts/release/release-venv.sh" ${RELEASE_HERE:+--here}) || die "the tools could not be installed"
if [ "$RELEASE_ARCH" != "$(uname -m)" ] && [ -z "${RUSTC:-}" ]; then
    RUSTC=$("$checkout/scripts/test/cross-rust.sh" "$checkout/.cross-rust" "$release_target") ||
        die "there is no Rust compiler for $RELEASE_ARCH"
    export RUSTC
fi
release_options
