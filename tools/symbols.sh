#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks what the built library shows and what it takes:
#
#     tools/symbols.sh libashlar.so libashlar.a
#
#   - the shared library exports exactly the functions that the public headers declare: nothing internal, nothing of LLVM
#   - they are those of tests/data/symbols.txt, with the same types: what is added, taken away or changed for callers is a
#     line there, beside the line in CHANGELOG.md that tells them (tools/api.sh > tests/data/symbols.txt)
#   - the static one defines only names that start with ash_
#   - neither prints, nor ends the process, nor holds standard streams
#
# Prints each offence and then "N passed, N failed, 0 skipped", counted in symbols.
set -u
export LC_ALL=C
shared=$(realpath "$1") static=$(realpath "$2")
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0

# What to say, a file of offenders, how many were looked at
judge() {
    local n
    n=$(wc -l <"$2")
    [ "$n" -eq 0 ] || sed "s/^/$1: /" "$2"
    failed=$((failed + n))
    passed=$((passed + $3 - n))
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 2
root=$OLDPWD

"$root/tools/api.sh" >declarations
sed -E '/^typedef /d; s/\(.*//; s/.*[ *]//' declarations | sort -u >declared
# __bss_start, _edata and _end are the linker's own, and there when a shared library that is linked asks for them.
nm -D --defined-only "$shared" | awk '$NF !~ /^(__bss_start|_edata|_end)$/ { print $NF }' | sort -u >exported
comm -13 declared exported >extra
comm -23 declared exported >lacking
judge "exported, but in no public header" extra "$(wc -l <exported)"
judge "in a public header, but not exported" lacking "$(wc -l <declared)"

diff "$root/tests/data/symbols.txt" declarations | grep '^[<>]' | sed 's/^</was:/; s/^>/is: /' >changed
judge "not as symbols.txt says" changed "$(wc -l <declarations)"

nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort -u >defined
grep -v '^ash_' defined >foreign
judge "a global name that does not start with ash_" foreign "$(wc -l <defined)"

nm -u "$static" | awk 'NF == 2 { print $2 }' | sort -u >taken
grep -xE '_?exit|_Exit|quick_exit|abort|raise|kill|__assert_fail|(__)?v?printf(_chk)?|puts|putchar|putc|perror|stdin|stdout|stderr|atexit|signal|sigaction|system|popen|fork|setenv|putenv|setlocale|strtok|rand|srand' taken >forbidden
judge "taken from the C library, but not for a library to use" forbidden "$(wc -l <taken)"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ -s declared ] && [ -s exported ] && [ -s taken ]
