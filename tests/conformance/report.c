/* SPDX-License-Identifier: MIT */
/* What a run says of operators, as a document. */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "onnx/model.h"

enum { MAX_REFUSALS = 3, WORDS = 160 };

typedef struct operator_row {
    const char *domain, *name;
    int64_t first, last;
    int passed, refused;
    uint32_t dtypes, narrows; /* of operands in cases that have passed, a bit each */
    char refusals[MAX_REFUSALS][WORDS];
} operator_row;

static operator_row rows[] = {
#define ROW(domain, name, first, last, fn, arg) {domain, name, first, last, 0, 0, 0, 0, {""}},
#include "onnx/operators.def"
#undef ROW
};

/* Operators that have no row. */
static operator_row others[64];
static size_t n_others;

static operator_row *row_of(ash_span domain, ash_span op, int64_t version) {
    if (ash_onnx__is_default_domain(domain)) domain.len = 0;
    operator_row *found = NULL;
    for (size_t i = 0; i < ASH_COUNT(rows); i++)
        if (ash_span_is(domain, rows[i].domain) && ash_span_is(op, rows[i].name)) {
            found = &rows[i];
            if (version >= found->first && version <= found->last) return found;
        }
    for (size_t i = 0; i < n_others && !found; i++)
        if (ash_span_is(domain, others[i].domain) && ash_span_is(op, others[i].name)) found = &others[i];
    if (found || n_others == ASH_COUNT(others)) return found;
    others[n_others] = (operator_row){.domain = strndup((const char *)domain.at, domain.len),
                                      .name = strndup((const char *)op.at, op.len)};
    return &others[n_others++];
}

/* The row of the only node; NULL: there are several, or it cannot be read. */
static operator_row *operator_of(const ash_file *file, ash_arena *arena) {
    ash_diag unused;
    ash_onnx_model model;
    ash_onnx_node node;
    ash_wire wire = ash_wire__open(file->data, file->size, &unused), message, second;
    bool more;
    if (ash_onnx__model_read(wire, arena, &model) != ASH_OK || !model.has_graph) return NULL;
    wire = model.graph;
    if (ash_wire__enter_next(&wire, ONNX_GRAPH_NODE, &message, &more) != ASH_OK || !more ||
        ash_onnx__node_read(message, arena, &node) != ASH_OK)
        return NULL;
    if (ash_wire__enter_next(&wire, ONNX_GRAPH_NODE, &second, &more) != ASH_OK || more) return NULL;
    int64_t version = 0;
    for (size_t i = 0; i < model.opsets.n; i++) {
        ash_span domain = model.opsets.at[i].domain;
        if (ash_span_equal(domain, node.domain) ||
            (ash_onnx__is_default_domain(domain) && ash_onnx__is_default_domain(node.domain)))
            version = model.opsets.at[i].version;
    }
    return row_of(node.domain, node.op, version);
}

static void note_refusal(operator_row *row, const char *text) {
    char words[WORDS];
    snprintf(words, sizeof words, "%.*s", (int)strcspn(text, ";"), text);
    row->refused++;
    for (int i = 0; i < MAX_REFUSALS; i++) {
        if (strcmp(row->refusals[i], words) == 0) return;
        if (row->refusals[i][0]) continue;
        strcpy(row->refusals[i], words);
        return;
    }
}

void report_types(seen_types *seen, const tensors *inputs) {
    for (size_t i = 0; i < inputs->n; i++) {
        ash_narrow narrow = ash_tensor_narrow(inputs->at[i]);
        if (narrow)
            seen->narrows |= 1u << narrow;
        else
            seen->dtypes |= 1u << ash_tensor_type(inputs->at[i])->dtype;
    }
}

void report_case(const char *model, seen_types seen, const char *refusal) {
    ash_context *context;
    ash_file *file;
    ash_arena arena;
    if (ash_context_create(NULL, &context, NULL) != ASH_OK) return;
    if (ash_file_map(context, model, &file, NULL) == ASH_OK) {
        ash_arena_init(&arena, ash_context__allocator(context));
        operator_row *row = operator_of(file, &arena);
        if (row && refusal) {
            note_refusal(row, refusal);
        } else if (row) {
            row->passed++;
            row->dtypes |= seen.dtypes, row->narrows |= seen.narrows;
        }
        ash_arena_free(&arena);
        ash_file_release(file);
    }
    ash_context_destroy(context);
}

/* --- the document ----------------------------------------------------------------------------------- */

static void write_types(FILE *f, const operator_row *row) {
    const char *between = "";
    for (int i = 0; i < ASH_DTYPE_COUNT; i++)
        if (row->dtypes >> i & 1) fprintf(f, "%s%s", between, ash_dtype_name((ash_dtype)i)), between = " ";
    for (int i = 1; i < ASH_NARROW_COUNT; i++)
        if (row->narrows >> i & 1)
            fprintf(f, "%s%s", between, ash_narrow_name((ash_narrow)i)), between = " ";
}

static void write_limits(FILE *f, const operator_row *row) {
    for (int i = 0; i < MAX_REFUSALS && row->refusals[i][0]; i++)
        fprintf(f, "%s%s", i ? "; " : "", row->refusals[i]);
}

static void write_row(FILE *f, const operator_row *row) {
    fprintf(f, "| %s | %lld", row->name, (long long)row->first);
    if (row->last == INT64_MAX)
        fprintf(f, " and later | ");
    else
        fprintf(f, " to %lld | ", (long long)row->last);
    write_types(f, row);
    if (row->passed)
        fprintf(f, " | %d | ", row->passed);
    else
        fprintf(f, " |  | ");
    write_limits(f, row);
    fprintf(f, " |\n");
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const operator_row *)a)->name, ((const operator_row *)b)->name);
}

bool report_write(const char *path, int passed, int cases) {
    FILE *f = fopen(path, "w");
    const char *domain = NULL;
    if (!f) return false;
    fprintf(
        f,
        "# ONNX operators\n\n"
        "Written by `conformance -o docs/onnx.md FOLDER...`, from the table of operators and the cases in "
        "those\n"
        "folders; not by hand. Versions are those of the operator set in which an operator's meaning is "
        "one\n"
        "that is known. Types are those of operands in cases that have passed, and cases those of models\n"
        "with this node alone; an operator without any is covered by the fixtures in `tests/data/onnx`.\n"
        "Limits are what imports of further cases said.\n\n"
        "%d of %d cases passed.\n",
        passed, cases);
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        if (!domain || strcmp(domain, rows[i].domain) != 0) {
            domain = rows[i].domain;
            fprintf(f,
                    "\n## %s\n\n| operator | versions | types | cases | limits |\n|---|---|---|---|---|\n",
                    domain[0] ? domain : "ai.onnx");
        }
        write_row(f, &rows[i]);
    }
    fprintf(f, "\n## Not there\n\n"
               "A lowering of the caller's can say what one computes (`ash_onnx_options.operators`).\n\n"
               "| operator | cases |\n|---|---|\n");
    qsort(others, n_others, sizeof *others, by_name);
    for (size_t i = 0; i < n_others; i++)
        fprintf(f, "| %s%s%s | %d |\n", others[i].domain, others[i].domain[0] ? "." : "", others[i].name,
                others[i].refused);
    return fclose(f) == 0;
}
