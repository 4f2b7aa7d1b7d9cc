#!/bin/bash
# SPDX-License-Identifier: MIT
# The functions that public headers export, and the structs and enumerations that they define, sorted, one declaration a
# line; with --rows, functions and the structs that grow (ashlar/status.h), as rows for a C file to include:
#
#     tools/api.sh > tests/data/symbols.txt
#     tools/api.sh --rows
#
#   STATUS(memory, ash_status, ash_memory_check, (PTR(0, ash_context *, context), ..., NUM(4, uint32_t, n)), "context ... n")
#   VALUE( the same for those that return another type, NOTHING( for those that return void
#   SIZED(plan, ash_plan_options)
#
# PTR is a pointer and NUM is not: their position, type and name. An argument list of nothing is (). The declarations are
# taken as the compiler sees them, so those that ops.def generates are among them; the first word of a row is the header.
set -eu
cd "$(dirname "$0")/.."
for header in include/ashlar/*.h; do echo "#include \"${header#include/}\""; done | "${CC:-cc}" -E -Iinclude -x c - |
    sed 's/__attribute__((visibility("default")))/ASH_API/g' | awk -v rows="$([ "${1:-}" != --rows ] || echo 1)" '
# A line marker says which header the lines that follow are from; a table belongs to the header that includes it.
/^# [0-9]+ ".*\.def"/ { next }
/^# [0-9]+ "/ {
    header = $3
    gsub(/.*\/|\.h"|"/, "", header)
    if ($3 !~ /ashlar\//) header = ""
    next
}
header != "" { text[header] = text[header] " " $0; if (!(header in seen)) { seen[header] = 1; order[++headers] = header } }

function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); gsub(/[ \t]+/, " ", s); return s }

function row(header, declaration,    open, head, list, name, type, n, parts, i, arg, at, args, names, macro) {
    open = index(declaration, "(")
    head = trim(substr(declaration, 1, open - 1))
    list = trim(substr(declaration, open + 1, length(declaration) - open - 1))
    at = match(head, /[A-Za-z0-9_]+$/)
    name = substr(head, at)
    type = trim(substr(head, 1, at - 1))
    gsub(/_Bool/, "bool", type)
    gsub(/_Bool/, "bool", list)
    n = list == "void" || list == "" ? 0 : split(list, parts, ",")
    for (i = 1; i <= n; i++) {
        arg = trim(parts[i])
        at = match(arg, /[A-Za-z0-9_]+$/)
        macro = index(arg, "*") ? "PTR" : "NUM"
        args = args (i > 1 ? ", " : "") macro "(" i - 1 ", " trim(substr(arg, 1, at - 1)) ", " substr(arg, at) ")"
        names = names (i > 1 ? " " : "") (macro == "PTR" ? "*" : "") substr(arg, at)
    }
    if (!rows) { printf "%s\t%s%s%s(%s)\n", name, type, type ~ /\*$/ ? "" : " ", name, list == "" ? "void" : list; return }
    macro = type == "ash_status" ? "STATUS" : type == "void" ? "NOTHING" : "VALUE"
    printf "%s(%s, %s, %s, (%s), \"%s\")\n", macro, header, type, name, args, names
}

# A struct or an enumeration, which has no braces within.
function type(header, declaration,    name) {
    gsub(/_Bool/, "bool", declaration)
    declaration = trim(declaration)
    name = substr(declaration, match(declaration, /[a-z0-9_]+;$/))
    sub(/;$/, "", name)
    if (!rows) printf "typedef %s\t%s\n", name, declaration
    else if (declaration ~ /\{ size_t size;/) printf "SIZED(%s, %s)\n", header, name
}

END {
    for (h = 1; h <= headers; h++) {
        rest = text[order[h]]
        while (match(rest, /typedef (struct|enum) ash_[a-z0-9_]+ \{[^}]*\} ash_[a-z0-9_]+;/)) {
            declaration = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            type(order[h], declaration)
        }
        rest = text[order[h]]
        while (match(rest, /ASH_API [^;]*;/)) {
            declaration = substr(rest, RSTART + 8, RLENGTH - 9)
            rest = substr(rest, RSTART + RLENGTH)
            row(order[h], declaration)
        }
    }
}' | if [ "${1:-}" = --rows ]; then cat; else LC_ALL=C sort | cut -f2; fi
