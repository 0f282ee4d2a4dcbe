#!/bin/bash
# The golden data of tests/data through tests/reference, without the real model.
set -u
cd "$(dirname "$0")/../.." || exit 1
"${BUILD:-build/release}/tests/check_reference" tests/data | awk -f tests/reference/groups.awk
