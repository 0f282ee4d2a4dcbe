#!/bin/bash
# Trains profiles on small persona sets and prints what they learned: scores, and means over seeds.
#
#   tests/bench/personas.sh DIR [ROW...]      (make bench-personas PERSONAS=DIR [ROWS="letter-lorap ..."])
#
# DIR holds the sets: letter, terse, memory, memory_raw (train.jsonl, eval.jsonl, check.json) and
# general.jsonl. A row is trained once for each of $SEEDS (default "1 2 3") with the program's own
# defaults and asked greedily. Everything is kept under build/personas: what is there for the same
# words is not done again, so the bench can be broken off and gone on with; another build's results
# go by removing the folder. Scores depend on the
# model, the data and the seed alone, not on how busy the machine is; seconds do.
#
# Columns: score (40 questions), other (48 in quite other words), after (two unrelated turns), turns
# (three in a row); damaged and base: loss of the base model's own answers to 30 other questions
# with the profile and without; leaks: answers of those 30 that hold a fact; sense and own: loss of
# the profile's answers under the base model, and of the base model's; reward of the last step;
# heldout: loss on conversations kept aside.
set -u
PREFT=${PREFT:-./preft}
SEEDS=${SEEDS:-1 2 3}
OUT=${OUT:-build/personas}
sets=${1:?give the folder of the persona sets}
shift
own=tests/data/personas
export PREFT_CONFIG=''
model=()
[ -n "${PREFT_TEST_MODEL:-}" ] && model=(--model "$PREFT_TEST_MODEL")
mkdir -p "$OUT"

# row | set | words for train | what to ask
rows="
letter-lorap|letter|--method lorap|eval turns
terse-lorap|terse|--method lorap|eval turns
memory-lorap|memory|--method lorap|eval other after damage
letter-direftp|letter|--method direftp|eval
terse-direftp|terse|--method direftp|eval
memory-direftp|memory|--method direftp|eval other after damage
raw-lorap|memory_raw|--method lorap --facts found|eval other damage
raw-direftp|memory_raw|--method direftp --facts found|eval other damage
grpo-terse|terse|--grpo --reward tests/bench/terse_reward.json|eval sense
distill-facts|memory|--distill @$own/distill/facts.txt|eval other damage
distill-style|terse|--distill @$own/distill/style.txt|style
"
# The paper's claim of parity: prefill-only against every position, the same learning rates, as many
# parameters (a DiReFT of rank 70 has as many as a LoRA of rank 8); plain training on the given
# conversations. All rates are tried with the first seed; the one with the lowest loss on
# conversations kept aside is asked, and trained with the other seeds.
rates='0.0005 0.001 0.002'
for set in letter memory; do
    same='--facts none --held-out 0.15'
    [ $set = memory ] && same+=' --replay=16 --epochs 4'
    for kind in lorap:8 lora:8 direftp:70 direft:70; do
        rows+="grid-$set-${kind%:*}|$set|--method ${kind%:*} --rank ${kind#*:} $same|eval"$'\n'
    done
done

# The first number under KEY in FILE, or in what follows "AFTER": there.
number() { # number KEY FILE [AFTER]
    [ -f "$2" ] && sed "s/.*\"${3:-no such key}\"://" "$2" | grep -oE "\"$1\":-?[0-9][-+0-9.e]*" | head -1 | cut -d: -f2
}
mean() { # mean KEY FILE-NAME ROW AFTER SEED...
    local key=$1 file=$2 row=$3 after=$4
    shift 4
    for seed in "$@"; do number "$key" "$OUT/$row-$seed/$file.json" "$after"; done |
        awk '{ s += $1; n++ } END { if (n) printf "%.3f", s / n; else printf "-" }'
}

# Runs a command into FILE unless FILE holds the result of the same words.
keep() { # keep FILE COMMAND...
    local file=$1
    shift
    [ -f "$file" ] && [ "$(cat "$file.words" 2>/dev/null)" = "$*" ] && return 0
    "$@" >"$file.part" 2>"$file.log" || { echo "failed: $* ($(tail -1 "$file.log"))" >&2; return 1; }
    echo "$*" >"$file.words" && mv "$file.part" "$file"
}

train() { # train FOLDER SET SEED WORDS
    mkdir -p "$1"
    keep "$1/train.json" "$PREFT" train --json "${model[@]}" --out "$1/adapter" \
        --data "$sets/$2/train.jsonl" --seed "$3" $4
}

ask() { # ask FOLDER SET NAME: answers to one list of questions
    local folder=$1 data=$sets/$2/eval.jsonl check=$sets/$2/check.json words=()
    case $3 in
    turns) data=$sets/$2/eval_multi.jsonl ;;
    other) data=$own/memory/other_words.jsonl ;;
    after) data=$own/memory/after_unrelated.jsonl ;;
    damage) words=(--limit 1 --damage "$sets/general.jsonl") ;;
    sense) words=(--samples 40) ;;
    style) check=$own/distill/style.json ;;
    esac
    [ "$folder/train.json" -nt "$folder/$3.json" ] && rm -f "$folder/$3.json"
    keep "$folder/$3.json" "$PREFT" eval --json "${model[@]}" --adapter "$folder/adapter" --data "$data" \
        --check "$check" "${words[@]}"
}

# Tries all rates with the first seed; the best one is kept in $OUT/NAME-rate.
choose_rate() { # choose_rate NAME SET WORDS
    local rate seed=${SEEDS%% *} folder loss
    for rate in $rates; do
        folder=$OUT/$1-$rate-$seed
        train "$folder" "$2" "$seed" "$3 --rate $rate" || return
        loss=$(number held_out "$folder/train.json")
        echo "$1 at $rate: $loss on what was kept aside" >&2
        echo "$loss $rate"
    done | sort -g | head -1 | cut -d' ' -f2 >"$OUT/$1-rate"
}

run_row() { # run_row NAME SET TRAIN-WORDS ASKED
    local seed asked folder name=$1 how=$3
    if [[ $1 = grid-* ]]; then
        choose_rate "$1" "$2" "$3"
        name+=-$(cat "$OUT/$1-rate")
        how+=" --rate ${name##*-}"
    fi
    for seed in $SEEDS; do
        folder=$OUT/$name-$seed
        train "$folder" "$2" "$seed" "$how" || return
        for asked in $4; do ask "$folder" "$2" "$asked"; done
        print_row "$name" "$seed" "$seed"
    done
}

print_row() { # print_row NAME LABEL SEED...: means over the seeds that are there
    local name=$1 label=$2 key score
    shift 2
    score=$(mean score eval "$name" '' "$@")
    [ "$score" = - ] && score=$(mean score style "$name" '' "$@")
    printf '%-26s %-4s %7s' "$name" "$label" "$score"
    for key in other after turns; do printf ' %7s' "$(mean score $key "$name" '' "$@")"; done
    for key in loss loss_base leaks; do printf ' %7s' "$(mean $key damage "$name" damage "$@")"; done
    for key in answers base_own; do printf ' %7s' "$(mean $key sense "$name" sense "$@")"; done
    for key in reward_last held_out tokens seconds; do printf ' %9s' "$(mean $key train "$name" '' "$@")"; done
    echo
}

head_line() {
    printf '%-26s %-4s' row seed
    printf ' %7s' score other after turns damaged base leaks sense own
    printf ' %9s' reward heldout tokens seconds
    echo
}

chosen() { [ $# -eq 1 ] || case " ${*:2} " in *" $1 "*) ;; *) return 1 ;; esac; }

head_line
while IFS='|' read -r name set words asked; do
    [ -n "$name" ] && chosen "$name" "$@" && run_row "$name" "$set" "$words" "$asked"
done <<<"$rows"
echo
echo "means over the seeds $SEEDS"
head_line
while IFS='|' read -r name set words asked; do
    { [ -n "$name" ] && chosen "$name" "$@"; } || continue
    [[ $name = grid-* ]] && name+=-$(cat "$OUT/$name-rate")
    print_row "$name" mean $SEEDS
done <<<"$rows"
