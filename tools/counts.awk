# SPDX-License-Identifier: MIT
# Of a ctest run's log (LastTest.log): "PASSED FAILED SKIPPED", cases that its programs counted, and then the names of the
# programs that passed and counted nothing, a line each: nobody knows what those looked at. A program that is skipped as a whole
# says so in a line that begins with SKIP, and is one. What makes and empties folders (*_are_forgotten) is no test.

function finish() {
    if (test == "" || counted || test ~ /_are_forgotten$/) return
    if (skips)
        s++
    else if (passed)
        silent[++n] = test
}

/^[0-9]+\/[0-9]+ Test: / { finish(); test = $3; counted = skips = passed = 0 }
/^\[  PASSED  \] [0-9]+ test/ { p += $4; counted = 1 }
/^\[  SKIPPED \] [0-9]+ test/ { s += $4; counted = 1 }
/^\[  FAILED  \] (tests: )?[0-9]+ test/ { f += $4 == "tests:" ? $5 : $4; counted = 1 }   # cmocka 1.1.7 names the group
/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped/ { p += $1; f += $3; s += $5; counted = 1 }
/^SKIP/ { skips = 1 }
/^Test Passed\.$/ { passed = 1 }
END {
    finish()
    print p + 0, f + 0, s + 0
    for (i = 1; i <= n; i++) print silent[i]
}
