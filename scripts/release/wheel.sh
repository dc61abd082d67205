#!/usr/bin/env bash
# Makes RELEASE_OUT/gctrace-VERSION-py3-none-manylinux_2_17_ARCH.whl from RELEASE_STAGE
# (environment.sh), and checks with auditwheel that it runs where its name says.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$(dirname "$0")/environment.sh"

project=$checkout/packaging/python
platform=manylinux_${release_glibc/./_}
data=$project/wheel-data
made=$(mktemp -d)
trap 'rm -rf "$made" "$data" "$project/THIRD-PARTY"' EXIT

# maturin compiles with flags of its own, which would be a second build, and strips by linking
# again. Where it calls cargo to compile, it gets the stage's program.
compiled() {
    release_build -p gctrace --bin gctrace --features vendored --message-format json-render-diagnostics |
        sed "s,\"$release_built/gctrace\",\"$made/gctrace\",g"
}
if [ "${1:-}" = --compile ]; then
    made=$2
    trap - EXIT
    compiled
    exit
fi

rm -rf "$data"
mkdir -p "$data/data"
cp -r "$RELEASE_STAGE/lib" "$RELEASE_STAGE/share" "$data/data/"
cp "$RELEASE_STAGE/share/doc/gctrace/THIRD-PARTY" "$project/"
cp "$RELEASE_STAGE/bin/gctrace" "$made/"
cat >"$made/cargo" <<WRAPPER
#!/usr/bin/env bash
case \$1 in
rustc) unset CARGO && exec "$(realpath "$0")" --compile "$made" ;;
*) exec "$cargo" "\$@" ;;
esac
WRAPPER
chmod +x "$made/cargo"
export GCTRACE_BUNDLE=$RELEASE_STAGE/lib/gctrace
(cd "$project" && CARGO=$made/cargo PATH=$made:$release_tools:$PATH \
    maturin build --quiet --zig --target "$release_target" --compatibility "$platform" \
    --auditwheel check --profile "$RELEASE_PROFILE" --out "$made/out")
wheel=$(echo "$made"/out/*.whl)
# It looks at the libraries too, maturin only at the program.
"$release_tools/auditwheel" show "$wheel" >"$made/audit"
grep -q "\"${platform}_$RELEASE_ARCH\"" "$made/audit" || {
    cat "$made/audit" >&2
    die "$wheel: not for $platform"
}
python3 - "$wheel" "$RELEASE_STAGE/bin/gctrace" <<'PYTHON' || die "$wheel: another program than $RELEASE_STAGE/bin/gctrace"
import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
(name,) = (name for name in archive.namelist() if name.endswith(".data/scripts/gctrace"))
sys.exit(archive.read(name) != open(sys.argv[2], "rb").read())
PYTHON
mv "$wheel" "$RELEASE_OUT/"
say "wheel: $RELEASE_OUT/$(basename "$wheel")"
