#!/usr/bin/env bash
# Makes RELEASE_OUT/gctrace-image-VERSION-ARCH.tar of RELEASE_STAGE (environment.sh): an OCI archive,
# from scratch. It has the program, its libraries, glibc of this machine (never musl: NVIDIA's
# management library needs glibc), licenses, and nothing else: no shell, no Python.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"
need_packages "the image" buildah

case $RELEASE_ARCH in
x86_64) loader=lib64/ld-linux-x86-64.so.2 ;;
aarch64) loader=lib/ld-linux-aarch64.so.1 ;;
esac
libraries=/lib/$RELEASE_ARCH-linux-gnu
if [ "$RELEASE_ARCH" != "$(uname -m)" ]; then
    need_packages "glibc of $RELEASE_ARCH" libc6-arm64-cross
    libraries=/usr/$RELEASE_ARCH-linux-gnu/lib
fi
# Beside what the program needs, what the driver's library needs.
for_nvml=(libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
own=$root/lib/$RELEASE_ARCH-linux-gnu
mkdir -p "$root"/{etc,proc,sys,dev,usr/bin,usr/lib,usr/share/doc/libc6} "$root/$(dirname "$loader")" "$own"
mkdir -m 1777 "$root/tmp"
cp "$RELEASE_STAGE/bin/gctrace" "$root/usr/bin/"
cp -r "$RELEASE_STAGE/lib/gctrace" "$root/usr/lib/"
cp -r "$RELEASE_STAGE/share/doc/gctrace" "$root/usr/share/doc/"
cp /usr/share/doc/libc6/copyright "$root/usr/share/doc/libc6/"
cp -L "$libraries/$(basename "$loader")" "$root/$loader"
echo "root:x:0:0:root:/tmp:/usr/bin/gctrace" >"$root/etc/passwd"
echo "root:x:0:" >"$root/etc/group"

# needed FILE: copies the libraries that a file needs, and those that these need.
needed() {
    local name
    while read -r name; do
        if [ -e "$own/$name" ] || [ "$name" = "$(basename "$loader")" ]; then continue; fi
        [ -e "$libraries/$name" ] || die "$1 needs $name, which is not in $libraries"
        cp -L "$libraries/$name" "$own/"
        needed "$own/$name"
    done < <(readelf --dynamic --wide "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
}
for library in "${for_nvml[@]}"; do
    cp -L "$libraries/$library" "$own/"
    needed "$own/$library"
done
for file in "$root"/usr/bin/gctrace "$root"/usr/lib/gctrace/*.so; do needed "$file"; done

storage=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
container=$("${storage[@]}" from --arch "${RELEASE_ARCH/x86_64/amd64}" scratch)
"${storage[@]}" add --quiet --chown 0:0 "$container" "$root" / >/dev/null
"${storage[@]}" config --entrypoint '["/usr/bin/gctrace"]' --workingdir /tmp --env PATH=/usr/bin --env HOME=/tmp \
    --label org.opencontainers.image.title=gctrace \
    --label "org.opencontainers.image.description=Pauses of Python's garbage collector" \
    --label "org.opencontainers.image.version=$release_version" \
    --label "org.opencontainers.image.licenses=MIT OR Apache-2.0" "$container"
image=$RELEASE_OUT/gctrace-image-$release_version-$RELEASE_ARCH.tar
rm -f "$image"
"${storage[@]}" commit --quiet --format oci --disable-compression=false --timestamp "$SOURCE_DATE_EPOCH" --omit-history "$container" \
    "oci-archive:$image:gctrace:$release_version" >/dev/null
# The archive's own times and order.
mkdir "$work/archive"
tar --extract --directory "$work/archive" --file "$image"
tar --create --directory "$work/archive" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" --file "$image" .
echo "$image"
