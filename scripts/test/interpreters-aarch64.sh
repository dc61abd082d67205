#!/usr/bin/env bash
# CPython interpreters for aarch64: files to analyze on any machine, with the symbols of the same
# builds as the truth. Sourced by interpreters.sh, whose functions and variables it uses.
# shellcheck disable=SC2154

aarch64_versions=(bullseye:3.9 bookworm:3.11 trixie:3.13 forky:3.14 forky:3.15)

# The executable and the shared library of each Debian release, and below debug/ their symbols: the
# packages python3.N-dbg have the separate debug files of the usual builds too.
aarch64_debian() {
    local entry suite version reason options archive
    reason=$(aarch64_fetch) || true
    for entry in "${aarch64_versions[@]}"; do
        IFS=: read -r suite version <<<"$entry"
        local root=$folder/$version
        if [ -e "$root/.complete" ]; then
            local full
            full=$(cat "$root/.complete")
            row "debian-$version" "$full" "static,symbols,generational" "$root/usr/bin/python$version" "Debian $suite's"
            row "debian-$version-shared" "$full" "shared,symbols,generational" \
                "$root/usr/lib/aarch64-linux-gnu/libpython$version.so.1.0" "Debian $suite's shared library"
        else
            missing "debian-$version" static,symbols,generational "$reason"
            missing "debian-$version-shared" shared,symbols,generational "$reason"
        fi
    done
}

# Downloads what is missing; prints the reason to stdout if that fails.
aarch64_fetch() {
    local entry suite version suites=() options archive
    for entry in "${aarch64_versions[@]}"; do
        if [ ! -e "$folder/${entry#*:}/.complete" ]; then suites+=("${entry%:*}"); fi
    done
    if [ ${#suites[@]} = 0 ]; then return 0; fi
    archive=$(debian_archive debian || true)
    if [ -z "$archive" ]; then
        echo "this machine has no Debian archive in its package sources"
        return 0
    fi
    apt_options "$folder/apt"
    options+=(-o APT::Architecture=arm64 -o APT::Architectures=arm64)
    debian_source "$archive" "${suites[@]}" >"$folder/apt/sources/aarch64.sources"
    if ! apt-get "${options[@]}" update >>"$log" 2>&1; then
        echo "apt-get update of Debian's packages for arm64 failed (see $log)"
        return 0
    fi
    for entry in "${aarch64_versions[@]}"; do
        IFS=: read -r suite version <<<"$entry"
        aarch64_unpack "$suite" "$version" >>"$log" 2>&1 ||
            echo "Debian's packages of $suite for arm64 could not be unpacked (see $log)"
    done
}

# Unpacks the two files with a collector and their debug files, nothing else.
aarch64_unpack() {
    local suite=$1 version=$2 root=$folder/$2 work=$folder/.$2.new file id full
    if [ -e "$root/.complete" ]; then return 0; fi
    rm -rf "$work" "$root"
    mkdir -p "$work/debs" "$work/root" "$folder/debug/.build-id"
    (cd "$work/debs" && apt-get "${options[@]}" download "python$version-minimal/$suite" \
        "libpython$version/$suite" "python$version-dbg/$suite") || return 1
    for file in "python$version-minimal:./usr/bin/python$version" \
        "libpython$version:./usr/lib/aarch64-linux-gnu/libpython$version.so.1.0"; do
        dpkg-deb --fsys-tarfile "$work/debs/${file%%:*}_"*.deb | tar -x -C "$work/root" "${file#*:}" || return 1
        id=$(LC_ALL=C readelf -n "$work/root/${file#*:}" | awk '/Build ID/ { print $3 }')
        dpkg-deb --fsys-tarfile "$work/debs/python$version-dbg_"*.deb |
            tar -x -C "$folder/debug/.build-id" --strip-components=5 \
                "./usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" || return 1
    done
    full=$(dpkg-deb --field "$work/debs/python$version-minimal_"*.deb Version)
    rm -rf "$work/debs"
    echo "${full%%[-+~]*}" >"$work/root/.complete"
    mv "$work/root" "$root"
    rm -rf "$work"
}

# The bases of the wheels: whole interpreters, stripped.
aarch64_pypi() {
    local entry name release tag minor collector work version
    for entry in "${wheels[@]}"; do
        wheel_fields "$entry"
        if [ ! -e "$folder/$name/python" ]; then
            work=$folder/.$name.new
            rm -rf "$work" "${folder:?}/$name"
            if ! pip_download "$work" "freeze-core==$release" --implementation cp --python-version "${minor/./}" \
                --abi "$tag" --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 ||
                ! unzip_wheel "$work"/*.whl "$work/root"; then
                missing "$name" "static,stripped,$collector" "freeze-core $release for $tag could not be downloaded from PyPI (see $log)"
                continue
            fi
            mkdir -p "$folder/$name"
            mv "$work/root/freeze_core/bases/console-cpython-"* "$folder/$name/python"
            rm -rf "$work"
        fi
        version=$(grep -aoE "cpython-$minor\.[0-9]+" "$folder/$name/python" | head -1 || true)
        row "$name" "${version#cpython-}" "static,stripped,$collector" "$folder/$name/python" \
            "manylinux's, from the PyPI package freeze-core $release"
    done
}
