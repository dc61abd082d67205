#!/usr/bin/env bash
# Packages of Debian releases other than this machine's, downloaded but never installed. Sourced by
# cross-rust.sh, interpreters.sh and kernels.sh, which set `log`, a file.

# debian_archive debian|debian-security: the archive this machine already uses,
# which has the other releases too.
debian_archive() {
    # shellcheck disable=SC1091
    [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 1
    # shellcheck disable=SC2016,SC2154  # apt's own variable; ours is set by the sourcing script
    apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Component: main' 2>>"$log" |
        awk -v name="/$1/?\$" '$0 ~ name && !found { print; found = 1 }'
}

# debian_closure PACKAGE...: these packages and those that they depend on, of the sources that
# `options` names.
debian_closure() {
    # shellcheck disable=SC2154  # set by apt_options
    apt-cache "${options[@]}" depends --recurse --no-suggests --no-recommends --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$@" | grep '^[a-z]' | sort -u
}

# debian_into ROOT PACKAGE...: downloads and unpacks into ROOT, whose lib and bin are in usr.
debian_into() {
    local root=$1 folder deb
    shift
    mkdir -p "$root/debs" "$root/usr"/{bin,lib,lib64,sbin}
    for folder in bin lib lib64 sbin; do ln -sfn "usr/$folder" "$root/$folder"; done
    # shellcheck disable=SC2154
    (cd "$root/debs" && apt-get "${options[@]}" download "$@") >>"$log" 2>&1 || return 1
    for deb in "$root"/debs/*.deb; do dpkg-deb -x "$deb" "$root" >>"$log" 2>&1 || return 1; done
    rm -rf "$root/debs"
}

# debian_source ARCHIVE SUITE...
debian_source() {
    local archive=$1 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    shift
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$archive" "$*"
    if [ -e "$keyring" ]; then printf 'Signed-By: %s\n' "$keyring"; fi
}

# apt_options FOLDER: sets the array `options`, with which apt knows only the sources in
# FOLDER/sources and keeps everything else in FOLDER too.
apt_options() {
    local apt=$1
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"
    # shellcheck disable=SC2034  # for the sourcing script
    options=(-qq -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$apt/sources"
        -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "Dir::State::Status=$apt/status"
        -o "Acquire::Languages=none" -o "Acquire::Retries=2" -o "Acquire::http::Timeout=20"
        -o "APT::Sandbox::User=" -o "APT::Update::Post-Invoke=" -o "APT::Update::Post-Invoke-Success=")
}
