#!/bin/bash
# preft check and preft model from outside: what they say, exit codes, bounds on hostile files.
set -u
. tests/commands/common.sh
DATA=tests/data
export PREFT_MODELS=$work/models
mkdir "$work/models"

# --- what it is ---------------------------------------------------------------------------------
model() { code 0 check $DATA/models/tiny-qwen2/tiny-qwen2-q8_0.gguf && says out "architecture: qwen2" &&
    says out "chat_template: chatml" && says out "digest: "; }
folder() { code 0 check $DATA/models/tiny-wide/hf && says out 'matrix_types: {"BF16":8}'; }
adapter() { code 0 check --base $DATA/models/tiny-llama/hf $DATA/adapters/tiny-llama/direft-all &&
    says out "method: direftp" && says out "rank: 4"; }
json() { code 0 check --json $DATA/models/tiny-llama/hf $DATA/adapters/tiny-llama/lora-qv &&
    [ "$(grep -c '"ok":true' "$work/out")" -eq 2 ] && says out '"rank":2'; }
check 'a model file' model
check 'a model folder' folder
check 'an adapter for a model' adapter
check 'one JSON line a path' json

# --- why it is refused --------------------------------------------------------------------------
several() { code 3 check $DATA/models/tiny-llama/hf $DATA/hostile/gguf/dims-5.gguf $DATA/hostile/adapters/dora &&
    says out "tiny-llama/hf: ok" && says err "dims-5.gguf" && says err "use_dora"; }
other_base() { code 3 check --base $DATA/models/tiny-wide/hf $DATA/adapters/tiny-llama/lora-qv && says err "last layer is 0"; }
no_base() { code 5 check --base nothing $DATA/adapters/tiny-llama/lora-qv && says err "--base"; }
absent() { code 5 check "$work/absent" && says err "absent"; }
device() { code 3 check /dev/zero && says err "device"; }
fifo() { mkfifo "$work/fifo" && code 3 check "$work/fifo" && says err "FIFO"; }
log_fifo() { mkfifo "$work/log" && ends 1 timeout 120 "$PREFT" --log "$work/log" user list && says err "can't be opened"; }
endless() { ends 3 timeout 300 "$PREFT" tokenize --model $DATA/models/tiny-llama/tiny-llama-q8_0.gguf --jsonl /dev/zero &&
    says err 'line 1 is longer than 64 MiB'; }
refused_json() { code 3 check --json $DATA/hostile/hf/activation && says out '"ok":false' && says out "gelu_no_such"; }
check 'several paths: all are read, the code is the refusal'"'"'s' several
check 'an adapter for another model' other_base
check 'an unknown base model' no_base
check 'a path that is not there' absent
check 'a device' device
check 'a FIFO without a writer' fifo
check 'a refusal as JSON' refused_json
check 'a FIFO without a reader for the log' log_fifo
check 'a line without an end' endless

# --- names and texts of others ------------------------------------------------------------------
harmless() {
    code 5 check "$work/"$'\e]52;c;AAAA\a\xc2\x9b2J' && ! grep -q $'[\x01-\x08\x0e-\x1f\x7f]' "$work/err" &&
        ! grep -q $'\xc2\x9b' "$work/err" && says err "?]52;c;AAAA?" || { cat -v "$work/err"; return 1; }
}
named_badly() { # ill-formed UTF-8 can't stand in JSON: the object is there all the same
    code 5 check --json "$work/"$'\xff' && says out '"message":' && says out '"path":' &&
        code 5 model show --json "$work/"$'\xff' && says out '"message":'
}
check 'escape sequences in names reach no terminal' harmless
check 'a name that is not UTF-8, as JSON' named_badly

# Every hostile file under a limit of 1 GiB of address space, as a process of its own.
hostile() {
    local file wanted got
    while read -r wanted file; do
        local base=()
        [[ $file == adapters/* ]] && base=(--base "$DATA/models/tiny-llama/hf")
        (ulimit -v 1048576 && timeout 120 "$PREFT" check "${base[@]}" "$DATA/hostile/$file") >"$work/out" 2>"$work/err"
        got=$?
        case $wanted:$got in
        refuse:3 | accept:0 | survive:0 | survive:3) ;;
        *) echo "$file: wanted $wanted, exit code $got" && cat "$work/err" && return 1 ;;
        esac
    done < <(sed -n 's/.*"file": "\([^"]*\)".*"expect": "\([^"]*\)".*/\2 \1/p' $DATA/hostile/index.jsonl)
}
if [[ -z ${SAN:-} ]]; then
    check 'each hostile file: the expected exit code, within 1 GiB' hostile
else
    echo 'skip each hostile file within 1 GiB: the limit does not go with a sanitizer'
fi

# --- models -------------------------------------------------------------------------------------
empty() { code 0 model list && says out smollm2-135m && says out "not installed"; }
installed() { cp $DATA/models/tiny-llama/tiny-llama-q4_1.gguf "$work/models/" && code 0 model list --json &&
    says out '"name":"tiny-llama-q4_1.gguf","installed":true'; }
show() { code 0 model show tiny-llama-q4_1 && says out "architecture: llama"; }
default() { code 0 model show && says out "tiny-llama-q4_1"; } # the only one installed
unknown() { code 5 model pull nothing && says err smollm2-135m; }
not_known_content() { : >"$work/models/SmolLM2-135M-Instruct.Q4_1.gguf" && code 3 model pull && says err 98362432; }
remove() { code 0 model remove tiny-llama-q4_1 && [ ! -e "$work/models/tiny-llama-q4_1.gguf" ]; }
remove_path() { code 2 model remove $DATA/models/tiny-llama/tiny-llama-q4_1.gguf; }
remove_absent() { code 5 model remove nothing; }
broken_off() { # nothing of a download stays behind
    mkdir "$work/bin"
    printf '#!/bin/sh\n[ "$1" = -c ] && exit 0\n: >"%s/started"\nexec sleep 100\n' "$work" >"$work/bin/python3"
    chmod +x "$work/bin/python3"
    PATH=$work/bin:$PATH "$PREFT" model pull --models "$work/broken_off" >"$work/out" 2>"$work/err" </dev/null &
    for _ in $(seq 600); do [ -e "$work/started" ] && break; sleep 0.1; done
    kill -TERM $!; wait $!
    [ $? -eq 130 ] && [ -z "$(ls -A "$work/broken_off")" ]
}
no_python() { PATH=/nonexistent code 1 model pull --models "$work/none" && says err "python3"; }
check 'model list without models' empty
check 'model list' installed
check 'model show' show
check 'the only model is the default' default
check 'model pull of an unknown name' unknown
check 'model pull over a file that is something else' not_known_content
check 'model pull without python3' no_python
check 'model pull that is broken off' broken_off
check 'model remove' remove
check 'model remove of a path' remove_path
check 'model remove of an unknown name' remove_absent
exit $failed
