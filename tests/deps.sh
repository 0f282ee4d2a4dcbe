#!/bin/sh
# usage: deps.sh KIND:NAME:PACKAGE...
# Says for each whether it is there; installs what is missing as root or with sudo, else prints the
# command and fails. KIND is program, library (pkg-config), header or terminal (terminfo).
set -u

present() {
    case $1 in
    program) command -v "$2" >/dev/null 2>&1 ;;
    library) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "$2" ;;
    terminal) infocmp "$2" >/dev/null 2>&1 ;;
    header) echo "#include <$2>" | ${CC:-cc} -E - >/dev/null 2>&1 ;;
    esac
}

missing=
for entry in "$@"; do
    kind=${entry%%:*}
    rest=${entry#*:}
    name=${rest%%:*}
    package=${rest#*:}
    if present "$kind" "$name"; then
        state=found
    else
        state=missing
        missing="$missing $package"
    fi
    printf '  %-8s %-8s %-24s (%s)\n' "$state" "$kind" "$name" "$package"
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing packages (their Debian names):$missing. Install them, then try again." >&2
    exit 1
elif [ "$(id -u)" -eq 0 ]; then
    become=
elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    become=sudo
else
    echo "Missing packages. As root, run: $install" >&2
    exit 1
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the package list is meant to be split
$become apt-get update -qq && $become $install
