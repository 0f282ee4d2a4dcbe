#!/bin/bash
# Pictures of screens (tests/pictures/svg.awk): every row is there, texts are escaped, and what comes
# out is well-formed.
set -u
cd "$(dirname "$0")/../.." || exit 1
PREFT=${PREFT:-$PWD/preft}
bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LC_ALL=C.UTF-8 TERM=dumb
unset PREFT_HOME PREFT_MODELS NO_COLOR COLORFGBG

check() { # TITLE COMMAND...
    local title=$1
    shift
    if "$@"; then echo "ok $title"; else echo "FAIL $title" && bad=1; fi
}
(umask 077 && echo pw-mira >"$work/pw")
"$PREFT" user add mira --home "$work/home" --kdf interactive --quiet --passphrase-file "$work/pw" || exit 1
cat >"$work/script" <<'S'
"pw-mira" Enter
:wait idle
"a <b> & \"c\" 漢字 👩‍🌾"
:cells one
F1
:cells two
S
"$PREFT" chat --home "$work/home" --model tests/data/models/tiny-llama/tiny-llama-q8_0.gguf --isa ref \
    --user mira --size 60x12 --script "$work/script" >"$work/cells" </dev/null
check "the script plays" [ $? -eq 0 ]
awk -v OUT="$work" -f tests/pictures/svg.awk "$work/cells"
check "a file for each picture" [ -s "$work/one.svg" -a -s "$work/two.svg" ]
check "texts are escaped" grep -q 'a &lt;b&gt; &amp; "c" 漢字 👩‍🌾' "$work/one.svg"
check "cells add up to the width in every row" awk '
    /^==/ { split($3, size, "x"); next }
    { if ($1 != row) { if (NR > 2 && at != 60) exit 1; row = $1; at = 0 }
      if ($2 != at) exit 1
      at += $3 }' "$work/cells"
check "the title is bold" grep -q 'font-weight="bold">mira' "$work/one.svg"
if command -v xmllint >/dev/null; then
    check "well-formed" xmllint --noout "$work/one.svg" "$work/two.svg"
elif command -v python3 >/dev/null; then
    check "well-formed" python3 -c 'import sys, xml.dom.minidom as m
for f in sys.argv[1:]: m.parse(f)' "$work/one.svg" "$work/two.svg"
else
    echo "skip well-formed: neither xmllint nor python3 is installed"
fi
exit $bad
