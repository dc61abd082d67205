#!/bin/sh
# Runs a command as an ordinary user without any capability. Needs root.
#
#   as_user.sh UID FOLDER... -- COMMAND...
#
# The FOLDERs are readable for that user even if a folder on the way to them is closed to others: in
# its own mount namespace the closed folder is covered by an empty one that contains only them.
set -eu

if [ "${1-}" != --inside ]; then
    exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift
user=$1
shift

# Prints the outermost folder on the way to $1 that others cannot enter; nothing if there is none.
closed() {
    rest=$1
    found=
    while [ "$rest" != / ]; do
        rest=$(dirname "$rest")
        case $(stat -c %A "$rest") in *[xt]) ;; *) found=$rest ;; esac
    done
    echo "$found"
}

# The covered folders, each with a descriptor that still refers to it.
covered=
descriptor=3
while [ "$1" != -- ]; do
    folder=$(realpath "$1")
    shift
    cover=$(closed "$folder")
    if [ -n "$cover" ]; then
        eval "exec $descriptor<\"\$cover\""
        mount -t tmpfs -o mode=755 tmpfs "$cover"
        covered="$covered $descriptor:$cover"
        descriptor=$((descriptor + 1))
    fi
    for pair in $covered; do
        cover=${pair#*:}
        case $folder in
        "$cover"/*)
            mkdir -p "$folder"
            mount --no-canonicalize --bind "/proc/self/fd/${pair%%:*}${folder#"$cover"}" "$folder"
            ;;
        esac
    done
done
shift
while [ "$descriptor" -gt 3 ]; do
    descriptor=$((descriptor - 1))
    eval "exec $descriptor<&-"
done
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
    --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@"
