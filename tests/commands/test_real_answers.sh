#!/bin/bash
# What preft run and preft batch answer with the real model.
# tier: model
set -u
. tests/commands/common.sh
MODEL=${PREFT_TEST_MODEL:-}
GOLDEN=tests/data/forward/smollm2-135m.json
[ -r "$MODEL" ] || { echo "skip real model: PREFT_TEST_MODEL names no file"; exit 77; }

# --- greedy text against the reference ------------------------------------------------------------
# The list KEY of prompt NAME of the golden data, with commas between.
golden() { # NAME KEY
    awk -v name="\"$1\":" -v key="\"$2\":" '
        $2 == "{" { now = $1 }
        $2 == "[" { list = now == name && $1 == key; next }
        /\]/ { list = 0 }
        list { printf "%s", $1 }' $GOLDEN
}

# Up to the first step whose best two tokens lie closer than integer arithmetic can tell apart.
agree() { # WANTED GOT MARGINS
    awk -v want="$1" -v got="$2" -v margins="$3" 'BEGIN {
        n = split(want, w, ","); split(got, g, ","); m = split(margins, margin, ",")
        if (n < 40 || m != n) { print "the golden data could not be read"; exit 1 }
        for (i = 1; i <= n && margin[i] >= 0.5; i++)
            if (w[i] != g[i]) { printf "token %d is %s, not %s\n", i, g[i], w[i]; exit 1 }
        exit 0
    }'
}

for name in one short long; do
    for isa in avx2 avx512; do
        if ! "$PREFT" run --model "$MODEL" --isa $isa --json --greedy --ignore-eos -n 48 \
            --ids "$(golden $name ids)" >"$work/out" 2>"$work/err"; then
            if grep -q "$isa" "$work/err"; then
                echo "skip $name on $isa: this machine has none"
            else
                check "$name on $isa: $(cat "$work/err")" false
            fi
            continue
        fi
        ids=$(sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p' "$work/out")
        check "$name on $isa: the reference's greedy ids" agree "$(golden $name greedy)" "$ids" \
            "$(golden $name margins)"
    done
done

# Every step by itself, with the reference's tokens before it, where the margin is large enough.
steps() { # NAME
    awk -v ids="$(golden "$1" ids)" -v want="$(golden "$1" greedy)" -v margins="$(golden "$1" margins)" '
        BEGIN {
            n = split(want, w, ","); split(margins, margin, ",")
            for (i = 1; i <= n; i++) {
                if (margin[i] >= 0.5)
                    printf "{\"id\":\"%s\",\"ids\":[%s],\"max_tokens\":1,\"ignore_eos\":true}\n", w[i], ids
                ids = ids "," w[i]
            }
        }'
}
for name in one short long; do steps $name; done >"$work/in"
"$PREFT" batch --model "$MODEL" --json "$work/in" >"$work/out" 2>"$work/err"
sed -n 's/.*"id":"\([0-9]*\)".*"ids":\[\([0-9]*\)\].*/\1 \2/p' "$work/out" >"$work/choices"
check 'single steps: enough of them' [ "$(wc -l <"$work/choices")" -ge 90 ]
check 'single steps: the reference'"'"'s choices' awk '$1 != $2 { print; bad = 1 } END { exit bad }' "$work/choices"

# --- answers end with their turn ------------------------------------------------------------------
i=0
while read -r question; do
    i=$((i + 1))
    echo "{\"messages\":[{\"role\":\"user\",\"content\":\"$question\"}],\"max_tokens\":400," \
        "\"temperature\":$((i % 2)),\"seed\":$i}"
done >"$work/in" <<'END'
What is the capital of France?
How many days has a week?
Name three colours.
What is 2+2?
Who wrote Hamlet?
Is water wet?
What do bees make?
Say hello in Spanish.
What is the opposite of hot?
Name an animal that can fly.
How many legs has a spider?
What is ice?
Which planet is the largest?
What is a verb?
Give me a word that rhymes with cat.
What is the boiling point of water?
Name a fruit.
What colour is the sky?
How do you spell necessary?
What is the sun?
END
"$PREFT" batch --model "$MODEL" --context 1024 "$work/in" >"$work/out" 2>"$work/err"
check 'twenty answers to short questions' [ "$(grep -c '"finish_reason"' "$work/out")" -eq 20 ]
# (a small model also repeats itself, up to the limit)
check 'most end by themselves' [ "$(grep -c '"finish_reason":"stop"' "$work/out")" -ge 12 ]
sed 's/.*"text":"\(\([^"\\]\|\\.\)*\)".*/\1/' "$work/out" >"$work/texts"
check 'the marker of an end is not shown' eval '! grep -q "<|im_\|<|endoftext" "$work/texts"'
check 'and no turn is made up' eval '! grep -qE "\\\\n(user|assistant|system)\\\\n" "$work/texts"'

# --- a profile through the store ------------------------------------------------------------------
echo 'correct horse' >"$work/pass"
chmod 600 "$work/pass"
as_mira() { "$PREFT" "$@" --user mira --passphrase-file "$work/pass" --model "$MODEL"; }
measure() { # COMMAND...: the score on the set of letters
    "$@" --json --data tests/data/personas/letter/eval.jsonl --check tests/data/personas/letter/check.json \
        2>"$work/err" | sed -n 's/^{*"score":\([0-9.]*\).*/\1/p'
}
"$PREFT" user add --kdf interactive --quiet --passphrase-file "$work/pass" mira
as_mira profile import letters tests/data/demo/letters --quiet
with=$(measure as_mira eval --profile letters)
without=$(measure "$PREFT" eval --model "$MODEL")
check "letters: $with with the profile" awk -v s="$with" 'BEGIN { exit !(s >= 0.9) }'
check "letters: $without without" awk -v s="$without" 'BEGIN { exit !(s != "" && s == 0) }'
exit $failed
