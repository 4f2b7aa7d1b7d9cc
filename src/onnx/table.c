/* Finding the row of an operator. */
#include "ops.h"

static const ash_import_row rows[] = {
#define ROW(name, first, last, fn, arg) {name, first, last, ash_onnx__op_##fn, arg},
#include "operators.def"
#undef ROW
};

/* Rows are sorted by name, so a binary search finds the first with a name; a few rows differ in opset
 * alone. */
const ash_import_row *ash_import__find(ash_span domain, ash_span op, int64_t opset, bool *known) {
    *known = false;
    if (!ash_onnx__is_default_domain(domain)) return NULL;
    size_t low = 0, high = ASH_COUNT(rows);
    while (low < high) {
        size_t middle = (low + high) / 2, len = strlen(rows[middle].name);
        int order = memcmp(rows[middle].name, op.at, ASH_MIN(len, op.len));
        if (order < 0 || (order == 0 && len < op.len))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < ASH_COUNT(rows) && ash_span_is(op, rows[low].name); low++) {
        *known = true;
        if (opset <= rows[low].last && (opset >= rows[low].first || opset == 0)) return &rows[low];
    }
    return NULL;
}
