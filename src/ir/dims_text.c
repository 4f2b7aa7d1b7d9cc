/* SPDX-License-Identifier: MIT */
/* The text of dims:
 *
 *   dim    = number | name | function | "(" sum ")"
 *   sum    = ["-"] product { ("+" | "-") product }
 *   product = dim { "*" dim }
 *   function = ("div" | "min" | "max") "(" argument "," argument ")"        argument = dim | sum
 *   name   = an identifier, or any bytes in double quotes
 *
 * A polynomial is printed in its canonical order and read without interning the steps, so that what was
 * printed is read back as the same dim. */
#include "inside.h"
#include "scan.h"

static const char *const functions[] = {
    [ASH_DIM_DIV] = "div", [ASH_DIM_MIN] = "min", [ASH_DIM_MAX] = "max"};

/* --- printing ------------------------------------------------------------------------------------- */

void ash_dims__print_name(const char *name, ash_text *out) {
    bool function = false;
    for (ash_dim_op op = ASH_DIM_DIV; op <= ASH_DIM_MAX; op++)
        function = function || !strcmp(name, functions[op]);
    if (ash_text__is_word(name) && !function)
        ash_text_add(out, "%s", name);
    else
        ash_text_add_quoted(out, name, strlen(name));
}

static void print_atom(const ash_dims *dims, const ash_dim_atom *atom, ash_text *out) {
    if (atom->is_var) {
        ash_dims__print_name(dims->vars.at[atom->var].name, out);
        return;
    }
    ash_text_add(out, "%s(", functions[atom->op]);
    ash_dims_print(dims, atom->a, out);
    ash_text_add(out, ", ");
    ash_dims_print(dims, atom->b, out);
    ash_text_add(out, ")");
}

void ash_dims_print(const ash_dims *dims, ash_dim dim, ash_text *out) {
    if (dim >= 0) {
        ash_text_add(out, "%lld", (long long)dim);
        return;
    }
    if (!ash_dims__valid(dims, dim)) {
        ash_text_add(out, "?");
        return;
    }
    const ash_dim_expr *expr = ash_dims__expr(dims, dim);
    bool bare = expr->n == 1 && expr->terms[0].coef == 1 && expr->terms[0].n == 1;
    if (!bare) ash_text_add(out, "(");
    for (uint32_t i = 0; i < expr->n; i++) {
        const ash_poly_term *t = &expr->terms[i];
        uint64_t size = t->coef < 0 ? 0 - (uint64_t)t->coef : (uint64_t)t->coef;
        ash_text_add(out, "%s", i ? t->coef < 0 ? " - " : " + " : t->coef < 0 ? "-" : "");
        if (size != 1 || !t->n) ash_text_add(out, "%llu%s", (unsigned long long)size, t->n ? "*" : "");
        for (uint32_t k = 0; k < t->n; k++) {
            if (k) ash_text_add(out, "*");
            print_atom(dims, &dims->atoms.at[t->atoms[k]].info, out);
        }
    }
    if (!bare) ash_text_add(out, ")");
}

/* --- parsing -------------------------------------------------------------------------------------- */

typedef struct dims_reader {
    ash_dims *dims;
    ash_scan scan;
} dims_reader;

#define TOO_LARGE(r) ash_scan__fail(&(r)->scan, "a dim expression exceeds 64 bits, or is too large")

static ash_status read_sum(dims_reader *r, ash_poly *out, int depth);

static ash_status read_argument(dims_reader *r, ash_dim *out, int depth) {
    ash_poly p;
    size_t start = r->scan.pos;
    ASH_TRY(read_sum(r, &p, depth));
    ash_status status = ash_dims__make(r->dims, &p, out, r->scan.diag);
    ash_diag__add_node(r->scan.diag, NULL, NULL, start);
    return status;
}

static ash_status read_function(dims_reader *r, ash_dim_op op, ash_poly *out, int depth) {
    ash_dim a, b, value;
    size_t start = r->scan.pos;
    ASH_TRY(read_argument(r, &a, depth));
    ASH_TRY(ash_scan__expect(&r->scan, ","));
    ASH_TRY(read_argument(r, &b, depth));
    ASH_TRY(ash_scan__expect(&r->scan, ")"));
    ash_status status = ash_dims_combine(r->dims, op, a, b, &value, r->scan.diag);
    if (status == ASH_OK)
        ash_poly__load(r->dims, value, out);
    else
        ash_diag__add_node(r->scan.diag, NULL, NULL, start);
    return status;
}

static ash_status read_variable(dims_reader *r, const char *name, size_t len, size_t start, ash_poly *out) {
    uint64_t found;
    if (!ash_strmap_get(&r->dims->var_names, name, len, &found))
        return ash_fail_at(r->scan.diag, ASH_ERROR_FORMAT, start, "no variable is called %.*s",
                           (int)ASH_MIN(len, (size_t)100), name);
    ash_poly__load(r->dims, -(ash_dim)found, out);
    return ASH_OK;
}

static ash_status read_factor(dims_reader *r, ash_poly *out, int depth) {
    ash_scan *s = &r->scan;
    if (depth > 2 * ASH_POLY_DEPTH) return ash_scan__fail(s, "a dim expression is nested too deeply");
    char c = ash_scan__peek(s);
    size_t start = s->pos;
    if (c >= '0' && c <= '9') {
        int64_t value;
        ASH_TRY(ash_scan__integer(s, &value));
        ash_poly__const(value, out);
        return ASH_OK;
    }
    if (c == '"') {
        ash_text name;
        ash_text_init(&name, r->dims->allocator);
        ash_status status = ash_scan__quoted(s, &name);
        if (status == ASH_OK) status = read_variable(r, name.at, name.len, start, out);
        ash_text_free(&name);
        return status;
    }
    if (ash_scan__accept(s, "(")) {
        ASH_TRY(read_sum(r, out, depth + 1));
        return ash_scan__expect(s, ")");
    }
    const char *word;
    size_t len;
    if (!ash_scan__word(s, &word, &len)) return ash_scan__fail(s, "expected a dim");
    for (ash_dim_op op = ASH_DIM_DIV; op <= ASH_DIM_MAX; op++)
        if (len == strlen(functions[op]) && !memcmp(word, functions[op], len) && ash_scan__accept(s, "("))
            return read_function(r, op, out, depth + 1);
    return read_variable(r, word, len, start, out);
}

static ash_status read_product(dims_reader *r, ash_poly *out, int depth) {
    ASH_TRY(read_factor(r, out, depth));
    while (ash_scan__accept(&r->scan, "*")) {
        ash_poly factor, product;
        ASH_TRY(read_factor(r, &factor, depth));
        if (!ash_poly__mul(r->dims, out, &factor, &product)) return TOO_LARGE(r);
        *out = product;
    }
    return ASH_OK;
}

static ash_status read_sum(dims_reader *r, ash_poly *out, int depth) {
    out->n = 0;
    for (bool first = true;; first = false) {
        int64_t sign = ash_scan__accept(&r->scan, "-") ? -1 : 1;
        if (sign == 1 && !first && !ash_scan__accept(&r->scan, "+")) return ASH_OK;
        ash_poly product;
        ASH_TRY(read_product(r, &product, depth));
        if (!ash_poly__add(r->dims, out, &product, sign)) return TOO_LARGE(r);
    }
}

ash_status ash_dims_parse(ash_dims *dims, const char *text, size_t len, size_t *pos, ash_dim *out,
                          ash_diag *diag) {
    dims_reader r = {dims, {text, len, *pos, diag}};
    ash_poly p;
    ash_scan__peek(&r.scan);
    size_t start = r.scan.pos;
    ASH_TRY(read_factor(&r, &p, 0));
    ash_status status = ash_dims__make(dims, &p, out, diag);
    if (status != ASH_OK) {
        ash_diag__add_node(diag, NULL, NULL, start);
        return status;
    }
    *pos = r.scan.pos;
    return ASH_OK;
}
