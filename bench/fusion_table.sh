#!/bin/sh
# SPDX-License-Identifier: MIT
# The table of docs/memory.md about fusion: for each model MODEL/model.onnx of a folder, the arena with one kernel per
# node, with whole groups, and as it is chosen, for 1 and 2 threads; and how many results groups were split at.
#   bench/fusion_table.sh FOLDER [ashlar]
set -eu
folder=$1
ashlar=${2:-build/ashlar}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ASHLAR_CACHE_DIR="$scratch/kernels"
echo "| model | 1 thread: unfused | whole | chosen | 2 threads: unfused | whole | chosen | splits |"
echo "|---|---|---|---|---|---|---|---|"
for model in "$folder"/*/model.onnx; do
    row="| $(basename "$(dirname "$model")") |"
    for threads in 1 2; do
        for how in --no-fuse --fuse-freely --threads; do # the last one says nothing new
            set -- "$model" --threads "$threads"
            test "$how" = --threads || set -- "$@" "$how"
            "$ashlar" plan "$@" >"$scratch/plan" || echo "arena failed:" >"$scratch/plan"
            row="$row $(sed -n 's/^arena *\([^:]*\):.*/\1/p' "$scratch/plan") |"
        done
    done
    splits=$(sed -n 's/^ *split *kernels at \([0-9]*\) results.*/\1/p' "$scratch/plan")
    echo "$row ${splits:-0} |"
done
