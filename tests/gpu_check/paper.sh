#!/bin/sh
# SPDX-License-Identifier: MIT
# The kernels of gpu_check's cases in full size, for GPUs that are not there: ptxas takes all of them, and none has a stack
# or spills.
#
#   tests/gpu_check/paper.sh GPU_CHECK
set -u
check=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for sm in sm_80 sm_90 sm_120; do
    mkdir "$folder/$sm"
    "$check" --device "CUDA:$sm" --paper "$folder/$sm" || exit 1
    ASSEMBLE_SECONDS=0 "$(dirname "$0")/../assembled.sh" "$folder/$sm" || exit $?
done
