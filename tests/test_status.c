/* SPDX-License-Identifier: MIT */
/* Diagnostics as a line: every part once. */
#include "base/base.h"
#include "testing.h"

static void expect(const ash_diag *diag, const char *line) {
    char text[768];
    assert_int_equal(ash_diag_format(diag, text, sizeof text), strlen(line));
    assert_string_equal(text, line);
}

static void parts(void **state) {
    (void)state;
    ash_diag diag;
    ash_fail_at(&diag, ASH_ERROR_SHAPE, 12, "2 is not %d", 3);
    expect(&diag, "shape mismatch at byte 12: 2 is not 3");
    ash_diag__add_node(&diag, "n", "Conv", 12);
    expect(&diag, "shape mismatch, node n (Conv) at byte 12: 2 is not 3");
    char text[6];
    assert_int_equal(ash_diag_format(&diag, text, sizeof text), 52);
    assert_string_equal(text, "shape");
    assert_int_equal(ash_diag_format(&diag, NULL, 0), 52);
}

/* A message that begins with the status does not say it twice. */
static void nothing_twice(void **state) {
    (void)state;
    ash_diag diag;
    for (int status = 1; status < ASH_STATUS_COUNT; status++) {
        const char *text = ash_status_text((ash_status)status);
        char line[128];
        ash_fail(&diag, (ash_status)status, "%s", text);
        expect(&diag, text);
        ash_fail(&diag, (ash_status)status, "%s at stage memory", text);
        snprintf(line, sizeof line, "%s at stage memory", text);
        expect(&diag, line);
    }
    ASH_NO_MEMORY(&diag);
    expect(&diag, "out of memory");
    ash_diag__add_node(&diag, "n", "conv", ASH_NO_OFFSET);
    expect(&diag, "out of memory, node n (conv)");
    ash_fail(&diag, ASH_ERROR_UNSUPPORTED, "unsupported dtype");
    ash_diag__add_node(&diag, "n", NULL, ASH_NO_OFFSET);
    expect(&diag, "unsupported, node n: unsupported dtype");
    ash_fail(&diag, ASH_ERROR_CANCELLED, "cancelledness");
    expect(&diag, "cancelled: cancelledness");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(nothing_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
