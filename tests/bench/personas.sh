#!/bin/bash
# Trains profiles on small persona sets and prints what they learned: mean scores over seeds.
#
#   tests/bench/personas.sh DIR [ROW...]      (make bench-personas PERSONAS=DIR [ROWS="letter-lorap ..."])
#
# DIR holds the sets: letter, terse, memory, memory_raw (train.jsonl, eval.jsonl, check.json) and
# general.jsonl. A row is trained once for each of $SEEDS (default "1 2 3") with the program's own
# defaults and asked greedily. Everything is kept under build/personas: what is there for the same
# words is not done again, so the bench can be broken off and gone on with. Scores depend on the
# model, the data and the seed alone, not on how busy the machine is; seconds do.
set -u
PREFT=${PREFT:-./preft}
SEEDS=${SEEDS:-1 2 3}
OUT=${OUT:-build/personas}
sets=${1:?give the folder of the persona sets}
shift
own=tests/data/personas/memory
export PREFT_CONFIG=''
model=()
[ -n "${PREFT_TEST_MODEL:-}" ] && model=(--model "$PREFT_TEST_MODEL")
mkdir -p "$OUT"

# row | set | words for train | what to ask
rows='
letter-lorap|letter|--method lorap|eval turns
terse-lorap|terse|--method lorap|eval turns
memory-lorap|memory|--method lorap|eval other after damage
letter-direftp|letter|--method direftp|eval
terse-direftp|terse|--method direftp|eval
memory-direftp|memory|--method direftp|eval other after damage
raw-lorap|memory_raw|--method lorap --facts found|eval other damage
raw-direftp|memory_raw|--method direftp --facts found|eval other damage
'
# The paper's claim of parity: prefill-only against every position, the same learning rates, as many
# parameters (a DiReFT of rank 70 has as many as a LoRA of rank 8), chosen by the loss on a part kept
# aside.
for set in letter memory; do
    for kind in lorap lora; do for rate in 0.0005 0.001 0.002; do
        rows+="grid-$set-$kind-$rate|$set|--method $kind --rank 8 --rate $rate --held-out 0.15|eval"$'\n'; done; done
    for kind in direftp direft; do for rate in 0.0003 0.0005 0.001; do
        rows+="grid-$set-$kind-$rate|$set|--method $kind --rank 70 --rate $rate --held-out 0.15|eval"$'\n'; done; done
done

number() { sed -n "s/.*\"$1\":\(-\{0,1\}[0-9][-+0-9.e]*\).*/\1/p" "$2" | head -1; }
average() { awk '{ for (i = 1; i <= NF; i++) if ($i != "") { s += $i; n++ } } END { if (n) printf "%.3f", s / n; else printf "-" }'; }

# Runs a command into FILE unless FILE holds the result of the same words.
keep() { # keep FILE COMMAND...
    local file=$1
    shift
    [ -f "$file" ] && [ "$(cat "$file.words" 2>/dev/null)" = "$*" ] && return 0
    "$@" >"$file.part" 2>"$file.log" || { echo "failed: $* ($(tail -1 "$file.log"))" >&2; return 1; }
    echo "$*" >"$file.words" && mv "$file.part" "$file"
}

ask() { # ask FOLDER SET NAME: answers to one list of questions
    local folder=$1 set=$2 data=$sets/$2/eval.jsonl words=()
    case $3 in
    turns) data=$sets/$set/eval_multi.jsonl ;;
    other) data=$own/other_words.jsonl ;;
    after) data=$own/after_unrelated.jsonl ;;
    damage) words=(--limit 1 --damage "$sets/general.jsonl") ;;
    esac
    keep "$folder/$3.json" "$PREFT" eval --json "${model[@]}" --adapter "$folder/adapter" --data "$data" \
        --check "$sets/$set/check.json" "${words[@]}"
}

run_row() { # run_row NAME SET TRAIN-WORDS ASKED
    local seed asked folder
    for seed in $SEEDS; do
        folder=$OUT/$1-$seed
        mkdir -p "$folder"
        keep "$folder/train.json" "$PREFT" train --json "${model[@]}" --out "$folder/adapter" \
            --data "$sets/$2/train.jsonl" --seed "$seed" $3 || return
        for asked in $4; do ask "$folder" "$2" "$asked"; done
        print_row "$1" "$4" "$seed" "$seed"
    done
}

print_row() { # print_row NAME ASKED LABEL SEED...: mean over the seeds that are there
    local name=$1 asked=$2 label=$3 file key line
    shift 3
    line=$(printf '%-26s %-5s' "$name" "$label")
    for key in eval other after turns; do
        for seed in "$@"; do file=$OUT/$name-$seed/$key.json; [ -f "$file" ] && number score "$file"; done | average >"$OUT/mean"
        line+=$(printf ' %7s' "$(cat "$OUT/mean")")
    done
    for key in loss loss_base leaks; do
        for seed in "$@"; do file=$OUT/$name-$seed/damage.json; [ -f "$file" ] && sed 's/.*"damage"://' "$file" >"$OUT/damage" &&
            number $key "$OUT/damage"; done | average >"$OUT/mean"
        line+=$(printf ' %7s' "$(cat "$OUT/mean")")
    done
    for key in held_out tokens seconds; do
        for seed in "$@"; do file=$OUT/$name-$seed/train.json; [ -f "$file" ] && number $key "$file"; done | average >"$OUT/mean"
        line+=$(printf ' %8s' "$(cat "$OUT/mean")")
    done
    echo "$line"
}

head_line() { printf '%-26s %-5s %7s %7s %7s %7s %7s %7s %7s %8s %8s %8s\n' row seed score other after turns damaged base leaks \
    heldout tokens seconds; }

chosen() { [ $# -eq 1 ] || case " ${*:2} " in *" $1 "*) ;; *) return 1 ;; esac; }

head_line
while IFS='|' read -r name set words asked; do
    [ -n "$name" ] && chosen "$name" "$@" && run_row "$name" "$set" "$words" "$asked"
done <<<"$rows"
echo
echo "means over the seeds $SEEDS"
head_line
while IFS='|' read -r name set words asked; do
    [ -n "$name" ] && chosen "$name" "$@" && print_row "$name" "$asked" mean $SEEDS
done <<<"$rows"
