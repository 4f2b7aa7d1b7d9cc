#!/bin/bash
# SPDX-License-Identifier: MIT
# Assembles the PTX that tests left in a folder (the stand-in for the driver writes each module once: PTX_DUMP), each for its
# own kind of GPU: what ptxas refuses, what has a stack frame, and what spills, fails by name.
#
#     tests/assembled.sh FOLDER
#
#   ASSEMBLE_SECONDS   how long that may take (default 30); modules are taken in the order of their names, which are hashes,
#                      and the line in the end says how many were left. 0: all, however long.
#   ASSEMBLE_SEED      where in that order it begins (default 0)
#
# Ends with 77 where there is no ptxas.
set -u
if [ "${1:-}" = --some ]; then # END RESULTS MODULE...
    end=$2 results=$3
    shift 3
    log=$(mktemp)
    for module; do
        left=$((end > 0 ? end - $(date +%s) : 86400))
        [ "$left" -gt 0 ] || break
        kind=$(sed -n 's/^\.target \(sm_[0-9]*\).*/\1/p' "$module")
        for arch in "$kind" sm_75 sm_80; do # of older GPUs the oldest that it knows
            timeout "$left" "$PTXAS" -v -arch="$arch" -o /dev/null "$module" >"$log" 2>&1
            status=$? good=$((status == 0))
            grep -q "is not defined for option 'gpu-name'" "$log" || break
        done
        [ $status -eq 124 ] && break
        awk -v file="$module" -v good=$good -v kind="$kind" '
            /Function properties for/ { name = $NF }
            /bytes stack frame/ { if ($1 + 0 || $5 + 0) said = said " " name " " $1 " " $5 }
            /error|fatal/ && !why { why = $0 }
            END { print (good ? "good" : "refused"), file, kind (good ? said : " " why) }' "$log" >>"$results"
    done
    rm -f "$log"
    exit 0
fi
folder=$1 seconds=${ASSEMBLE_SECONDS:-30} seed=${ASSEMBLE_SEED:-0}
shopt -s nullglob
modules=("$folder"/*.ptx)
count=${#modules[@]}
if [ "$count" -eq 0 ]; then
    echo "FAIL: no test has left a module in $folder"
    exit 1
fi
PTXAS=$(command -v "${PTXAS:-ptxas}" || command -v /usr/local/cuda/bin/ptxas)
if [ -z "$PTXAS" ]; then
    echo "0 passed, 0 failed, $count skipped: there is no ptxas"
    exit 77
fi
export PTXAS
results=$(mktemp) start=$(date +%s) first=$((seed * 7919 % count))
trap 'rm -f "$results"' EXIT
end=0
[ "$seconds" -gt 0 ] && end=$((start + seconds))
printf '%s\0' "${modules[@]:first}" "${modules[@]:0:first}" |
    xargs -0 -n 16 -P "$(nproc)" "$0" --some "$end" "$results"
awk -v start="$start" -v now="$(date +%s)" -v count="$count" -v first="$first" -v seed="$seed" '
    { n++ }
    $1 == "refused" { bad++; print "FAIL " $2 ": refused: " substr($0, index($0, $4)); next }
    { bad += NF > 3
      for (i = 4; i < NF; i += 3)
          print "FAIL " $2 " (" $3 "): " $i " has a stack of " $(i + 1) " bytes, " $(i + 2) " of which spill" }
    END { printf "%d passed, %d failed, %d skipped: %d modules from number %d on (seed %d), %d s\n", n - bad, bad, count - n,
                 count, first, seed, now - start
          exit bad > 0 || n == 0 }' "$results"
