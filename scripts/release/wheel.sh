#!/usr/bin/env bash
# Makes RELEASE_OUT/gctrace-VERSION-py3-none-manylinux_2_17_ARCH.whl from RELEASE_STAGE
# (environment.sh), and checks with auditwheel that it runs where its name says. With RELEASE_HERE it
# is named linux_ARCH and runs on machines like this one.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"

project=$checkout/packaging/python
platform=manylinux_${release_glibc/./_}
options=(--zig --target "$release_target" --compatibility "$platform" --auditwheel check)
if [ -n "${RELEASE_HERE:-}" ]; then options=(--compatibility linux --auditwheel skip); fi
data=$project/wheel-data
made=$(mktemp -d)
trap 'rm -rf "$made" "$data" "$project/THIRD-PARTY"' EXIT

rm -rf "$data"
mkdir -p "$data/data"
cp -r "$RELEASE_STAGE/lib" "$RELEASE_STAGE/share" "$data/data/"
# Among the metadata, as the format has it.
mv "$data/data/share/doc/gctrace/THIRD-PARTY" "$project/"
rm -r "$data/data/share/doc"
# maturin compiles with flags of its own, which would be a second build, and strips by linking
# again. Where it calls cargo to compile, it gets cargo's messages about the stage's program, as if
# that were what cargo made just now.
cp "$RELEASE_STAGE/bin/gctrace" "$made/"
export GCTRACE_BUNDLE=$RELEASE_STAGE/lib/gctrace
release_build "${release_program[@]}" --message-format json-render-diagnostics |
    sed "s,\"$release_built/gctrace\",\"$made/gctrace\",g" >"$made/messages"
cat >"$made/cargo" <<WRAPPER
#!/bin/sh
if [ "\$1" = rustc ]; then exec cat "$made/messages"; fi
exec "$cargo" "\$@"
WRAPPER
chmod +x "$made/cargo"
(cd "$project" && CARGO=$made/cargo PATH=$made:$release_tools:$PATH \
    maturin build --quiet "${options[@]}" --profile "$RELEASE_PROFILE" --out "$made/out")
wheel=$(echo "$made"/out/*.whl)
if [ -z "${RELEASE_HERE:-}" ]; then
    # It looks at the libraries too, maturin only at the program.
    "$release_tools/auditwheel" show "$wheel" >"$made/audit"
    grep -q "\"${platform}_$RELEASE_ARCH\"" "$made/audit" || {
        cat "$made/audit" >&2
        die "$wheel: not for $platform"
    }
fi
python3 "$checkout/scripts/release/wheel.py" "$wheel" "$RELEASE_STAGE/bin/gctrace" "$checkout" "$RELEASE_OUT"
say "wheel: $RELEASE_OUT/$(basename "$wheel")"
