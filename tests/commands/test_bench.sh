#!/bin/bash
# preft bench: every kind runs with a small model, its table has the rows and columns it should, and
# the counters say what the kinds of adapters promise.
set -u
. tests/commands/common.sh
MODEL=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf

bench() { "$PREFT" bench "$1" --quick --quiet --threads 2 "${@:2}"; }

# Each line of CSV table FILE for which the awk condition holds, with $ of a column by name as
# v["NAME"]; prints how many there are. A line with another number of fields counts as a thousand.
lines() { # lines FILE CONDITION
    awk -F, 'NR == 1 { n = NF; for (i = 1; i <= NF; i++) key[i] = $i; next }
        NF != n { count += 1000 }
        { for (i = 1; i <= NF; i++) v[key[i]] = $i }
        '"$2"' { count++ }
        END { print count + 0 }' "$1"
}
count() { # count N FILE CONDITION
    local got
    got=$(lines "$2" "$3")
    [ "$got" -eq "$1" ] || { echo "$got lines with $3, not $1:"; cat "$2"; return 1; }
}
columns() { # columns FILE NAME...
    local name
    for name in "${@:2}"; do
        head -1 "$1" | tr , '\n' | grep -qx "$name" || { echo "no $name"; head -1 "$1"; return 1; }
    done
}
same_values() { # The table on standard output has as many lines as the CSV, behind two others.
    [ "$(wc -l <"$1")" -ge $(($(wc -l <"$2") + 1)) ]
}

# --- prefill and decode ------------------------------------------------------------------------------
for kind in prefill decode; do
    csv=$work/$kind.csv
    check "$kind runs" ends 0 bench $kind --model $MODEL --contexts 8,20 --batches 1,3 --csv "$csv"
    check "$kind: the table is printed too" same_values "$work/out" "$csv"
    check "$kind: columns" columns "$csv" context batch rate rate_min rate_max step_rows weight_mb kv_mb \
        read_gb_s read_share gop_s compute_share repeats
    check "$kind: a row for each point" count 4 "$csv" 1
    check "$kind: rates and shares are there" count 4 "$csv" \
        'v["rate"] > 0 && v["rate_min"] <= v["rate"] && v["rate"] <= v["rate_max"] && v["read_share"] > 0 && v["compute_share"] > 0'
    check "$kind: a row for 20 tokens and 3" count 1 "$csv" 'v["context"] == 20 && v["batch"] == 3'
done
check 'decode: every step reads the weights once' [ \
    "$(awk -F, 'NR > 1 { for (i = 1; i <= NF; i++) if (h[i] == "weight_mb") print $i }
        NR == 1 { split($0, h, ",") }' "$work/decode.csv" | sort -u | wc -l)" -eq 1 ]
check 'a context too long is refused' ends 2 bench decode --model $MODEL --contexts 100000
check 'a list that is none is refused' ends 2 bench decode --model $MODEL --batches 1,,2
check 'the message names the option' says err --batches

check 'goals are judged' ends 0 "$PREFT" bench decode --quiet --model $MODEL --contexts 8 --batches 1 \
    --repeats 3 --seconds 3 --json
goals() {
    local goal='{"goal":"[^"]*","value":[0-9.e-]*,"at_least":[0-9.]*,"met":\(true\|false\)}'
    grep -q "\"goals\":\[$goal,$goal,$goal\]" "$work/out"
}
check 'goals are in the JSON' goals
repeats() { grep -q '"repeats":[23]' "$work/out"; }
check 'repetitions are counted' repeats

# --- adapters ----------------------------------------------------------------------------------------
csv=$work/adapters.csv
check 'adapters run' ends 0 bench adapters --model $MODEL --profiles 1,5,40 --ranks 4,8 --tokens 3,6 \
    --prompt 5 --prefill 12 --steps 3 --csv "$csv"
check 'adapters: columns' columns "$csv" profiles rank kind phase tokens rate rate_min rate_max ratio \
    weight_mb adapter_mb kv_mb read_share compute_share adapter_intensity weight_intensity batch \
    decode_adapter_bytes adapters_loaded repeats full_ratio step_ms reason model_ms ratio_error spread
# 3 numbers, 2 ranks, 5 kinds; decode and 2 lengths of answers, and prefill up to 32 profiles
check 'adapters: all rows' count 110 "$csv" 1
check 'adapters: all rows have rates and ratios' count 110 "$csv" 'v["rate"] > 0 && v["ratio"] > 0'
check 'adapters: each row says why' count 110 "$csv" \
    'v["reason"] ~ /^(bytes|operations) [0-9]+ %$/ && v["step_ms"] > 0 && v["model_ms"] > 0'
check 'adapters: prefill-only kinds beside full-position ones' count 44 "$csv" \
    'v["kind"] ~ /p$/ && v["full_ratio"] > 0'
for kind in base lorap direftp; do
    check "$kind reads no adapter while answers are written" count 0 "$csv" \
        "v[\"kind\"] == \"$kind\" && v[\"decode_adapter_bytes\"] != 0"
done
for kind in lora direft; do
    check "$kind reads adapters while answers are written" count 18 "$csv" \
        "v[\"kind\"] == \"$kind\" && v[\"phase\"] != \"prefill\" && v[\"decode_adapter_bytes\"] > 0"
done
check 'every adapter is loaded' count 0 "$csv" \
    'v["adapters_loaded"] != (v["kind"] == "base" ? 0 : v["profiles"])'
check 'all answers are written in a decode step' count 30 "$csv" \
    'v["phase"] == "decode" && v["batch"] == v["profiles"]'
check 'one row, one adapter: an operation for each byte' count 12 "$csv" \
    'v["phase"] == "decode" && v["adapter_intensity"] > 0.9 && v["adapter_intensity"] <= 1'
check 'prompts: their length in operations for each byte' count 16 "$csv" \
    'v["phase"] == "prefill" && v["adapter_intensity"] > 6 && v["adapter_intensity"] <= 12'
check 'a kind can be chosen' ends 0 bench adapters --model $MODEL --profiles 2 --kinds lorap \
    --csv "$csv"
check 'the base model is always measured' count 6 "$csv" \
    'v["kind"] == "base" || v["kind"] == "lorap"'
# Answers long enough that all five are still written when the last adapter has come.
check 'more adapters than slots' ends 0 bench adapters --model $MODEL --profiles 5 --tokens 400 \
    --kinds lorap,lora --adapter-slots 3 --csv "$csv"
check 'lorap adapters may leave memory while answers are written' count 1 "$csv" \
    'v["kind"] == "lorap" && v["phase"] == "decode" && v["batch"] == 5 && v["adapters_loaded"] <= 3'
check 'lora adapters may not: never all at once' count 1 "$csv" \
    'v["kind"] == "lora" && v["phase"] == "decode" && v["rate"] == ""'
check 'lora answers come in turns' count 1 "$csv" \
    'v["kind"] == "lora" && v["phase"] == "answers" && v["rate"] > 0 && v["batch"] < 5'
check 'a phase can be chosen, and a plot drawn' ends 0 bench adapters --model $MODEL --profiles 1,2 \
    --kinds lorap --phases decode --steps 12 --svg "$work/plot.svg" --csv "$csv"
check 'only that phase is measured' count 0 "$csv" 'v["phase"] != "decode"'
check 'so many steps of each kind, with an error of their ratio' count 2 "$csv" \
    'v["kind"] == "lorap" && v["repeats"] == 12 && v["tokens"] == 12 && v["ratio_error"] > 0'
plot_shown() { grep -q 'a base b lorap' "$work/out" && grep -q 'Decode rate' "$work/out"; }
check 'the plot is printed' plot_shown
plot_drawn() {
    [ "$(grep -c '<circle' "$work/plot.svg")" -eq 4 ] && [ "$(tail -1 "$work/plot.svg")" = '</svg>' ]
}
check 'the plot is drawn' plot_drawn
check 'an unknown phase is refused' ends 2 bench adapters --model $MODEL --phases decode,write
check 'an unknown kind is refused' ends 2 bench adapters --model $MODEL --kinds lorap,lorq
check 'the message names the kind' says err lorq
check 'DiReFT of the same size' ends 0 bench adapters --model $MODEL --profiles 1 --ranks 2 \
    --same-size --csv "$csv"
check 'it has a higher rank' count 6 "$csv" 'v["kind"] ~ /direft/ && v["rank"] > 2'

# --- on paper ----------------------------------------------------------------------------------------
csv=$work/paper.csv
check 'predictions need no model' ends 0 bench adapters --shape llama-3.1-70b --machine 4xh100 \
    --profiles 1,512 --ranks 8,64 --csv "$csv"
check 'paper: a row for each kind, batch and rank' count 20 "$csv" 'v["step_ms"] > 0 && v["reason"] != ""'
check 'paper: prefill-only kinds decode as the base model does' count 8 "$csv" \
    'v["kind"] ~ /p$/ && v["ratio"] == 1 && v["full_ratio"] > 1'
beside() { grep -q 'direftp [0-9.]* (paper 1.90)  lorap [0-9.]* (paper 1.87)  nearest: rank' "$work/out"; }
check 'paper: the published ratios stand beside the predicted ones' beside
check 'an unknown shape is refused' ends 2 bench adapters --shape llama-9
check 'the message lists the shapes' says err qwen-2.5-0.5b
check 'an unknown machine is refused' ends 2 bench adapters --shape llama-3.1-8b --machine abacus

# --- train and kernels -------------------------------------------------------------------------------
csv=$work/train.csv
check 'train runs' ends 0 bench train --model $MODEL --length 24 --batch 2 --csv "$csv"
check 'train: rates and memory' count 1 "$csv" \
    'v["kind"] == "lorap" && v["rank"] == 8 && v["rate"] > 0 && v["forward_rate"] > v["rate"] && v["backward_rate"] > v["rate"] && v["base_rate"] > 0 && v["peak_mb"] > 1'
csv=$work/kernels.csv
check 'kernels run' ends 0 bench kernels --rows 1,3 --csv "$csv"
check 'kernels: columns' columns "$csv" op type shape rows us us_min us_max gop_s compute_share gb_s \
    read_share
check 'kernels: every row has a time and a rate' count "$(($(wc -l <"$csv") - 1))" "$csv" \
    'v["us"] > 0 && v["gb_s"] > 0'
operations() {
    local op
    for op in linear swiglu+linear embed weight_rows weight_create rmsnorm rope swiglu add gather upload download \
        kv_write kv_copy kv_clear 'attention of answers' 'attention of a prompt' lora direft; do
        grep -q "^$op," "$csv" || { echo "no $op"; return 1; }
    done
}
check 'kernels: every operation' operations
for type in F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q4_K Q5_K Q6_K; do
    check "kernels: linear with $type" count 1 "$csv" \
        "v[\"op\"] == \"linear\" && v[\"type\"] == \"$type\" && v[\"rows\"] == 3 && (\"$type\" != \"Q4_1\" || v[\"shape\"] == \"576x576\")"
done
check 'kernels: a type can be chosen' ends 0 bench kernels --isa ref --rows 2 --types Q4_0 --csv "$csv"
check 'kernels: no other type then' count 0 "$csv" 'v["op"] == "linear" && v["type"] != "Q4_0"'
check 'an unknown type is refused' ends 2 bench kernels --types Q9
check 'an unknown instruction set is refused' ends 2 bench kernels --isa avx99
exit $failed
