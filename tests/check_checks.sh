#!/bin/bash
# SPDX-License-Identifier: MIT
# The checks of the sources, checked: each offence that tools/floors.sh and tools/sources.sh are there for is put into a
# tree of its own, and must be found. So is a program that passes without having counted what it looked at.
set -u
tools=$(realpath "$(dirname "$0")/../tools")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

# TOOL, the offence's text in its report ("" for none), FILE, its text
try() {
    local tool=$1 want=$2 file=$3 root=$folder/tree report
    rm -rf "$root"
    mkdir -p "$root/src/base" "$root/$(dirname "$file")"
    local licence='/* SPDX-License-Identifier: MIT */\n/* What the file is for. */\n\n'
    printf '%b' "$licence" '#include "base.h"\n\nstruct good {\n    int a;\n};\n' >"$root/src/base/good.c"
    [ "$want" = "no SPDX line" ] && licence=""
    [ "$want" = "no head" ] && licence='/* SPDX-License-Identifier: MIT */\n'
    printf '%b' "$licence" "$4" >"$root/$file"
    report=$("$tools/$tool" "$root")
    local status=$?
    if { [ -z "$want" ] && [ $status -eq 0 ]; } || { [ -n "$want" ] && [ $status -ne 0 ] && [[ $report == "$file:"*"$want"* ]]; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s on %s, status %d:\n%s\n' "$tool" "$file" $status "$report"
    fi
}

try floors.sh "" src/kernel/a.c '#include "ir/ir.h"\n#include "base/base.h"\n#include "kern.h"\n#include "ashlar/graph.h"\n#include <math.h>\n'
try floors.sh "own floor or above" src/ir/a.c '#include "kernel/nest.h"\n'
try floors.sh "own floor or above" src/kernel/a.c '#  include "memory/plan.h"\n'
try floors.sh "own floor or above" src/base/a.h '#include "ir/ir.h"\n'
try floors.sh "no such floor" src/code/a.c '#include "junk/a.h"\n'
try floors.sh "without a floor" src/junk/a.c '#include <math.h>\n'
try floors.sh "knows nothing of graphs" src/memory/a.c '#include "ir/ir.h"\n'
try floors.sh "knows nothing of graphs" src/memory/a.c '#include "ashlar/graph.h"\n'
try floors.sh "belongs to src/code" src/runtime/a.c '#include <llvm-c/Core.h>\n'
try floors.sh "" src/code/a.c '#include <llvm-c/Core.h>\n#include "kernel/nest.h"\n'
try floors.sh "only the public headers" cli/a.c '#include "base/base.h"\n'
try floors.sh "climbs" src/kernel/a.c '#include "../ir/ir.h"\n'
try floors.sh "" cli/a.c '#include "cli.h"\n#include "ashlar/plan.h"\n'
try floors.sh "by name alone" include/ashlar/a.h '#include "ashlar/graph.h"\n'

try sources.sh "" src/ir/a.c 'int a;\n'
try sources.sh "struct good is one of" src/ir/a.c 'typedef struct good {\n    int a;\n} good;\n'
try sources.sh "no SPDX line" src/ir/a.c 'int a;\nint b;\n'
try sources.sh "no SPDX line" src/ir/a.c 'int a;\n'
try sources.sh "no head" src/ir/a.c '#include <math.h>\n'
try sources.sh "no head" src/ir/a.h '#include "a.h"\n'
try sources.sh "unfinished" src/ir/a.c 'int a; /* TO''DO: more */\n'
try sources.sh "unfinished" src/ir/a.c '/* FIX''ME */\n'
try sources.sh "" src/ir/a.c 'char path[] = "XXXX''XX";\n'
try sources.sh "more than 900" src/ir/a.c "$(seq -s '\n' 901)\n"
try sources.sh "end of the line" src/ir/a.c 'int a; \n'
try sources.sh "a tab" src/ir/a.c '\tint a;\n'
try sources.sh "more than 108" src/ir/a.c "/* $(printf '%0103d' 0) */\n"
try sources.sh "" src/ir/a.c "/* $(printf '%050d' 0 | sed 's/0/\xe2\x94\x80/g') $(printf '%051d' 0) */\n"
try sources.sh "a ruler" src/ir/a.c '/* --- one\n * --------------- */\n'
try sources.sh "a ruler" src/ir/a.c '/* --- one ---------------\n */\n'
try sources.sh "" src/ir/a.c '/* --- one --------------- */\n'
try sources.sh "alone on a line" src/ir/a.c '/* One.\n */\n'
try sources.sh "alone on a line" src/ir/a.c 'struct a {\n    /* One\n     * two.\n     */\n};\n'
try sources.sh "" src/ir/a.c '/* One:\n *\n *     a drawing\n */\n'
try sources.sh "lost its indentation" src/ir/a.c '/* One:\n *\n *   a  first\n * second\n *   b  third */\n'
try sources.sh "" src/ir/a.c '/* One:\n *   a  first\n *      second\n *\n * More. */\n'
try sources.sh "a takes 8 parameters" src/ir/a.c 'int a(int b, int c, int d, int e, int f, int g, int h, int i);\n'
try sources.sh "b takes 8 parameters" src/ir/a.c 'static int *b(int (*c)(int, int), int d, int e, int f,\n    int g, int h, int i, int j) {\n}\n'
try sources.sh "" src/ir/a.c 'int a(int (*b)(int, int), int c, int d, int e, /* one, two */\n    int f, int g, int h);\n'
try sources.sh "" include/ashlar/a.h '/* One. */\nASH_API int a(int b, int c, int d, int e, int f, int g, int h, int i);\n'
try sources.sh "without a comment" include/ashlar/a.h 'ASH_API int a(void);\n'
try sources.sh "without a comment" include/ashlar/a.h '/* One. */\n\nASH_API int a(void);\n\nint b;\n'
try sources.sh "" include/ashlar/a.h '/* One. */\nASH_API int a(void);\nASH_API int b(void);\n'

# What tools/counts.awk makes of the log of one program: that it printed this, and passed
counts() {
    local want=$1 got
    got=$(printf '1/1 Test: a\nOutput:\n%b\nTest Passed.\n' "$2" | awk -f "$tools/counts.awk" | tr '\n' ' ')
    if [ "$got" = "$want " ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL counts.awk: %s for "%s"\n' "$got" "$2"
    fi
}

counts "2 0 0" '[  PASSED  ] 2 test(s).'
counts "2 1 3" '[  PASSED  ] 2 test(s).\n[  SKIPPED ] 3 test(s).\n[  FAILED  ] 1 test(s)'
counts "7 1 2" 'x\n7 passed, 1 failed, 2 skipped'
counts "0 0 1" 'SKIP: no GPU'
counts "0 0 0 a" 'all is well'
counts "0 0 0 a" ''

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
