#!/usr/bin/env bash
# The .deb: installed, used by root, members of the group and others, upgraded, removed, purged.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
if ! command -v dpkg >/dev/null; then
    skipped "dpkg is not installed"
    exit
fi
# shellcheck source-path=SCRIPTDIR source=common-packages.sh
. "$(dirname "$0")/common-packages.sh"

deb=$(find "$RELEASE_OUT" -maxdepth 1 -name "gctrace_*_$(dpkg --print-architecture).deb")
[ -f "$deb" ] || {
    failed "there is no package in $RELEASE_OUT"
    exit
}
if [ "${INSTALL_TEST_INSIDE:-}" != yes ]; then
    # It needs the tools of the compiler.
    if command -v lintian >/dev/null; then
        check "lintian" lintian --allow-root --fail-on error,warning "$deb"
    else
        skipped "lintian is not installed"
    fi
fi
enter_overlay
prepare
database='/var/\(lib/dpkg\|cache/debconf\)'
machine "$database" >/tmp/before

reconfigure() { DEBIAN_FRONTEND=noninteractive dpkg-reconfigure gctrace; }

# The same package with a higher version.
newer() {
    dpkg-deb --raw-extract "$deb" /tmp/newer && sed -i 's/^Version: .*/&.1/' /tmp/newer/DEBIAN/control &&
        dpkg-deb --root-owner-group --build /tmp/newer /tmp/newer.deb && dpkg --install /tmp/newer.deb
}

# An administrator's own rights for the file win, until they are taken back.
overridden() {
    dpkg-statoverride --update --add root root 0700 /usr/bin/gctrace
    reconfigure
    same "$(rights)" "root:root 700 " || return 1
    dpkg-statoverride --remove /usr/bin/gctrace
    reconfigure
    same "$(rights)" "$opened"
}

needs_no_newer_glibc() {
    same "$(dpkg-query -W -f '${Depends}' gctrace)" "libc6 (>= $(newest_glibc | cut -d_ -f2))"
}

after_purge() {
    systemctl --quiet enable gctrace-exporter gctrace-recorder || true
    dpkg --remove gctrace && test ! -e /usr/bin/gctrace && test -e /etc/gctrace/allow-group &&
        dpkg --purge gctrace
    machine "$database" >/tmp/after
    diff /tmp/before /tmp/after
}

check "install" dpkg --install "$deb"
check "files" has_files
check "glibc as declared" needs_no_newer_glibc
check "no rights without being asked" same "$(rights)" "$closed"
used_by_everyone
the_service
mkdir -p /etc/gctrace
touch /etc/gctrace/allow-group
check "dpkg-reconfigure" reconfigure
used_by_members
check "upgrade" newer
check "rights after the upgrade" same "$(rights)" "$opened"
check "dpkg-statoverride wins" overridden
check "group-rights off" "$group_rights" off
check "rights are withdrawn" same "$(rights)$(getent group gctrace || true)" "$closed"
check "group-rights on" "$group_rights" on
check "removed and purged: nothing remains" after_purge
