/* SPDX-License-Identifier: MIT */
/* Finding the row of an operator. */
#include "ops.h"

static const ash_import_row rows[] = {
#define ROW(domain, name, first, last, fn, arg) {domain, name, first, last, ash_onnx__op_##fn, arg},
#include "operators.def"
#undef ROW
};

static int compare(ash_span a, const char *b) {
    size_t len = strlen(b), both = ASH_MIN(len, a.len);
    int order = both ? memcmp(a.at, b, both) : 0;
    return order ? order : (a.len > len) - (a.len < len);
}

/* By domain, then by name. */
static int order(ash_span domain, ash_span op, const ash_import_row *row) {
    int by_domain = compare(domain, row->domain);
    return by_domain ? by_domain : compare(op, row->name);
}

/* The first row that has this name, or comes after it. */
static size_t lower_bound(ash_span domain, ash_span op) {
    size_t low = 0, high = ASH_COUNT(rows);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (order(domain, op, &rows[middle]) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const ash_import_row *ash_import__find(ash_span domain, ash_span op, int64_t opset, bool *known) {
    *known = false;
    if (ash_onnx__is_default_domain(domain)) domain.len = 0;
    for (size_t i = lower_bound(domain, op); i < ASH_COUNT(rows) && order(domain, op, &rows[i]) == 0; i++) {
        *known = true;
        if (opset <= rows[i].last && (opset >= rows[i].first || opset == 0)) return &rows[i];
    }
    return NULL;
}

static ash_span text(const char *s) {
    return (ash_span){(const uint8_t *)s, strlen(s)};
}

bool ash_import__table_is_sorted(void) {
    for (size_t i = 1; i < ASH_COUNT(rows); i++)
        if (order(text(rows[i].domain), text(rows[i].name), &rows[i - 1]) < 0) return false;
    return true;
}
