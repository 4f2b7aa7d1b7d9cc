#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks that every source file is one that a person can read:
#
#     tools/sources.sh [ROOT]
#
# A line that names the licence at its head, in C followed by what the file is for or by the header that says it; at most 900
# lines a file, no TODO, FIXME or XXX, no tabs or blanks at the end of lines, and a comment for every public function: one in
# the paragraph of declarations that it stands in. In C: at most 108 columns; functions of at most seven parameters (more are
# fields of a struct; public functions, and those of interfaces that are not ours, may have them); no two files of src/ with a
# struct of the same name (but ash_capture, which each class of streams completes); a ruler is one line, a comment
# ends on the line of its last word (unless that line is a drawing or code), and what stands under an indented line of a table is
# indented too: what a formatter that reflows comments would break. Prints each offence and then "N passed, N failed, 0 skipped",
# counted in files.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2

find src include cli examples tests tools cmake Makefile CMakeLists.txt -type f \
    \( -name '*.[ch]' -o -name '*.cc' -o -name '*.def' -o -name '*.sh' -o -name '*.txt' -o -name '*.cmake' -o -name Makefile \) \
    -not -path 'tests/data/*' -print0 2>/dev/null | sort -z | LC_ALL=C xargs -0 awk '
function bad(why) { bad_at(FILENAME ":" FNR, why) }
function bad_at(where, why) { print where ": " why; if (!offences++) failed++ }
function paragraph_end() {
    if (declares && !comments) bad_at(declares, "public functions without a comment, from here on")
    declares = ""
    comments = 0
}
# Of a function that begins with this text; 0: they go on.
function parameters(text,    i, c, depth, count) {
    gsub(/\/\*[^*]*\*\//, "", text)
    count = 1
    for (i = index(text, "("); i <= length(text); i++) {
        c = substr(text, i, 1)
        depth += (c == "(") - (c == ")")
        if (!depth) return count
        count += c == "," && depth == 1
    }
    return 0
}
function file_end() {
    paragraph_end()
    if (file && !licensed) bad_at(file ":1", "no SPDX line")
    if (head != "") bad_at(head_at, "a function whose parameters do not end")
    head = head_at = ""
}
FNR == 1 { file_end(); file = FILENAME; files++; licensed = 0; offences = 0; public = FILENAME ~ /^include\// }
FNR <= 2 && /SPDX-License-Identifier: MIT/ { licensed = 1 }
FNR == 2 && FILENAME ~ /\.[ch]$/ {
    own = FILENAME
    sub(/.*\//, "", own)
    if (!sub(/\.c$/, ".h", own)) own = ""
    if (!/^\/\*/ && $0 != "#include \"" own "\"") bad("no head: what the file is for, or the header that says it")
}
FNR == 1 { code = FILENAME ~ /\.(c|h|cc)$/; comment = before = 0 }
code {
    columns = $0
    gsub(/[\200-\277]/, "", columns)      # what follows the first byte of a character
    if (length(columns) > 108) bad("more than 108 columns")
    if (/^ *\/\* ?---/ && !/---+ \*\/$/) bad("a ruler of more than one line")
    # 1: text of a comment; 2: indented within it, a drawing, a table or code
    if (/^ *\/\*/) comment = 1
    now = !comment ? 0 : /^ *(\/?\*)?   *[^ ]/ && !/^ *\/?\* ?[^ ]/ ? 2 : 1
    if (/^ *\*\/$/ && before == 1) bad("the end of a comment alone on a line")
    if (before == 2 && /^ *\* [^ *]/) bad("a line of a drawing that has lost its indentation")
    before = now
    if (/\*\//) comment = before = 0
}
code && head == "" && /^[A-Za-z_][A-Za-z_0-9 *]*[ *][a-z_A-Z0-9]+\(/ { head_at = FILENAME ":" FNR }
code && (head != "" || head_at != "") {
    head = head " " $0
    n = parameters(head)
    if (n) {
        name = head
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (public) exported[name]
        if (n > 7 && !(name in exported) && name !~ /^cu([A-Z]|blasLt)/) bad_at(head_at, name " takes " n " parameters")
        head = head_at = ""
    }
}
FILENAME ~ /^(\.\/)?src\// && match($0, /^(typedef )?struct [a-z_0-9]+ \{/) {
    type = $1 == "typedef" ? $3 : $2
    if (type in of && of[type] != FILENAME && type != "ash_capture") bad("struct " type " is one of " of[type] ", too")
    of[type] = FILENAME
}
FNR == 901 { bad("more than 900 lines") }
/(^|[^A-Za-z])(TODO|FIXME|XXX)([^A-Za-z]|$)/ && FILENAME !~ /tools\/sources\.sh$/ { bad("unfinished: " $0) }
/[ \t]$/ { bad("a blank at the end of the line") }
/\t/ && FILENAME !~ /Makefile$/ && !/"[^"]*\t[^"]*"/ { bad("a tab") }
public && /^$/ { paragraph_end() }
public && /\/\*/ && !/SPDX/ { comments++ }
public && /^ASH_API / && !declares { declares = FILENAME ":" FNR }
END {
    file_end()
    printf "%d passed, %d failed, 0 skipped\n", files - failed, failed
    exit failed > 0 || files == 0
}'
