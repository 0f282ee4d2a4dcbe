#!/bin/bash
# The kernels build and link by themselves: libc, libm and threads, nothing of the other rooms.
set -u
cd "$(dirname "$0")/../.." || exit 1
CC=${CC:-cc}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

cat > "$dir/main.c" <<'END'
#include "kernels/backend.h"
#include <stdio.h>
int main(void)
{
    char message[200];
    kn_options options = {.isa = "ref", .threads = 2};
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    if (!be)
        return puts(message), 1;
    be->ops->close(be);
    return 0;
}
END

status=0
for source in kernels/*.c kernels/ref/*.c kernels/cpu/*.c "$dir/main.c"; do
    isa=
    if [ "$(uname -m)" = x86_64 ]; then
        case $source in
        */avx2.c) isa="-mavx2 -mfma -mf16c" ;;
        */avx512.c) isa="-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c" ;;
        esac
    fi
    # shellcheck disable=SC2086
    if ! $CC -std=c11 -D_GNU_SOURCE -I. -O1 $isa -pthread -c "$source" \
        -o "$dir/$(echo "$source" | tr / _).o"; then
        echo "FAIL $source compiles alone"
        status=1
    fi
done
[ $status = 0 ] && echo "ok each kernel source compiles with -I. only"

if $CC -pthread "$dir"/*.o -lm -o "$dir/program" && "$dir/program"; then
    echo "ok the kernels link with libc, libm and threads"
else
    echo "FAIL the kernels link with libc, libm and threads"
    status=1
fi
exit $status
