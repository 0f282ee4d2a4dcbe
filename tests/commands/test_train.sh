#!/bin/bash
# preft train from outside, with a small model: profiles, files, history, rewards, resuming.
set -u
. tests/commands/common.sh
MODEL=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
passphrase "$work/pass"

train() { code "$1" train --model $MODEL --context 256 "${@:2}"; }
mine() { train "$1" --user mira --passphrase-file "$work/pass" --profile learned "${@:2}"; }
loss() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$work/out"; }

for i in 1 2 3 4 5 6; do
    printf '{"messages":[{"role":"user","content":"Number %d?"},{"role":"assistant","content":"It is %d indeed."}]}\n' $i $i
done >"$work/data.jsonl"

# --- data ---------------------------------------------------------------------------------------------
dry_run() { train 0 --out "$work/none" --data "$work/data.jsonl" --dry-run && says out 'adapted' &&
    says out 'plain   learn' && [ ! -e "$work/none" ]; }
too_little() { head -3 "$work/data.jsonl" >"$work/few.jsonl" &&
    train 2 --out "$work/none" --data "$work/few.jsonl" && says err 'at least 4' && [ ! -e "$work/none" ]; }
malformed() { { cat "$work/data.jsonl"; echo '{"messages":[{"role":"user"}]}'; } >"$work/bad.jsonl" &&
    train 3 --out "$work/none" --data "$work/bad.jsonl" && says err 'line 7' && [ ! -e "$work/none" ]; }
words() { train 2 --data "$work/data.jsonl" && train 2 --out "$work/none" &&
    train 2 --out "$work/none" --data "$work/data.jsonl" --rate 0 &&
    train 2 --out "$work/none" --data "$work/data.jsonl" --grpo; }
check 'a dry run shows every token and trains nothing' dry_run
check 'too little data is refused' too_little
amounts() { # too few are refused with the number needed; more than enough of one pair, or fewer than a batch, are not
    local n
    for n in 0 1 2 3; do head -$n "$work/data.jsonl" >"$work/few.jsonl"
        train 2 --out "$work/none" --data "$work/few.jsonl" && says err "$n examples" && says err 'at least 4' || return 1; done
    { cat "$work/data.jsonl"; head -4 "$work/data.jsonl"; } >"$work/ten.jsonl"
    train 0 --json --out "$work/ten" --data "$work/ten.jsonl" --held-out 0.2 --batch 64 && says out '"held_out_before"' &&
        [ "$(loss loss)" != null ] && for n in $(seq 500); do head -1 "$work/data.jsonl"; done >"$work/same.jsonl" &&
        train 0 --json --out "$work/same" --data "$work/same.jsonl" --epochs 1 --batch 100 && [ "$(loss loss)" != null ]; }
rose() { # each answer a letter of its own: what is learned speaks against what was kept aside
    local c
    for c in a b c d e f g h; do printf '{"messages":[{"role":"user","content":"Go"},{"role":"assistant","content":"%s"}]}\n' "$c $c $c $c $c $c"; done >"$work/letters.jsonl"
    train 0 --out "$work/letters" --data "$work/letters.jsonl" --held-out 0.5 --epochs 20 --rate 0.05 &&
        says err 'it rose, the profile may be worse'; }
check 'a malformed line is refused by its number' malformed
check 'a loss that rose is told' rose
check 'any amount is trained or refused with the number needed' amounts
check 'wrong words are refused' words

# --- folders ------------------------------------------------------------------------------------------
folder() { train 0 --json --out "$work/a" --data "$work/data.jsonl" --epochs 4 --rate 0.01 &&
    [ "$(echo "$(loss loss) < $(loss loss_before)" | bc)" = 1 ] && code 0 check "$work/a" --base $MODEL; }
same() { train 0 --out "$work/b" --data "$work/data.jsonl" --epochs 4 --rate 0.01 --threads 1 &&
    cmp "$work/a/adapter_model.safetensors" "$work/b/adapter_model.safetensors"; }
acts() { code 0 run --model $MODEL -n 8 --ignore-eos 'Number 3?' && cp "$work/out" "$work/base.txt" &&
    code 0 run --model $MODEL -n 8 --ignore-eos --adapter "$work/a" 'Number 3?' &&
    ! cmp -s "$work/out" "$work/base.txt"; }
kinds() { for kind in direftp lora direft; do
    train 0 --out "$work/$kind" --data "$work/data.jsonl" --method $kind --rank 2 &&
        code 0 check --json "$work/$kind" --base $MODEL || return 1; done; }
check 'an adapter folder that lowers the loss' folder
check 'the same run gives the same bytes' same
check 'the adapter acts' acts
check 'every kind can be trained' kinds

# --- a text to distill ---------------------------------------------------------------------------------
distilled() { printf 'Answer like a pirate. My dog is called Biscuit.' >"$work/text" &&
    train 0 --json --out "$work/d" --distill "@$work/text" --epochs 1 && says err 'distilled: ' &&
    says err 'answers refused' && code 0 check "$work/d" --base $MODEL &&
    train 0 --out "$work/e" --distill "$(cat "$work/text")" --epochs 1 &&
    cmp "$work/d/adapter_model.safetensors" "$work/e/adapter_model.safetensors"; }
without() { # the examples hold questions and answers, not the text
    train 0 --out "$work/none" --distill "@$work/text" --dry-run && says out 'learn' && ! says out 'irate' >/dev/null; }
no_text() { train 2 --out "$work/none" --distill '' && train 5 --out "$work/none" --distill "@$work/nosuch" &&
    train 2 --out "$work/none" --distill x --grpo --data "$work/data.jsonl" --reward x; }
check 'a text is distilled, given or in a file' distilled
check 'what is learned does not hold the text' without
check 'no text, no distilling' no_text

# --- profiles -----------------------------------------------------------------------------------------
user() { code 0 user add mira --kdf interactive --passphrase-file "$work/pass"; }
profile() { mine 0 --json --data "$work/data.jsonl" --held-out 0.2 && says out '"version":1' &&
    says out '"held_out"'; }
again() { mine 0 --json --data "$work/data.jsonl" && says out '"version":2' && says out '"went_on":true'; }
shown() { code 0 profile show --json --user mira --passphrase-file "$work/pass" learned &&
    says out '"method":"lorap"' && says out '"files":["data.jsonl"]' && says out '"number":2'; }
history() { code 0 history import --user mira --passphrase-file "$work/pass" --profile learned "$work/data.jsonl" &&
    mine 0 --json && says out '"version":3' && says out '"examples":6'; }
nothing_good() { mine 2 --from good && says err 'at least 4'; }
catches_term() { # PID: until the program takes SIGTERM itself, at most a minute
    local mask
    for _ in $(seq 600); do
        [ "$(cat "/proc/$1/comm" 2>/dev/null)" = preft ] || { sleep 0.1; continue; } # still the shell
        mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
        [ $((0x${mask:-0} & 0x4000)) -ne 0 ] && return 0
        sleep 0.1
    done
    return 1
}
interrupted() { # a signal leaves the profile as it was
    "$PREFT" train --model $MODEL --context 256 --user mira --passphrase-file "$work/pass" --profile learned \
        --data "$work/data.jsonl" --epochs 10000 >"$work/out" 2>"$work/err" </dev/null &
    catches_term $!; sleep 1; kill -TERM $!; wait $!; [ $? -eq 130 ] || { cat "$work/err"; return 1; }
    shown_versions 3; }
shown_versions() { code 0 profile show --json --user mira --passphrase-file "$work/pass" learned &&
    says out "\"number\":$1" && ! says out "\"number\":$(($1 + 1))"; }
broken_off() { # PROFILE WORDS...: a training that is killed behind a checkpoint and before its end
    local delay=1 pid
    for _ in $(seq 12); do
        "$PREFT" train --model $MODEL --context 256 --user mira --passphrase-file "$work/pass" \
            --profile "$1" "${@:2}" >"$work/out" 2>"$work/err" </dev/null &
        pid=$!
        sleep $delay
        kill -9 $pid
        if wait $pid 2>/dev/null; then # too late: it had ended
            delay=$(echo "$delay / 2" | bc -l)
        elif mine 3 --profile "$1" --data "$work/data.jsonl" --epochs 7 --fresh --resume; then
            return 0
        else # too early: there is nothing to go on from
            delay=$(echo "$delay * 2" | bc -l)
        fi
    done
    return 1
}
resumed() { # a killed training goes on from its checkpoint, to the same adapter as an unbroken one
    local words=(--data "$work/data.jsonl" --epochs 500 --fresh --checkpoint 20)
    code 0 profile create --user mira --passphrase-file "$work/pass" broken &&
    broken_off broken "${words[@]}" &&
    says err 'other data or options' && mine 0 --profile broken "${words[@]}" --resume && says err 'going on from step' &&
    code 0 profile export --model $MODEL --user mira --passphrase-file "$work/pass" broken "$work/resumed" &&
    train 0 --out "$work/whole" --data "$work/data.jsonl" --epochs 500 &&
    cmp "$work/resumed/adapter_model.safetensors" "$work/whole/adapter_model.safetensors"; }
sealed() { ! grep -rqF 'indeed' "$work/home"; }
check 'a user' user
check 'a profile is made by training' profile
check 'training again goes on from it' again
check 'the profile knows what it was trained on' shown
check 'from chat history' history
check 'nothing rated good: nothing to learn from' nothing_good
check 'a signal leaves the profile as it was' interrupted
check 'a killed training is resumed, bit by bit' resumed
versions() { # what each was made from is told; what was deleted since, too
    code 0 profile show --user mira --passphrase-file "$work/pass" learned && says out '6 examples' && says out 'loss ' &&
        ! grep -q deleted "$work/out" && code 0 history remove --user mira --passphrase-file "$work/pass" 1 2 &&
        code 0 profile show --user mira --passphrase-file "$work/pass" learned &&
        says out '2 conversations that have been deleted since' && mine 0 --json --fresh && says out '"examples":4' &&
        code 2 profile remove --version 4 --user mira --passphrase-file "$work/pass" learned &&
        code 0 profile remove --version 3 --user mira --passphrase-file "$work/pass" learned &&
        code 0 profile show --user mira --passphrase-file "$work/pass" learned && ! grep -q 'deleted since' "$work/out"; }
chosen() { mine 2 --conversation 3 && says err 'at least 4' && mine 2 --conversation x && mine 5 --conversation 99 &&
    train 2 --out "$work/none" --data "$work/data.jsonl" --conversation 3; }
check 'versions tell what they were made from, and what of it was deleted' versions
check 'chosen conversations' chosen
check 'no plaintext in the store' sealed

# --- rewards ------------------------------------------------------------------------------------------
echo '{"rules":[{"type":"word_count","min":1,"max":3,"weight":1}]}' >"$work/reward.json"
grpo() { train 0 --json --grpo --data "$work/data.jsonl" --reward "$work/reward.json" --steps 2 --answer-tokens 6 \
    --out "$work/g" && says out '"method":"grpo"' && says out '"steps":2' && code 0 check "$work/g" --base $MODEL; }
no_rules() { echo '{"rules":[{"type":"nosuch","weight":1}]}' >"$work/nosuch.json" &&
    train 3 --grpo --data "$work/data.jsonl" --reward "$work/nosuch.json" --out "$work/h" && says err nosuch; }
grpo_ended() { # a signal ends it after a step; what was reached is saved
    "$PREFT" train --model $MODEL --context 256 --grpo --data "$work/data.jsonl" --reward "$work/reward.json" \
        --steps 100000 --answer-tokens 6 --out "$work/ended" >"$work/out" 2>"$work/err" </dev/null &
    catches_term $!; sleep 1; kill -TERM $!; wait $! || { cat "$work/err"; return 1; }
    says err 'ended by a signal after step' && code 0 check "$work/ended" --base $MODEL; }
check 'learning from rewards' grpo
check 'a signal ends it after a step' grpo_ended
check 'unknown rules are refused' no_rules
exit $failed
