#!/usr/bin/env bash
# Shared by run.sh, test.sh and bench.sh: system packages, the building user, root. Run by itself it
# installs everything that building needs, and lists it first.
#
# Two users may be involved: the builder, who owns the checkout and has the Rust toolchain, and
# root, who installs packages and records. As root without sudo both are root; under
# `sudo scripts/...` the builder is the user who typed it, if that user has cargo.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_packages=(clang gcc libc6-dev libelf-dev make pkg-config zlib1g-dev)
# Releases compile libelf too.
# shellcheck disable=SC2034  # for the sourcing scripts
release_packages=("${build_packages[@]}" autoconf automake autopoint binutils bison flex gawk libtool python3 python3-venv xz-utils)

say() { printf '%s\n' "$*" >&2; }
die() {
    say "$(basename "$0"): $*"
    exit 1
}

# A user's cargo: as found by their login shell, or rustup's usual place.
cargo_of() {
    local user=$1 home found
    home=$(getent passwd "$user" | cut -d: -f6)
    if [ "$user" = "$(id -un)" ]; then
        found=$(command -v cargo || true)
    else
        # shellcheck disable=SC2016  # expanded by the other user's shell
        found=$(sudo -n -H -u "$user" bash -lc 'command -v cargo' 2>/dev/null || true)
    fi
    if [ -z "$found" ] && [ -x "$home/.cargo/bin/cargo" ]; then found=$home/.cargo/bin/cargo; fi
    [ -n "$found" ] && printf '%s\n' "$found"
}

builder=$(id -un)
cargo=
if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ] && cargo=$(cargo_of "$SUDO_USER"); then
    builder=$SUDO_USER
else
    cargo=$(cargo_of "$builder" || true)
fi

need_cargo() {
    [ -n "$cargo" ] || die "no Rust toolchain: install rustup, then 'rustup toolchain install stable' (1.88 or newer)"
}

# Runs a command as the builder.
as_builder() {
    local path
    path=$(dirname "$cargo"):$PATH
    if [ "$builder" = "$(id -un)" ]; then
        PATH=$path "$@"
    else
        sudo -n -H -u "$builder" env PATH="$path" "$@"
    fi
}

can_be_root() { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }; }

# Runs a command as root, with the caller's search path and root's folders after it.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo env PATH="$PATH:/usr/sbin:/sbin" "$@"
    fi
}

build() {
    need_cargo
    if [ -d "$checkout/target" ] && ! as_builder test -w "$checkout/target"; then
        die "$checkout/target belongs to another user; 'sudo chown -R $builder $checkout/target' fixes it"
    fi
    (cd "$checkout" && as_builder "$cargo" "$@")
}

# need_packages PURPOSE PACKAGE...: installs what is missing, and lists it first.
need_packages() {
    local purpose=$1 package archives missing=()
    shift
    if ! command -v apt-get >/dev/null; then
        say "this is not Debian or Ubuntu: install the equivalents of these for $purpose: $*"
        return 0
    fi
    for package in "$@"; do
        if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            missing+=("$package")
        fi
    done
    if [ ${#missing[@]} = 0 ]; then return 0; fi
    say "installing for $purpose, with apt-get: ${missing[*]}"
    can_be_root || die "that needs root: sudo apt-get install ${missing[*]}"
    as_root apt-get -qq update >&2 || say "apt-get update failed; trying with the old lists"
    # In container images apt empties its own folder after each call of dpkg; a large installation has several.
    archives=$(as_root mktemp -d)
    as_root mkdir "$archives/partial"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        -o Dir::Cache::archives="$archives" "${missing[@]}" >&2 || die "apt-get could not install: ${missing[*]}"
    as_root rm -rf "$archives"
}

# test_programs TIER [PACKAGE...]: builds the test programs of a tier (tests/TIER of each crate), and
# prints them, one per line, as 'package folder<TAB>program'.
test_programs() {
    local tier=$1 package selection=()
    shift
    for package in "$@"; do selection+=(-p "$package"); done
    if [ $# = 0 ]; then selection=(--workspace); fi
    build test "${selection[@]}" --no-run --message-format=json-render-diagnostics --test "$tier" | python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
        print(os.path.dirname(message["manifest_path"]), message["executable"], sep="\t")'
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    need_packages building "${build_packages[@]}"
    need_cargo
fi
