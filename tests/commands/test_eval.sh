#!/bin/bash
# preft eval from outside, with a small model.
set -u
. tests/commands/common.sh
MODEL=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
ADAPTERS=tests/data/adapters/tiny-llama
DATA=tests/data/eval

code() { ends "$1" "$PREFT" eval --model $MODEL --context 256 -n 8 "${@:2}"; }
number() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$work/out" | head -1; }

# --- scores -----------------------------------------------------------------------------------------
cat >"$work/check.json" <<'END'
{"rules": [{"type": "word_count", "min": 0, "weight": 0.75},
           {"type": "starts_with", "value": "never in these answers", "weight": 0.25}],
 "decoding": "greedy", "max_new_tokens": 5, "facts": {"a": ["never in these answers"]}}
END
scored() { code 0 --data $DATA/chat.jsonl --check "$work/check.json" &&
    says out 'score      0.750 of 1' && says out 'all rules  0 of 4' && says out 'word_count'; }
json() { code 0 --json --data $DATA/chat.jsonl --check "$work/check.json" &&
    says out '"score":0.75,"n":4,"interval":[0.3' && says out '"all_hold":{"n":0,"share":0.0,' &&
    says out '{"type":"starts_with","mean":0.0}' && says out '"turns":[0.75,0.75,0.75]' &&
    says out '"id":"a"' && says out '"prompt":["one","two","three"]' && says out '"rules":[1.0,0.0]' &&
    [ "$(grep -o '"finish_reason"' "$work/out" | wc -l)" -eq 6 ]; }
limit() { code 0 --json --data $DATA/chat.jsonl --check "$work/check.json" --limit 1 && says out '"n":1,'; }
check_tokens() { "$PREFT" eval --json --model $MODEL --data $DATA/chat.jsonl --limit 1 --check "$work/check.json" >"$work/out" &&
    [ "$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$work/out" | tr , '\n' | wc -l)" -le 5 ]; }
check 'a score' scored
check 'the same as JSON' json
check 'the first items only' limit
check 'the check says how many tokens' check_tokens

# --- losses -----------------------------------------------------------------------------------------
base() { code 0 --json --data $DATA/chat.jsonl base && says out '"score":null' && number loss >"$work/base" &&
    [ -s "$work/base" ] && [ "$(number tokens)" -gt 2 ]; }
adapter() { code 0 --json --data $DATA/chat.jsonl --adapter $ADAPTERS/lora-all7 && number loss >"$work/adapter" &&
    ! cmp -s "$work/base" "$work/adapter"; }
none() { code 0 --json --data $DATA/chat.jsonl --adapter $ADAPTERS/lora-all7 --positions none &&
    [ "$(number loss)" = "$(cat "$work/base")" ]; }
text() { code 0 --data $DATA/chat.jsonl && says out 'perplexity'; }
check 'the loss of the base model' base
check 'the loss under an adapter is another' adapter
check 'unless no token is adapted' none
check 'a loss as text' text

# --- profiles ---------------------------------------------------------------------------------------
echo 'correct horse' >"$work/pass"
chmod 600 "$work/pass"
as_mira() { "$PREFT" "$@" --passphrase-file "$work/pass"; }
as_mira user add --kdf interactive Mira >/dev/null
as_mira profile import --user Mira --model $MODEL Letters $ADAPTERS/lora-all7 >/dev/null
profile() { code 0 --json --data $DATA/chat.jsonl --user Mira --profile Letters --passphrase-file "$work/pass" &&
    [ "$(number loss)" = "$(cat "$work/adapter")" ]; }
unknown() { code 5 --data $DATA/chat.jsonl --user Mira --profile Other --passphrase-file "$work/pass"; }
check 'a profile measures as its folder does' profile
check 'an unknown profile is refused' unknown

# --- side by side, damage ---------------------------------------------------------------------------
samples() { code 0 --json --data $DATA/chat.jsonl --adapter $ADAPTERS/lora-all7 --samples 2 &&
    [ "$(grep -o '"base":' "$work/out" | wc -l)" -eq 2 ]; }
sense() { code 0 --json --data $DATA/chat.jsonl --adapter $ADAPTERS/lora-all7 --samples 2 &&
    [ "$(sed 's/.*"sense":{"answers":\([0-9.]*\),"base_own":\([0-9.]*\)}.*/\1 \2/' "$work/out" | awk '{print ($1 > $2 && $2 > 0)}')" = 1 ]; }
same() { code 0 --data $DATA/chat.jsonl --samples 1 && says out '  base:' && says out '  this:'; }
damage() { code 0 --json --data $DATA/chat.jsonl --check "$work/check.json" --adapter $ADAPTERS/lora-all7 \
    --damage tests/data/personas/general.jsonl && says out '"damage":{"n":30,' && says out '"leaks":0' &&
    [ "$(sed 's/.*"loss_base":\([0-9.]*\),"loss":\([0-9.]*\),.*/\1 \2/' "$work/out" | awk '{print ($1 > 0 && $2 > 0 && $1 != $2)}')" = 1 ]; }
undamaged() { code 0 --json --data $DATA/chat.jsonl --damage tests/data/personas/general.jsonl base &&
    says out '"same":30' && [ "$(sed 's/.*"loss_base":\([0-9.]*\),"loss":\([0-9.]*\),.*/\1 \2/' "$work/out" | awk '{print $1 == $2}')" = 1 ]; }
check 'answers side by side' samples
check 'how likely they are to the base model' sense
check 'answers side by side as text' same
check 'damage of an adapter' damage
check 'the base model does not damage itself' undamaged

# --- formats ----------------------------------------------------------------------------------------
for format in gsm8k math ifeval mmlu longbench-write; do
    check "format $format" code 0 --data $DATA/$format.jsonl --format $format
done
check 'format mmlu as CSV' code 0 --data $DATA/mmlu.csv --format mmlu
left_out() { code 0 --json --data $DATA/ifeval.jsonl --format ifeval && says out '"left_out":1'; }
code_needed() { code 2 --data $DATA/humaneval.jsonl --format humaneval && says err --run-code; }
check 'what needs a model is left out' left_out
check 'programs of a model run only when it is allowed' code_needed
check 'then they do' code 0 --data $DATA/humaneval.jsonl --format humaneval --run-code

# --- refused ----------------------------------------------------------------------------------------
echo '{"rules": [{"type": "start_with", "value": "x"}]}' >"$work/typo.json"
echo '{"rules": [{"type": "contains_expect"}]}' >"$work/expect.json"
echo '{"rules": [{"type": "no_upper_case"}], "decoding": "beam"}' >"$work/beam.json"
typo() { code 3 --data $DATA/chat.jsonl --check "$work/typo.json" && says err 'typo.json: rules[0]' && says err 'starts_with'; }
expect() { code 3 --data $DATA/chat.jsonl --check "$work/expect.json" && says err 'item 2' && says err '"expect"'; }
beam() { code 3 --data $DATA/chat.jsonl --check "$work/beam.json" && says err 'greedy'; }
nothing() { echo '{"prompt":"x"}' >"$work/p" && code 2 --data "$work/p" && says err '--check'; }
both() { code 2 --data $DATA/chat.jsonl --adapter $ADAPTERS/lora-all7 base && says err 'exclude'; }
damaged() { echo '{"messages":' >"$work/p" && code 3 --data "$work/p" && says err 'line 1'; }
check 'an unknown rule is refused with its place' typo
check 'an item that lacks what a rule needs is refused' expect
check 'another decoding is refused' beam
check 'nothing to measure' nothing
check 'an adapter and base' both
check 'a data set that is no JSON' damaged
check 'no data set' code 2 base
check 'an absent data set' code 5 --data "$work/absent"
check 'a word that is not base' code 2 --data $DATA/chat.jsonl other
exit $failed
