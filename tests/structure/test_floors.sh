#!/bin/bash
# The floors of the house: which folder may include which (floors.awk), which room may hold SQL and
# intrinsics, how long a file may be, and that kernels/ stands alone.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0

report() { # TITLE FINDINGS
    if [ -z "$2" ]; then
        echo "ok $1"
    else
        printf '%s\nFAIL %s\n' "$2" "$1"
        bad=1
    fi
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
find src kernels models profiles ui -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \
    -o -name '*.def' | sort >"$work/files"
mapfile -t sources <"$work/files"

# --- includes ---------------------------------------------------------------------------------------
include='^[[:space:]]*#[[:space:]]*include'
floors() { awk -v files="$work/files" -f tests/structure/floors.awk; }
report "rooms include only what lies below them" \
    "$(grep -nE "$include" "${sources[@]}" /dev/null | floors)"

# The check itself: each of these lines has to be found.
broken='kernels/a.c:1:#include "base/err.h"
models/a.c:1:#include "engine/engine.h"
profiles/a.c:1:#include "engine/engine.h"
ui/a.c:1:#include "engine/forward.h"
ui/a.c:2:#include "commands/command.h"
ui/a.c:3:#include "train/job.h"
src/train/a.c:1:#include "train/eval/reward.h"
src/train/a.c:2:#include "profiles/store.h"
src/train/eval/a.c:1:#include "train/data/facts.h"
src/train/eval/a.c:2:#include "profiles/secret.h"
src/train/data/a.c:1:#include "train/live/live.h"
src/engine/a.c:3:#include "train/data/facts.h"
src/base/a.c:1:#include "../../models/model.h"
src/engine/a.c:1:#include <sqlite3.h>
profiles/a.c:2:#include <ncursesw/curses.h>
src/engine/a.c:2:#include <immintrin.h>
profiles/a.c:3:#include <utf8proc.h>'
found=$(echo "$broken" | floors | wc -l)
if [ "$found" -eq "$(echo "$broken" | wc -l)" ]; then
    echo "ok the check finds each kind of wrong include"
else
    report "the check finds each kind of wrong include" "found $found"
fi

# --- words ------------------------------------------------------------------------------------------
report "SQL only in profiles/" "$(grep -nE \
    '"[^"]*\b(SELECT .* FROM|INSERT INTO|DELETE FROM|UPDATE .* SET|CREATE TABLE)\b' \
    "${sources[@]}" /dev/null | grep -v '^profiles/')"
report "intrinsics only in kernels/" \
    "$(grep -nE '\b_mm(256|512)?_[a-z0-9_]+\(' "${sources[@]}" /dev/null | grep -v '^kernels/')"
report "no source file is longer than 900 lines" \
    "$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 900 { print "  " $2 ": " $1 " lines" }')"

# --- kernels/ alone: it needs nothing but libc, libm and pthreads --------------------------------------
objects=()
for source in "${sources[@]}"; do
    object=$BUILD/${source%.c}.o
    [[ $source != kernels/*.c || ! -e $object ]] || objects+=("$object")
done
if [ ${#objects[@]} -eq 0 ]; then
    echo "skip kernels/ links alone: it was not built under $BUILD"
else
    cat >"$work/main.c" <<'END'
#include "kernels/backend.h"
#include <stdio.h>
int main(void)
{
    char message[200];
    kn_options options = {.isa = "ref", .threads = 2};
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    if (!be) return puts(message), 1;
    be->ops->close(be);
    return 0;
}
END
    mapfile -t sanitizer < <(grep -o -m 1 -e '-fsanitize=[a-z,-]*' "$BUILD/flags" | head -n 1)
    report "kernels/ links and runs alone" "$({ $CC "${sanitizer[@]}" -I. -o "$work/main" \
        "$work/main.c" "${objects[@]}" -pthread -lm && "$work/main"; } 2>&1 || echo "exit code $?")"
fi
exit $bad
