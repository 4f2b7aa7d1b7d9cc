#!/bin/bash
# Checks that every source file is one that a person can read:
#
#     tools/sources.sh [ROOT]
#
# At most 900 lines a file, no TODO, FIXME or XXX, no tabs or blanks at the end of lines, and a comment for every public
# function: one in the paragraph of declarations that it stands in. Prints each offence and then
# "N passed, N failed, 0 skipped", counted in files.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2

find src include cli examples tests tools cmake Makefile CMakeLists.txt -type f \
    \( -name '*.[ch]' -o -name '*.cc' -o -name '*.def' -o -name '*.sh' -o -name '*.txt' -o -name '*.cmake' -o -name Makefile \) \
    -not -path 'tests/data/*' -print0 2>/dev/null | sort -z | xargs -0 awk '
function bad(why) { bad_at(FILENAME ":" FNR, why) }
function bad_at(where, why) { print where ": " why; if (!offences++) failed++ }
function paragraph_end() {
    if (declares && !comments) bad_at(declares, "public functions without a comment, from here on")
    declares = ""
    comments = 0
}
FNR == 1 { paragraph_end(); files++; offences = 0; public = FILENAME ~ /^include\// }
FNR == 901 { bad("more than 900 lines") }
/(^|[^A-Za-z])(TODO|FIXME|XXX)([^A-Za-z]|$)/ && FILENAME !~ /tools\/sources\.sh$/ { bad("unfinished: " $0) }
/[ \t]$/ { bad("a blank at the end of the line") }
/\t/ && FILENAME !~ /Makefile$/ && !/"[^"]*\t[^"]*"/ { bad("a tab") }
public && /^$/ { paragraph_end() }
public && /\/\*/ { comments++ }
public && /^ASH_API / && !declares { declares = FILENAME ":" FNR }
END {
    paragraph_end()
    printf "%d passed, %d failed, 0 skipped\n", files - failed, failed
    exit failed > 0 || files == 0
}'
