#!/bin/bash
# SPDX-License-Identifier: MIT
# docs/testing.md, checked: every test that it names is a function of its file and is run there, and each row of the two tables
# (B1 to B7, E1 to E13) is in it. And src/base/costs.def: somebody reads every row.
# And the words of docs/architecture.md: the files that they are explained in exist.
#
#     tests/check_rows.sh [ROOT]
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
passed=0 failed=0

bad() {
    echo "$1"
    failed=$((failed + 1))
}

while IFS=: read -r file names; do
    for name in ${names//,/ }; do
        if ! grep -q "^static void $name(void \*\*state)" "tests/$file.c" 2>/dev/null; then
            bad "docs/testing.md: tests/$file.c has no test $name"
        elif ! grep -qE "[A-Za-z_]*TEST\($name\)|unit_test[a-z_]*\($name[,)]" "tests/$file.c"; then
            bad "docs/testing.md: tests/$file.c does not run $name"
        else
            passed=$((passed + 1))
        fi
    done
done < <(grep -oE '`test_[a-z0-9_]+: [a-z0-9_, ]+`' docs/testing.md | tr -d '`')

for row in B{1..7} E{1..13}; do
    grep -q "^| $row |" docs/testing.md && passed=$((passed + 1)) || bad "docs/testing.md: no row $row"
done

for name in $(sed -nE 's/^COST\([a-z0-9_]+, ([a-z0-9_]+),.*/\1/p' src/base/costs.def); do
    grep -rqE "(->|\.)$name\b" --include='*.[ch]' src && passed=$((passed + 1)) || bad "src/base/costs.def: nobody reads $name"
done

while read -r file; do
    found=$(ls "src/$file" "include/ashlar/$file" "$file" 2>/dev/null)
    [ -n "$found" ] && passed=$((passed + 1)) || bad "docs/architecture.md, Words: there is no $file"
done < <(sed -n '/^## Words/,$p' docs/architecture.md | grep '^| ' | sed 's/.*|\(.*\)|$/\1/' | grep -oE '[a-z_/]+\.(c|h|def)')

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 20 ]
