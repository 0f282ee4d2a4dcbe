#!/bin/sh
# Man pages (mandoc), format of the C sources (clang-format) and shell scripts (shellcheck). A tool
# that is not there is named and skipped.
set -u
status=0

have() {
    command -v "$1" >/dev/null 2>&1 || { echo "lint: $1 is not there: skipped" && false; }
}

if have mandoc; then
    mandoc -T lint -W warning man/*.[1-8] || status=1
fi
if have clang-format; then
    find src kernels models profiles ui tests -name '*.[ch]' -exec clang-format --dry-run --Werror {} + || status=1
fi
if have shellcheck; then
    find tests -name '*.sh' -exec shellcheck -S warning .ci/run {} + || status=1
fi
exit $status
