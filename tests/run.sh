#!/bin/bash
# usage: run.sh [--list] [TIER...] [NAME...]
#
# Runs the tests of the tiers (quick, model, soak; default quick) whose names contain one of the
# NAMEs (default: all) and ends with the line `N passed, N failed, N skipped`.
#
#   tests/unit/test_X.c    a cmocka program, $BUILD/tests/test_X. Tier quick; the ones that look for
#                          $PREFT_TEST_MODEL are in tier model too, where it is set; asked for both
#                          tiers they run once.
#   tests/AREA/test_X.cpp a cmocka program, $BUILD/tests/test_X. Tier quick.
#   tests/AREA/test_X.sh   a script. A line `# tier: model` near its top chooses the tier. It prints
#                          `ok TEXT`, `FAIL TEXT` or `skip TEXT: why` per check; exit code 0, or 77
#                          when it can't run here at all.
#
# Environment: BUILD (build/release), PREFT (./preft), CC, PREFT_TEST_MODEL (a GGUF file; else the
# default model's in the models folder), PREFT_PERSONAS (a folder of trained profiles, see
# tests/unit/test_personas.c, which skips without it), JOBS (the number of cores), VERBOSE=1 (all
# output), RETRY=1 (a script of tests/ui that fails, and no other test, runs once more when all else
# is done: both runs are printed, the second one counts; other work on a machine delays terminals).
set -u
cd "$(dirname "$0")/.." || exit 1

export BUILD=${BUILD:-build/release} CC=${CC:-cc}
PREFT=$(readlink -f "${PREFT:-preft}")
export PREFT
JOBS=${JOBS:-$(nproc)}
LOGS=$BUILD/test-logs

list=
tiers=()
names=()
for word in "$@"; do
    case $word in
    --list) list=1 ;;
    quick | model | soak) tiers+=("$word") ;;
    -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
    *) names+=("$word") ;;
    esac
done
[ ${#tiers[@]} -gt 0 ] || tiers=(quick)

# --- what there is: lines "TIER NAME PATH" ---------------------------------------------------------

all_tests() {
    local source name script tier
    for source in tests/unit/test_*.c; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .c)
        tier=quick
        if grep -q PREFT_TEST_MODEL "$source"; then
            [[ " ${tiers[*]} " == *" model "* ]] && tier=model
        fi
        echo "$tier $name $BUILD/tests/$name"
    done
    for source in tests/*/test_*.cpp; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .cpp)
        echo "quick $name $BUILD/tests/$name"
    done
    for script in tests/*/test_*.sh; do
        [ -e "$script" ] || continue
        tier=$(sed -n '1,12s/^# tier: *\([a-z]*\).*/\1/p' "$script")
        echo "${tier:-quick} $(basename "$script" .sh) $script"
    done
}

chosen() {
    local tier name path want
    while read -r tier name path; do
        [[ " ${tiers[*]} " == *" $tier "* ]] || continue
        if [ ${#names[@]} -gt 0 ]; then
            for want in "${names[@]}"; do
                [[ $name == *"$want"* ]] && break
                want=
            done
            [ -n "$want" ] || continue
        fi
        echo "$tier $name $path"
    done
}

if [ -n "$list" ]; then
    all_tests | chosen
    exit 0
fi

# --- the model's tier ------------------------------------------------------------------------------

model=${PREFT_TEST_MODEL:-}
unset PREFT_TEST_MODEL
if [ -z "$model" ]; then
    data=${XDG_DATA_HOME:-${HOME:-/}/.local/share}
    for file in "${PREFT_MODELS:-$data/preft/models}"/*.gguf; do
        [ -f "$file" ] && model=$file && break
    done
fi

# The tests must not see the person's own store, models and settings.
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch XDG_DATA_HOME=$scratch/data XDG_CONFIG_HOME=$scratch/config PREFT_CONFIG=
unset PREFT_HOME PREFT_MODELS

# --- running ---------------------------------------------------------------------------------------

# Prints "passed failed skipped" and the names that failed or were skipped, from a test's log.
count() { # LOG EXIT_CODE KIND
    awk -v code="$2" -v kind="$3" '
        function text(n) { return substr($0, n) }
        kind == "unit" && /^\[ RUN      \]/ { if (now != "") fail(now " (ended the program)"); now = $4; next }
        kind == "unit" && now != "" && /^\[       OK \]/ { ok++; now = ""; next }
        kind == "unit" && now != "" && /^\[  SKIPPED \]/ { skip("" now); now = ""; next }
        kind == "unit" && now != "" && /^\[  (FAILED|ERROR ) +\]/ { fail(now); now = ""; next }
        kind == "script" && /^ok / { ok++ }
        kind == "script" && /^FAIL / { fail(text(6)) }
        kind == "script" && /^skip / { skip(text(6)) }
        function fail(what) { bad++; notes = notes "    FAIL " what "\n" }
        function skip(what) { skipped++; notes = notes "    skip " what "\n" }
        END {
            if (now != "") fail(now (code == 124 ? " (took too long)" : " (ended the program)"))
            if (code == 77 && !bad) skip("all of it")
            else if (code == 124 && !bad) fail("took too long")
            else if (code != 0 && !bad) fail("exit code " code)
            else if (ok + bad + skipped == 0) fail("ran no test")
            printf "%d %d %d\n%s", ok, bad, skipped, notes
        }' "$1"
}

run_one() { # TIER NAME PATH [AGAIN]
    local tier=$1 name=$2 path=$3 again=${4:-} kind=script log code=0 limit=900 begin=$SECONDS
    log=$LOGS/$tier-$name
    [[ $path == *.sh ]] || kind=unit
    [ "$tier" = quick ] || export PREFT_TEST_MODEL=$MODEL
    [ "$tier" = soak ] && limit=3600
    mkdir -p "$SCRATCH/$tier-$name$again"
    TMPDIR=$SCRATCH/$tier-$name$again timeout -k 5 "$limit" "$path" >"$log.log" 2>&1 </dev/null || code=$?
    [ -x "$path" ] || echo "$path is not built: \`make tests\` builds all tests" >>"$log.log"
    count "$log.log" "$code" "$kind" >"$log.result"
    read -r passed failed skipped <"$log.result"
    printf '%-4s %-5s %-28s %4d passed' "$([ "$failed" -eq 0 ] && echo ok || echo FAIL)" "$tier" "$name" "$passed"
    [ "$failed" -eq 0 ] || printf ', %d failed' "$failed"
    [ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
    printf ' (%d s)\n' $((SECONDS - begin))
    tail -n +2 "$log.result"
    if [ "$failed" -gt 0 ]; then tail -n 100 "$log.log" | sed 's/^/    | /'; elif [ -n "${VERBOSE:-}" ]; then cat "$log.log"; fi
}
export -f run_one count
export LOGS MODEL=$model SCRATCH=$scratch

rm -rf "$LOGS" && mkdir -p "$LOGS"
mapfile -t tests < <(all_tests | chosen)
if [ -z "$model" ] && [[ " ${tiers[*]} " == *" model "* ]]; then
    echo "No model for the model tests: ./preft model pull fetches it, or set PREFT_TEST_MODEL." >&2
fi
# shellcheck disable=SC2016 # expanded by the inner shell
[ ${#tests[@]} -eq 0 ] || printf '%s\n' "${tests[@]}" |
    xargs -P "$JOBS" -L 1 bash -c 'out=$(run_one "$@"); printf "%s\n" "$out"' run

if [ -n "${RETRY:-}" ]; then
    for test in "${tests[@]}"; do
        read -r tier name path <<<"$test"
        [[ $path == tests/ui/*.sh ]] || continue
        awk '{ exit $2 == 0 }' "$LOGS/$tier-$name.result" || continue
        mv "$LOGS/$tier-$name.log" "$LOGS/$tier-$name.first-log"
        echo "again: $name, which failed the first time"
        run_one "$tier" "$name" "$path" -again
    done
fi

cat "$LOGS"/*.result 2>/dev/null | awk '
    /^[0-9]+ [0-9]+ [0-9]+$/ { passed += $1; failed += $2; skipped += $3 }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
          exit failed > 0 || passed == 0 }'
