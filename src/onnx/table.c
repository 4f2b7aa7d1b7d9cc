/* SPDX-License-Identifier: MIT */
/* Finding the row of an operator. */
#include "ops.h"

#define ROW(name, first, last, fn, arg) {name, first, last, ash_onnx__op_##fn, arg},
#define SKIP(name, first, last, fn, arg)

static const ash_import_row default_rows[] = {
#define DEFAULT_ROW   ROW
#define TRAINING_ROW  SKIP
#define MICROSOFT_ROW SKIP
#define ML_ROW        SKIP
#include "operators.def"
};

static const ash_import_row training_rows[] = {
#define DEFAULT_ROW   SKIP
#define TRAINING_ROW  ROW
#define MICROSOFT_ROW SKIP
#define ML_ROW        SKIP
#include "operators.def"
};

static const ash_import_row microsoft_rows[] = {
#define DEFAULT_ROW   SKIP
#define TRAINING_ROW  SKIP
#define MICROSOFT_ROW ROW
#define ML_ROW        SKIP
#include "operators.def"
};

static const ash_import_row ml_rows[] = {
#define DEFAULT_ROW   SKIP
#define TRAINING_ROW  SKIP
#define MICROSOFT_ROW SKIP
#define ML_ROW        ROW
#include "operators.def"
};

static const struct {
    const char *name;
    const ash_import_row *rows; /* sorted by name */
    size_t count;
} domains[] = {
    {"", default_rows, ASH_COUNT(default_rows)},
    {"com.microsoft", microsoft_rows, ASH_COUNT(microsoft_rows)},
    {"ai.onnx.ml", ml_rows, ASH_COUNT(ml_rows)},
    {"ai.onnx.preview.training", training_rows, ASH_COUNT(training_rows)},
};

/* The first row with this name, or where it would be. */
static size_t lower_bound(const ash_import_row *rows, size_t count, ash_span op) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2, len = strlen(rows[middle].name), both = ASH_MIN(len, op.len);
        int order = both ? memcmp(rows[middle].name, op.at, both) : 0;
        if (order < 0 || (order == 0 && len < op.len))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const ash_import_row *ash_import__find(ash_span domain, ash_span op, int64_t opset, bool *known) {
    *known = false;
    if (ash_onnx__is_default_domain(domain)) domain.len = 0;
    for (size_t d = 0; d < ASH_COUNT(domains); d++) {
        if (!ash_span_is(domain, domains[d].name)) continue;
        const ash_import_row *rows = domains[d].rows;
        for (size_t i = lower_bound(rows, domains[d].count, op); i < domains[d].count; i++) {
            if (!ash_span_is(op, rows[i].name)) break;
            *known = true;
            if (opset <= rows[i].last && (opset >= rows[i].first || opset == 0)) return &rows[i];
        }
    }
    return NULL;
}

bool ash_import__table_is_sorted(void) {
    for (size_t d = 0; d < ASH_COUNT(domains); d++)
        for (size_t i = 1; i < domains[d].count; i++)
            if (strcmp(domains[d].rows[i - 1].name, domains[d].rows[i].name) > 0) return false;
    return true;
}
