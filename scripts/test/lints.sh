#!/usr/bin/env bash
# Everything about the code that needs no test: formatting, clippy, rustdoc, dependencies, licenses,
# the shell scripts, names of files in prose, and whether the documents are easy to read. Prints 'skipped LINT: REASON' for a tool that is missing.
#
#   scripts/test/lints.sh [--quick]       --quick: without rustdoc, which checks links of comments
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../setup.sh
. "$(dirname "$0")/../setup.sh"
need_cargo
cd "$checkout"

skipped() { echo "skipped $1: $2"; }

scripts/check-references.py --self-test
scripts/check-references.py
scripts/shape.py --self-test
scripts/shape.py --check
scripts/prose.py --self-test
scripts/prose.py --check
if build fmt --version >/dev/null 2>&1; then
    build fmt --all --check
    # Imports, which only the nightly checks.
    if build +nightly fmt --version >/dev/null 2>&1; then
        build +nightly fmt --all --check -- --config imports_granularity=Module
    else
        skipped imports "only the nightly rustfmt knows their option"
    fi
else
    skipped rustfmt "the toolchain has none (rustup component add rustfmt)"
fi
if build clippy --version >/dev/null 2>&1; then
    build clippy --workspace --all-targets --quiet -- -D warnings
else
    skipped clippy "the toolchain has none (rustup component add clippy)"
fi
if [ "${1:-}" = --quick ]; then
    skipped rustdoc "left to 'scripts/test.sh all'"
elif as_builder rustdoc --version >/dev/null 2>&1; then
    build --config 'build.rustdocflags=["-Dwarnings"]' doc --workspace --no-deps --document-private-items --quiet
else
    skipped rustdoc "the toolchain has none"
fi
scripts/platforms.sh dependencies
if build deny --version >/dev/null 2>&1; then
    build deny --log-level error check bans licenses sources
else
    skipped cargo_deny "not installed (cargo install --locked cargo-deny)"
fi
if command -v shellcheck >/dev/null; then
    shellcheck -x scripts/*.sh scripts/{gpu,install-test,release,test}/*.sh tests/*.sh tests/docs/*/*.sh probes/fuzz/*.sh .ci/run
else
    skipped shellcheck "not installed"
fi
