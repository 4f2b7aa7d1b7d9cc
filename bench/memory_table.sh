#!/bin/sh
# SPDX-License-Identifier: MIT
# The table of docs/memory.md: for each model MODEL/model.onnx of a folder, the arena by every strategy as a ratio to
# the lower bound, planning time (checker included), certificate, and the size after order search.
#   bench/memory_table.sh FOLDER [ashlar]
set -eu
folder=$1
ashlar=${2:-build/ashlar}
head=yes
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ASHLAR_CACHE_DIR="$scratch/kernels"
for model in "$folder"/*/model.onnx; do
    name=$(basename "$(dirname "$model")")
    "$ashlar" plan --compare "$model" >"$scratch/table" || { echo "| $name | failed |"; continue; }
    test "$head" = yes && sed -n 1,2p "$scratch/table"
    head=no
    sed -n "3s/^| [^|]* |/| $name |/p" "$scratch/table"
done
