#!/usr/bin/env bash
# The .rpm: installed, used by root, members of the group and others, upgraded, erased. Without
# what it requires: no rpm database on this machine knows glibc.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
if ! command -v rpm >/dev/null; then
    skipped "rpm is not installed"
    exit
fi
enter_overlay
# shellcheck source-path=SCRIPTDIR source=common-packages.sh
. "$(dirname "$0")/common-packages.sh"

rpm=$(find "$RELEASE_OUT" -maxdepth 1 -name "gctrace-*-1.$RELEASE_ARCH.rpm")
[ -f "$rpm" ] || {
    failed "there is no package in $RELEASE_OUT"
    exit
}
database=/var/lib/rpm
export HOME=/root
rpms() { rpm --dbpath "$database" --nodeps "$@"; }
prepare
# Folders of the package `filesystem` of the systems that use rpm.
mkdir -p "$database" /usr/share/fish/vendor_completions.d /usr/share/zsh/site-functions
rpm --dbpath "$database" --initdb
machine "$database" >/tmp/before

needs_no_newer_glibc() {
    rpm --query --requires --package "$rpm" | grep -qxF "libc.so.6($(newest_glibc))(64bit)"
}

# As an upgrade: the scripts of both run, as for a higher version.
replace() { rpms --upgrade --force "$rpm"; }

after_erasure() {
    systemctl --quiet enable gctrace-exporter gctrace-recorder || true
    rpms --erase gctrace
    machine "$database" >/tmp/after
    diff /tmp/before /tmp/after
}

check "install" rpms --install "$rpm"
check "files" has_files
check "glibc as declared" needs_no_newer_glibc
check "no rights without being asked" same "$(rights)" "$closed"
used_by_everyone
the_service
check "group-rights on" "$group_rights" on
used_by_members
check "upgrade" replace
check "rights after the upgrade" same "$(rights)" "$opened"
check "erased: nothing remains" after_erasure
