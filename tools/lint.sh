#!/bin/bash
# SPDX-License-Identifier: MIT
# clang-format and clang-tidy 19 over the sources:
#
#     tools/lint.sh check     says what they would change or object to; status 1 when there is anything
#     tools/lint.sh format    formats the sources
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
mapfile -t sources < <(find src cli examples include tests bench -name '*.[ch]' -o -name '*.cc' | sort)
mapfile -t units < <(find src cli examples -name '*.c' | sort)

case ${1:-check} in
format) exec clang-format-19 -i "${sources[@]}" ;;
check) ;;
*) echo "usage: tools/lint.sh check | format" >&2; exit 2 ;;
esac

failed=0
echo "clang-format: ${#sources[@]} files"
clang-format-19 --dry-run -Werror "${sources[@]}" 2>&1 | grep -E 'error:|warning:' | cut -d: -f1 | sort | uniq -c |
    awk '{ print "  " $2 ": " $1 " places to format" } END { exit NR > 0 }' || failed=1

# Its compile commands come from the build for the address sanitizer, which is clang's own.
tree=build-address
[ -f $tree/compile_commands.json ] || cmake -S . -B $tree -G Ninja --log-level=WARNING -DASHLAR_WERROR=ON \
    -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DASHLAR_LLVM=shared -DASHLAR_SANITIZE=address,undefined >/dev/null || exit 1
cmake --build $tree --target ashlar_generated >/dev/null || exit 1
echo "clang-tidy: ${#units[@]} files"
# A line now and then, so that one sees it go on.
done_units=0
printf '%s\0' "${units[@]}" | xargs -0 -P "$jobs" -n 4 sh -c 'echo "@ $#"; exec clang-tidy-19 -p "$0" --quiet "$@"' $tree 2>&1 |
    while IFS= read -r line; do
        case $line in
        "@ "*)
            done_units=$((done_units + ${line#@ }))
            [ $((done_units % 32)) -ne 0 ] || echo "  $done_units of ${#units[@]}"
            ;;
        *) echo "$line" ;;
        esac
    done | { grep --line-buffered -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter|Processing file' || true; }
[ "${PIPESTATUS[1]}" -eq 0 ] || failed=1
exit $failed
