#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds and tests ashlar as where LLVM has no code generator for GPUs: with an llvm-config that says so.
#
#   tools/without_nvptx.sh FOLDER [OPTION OF CMAKE...]
#
# FOLDER gets the build, and says at the end what `ashlar devices` and `ashlar run --device CUDA:0` do. TARGETS are the
# targets to build (all of them), TESTS the tests to run, as a pattern of ctest (all of them).
set -eu
[ $# -ge 1 ] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
real=$(command -v llvm-config-19 || echo /usr/lib/llvm-19/bin/llvm-config)
printf '#!/bin/sh\ncase "$*" in *--targets-built*) "%s" "$@" | sed "s/NVPTX//";; *) exec "%s" "$@";; esac\n' "$real" "$real" \
    >"$folder/llvm-config"
chmod +x "$folder/llvm-config"
cmake -S "$source" -B "$folder" -G Ninja "-DLLVM_CONFIG=$folder/llvm-config" "$@"
# shellcheck disable=SC2086
cmake --build "$folder" -j "${JOBS:-$(nproc)}" ${TARGETS:+--target $TARGETS}
ctest --test-dir "$folder" -j "${JOBS:-$(nproc)}" --output-on-failure ${TESTS:+-R "$TESTS"}
"$folder/ashlar" devices
