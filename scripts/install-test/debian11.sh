#!/usr/bin/env bash
# The wheel on Debian 11 (glibc 2.31, Python 3.9): its packages unpacked into a root of their own.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
if [ -n "$INSTALL_TEST_QUICK" ]; then
    skipped "left out of the quick form: it downloads 60 MB"
    exit
fi
enter_overlay
# shellcheck source=../test/debian.sh
. "$checkout/scripts/test/debian.sh"

log=/tmp/debian11.log
root=/tmp/debian11
packages=(base-files bash coreutils dash debianutils findutils grep libacl1 libattr1 libbz2-1.0 libc-bin libc6 libcap-ng0
    libcrypt1 libexpat1 libffi7 libgcc-s1 libgmp10 liblzma5 libpcre2-8-0 libpcre3 libpython3.9-minimal
    libpython3.9-stdlib libselinux1 libsqlite3-0 libssl1.1 libtinfo6 libuuid1 python-pip-whl python3-distutils
    python3-lib2to3 python3.9 python3.9-minimal python3.9-venv sed tar util-linux zlib1g)

# Prints the reason if that fails.
unpack() {
    local archive deb options
    archive=$(debian_archive debian) || true
    if [ -z "$archive" ]; then
        echo "this machine has no Debian archive in its package sources"
        return 1
    fi
    apt_options /tmp/debian11-apt
    debian_source "$archive" bullseye >/tmp/debian11-apt/sources/bullseye.sources
    mkdir -p "$root" /tmp/debian11-debs
    (apt-get "${options[@]}" update && cd /tmp/debian11-debs &&
        apt-get "${options[@]}" download "${packages[@]/%//bullseye}") >>"$log" 2>&1 || {
        echo "its packages could not be downloaded: $(tail -n 1 "$log")"
        return 1
    }
    for deb in bin lib lib64 sbin; do mkdir -p "$root/usr/$deb" && ln -s "usr/$deb" "$root/$deb"; done
    for deb in /tmp/debian11-debs/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"; done
}

# Files that its recordings need, at the paths that they have here.
furnish() {
    local folder
    mkdir -p "$root"/{proc,sys,dev,etc,tmp,"home/$user"}
    chmod 1777 "$root/tmp"
    for folder in /proc /sys /dev; do mount --rbind "$folder" "$root$folder"; done
    for folder in "$checkout" "$RELEASE_OUT" "/home/$user"; do
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
    done
    cp /etc/passwd /etc/group "$root/etc/"
}

# As as_user, there.
there() { chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups env -i HOME="/home/$user" PATH=/usr/bin:/bin "$@"; }
# shellcheck disable=SC2317  # called by recording
as_user() { there "$@"; }

reason=$(unpack) || {
    skipped "Debian 11: $reason"
    exit
}
furnish
wheel=$(echo "$RELEASE_OUT"/gctrace-*-py3-none-manylinux*_"$RELEASE_ARCH".whl)
folder=/home/$user/environment
check "glibc is 2.31" sh -c "chroot $root ldd --version | grep -q 'GLIBC 2.31'"
check "environment of Python 3.9" there /usr/bin/python3.9 -m venv "$folder"
check "pip install" there "$folder/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
check "gctrace --version" there "$folder/bin/gctrace" --version
check "record, as a user" recording inject "$folder/bin/python" "$folder/bin/gctrace"
# shellcheck disable=SC2317  # called by recording
as_user() { chroot "$root" env -i HOME="/home/$user" PATH=/usr/bin:/bin "$@"; }
if [ -e /sys/kernel/btf/vmlinux ]; then
    check "record by kernel probes, as root" recording ebpf "$folder/bin/python" "$folder/bin/gctrace"
else
    skipped "recording by kernel probes: this kernel has no BTF (/sys/kernel/btf/vmlinux)"
fi
