#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks that no folder of the sources looks upwards (docs/architecture.md):
#
#     tools/floors.sh [ROOT]
#
# A file may include its own folder and lower floors. The program (cli) and the examples see only the public headers,
# LLVM's headers appear in src/code alone, src/memory knows nothing of graphs, and public headers include each other and
# the C library. Prints each offence and then "N passed, N failed, 0 skipped", counted in include lines.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2

grep -rHn '^[[:space:]]*#[[:space:]]*include' --include='*.[ch]' src cli examples include 2>/dev/null | awk -F: '
BEGIN {
    n = split("base 0 ir 1 device 1 onnx 2 grad 2 opt 2 kernel 2 memory 2 code 3 runtime 4", word, " ")
    for (i = 1; i < n; i += 2) floor[word[i]] = word[i + 1]
}
function bad(why) { printf "%s:%s: %s: %s\n", $1, $2, line, why; failed++; good = 0 }
{
    line = $0
    sub(/^[^:]*:[^:]*:[[:space:]]*/, "", line)
    file = line
    sub(/^#[[:space:]]*include[[:space:]]*/, "", file)
    quoted = file ~ /^"/
    sub(/^["<]/, "", file)
    sub(/[">].*$/, "", file)
    depth = split($1, path, "/")
    from = path[1] == "src" ? path[2] : path[1]
    good = 1

    if (from in floor || from == "cli" || from == "examples" || from == "include") { } else bad("a folder without a floor")
    if (file ~ /^(llvm|llvm-c|clang)\// && from != "code") bad("LLVM belongs to src/code")
    if (quoted || file ~ /^ashlar\//) {
        to = file ~ /\// ? file : "."         # of its own folder
        sub(/\/.*$/, "", to)
        if (from == "include") {
            if (to != ".") bad("public headers include their neighbours by name alone")
        } else if (to == "ashlar") {
            if (from == "memory" && file ~ /\/(graph|builder|tensor|onnx|device|plan)\.h$/) bad("memory knows nothing of graphs")
        } else if (from == "cli" || from == "examples") {
            if (to != ".") bad("only the public headers may be seen from here")
        } else if (to != "." && to != from) {
            if (!(to in floor)) bad("no such floor")
            else if (floor[to] >= floor[from]) bad("looks to its own floor or above")
            else if (from == "memory" && to != "base") bad("memory knows nothing of graphs")
        }
        if (file ~ /\.\./) bad("an include that climbs")
    }
    passed += good
}
END {
    printf "%d passed, %d failed, 0 skipped\n", passed, failed
    exit failed > 0 || passed == 0
}'
