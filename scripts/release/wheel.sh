#!/usr/bin/env bash
# Makes RELEASE_OUT/gctrace-VERSION-py3-none-manylinux_2_17_ARCH.whl from RELEASE_STAGE
# (environment.sh), and checks with auditwheel that it runs where its name says.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"

project=$checkout/packaging/python
platform=manylinux_${release_glibc/./_}_$RELEASE_ARCH
name=gctrace-$release_version-py3-none-$platform.whl
data=$project/wheel-data
made=$(mktemp -d)
trap 'rm -rf "$made" "$data" "$project/THIRD-PARTY"' EXIT

rm -rf "$data"
mkdir -p "$data/data"
cp -r "$RELEASE_STAGE/lib" "$RELEASE_STAGE/share" "$data/data/"
cp "$RELEASE_STAGE/share/doc/gctrace/THIRD-PARTY" "$project/"
# The same options as for the program of the stage, so that cargo compiles nothing again. maturin
# would strip by linking anew.
(cd "$project" && PATH=$release_tools:$(dirname "$cargo"):$PATH GCTRACE_BUNDLE=$RELEASE_STAGE/lib/gctrace \
    maturin build --quiet --zig --target "$release_target" --compatibility "manylinux_${release_glibc/./_}" \
    --auditwheel check --strip false "${release_cargo[@]}" --out "$made")
"$checkout/scripts/release/wheel.py" "$made/$name" "$RELEASE_STAGE/bin/gctrace" "$RELEASE_OUT"
# It looks at the libraries too, maturin only at the program.
"$release_tools/auditwheel" show "$RELEASE_OUT/$name" >"$made/audit"
grep -q "\"$platform\"" "$made/audit" || {
    cat "$made/audit" >&2
    die "$name: not for $platform"
}
say "wheel: $RELEASE_OUT/$name"
