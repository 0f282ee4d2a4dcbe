#!/bin/bash
# preft run and preft batch from outside, with a small model.
set -u
. tests/commands/common.sh
MODEL=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
ADAPTERS=tests/data/adapters/tiny-llama

preft() { "$PREFT" "$1" --model $MODEL "${@:2}"; }
holds() { grep -qF -- "$1" "$2"; }
# The value of a top-level list of numbers in a JSON line: ids_of FILE KEY
list_of() { sed -n "s/.*\"$2\":\[\([0-9,]*\)\].*/\1/p" "$1" | head -1; }

# --- run --------------------------------------------------------------------------------------------
ids='1,88,86,262,202,49,68,80'
run_json() { preft run --json --ids "$ids" --ignore-eos -n 24 "$@"; }

check 'run answers' ends 0 preft run -n 5 hello
run_json --logprobs 3 >"$work/a"
for key in text ids prompt_ids marks finish_reason usage prompt_tokens completion_tokens \
    cached_tokens logprobs timings; do
    check "run --json has $key" holds "\"$key\":" "$work/a"
done
check 'run --json: the length limit is named' holds '"finish_reason":"length"' "$work/a"
check 'run --json: all ids' [ "$(list_of "$work/a" ids | tr , '\n' | wc -l)" -eq 24 ]
check 'run --json: the prompt' [ "$(list_of "$work/a" prompt_ids)" = "$ids" ]
check 'run --json: no token is adapted without an adapter' [ "$(list_of "$work/a" marks)" = 0,0,0,0,0,0,0,0 ]
for chunk in 1 3 512; do
    run_json --chunk $chunk --threads 1 >"$work/b"
    check "chunks of $chunk change nothing" [ "$(list_of "$work/a" ids)" = "$(list_of "$work/b" ids)" ]
done
run_json --adapter $ADAPTERS/lora-all7 --positions prompt >"$work/b"
check 'an adapter marks the prompt' [ "$(list_of "$work/b" marks)" = 1,1,1,1,1,1,1,1 ]
check 'an adapter changes the answer' [ "$(list_of "$work/a" ids)" != "$(list_of "$work/b" ids)" ]
run_json --temperature 1 --seed 5 >"$work/b"
run_json --temperature 1 --seed 5 >"$work/c"
run_json --temperature 1 --seed 6 >"$work/d"
check 'a seed repeats' [ "$(list_of "$work/b" ids)" = "$(list_of "$work/c" ids)" ]
check 'another seed differs' [ "$(list_of "$work/b" ids)" != "$(list_of "$work/d" ids)" ]

preft run --json --ids "$(seq -s, 1 200)" --context 256 --ignore-eos -n 1000 >"$work/a" 2>"$work/e"
check 'a full context ends the answer after 56 tokens' holds '"completion_tokens":56' "$work/a"
check 'a full context is length' holds '"finish_reason":"length"' "$work/a"
check 'a full context is said' holds 'context' "$work/e"
check 'a prompt longer than the context is refused' \
    ends 3 preft run --context 256 --ids "$(seq -s, 1 300)"
check 'with both numbers' holds 'has 300 tokens, the context holds 256' "$work/err"
check 'an empty stop string is refused' ends 2 preft run --stop '' hello
check 'an id outside the vocabulary is refused' ends 2 preft run --ids 1,999999
check 'no prompt is refused' ends 2 preft run --ids ''
check 'an absent adapter is refused' ends 5 preft run --adapter "$work/none" hello
printf '[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}]' >"$work/m"
check 'messages from a file' ends 0 preft run --messages "$work/m" -n 4
check 'a prompt from standard input' bash -c "echo hi | '$PREFT' run --model $MODEL -n 4"
# A shell starts background jobs with SIGINT ignored, which the program respects.
ended=0
for _ in $(seq 20); do # again when the whole answer was written before anybody looked
    rm -f "$work/out" # what the last command wrote; the shell itself is not to be interrupted
    "$PREFT" run --model $MODEL --isa ref --threads 1 --ids "$ids" --ignore-eos -n 0 \
        >"$work/out" 2>"$work/err" &
    pid=$!
    for _ in $(seq 6000); do [ -s "$work/out" ] && break; sleep 0.02; done
    kill -TERM $pid
    wait $pid
    ended=$?
    [ $ended -eq 0 ] || break
done
check 'an interrupted answer ends with code 130' [ $ended -eq 130 ]
check 'and keeps what was written' [ -s "$work/out" ]

# --- profiles ---------------------------------------------------------------------------------------
echo 'correct horse' >"$work/pass"
chmod 600 "$work/pass"
as_mira() { "$PREFT" "$@" --passphrase-fd 7 7<"$work/pass"; }
as_mira user add --kdf interactive Mira >/dev/null
as_mira profile import --user Mira --model $MODEL Letters $ADAPTERS/direft-mid >/dev/null
run_json --adapter $ADAPTERS/direft-mid >"$work/a"
as_mira run --model $MODEL --json --ids "$ids" --ignore-eos -n 24 --user Mira --profile Letters >"$work/b"
check 'a profile answers as its folder does' [ -n "$(list_of "$work/b" ids)" ]
check 'with the same ids' [ "$(list_of "$work/a" ids)" = "$(list_of "$work/b" ids)" ]
echo wrong >"$work/pass"
check 'a wrong passphrase is refused' \
    ends 4 as_mira run --model $MODEL --ids "$ids" --user Mira --profile Letters
echo 'correct horse' >"$work/pass"
check 'an unknown profile is refused' \
    ends 5 as_mira run --model $MODEL --ids "$ids" --user Mira --profile Other
check 'the profile of another model is refused' \
    ends 3 as_mira run --model tests/data/models/tiny-llama/tiny-llama-q4_1.gguf --ids "$ids" \
    --user Mira --profile Letters
check 'unless it is wanted' \
    ends 0 as_mira run --model tests/data/models/tiny-llama/tiny-llama-q4_1.gguf --ids "$ids" \
    --user Mira --profile Letters --force-base -n 3

# --- batch ------------------------------------------------------------------------------------------
cat >"$work/in" <<END
{"id":"first","ids":[$ids],"max_tokens":24,"ignore_eos":true}
not json

{"ids":[$ids],"max_tokens":24,"ignore_eos":true,"adapter":"$ADAPTERS/lora-all7","positions":"prompt","user":"a"}
{"id":[3],"ids":[$ids],"max_tokens":24,"ignore_eos":true,"adapter":"$ADAPTERS/direft-all","user":7}
{"id":"typo","prompt":"x","max_token":5}
{"id":"long","ids":[$(seq -s, 1 300)]}
{"id":"talk","turns":["one, which is long enough to fill a page or two","two"],"max_tokens":6,"ignore_eos":true}
{"id":"gone","prompt":"x","adapter":"$work/none"}
END
check 'a place where nothing can be written is told before the work' \
    ends 5 preft batch --model "$work/none" -o "$work/none/out" "$work/in"
check 'with the place' holds 'none/out' "$work/err"
check 'a folder in the place of a file' ends 2 preft batch --model "$work/none" -o "$work" "$work/in"
check 'batch ends well' ends 0 preft batch --context 256 "$work/in"
cp "$work/out" "$work/r"
line() { sed -n "$1p" "$work/r"; }
check 'a result for every line' [ "$(wc -l <"$work/r")" -eq 8 ]
run_json >"$work/a"
line 1 >"$work/b"
check 'batch answers as run does' [ "$(list_of "$work/a" ids)" = "$(list_of "$work/b" ids)" ]
run_json --adapter $ADAPTERS/lora-all7 --positions prompt >"$work/a"
line 3 >"$work/b"
check 'with adapters too' [ "$(list_of "$work/a" ids)" = "$(list_of "$work/b" ids)" ]
want=('"id":"first"' '"id":2,"error"' '"id":4,' '"id":[3],' 'did you mean \"max_tokens\"' \
    'has 300 tokens' '"id":"talk","turns":[{' '"id":"gone","error"')
for i in "${!want[@]}"; do
    line $((i + 1)) >"$work/b"
    check "line $((i + 1)): ${want[i]}" holds "${want[i]}" "$work/b"
done
line 7 >"$work/b"
check 'the second turn finds the first in the cache' grep -qE '"cached_tokens":[1-9]' "$work/b"
check 'one adapter slot is enough' ends 0 preft batch --context 256 --adapter-slots 1 --max-batch 2 "$work/in"
grep -o '"ids":\[[0-9,]*\]' "$work/out" >"$work/x"
grep -o '"ids":\[[0-9,]*\]' "$work/r" >"$work/y"
check 'and changes nothing' cmp "$work/x" "$work/y"
preft batch --context 256 -o "$work/o" - <"$work/in"
grep -o '"ids":\[[0-9,]*\]' "$work/o" >"$work/x"
check 'from standard input to a file' cmp "$work/x" "$work/y"
exit $failed
