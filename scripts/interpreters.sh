#!/usr/bin/env bash
# Puts CPython interpreters of many kinds into a folder and lists them in a manifest, so that the
# tests can check every collector CPython ever had.
#
#   scripts/interpreters.sh [FOLDER]             (default: .interpreters)
#   scripts/interpreters.sh --aarch64 [FOLDER]   (default: .interpreters/aarch64)
#
# FOLDER/manifest.tsv has one line per interpreter, tab separated:
#   name  version  kind  path  note
# kind is a comma-separated list: shared|static, symbols|stripped,
# generational|incremental|free-threaded, and `container` for a wrapper that
# runs the interpreter in its own mount and pid namespace under its own root.
# With GCTRACE_MACHINE=aarch64 the interpreters are for that machine, tried with qemu-user; zig of
# scripts/release/release-venv.sh in PATH compiles the programs that start shared libraries.
#
# An unavailable kind has `-` for version and path, and its note has the reason: tests print it as a
# named skip.
#
# --aarch64: files of interpreters for that machine, to analyze on any machine (path is the file with
# the collector), and the symbols of the same builds in FOLDER/debug (kind `symbols`).
#
# Owned here: where interpreters come from and how they are made to run here. Not here: how they are
# used.
#
# Sources, none of which touches the system's packages:
#  * what is installed: /usr/bin/python3.*, pyenv's versions;
#  * Debian's packages of later releases, unpacked with their own C library;
#  * the PyPI package freeze-core, whose wheels carry the whole stripped CPython
#    of the manylinux images as the base of frozen programs.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
files=
folder=$here/../.interpreters
if [ "${1:-}" = --aarch64 ]; then
    files=aarch64 folder=$folder/aarch64
    shift
fi
folder=${1:-$folder}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
manifest=$folder/manifest.tsv
log=$folder/log.txt
machine=${GCTRACE_MACHINE:-$(uname -m)}
case $machine in
aarch64) debian_machine=arm64 loader=lib/ld-linux-aarch64.so.1 ;;
*) debian_machine=amd64 loader=lib64/ld-linux-x86-64.so.2 ;;
esac
# What runs a program for that machine, and what compiles one.
runner=() compiler=(cc)
if [ "$machine" != "$(uname -m)" ]; then
    # Programs that name the system's loader find Debian's.
    runner=("qemu-$machine-static" -L "$folder/trixie")
    compiler=(zig cc -target "$machine-linux-gnu.2.17")
fi
# shellcheck source-path=SCRIPTDIR source=test/debian.sh
. "$here/test/debian.sh"

# Debian releases, and the interpreters to take from each.
debian_suites=(trixie forky)
declare -A debian_versions=([trixie]="3.13" [forky]="3.14 3.15")
# The libraries that these interpreters and their extension modules load.
debian_libraries=(libc6 libgcc-s1 libexpat1 zlib1g libssl3t64 libffi8 libbz2-1.0 liblzma5 libzstd1 libuuid1)

# name:freeze-core version:CPython tag. 0.6.1 was built with 3.14.3 and 3.13.12,
# 0.8.1 with 3.14.9, 3.15.1 and their free-threaded twins.
wheels=(
    manylinux-3.14-incremental:0.6.1:cp314
    manylinux-3.14t-early:0.6.1:cp314t
    manylinux-3.13t:0.6.1:cp313t
    manylinux-3.14t:0.8.1:cp314t
    manylinux-3.15:0.8.1:cp315
    manylinux-3.15t:0.8.1:cp315t
)

exec 9>"$folder/.lock"
flock 9
rm -f "$log" # root's or the user's
: >"$log"

rows=()
row() { rows+=("$(printf '%s\t%s\t%s\t%s\t%s' "$1" "$2" "$3" "$4" "${5:--}")"); }
missing() { row "$1" - "$2" - "$3"; }

describe='import sys
v = sys.version_info
free = "t" in getattr(sys, "abiflags", "")
incremental = not free and (3, 14, 0) <= v[:3] < (3, 14, 5)
maps = open("/proc/self/maps").read().split("\n")
library = [line.split()[-1] for line in maps if "/libpython" in line]
print("%d.%d.%d" % v[:3], "free-threaded" if free else "incremental" if incremental else "generational",
      *library[:1])'

# list NAME PATH NOTE [KIND]: adds a line for an interpreter that runs here.
list() {
    local name=$1 path=$2 note=$3 extra=${4:-} said version collector library linkage symbols
    if ! said=$("${runner[@]}" "$path" -c "$describe" 2>>"$log"); then
        missing "$name" "${extra:-unknown}" "$path does not run here (see $log)"
        return 0
    fi
    read -r version collector library <<<"$said"
    linkage=${library:+shared}
    symbols=stripped
    if LC_ALL=C readelf -SW "${library:-${5:-$path}}" | grep -q '\.symtab'; then symbols=symbols; fi
    row "$name" "$version" "${linkage:-static},$symbols,$collector${extra:+,$extra}" "$path" "$note"
}

# ---------------------------------------------------------------- installed

installed() {
    local path found=()
    for path in /usr/bin/python3.[0-9] /usr/bin/python3.[0-9][0-9]; do
        if [ -x "$path" ]; then
            list "system-${path##*python}" "$path" "installed"
        fi
    done
    local root=${PYENV_ROOT:-}
    if [ -z "$root" ] && command -v pyenv >/dev/null; then root=$(pyenv root); fi
    if [ -d "$root/versions" ]; then
        for path in "$root"/versions/3.*/bin/python3; do
            if [ -x "$path" ]; then found+=("$path"); fi
        done
    fi
    local minor
    for minor in 3.8 3.9 3.10 3.11 3.12 3.13; do
        local any=
        for path in "${found[@]}"; do
            case $path in */versions/"$minor".*)
                list "pyenv-$minor" "$path" "pyenv's"
                any=yes
                break
                ;;
            esac
        done
        if [ -z "$any" ]; then
            missing "pyenv-$minor" "shared,symbols,generational" "pyenv has no $minor here"
        fi
    done
}

# ------------------------------------------------------------------ Debian

# Unpacks one release's interpreters and libraries into FOLDER/SUITE.
debian_unpack() {
    local suite=$1 root=$folder/$1 work=$folder/.$1.new version packages=() deb
    if [ -e "$root/.complete" ]; then return 0; fi
    for version in ${debian_versions[$suite]}; do
        packages+=("python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" "libpython$version")
    done
    packages+=("${debian_libraries[@]}")
    rm -rf "$work" "$root"
    mkdir -p "$work/debs" "$work/root/usr"/{bin,lib,lib64,sbin} "$work/root/tmp" "$work/root/proc"
    for deb in bin lib lib64 sbin; do ln -s "usr/$deb" "$work/root/$deb"; done
    (cd "$work/debs" && apt-get "${options[@]}" download "${packages[@]/%/:$debian_machine/$suite}") || return 1
    for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root" || return 1; done
    debian_relocate "$suite" "$work/root" || return 1
    touch "$work/root/.complete"
    mv "$work/root" "$root"
    rm -rf "$work"
}

# A copy of each interpreter with the loader and the libraries it was unpacked with; its code is the
# packaged one, byte for byte.
debian_relocate() {
    local suite=$1 root=$2 version
    mkdir -p "$root/usr/patched"
    ln -s "lib/$machine-linux-gnu" "$root/usr/l"
    for version in ${debian_versions[$suite]}; do
        python3 "$here/test/elf_python.py" relocate "$root/usr/bin/python$version" "$root/usr/patched/python$version" \
            "$folder/$suite/usr/$loader" || return 1
    done
}

debian() {
    local suite version reason
    reason=$(debian_fetch) || true
    for suite in "${debian_suites[@]}"; do
        for version in ${debian_versions[$suite]}; do
            if [ -e "$folder/$suite/.complete" ]; then
                list "debian-$version" "$folder/$suite/usr/patched/python$version" "Debian $suite's, with its own C library"
                debian_shared "$suite" "$version"
            else
                missing "debian-$version" static,stripped,generational "$reason"
                missing "debian-$version-shared" shared,stripped,generational "$reason"
            fi
        done
    done
    container trixie 3.13 "$reason"
}

# Debian's shared library of the same version, started by a one-line program.
debian_shared() {
    local suite=$1 version=$2 name=debian-$2-shared usr=$folder/$1/usr target
    target=$usr/shared/python$version
    if [ ! -x "$target" ]; then
        mkdir -p "$usr/shared"
        if ! "${compiler[@]}" -x c - -o "$target" -L"$usr/l" "-l:libpython$version.so.1.0" -Wl,--allow-shlib-undefined \
            "-Wl,-dynamic-linker,$usr/$loader" -Wl,--disable-new-dtags "-Wl,-rpath,$usr/l" 2>>"$log"; then
            missing "$name" shared,stripped,generational "the starter could not be compiled (see $log)"
            return 0
        fi <<<'int Py_BytesMain(int, char **); int main(int c, char **v) { return Py_BytesMain(c, v); }'
    fi
    list "$name" "$target" "Debian $suite's shared library"
}

# Downloads what is missing; prints the reason to stdout if that fails.
debian_fetch() {
    local suite options archive wanting=
    for suite in "${debian_suites[@]}"; do
        if [ ! -e "$folder/$suite/.complete" ]; then wanting=yes; fi
    done
    if [ -z "$wanting" ]; then return 0; fi
    archive=$(debian_archive debian || true)
    if [ -z "$archive" ]; then
        echo "this machine has no Debian archive in its package sources"
        return 0
    fi
    apt_options "$folder/apt"
    options+=(-o "APT::Architecture=$debian_machine" -o "APT::Architectures::=$debian_machine")
    debian_source "$archive" "${debian_suites[@]}" >"$folder/apt/sources/later.sources"
    if ! apt-get "${options[@]}" update >>"$log" 2>&1; then
        echo "apt-get update of Debian's later releases failed (see $log)"
        return 0
    fi
    for suite in "${debian_suites[@]}"; do
        debian_unpack "$suite" >>"$log" 2>&1 || echo "Debian's packages of $suite could not be unpacked (see $log)"
    done
}

# An interpreter under its own root, in its own mount and pid namespace, as in a container. /tmp and
# the checkout keep their paths, so scripts and results do.
container() {
    local suite=$1 version=$2 reason=$3 wrapper=$folder/$1/python$2-container checkout
    local name=container-$version kind=static,stripped,generational,container
    if [ ! -e "$folder/$suite/.complete" ]; then
        missing "$name" "$kind" "$reason"
        return 0
    fi
    if [ ${#runner[@]} != 0 ]; then
        missing "$name" "$kind" "emulated programs get no namespaces here"
        return 0
    fi
    if [ "$(id -u)" != 0 ] || ! unshare --mount --pid --fork true 2>>"$log"; then
        missing "$name" "$kind" "new mount and pid namespaces need root"
        return 0
    fi
    checkout=$(cd "$here/.." && pwd)
    mkdir -p "$folder/$suite$checkout"
    rm -f "$wrapper" # root's or the user's
    cat >"$wrapper" <<WRAPPER
#!/bin/sh
# Runs Debian's python$version in its own mount and pid namespace and root.
PATH=\$PATH:/usr/sbin:/sbin
exec unshare --mount --pid --fork --propagation private --kill-child /bin/sh -c '
    root=$folder/$suite
    mount -t proc proc "\$root/proc"
    mount --bind /tmp "\$root/tmp"
    mount --bind $checkout "\$root$checkout"
    exec chroot "\$root" /usr/bin/python$version "\$@"' python "\$@"
WRAPPER
    chmod +x "$wrapper"
    list "$name" "$wrapper" "Debian $suite's, in its own namespaces and root" container "$folder/$suite/usr/bin/python$version"
}

# -------------------------------------------------------------------- PyPI

# A python with a working pip, created if the system's has none.
pip_python() {
    if python3 -m pip --version >>"$log" 2>&1; then
        echo python3
        return 0
    fi
    if [ ! -x "$folder/pip/bin/python" ]; then
        python3 -m venv "$folder/pip" >>"$log" 2>&1 || return 1
    fi
    echo "$folder/pip/bin/python"
}

# pip_download FOLDER PACKAGE [OPTIONS...]
pip_download() {
    local to=$1 package=$2 python
    shift 2
    python=$(pip_python) || return 1
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --disable-pip-version-check \
        --retries 2 --timeout 20 --dest "$to" "$@" "$package" >>"$log" 2>&1
}

unzip_wheel() { python3 -m zipfile -e "$1" "$2" >>"$log" 2>&1; }

# The standard library of MINOR, of which these wheels contain the C modules only.
standard_library() {
    local minor=$1 suite
    for suite in "${debian_suites[@]}"; do
        if [ -e "$folder/$suite/usr/lib/python$minor/os.py" ]; then
            echo "$folder/$suite/usr/lib/python$minor"
            return 0
        fi
    done
    return 1
}

# wheel_unpack NAME FREEZE_CORE_VERSION TAG MINOR: prints the reason if it fails.
wheel_unpack() {
    local name=$1 release=$2 tag=$3 minor=$4 work=$folder/.$1.new library core base
    library=$(standard_library "$minor") || {
        echo "the standard library of $minor comes from Debian's packages, which are not installed here"
        return 1
    }
    rm -rf "$work"
    pip_download "$work" "freeze-core==$release" --implementation cp --python-version "${minor/./}" --abi "$tag" \
        --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" || {
        echo "freeze-core $release for $tag could not be downloaded from PyPI (see $log)"
        return 1
    }
    unzip_wheel "$work"/*.whl "$work/root"
    core=$work/root/freeze_core
    base=$(echo "$core"/bases/console-cpython-*)
    mkdir -p "$core/bin"
    cp -rL "$library" "$core/lib/python$minor" 2>>"$log" || true # dangling links into /etc
    rm -rf "$core/lib/python$minor/lib-dynload" "$work"/*.whl
    cp "$core/lib/python$minor/"{_sysconfigdata__,_sysconfigdata_t_}linux_"$machine"-linux-gnu.py
    ln -s .. "$core/lib/python$minor/lib-dynload"
    ln -s "python$minor" "$core/lib/python${minor}t"
    python3 "$here/test/elf_python.py" unfreeze "$base" "$core" "$minor" >>"$log" 2>&1 || {
        echo "the base of freeze-core $release is not as expected (see $log)"
        return 1
    }
    mv "$work/root" "$folder/$name"
    rm -rf "$work"
}

# wheel_fields ENTRY: sets name, release, tag, minor and collector of an entry of `wheels`.
wheel_fields() {
    local digits
    IFS=: read -r name release tag <<<"$1"
    digits=${tag#cp3}
    minor=3.${digits%t}
    collector=generational
    case $name in *t | *t-early) collector=free-threaded ;; *-incremental) collector=incremental ;; esac
}

pypi() {
    local entry name release tag minor collector reason
    for entry in "${wheels[@]}"; do
        wheel_fields "$entry"
        if [ ! -x "$folder/$name/freeze_core/bin/python" ]; then
            if ! reason=$(wheel_unpack "$name" "$release" "$tag" "$minor"); then
                missing "$name" "static,stripped,$collector" "$reason"
                continue
            fi
        fi
        list "$name" "$folder/$name/freeze_core/bin/python" "manylinux's, from the PyPI package freeze-core $release"
    done
}

# --------------------------------------------------------------------------

case $files-$(uname -s)-$machine in
aarch64-*)
    # shellcheck source-path=SCRIPTDIR source=test/interpreters-aarch64.sh
    . "$here/test/interpreters-aarch64.sh"
    aarch64_debian
    aarch64_pypi
    ;;
-Linux-x86_64 | -Linux-aarch64)
    if [ ${#runner[@]} = 0 ]; then installed; fi
    debian
    pypi
    ;;
*) missing all unknown "only Linux on x86-64 and arm64 is supported" ;;
esac
printf '%s\n' "${rows[@]}" >"$manifest.new"
mv "$manifest.new" "$manifest"
cat "$manifest"
