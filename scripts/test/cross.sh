#!/usr/bin/env bash
# Builds for arm64 on another machine: sourced after setup.sh, whose `build` it replaces, so that
# its other functions build for arm64 too. Sets CARGO_TARGET_DIR, where folder TARGET/debug has what
# is built.

# shellcheck disable=SC2154  # from setup.sh
target=aarch64-unknown-linux-gnu
cross_rustc=$(as_builder "$checkout/scripts/test/cross-rust.sh" "$checkout/.cross-rust" "$target")
cross_tools=$(as_builder "$checkout/scripts/release/release-venv.sh" "$checkout/.venv-release")
export PATH=$cross_tools:$PATH CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$checkout/target/cross}

# build COMMAND OPTION...: cargo's, with zig as the linker, for an old C library.
build() {
    local command=$1
    shift
    if [ "$command" = build ]; then command=zigbuild; fi
    (cd "$checkout" && as_builder env RUSTC="$cross_rustc" "$cross_tools/cargo-zigbuild" "$command" \
        --target "$target.2.17" --features gctrace/vendored "$@")
}
