/* SPDX-License-Identifier: MIT */
/* The text form of a graph, read. The grammar is what text_print.c writes, and a little more: values have
 * any names, the types of nodes may be left out, and are checked where they stand, space and comments are
 * free.
 *
 * A text is not trusted: nothing is allocated that is not proportional to the text, nesting is bounded,
 * every number is checked, and the graph is built by the calls that check graphs of any origin. */
#include "base/file.h"
#include "inside.h"
#include "scan.h"

typedef struct parser {
    ash_scan scan;
    ash_graph *graph;
    ash_strmap values; /* names after %, borrowed from the text, to values */
    ash_text name;     /* the string that was read last */
    ASH_VEC(ash_value) ins;
} parser;

/* What stands left of "=": names, and types where they are given. */
typedef struct parse_target {
    const char *name[ASH_OP_OUTS];
    size_t len[ASH_OP_OUTS], start[ASH_OP_OUTS]; /* bytes; where the name stands in the text */
    bool typed[ASH_OP_OUTS];
    ash_type type[ASH_OP_OUTS];
    size_t count;
} parse_target;

/* A failure that a lower layer described gets the place in the text. */
static ash_status place(parser *p, ash_status status, size_t start) {
    if (status != ASH_OK) ash_diag__add_node(p->scan.diag, NULL, NULL, start);
    return status;
}

/* The graph's sticky error, with the place in the text. */
static ash_status graph_status(parser *p, size_t start) {
    return place(p, ash_graph_status(p->graph, p->scan.diag), start);
}

/* --- pieces --------------------------------------------------------------------------------------- */

static ash_status read_string(parser *p) {
    p->name.len = 0;
    return ash_scan__quoted(&p->scan, &p->name);
}

/* The name after %: letters, digits, "_" and ".". */
static ash_status read_value_name(parser *p, const char **name, size_t *len) {
    ash_scan *s = &p->scan;
    ASH_TRY(ash_scan__expect(s, "%"));
    size_t start = s->pos;
    while (s->pos < s->len && ash_scan__is_word_byte(s->text[s->pos])) s->pos++;
    *name = s->text + start;
    *len = s->pos - start;
    return *len ? ASH_OK : ash_scan__fail(s, "expected the name of a value");
}

static ash_status read_value(parser *p, ash_value *out) {
    const char *name;
    size_t len, start = (ash_scan__peek(&p->scan), p->scan.pos);
    uint64_t found;
    ASH_TRY(read_value_name(p, &name, &len));
    if (!ash_strmap_get(&p->values, name, len, &found))
        return ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, start, "no value is called %%%.*s",
                           (int)ASH_MIN(len, (size_t)100), name);
    *out = (ash_value)found;
    return ASH_OK;
}

static ash_status read_dtype(parser *p, ash_dtype *out) {
    for (unsigned i = 0; i < ASH_DTYPE_COUNT; i++)
        if (ash_scan__accept(&p->scan, ash_dtype_name((ash_dtype)i))) return *out = (ash_dtype)i, ASH_OK;
    return ash_scan__fail(&p->scan, "expected a dtype");
}

static ash_status read_dim(parser *p, ash_dim *out) {
    return ash_dims_parse(p->graph->dims, p->scan.text, p->scan.len, &p->scan.pos, out, p->scan.diag);
}

/* A bracketed list of at most ASH_MAX_RANK numbers or dims. */
static ash_status read_list(parser *p, bool dims, int64_t *list, uint32_t *count) {
    ash_scan *s = &p->scan;
    *count = 0;
    ASH_TRY(ash_scan__expect(s, "["));
    if (ash_scan__accept(s, "]")) return ASH_OK;
    do {
        if (*count == ASH_MAX_RANK)
            return ash_scan__fail(s, "a list of more than %d entries", ASH_MAX_RANK);
        ASH_TRY(dims ? read_dim(p, &list[*count]) : ash_scan__integer(s, &list[*count]));
        (*count)++;
    } while (ash_scan__accept(s, ","));
    return ash_scan__expect(s, "]");
}

static ash_status read_type(parser *p, ash_type *out) {
    *out = (ash_type){.rank = 0};
    uint32_t rank;
    ASH_TRY(read_dtype(p, &out->dtype));
    ASH_TRY(read_list(p, true, out->dims, &rank));
    out->rank = rank;
    return ASH_OK;
}

/* --- data ----------------------------------------------------------------------------------------- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Exactly `size` bytes. */
static ash_status read_hex(parser *p, size_t size, ash_blob **out) {
    ash_scan *s = &p->scan;
    ASH_TRY(ash_scan__expect(s, "\""));
    if ((s->len - s->pos) / 2 < size)
        return ash_scan__fail(s, "the text ends within %zu bytes of data", size);
    ASH_TRY(ash_blob_create_owned(p->graph->allocator, size, out, s->diag));
    unsigned char *bytes = (unsigned char *)(*out)->data;
    ash_status status = ASH_OK;
    for (size_t i = 0; i < size && status == ASH_OK; i++) {
        int high = hex_value(s->text[s->pos]), low = hex_value(s->text[s->pos + 1]);
        if (high < 0 || low < 0) {
            status = ash_scan__fail(s, "byte %zu of %zu is not two hexadecimal digits", i, size);
        } else {
            bytes[i] = (unsigned char)(high << 4 | low);
            s->pos += 2;
        }
    }
    if (status == ASH_OK && (s->pos == s->len || s->text[s->pos] != '"'))
        status = ash_scan__fail(s, "expected \" after %zu bytes", size);
    if (status == ASH_OK)
        s->pos++;
    else
        ash_blob_release(*out);
    return status;
}

static ash_status read_element(parser *p, ash_dtype dtype, void *at) {
    size_t size = ash_dtype_size(dtype);
    if (dtype == ASH_F32 || dtype == ASH_F64) {
        double f;
        ASH_TRY(ash_scan__float(&p->scan, dtype == ASH_F32, &f));
        float single = (float)f;
        memcpy(at, dtype == ASH_F32 ? (const void *)&single : &f, size);
        return ASH_OK;
    }
    if (ash_dtype_is_float(dtype))
        return ash_scan__fail(&p->scan, "%s data is written as hex", ash_dtype_name(dtype));
    int64_t n, max;
    size_t start = (ash_scan__peek(&p->scan), p->scan.pos);
    ASH_TRY(ash_scan__integer(&p->scan, &n));
    bool is_signed = ash_dtype_kind(dtype) == ASH_KIND_SIGNED;
    max = dtype == ASH_BOOL ? 1 : size == 8 ? INT64_MAX : (INT64_C(1) << (8 * size - is_signed)) - 1;
    if (n > max || n < (is_signed ? -max - 1 : 0))
        return ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, start, "%lld does not fit %s", (long long)n,
                           ash_dtype_name(dtype));
    memcpy(at, &n, size);
    return ASH_OK;
}

/* Exactly `size` bytes of elements. */
static ash_status read_numbers(parser *p, ash_dtype dtype, size_t size, ash_blob **out) {
    ash_scan *s = &p->scan;
    size_t step = ash_dtype_size(dtype);
    if (s->len - s->pos < size / step)
        return ash_scan__fail(s, "the text ends within %zu elements", size / step);
    ASH_TRY(ash_blob_create_owned(p->graph->allocator, size, out, s->diag));
    ash_status status = ASH_OK;
    for (size_t i = 0; i < size && status == ASH_OK; i += step) {
        if (i) status = ash_scan__expect(s, ",");
        if (status == ASH_OK) status = read_element(p, dtype, (char *)(*out)->data + i);
    }
    if (status == ASH_OK) status = ash_scan__expect(s, "}");
    if (status != ASH_OK) ash_blob_release(*out);
    return status;
}

static ash_status read_data(parser *p, const ash_type *type, ash_blob **out) {
    ash_scan *s = &p->scan;
    int64_t count;
    size_t start = (ash_scan__peek(s), s->pos);
    ASH_TRY(place(p, ash_type__check(p->graph->dims, type, s->diag), start));
    if (!ash_type_static_count(type, &count))
        return ash_scan__fail(s, "data whose shape depends on variables");
    size_t size = (size_t)count * ash_dtype_size(type->dtype);
    if (ash_scan__accept(s, "..."))
        return s->pos = start, ash_scan__fail(s, "the data is left out of this text");
    if (ash_scan__accept(s, "{")) return read_numbers(p, type->dtype, size, out);
    ASH_TRY(ash_scan__expect(s, "hex"));
    return read_hex(p, size, out);
}

/* --- statements ----------------------------------------------------------------------------------- */

static ash_status define(parser *p, const parse_target *t, size_t i, ash_value value) {
    uint64_t found;
    if (ash_strmap_get(&p->values, t->name[i], t->len[i], &found))
        return ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, t->start[i], "a value is called %%%.*s already",
                           (int)ASH_MIN(t->len[i], (size_t)100), t->name[i]);
    if (!ash_strmap_put(&p->values, t->name[i], t->len[i], value)) return ASH_NO_MEMORY(p->scan.diag);
    return ASH_OK;
}

static ash_status read_target(parser *p, parse_target *t) {
    ash_scan *s = &p->scan;
    t->count = 0;
    do {
        size_t i = t->count;
        if (i == ASH_OP_OUTS) return ash_scan__fail(s, "a node has at most %d outputs", ASH_OP_OUTS);
        t->start[i] = (ash_scan__peek(s), s->pos);
        ASH_TRY(read_value_name(p, &t->name[i], &t->len[i]));
        t->typed[i] = ash_scan__accept(s, ":");
        if (t->typed[i]) ASH_TRY(read_type(p, &t->type[i]));
        t->count++;
    } while (ash_scan__accept(s, ","));
    return ash_scan__expect(s, "=");
}

/* Where a value is placed. */
static ash_status read_device(parser *p, int64_t *device) {
    ASH_TRY(ash_scan__integer(&p->scan, device));
    if (*device < 0 || *device >= ASH_MOST_DEVICES)
        return ash_scan__fail(&p->scan, "a device from 0 to %d is expected", ASH_MOST_DEVICES - 1);
    return ASH_OK;
}

static ash_status read_leaf(parser *p, const parse_target *t, ash_value_kind kind) {
    ash_scan *s = &p->scan;
    ash_blob *blob;
    ash_value value;
    if (t->count != 1 || !t->typed[0]) return ash_scan__fail(s, "this is one value, and needs a type");
    const char *name = NULL;
    if (kind != ASH_VALUE_CONSTANT) {
        ASH_TRY(read_string(p));
        name = p->name.at;
    }
    if (kind == ASH_VALUE_INPUT) {
        value = ash_graph_input(p->graph, name, &t->type[0]);
    } else if (kind == ASH_VALUE_STATE) {
        blob = NULL;
        if (!ash_scan__accept(s, "zero")) ASH_TRY(read_data(p, &t->type[0], &blob));
        value = ash_graph__state_blob(p->graph, name, &t->type[0], blob);
    } else {
        ASH_TRY(read_data(p, &t->type[0], &blob));
        value = ash_graph__leaf_blob(p->graph, name, &t->type[0], blob);
    }
    ASH_TRY(graph_status(p, t->start[0]));
    int64_t device;
    if (ash_scan__accept(s, "@")) {
        ASH_TRY(read_device(p, &device));
        ASH_TRY(place(p, ash_graph_place(p->graph, value, (uint32_t)device, s->diag), t->start[0]));
    }
    return define(p, t, 0, value);
}

/* The name of a function that the context has. */
static ash_status read_function(parser *p, int64_t *number) {
    size_t start = (ash_scan__peek(&p->scan), p->scan.pos);
    ASH_TRY(read_string(p));
    *number = ash_context_find_function(p->graph->context, p->name.at);
    if (*number >= 0) return ASH_OK;
    return ash_fail_at(p->scan.diag, ASH_ERROR_NOT_FOUND, start,
                       "the context has no function called \"%.100s\"", p->name.at);
}

static ash_status read_attr(parser *p, ash_attr *attr, int64_t *list) {
    ash_scan *s = &p->scan;
    const char *word;
    size_t len, start = s->pos;
    if (!ash_scan__word(s, &word, &len)) return ash_scan__fail(s, "expected an attribute");
    unsigned key = 0;
    while (key < ASH_ATTR_COUNT &&
           (strlen(ash_attr_infos[key].name) != len || memcmp(ash_attr_infos[key].name, word, len)))
        key++;
    if (key == ASH_ATTR_COUNT)
        return ash_fail_at(s->diag, ASH_ERROR_FORMAT, start, "no attribute is called %.*s",
                           (int)ASH_MIN(len, (size_t)100), word);
    *attr = (ash_attr){.key = (ash_attr_key)key, .list = list};
    ASH_TRY(ash_scan__expect(s, "="));
    ash_dtype dtype = ASH_F32;
    switch (ash_attr_infos[key].type) {
    case ASH_ATTR_TYPE_FORM:
    case ASH_ATTR_TYPE_INT: return ash_scan__integer(s, &attr->i);
    case ASH_ATTR_TYPE_DIM: return read_dim(p, &attr->i);
    case ASH_ATTR_TYPE_DTYPE: ASH_TRY(read_dtype(p, &dtype)); return attr->i = dtype, ASH_OK;
    case ASH_ATTR_TYPE_INTS: return read_list(p, false, list, &attr->count);
    case ASH_ATTR_TYPE_DIMS: return read_list(p, true, list, &attr->count);
    case ASH_ATTR_TYPE_FUNCTION: return read_function(p, &attr->i);
    case ASH_ATTR_TYPE_TYPES:
        return ash_fail_at(s->diag, ASH_ERROR_FORMAT, start, "%s are written left of the \"=\"",
                           ash_attr_infos[key].name);
    }
    return ASH_OK;
}

static ash_status read_operands(parser *p) {
    ash_scan *s = &p->scan;
    p->ins.len = 0;
    ASH_TRY(ash_scan__expect(s, "("));
    if (ash_scan__accept(s, ")")) return ASH_OK;
    do {
        ash_value value;
        ASH_TRY(read_value(p, &value));
        if (!ash_vec_push(p->graph->allocator, &p->ins, value)) return ASH_NO_MEMORY(s->diag);
    } while (ash_scan__accept(s, ","));
    return ash_scan__expect(s, ")");
}

/* Attributes until the statement ends or a node name follows. */
static ash_status read_attrs(parser *p, ash_attr *attrs, int64_t (*lists)[ASH_MAX_RANK], size_t *n) {
    ash_scan *s = &p->scan;
    for (*n = 0;; (*n)++) {
        char c = ash_scan__peek(s);
        size_t before = s->pos;
        if (c == 0 || c == '%' || c == '@') return ASH_OK;
        if (ash_scan__accept(s, "output") || ash_scan__accept(s, "update") || ash_scan__accept(s, "var") ||
            ash_scan__accept(s, "equal"))
            return s->pos = before, ASH_OK;
        if (*n == ASH_ATTR_COUNT) return ash_scan__fail(s, "more attributes than there are");
        ASH_TRY(read_attr(p, &attrs[*n], lists[*n]));
    }
}

static ash_status check_types(parser *p, const parse_target *t, const ash_value *outs) {
    for (size_t i = 0; i < t->count; i++) {
        const ash_type *type = ash_graph__type(p->graph, outs[i]);
        if (!t->typed[i] || ash_type_equal(type, &t->type[i])) continue;
        ash_text text;
        ash_text_init(&text, p->graph->allocator);
        ash_type_print(p->graph->dims, type, &text);
        ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, t->start[i], "the type of this value is %s",
                    text.at && !text.failed ? text.at : "another");
        ash_text_free(&text);
        return ASH_ERROR_FORMAT;
    }
    return ASH_OK;
}

static ash_status read_node(parser *p, const parse_target *t, ash_op op) {
    ash_attr attrs[ASH_ATTR_COUNT + 1];
    int64_t lists[ASH_ATTR_COUNT][ASH_MAX_RANK];
    ash_value outs[ASH_OP_OUTS];
    size_t n_attrs;
    int64_t results[ASH_OP_OUTS * (2 + ASH_MAX_RANK)];
    bool counted = ash_op_infos[op].outs != ASH_MANY;
    if (counted && t->count != ash_op_infos[op].outs)
        return ash_scan__fail(&p->scan, "%s has %u outputs, not %zu", ash_op_name(op),
                              ash_op_infos[op].outs, t->count);
    ASH_TRY(read_operands(p));
    ASH_TRY(read_attrs(p, attrs, lists, &n_attrs));
    if (ash_op_infos[op].attrs >> ASH_ATTR_RESULTS & 1) {
        for (size_t i = 0; i < t->count; i++)
            if (!t->typed[i])
                return ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, t->start[i],
                                   "the results of %s are whatever is written here: the type is missing",
                                   ash_op_name(op));
        attrs[n_attrs++] = ASH_ATTR_LIST(RESULTS, results, ash_results__write(t->type, t->count, results));
    } else if (!counted && t->count != ash_op__out_count(op, attrs, n_attrs)) {
        return ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, t->start[0], "%s has %zu outputs, not %zu",
                           ash_op_name(op), ash_op__out_count(op, attrs, n_attrs), t->count);
    }
    int64_t device = -1;
    bool named = ash_scan__accept(&p->scan, "@");
    if (named && ash_scan__peek(&p->scan) != '"') {
        ASH_TRY(read_device(p, &device));
        named = ash_scan__accept(&p->scan, "@");
    }
    if (named) ASH_TRY(read_string(p));
    ash_graph_name_next(p->graph, named ? p->name.at : NULL);
    ASH_TRY(graph_status(p, t->start[0]));
    ash_graph_add(p->graph, op, p->ins.at, p->ins.len, attrs, n_attrs, outs);
    ASH_TRY(graph_status(p, t->start[0]));
    ASH_TRY(check_types(p, t, outs));
    if (device >= 0) ASH_TRY(ash_graph_place(p->graph, outs[0], (uint32_t)device, p->scan.diag));
    for (size_t i = 0; i < t->count; i++) ASH_TRY(define(p, t, i, outs[i]));
    return ASH_OK;
}

static ash_status read_definition(parser *p) {
    parse_target t;
    const char *word;
    size_t len;
    ASH_TRY(read_target(p, &t));
    if (ash_scan__accept(&p->scan, "input")) return read_leaf(p, &t, ASH_VALUE_INPUT);
    if (ash_scan__accept(&p->scan, "constant")) return read_leaf(p, &t, ASH_VALUE_CONSTANT);
    if (ash_scan__accept(&p->scan, "parameter")) return read_leaf(p, &t, ASH_VALUE_PARAMETER);
    if (ash_scan__accept(&p->scan, "state")) return read_leaf(p, &t, ASH_VALUE_STATE);
    size_t start = (ash_scan__peek(&p->scan), p->scan.pos);
    if (!ash_scan__word(&p->scan, &word, &len)) return ash_scan__fail(&p->scan, "expected an operator");
    for (unsigned op = 0; op < ASH_OP_COUNT; op++)
        if (strlen(ash_op_infos[op].name) == len && !memcmp(ash_op_infos[op].name, word, len))
            return read_node(p, &t, (ash_op)op);
    return ash_fail_at(p->scan.diag, ASH_ERROR_FORMAT, start, "no operator is called %.*s",
                       (int)ASH_MIN(len, (size_t)100), word);
}

static ash_status read_variable(parser *p, size_t start) {
    ash_scan *s = &p->scan;
    const char *word;
    size_t len;
    int64_t min, max;
    ash_dim dim;
    if (ash_scan__word(s, &word, &len)) {
        p->name.len = 0;
        ash_text_add_bytes(&p->name, word, len);
        ASH_TRY(ash_text_status(&p->name, s->diag));
    } else {
        ASH_TRY(read_string(p));
    }
    size_t count = ash_dims_var_count(p->graph->dims);
    if (ash_scan__accept(s, "settled")) {
        ASH_TRY(read_dim(p, &dim));
        ASH_TRY(place(p, ash_dims_add_settled(p->graph->dims, p->name.at, dim, &dim, s->diag), start));
    } else {
        ASH_TRY(ash_scan__integer(s, &min));
        ASH_TRY(ash_scan__integer(s, &max));
        ASH_TRY(place(p, ash_dims_add_var(p->graph->dims, p->name.at, min, max, &dim, s->diag), start));
    }
    if (ash_dims_var_count(p->graph->dims) == count)
        return ash_fail_at(s->diag, ASH_ERROR_FORMAT, start, "a variable is called %s already", p->name.at);
    return ASH_OK;
}

/* Two dims that must have one value. */
static ash_status read_equal(parser *p, size_t start) {
    ash_dim a, b;
    ASH_TRY(read_dim(p, &a));
    ASH_TRY(read_dim(p, &b));
    return place(p, ash_dims_require(p->graph->dims, a, b, p->scan.diag), start);
}

static ash_status read_output(parser *p, size_t start) {
    ash_value value;
    ASH_TRY(read_string(p));
    ASH_TRY(ash_scan__expect(&p->scan, "="));
    ASH_TRY(read_value(p, &value));
    ash_graph_output(p->graph, p->name.at, value);
    return graph_status(p, start);
}

static ash_status read_update(parser *p, size_t start) {
    ash_value state, value;
    ASH_TRY(read_value(p, &state));
    ASH_TRY(ash_scan__expect(&p->scan, "="));
    ASH_TRY(read_value(p, &value));
    ash_graph_update(p->graph, state, value);
    return graph_status(p, start);
}

static ash_status read_statements(parser *p) {
    for (;;) {
        char c = ash_scan__peek(&p->scan);
        size_t start = p->scan.pos;
        if (start == p->scan.len) return ASH_OK;
        if (c == '%')
            ASH_TRY(read_definition(p));
        else if (ash_scan__accept(&p->scan, "var"))
            ASH_TRY(read_variable(p, start));
        else if (ash_scan__accept(&p->scan, "equal"))
            ASH_TRY(read_equal(p, start));
        else if (ash_scan__accept(&p->scan, "output"))
            ASH_TRY(read_output(p, start));
        else if (ash_scan__accept(&p->scan, "update"))
            ASH_TRY(read_update(p, start));
        else
            return ash_scan__fail(&p->scan, "expected a value, var, update or output");
    }
}

ash_status ash_graph_parse(ash_context *context, const char *text, uint64_t len, ash_graph **out,
                           ash_diag *diag) {
    ash_diag ignored;
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context);
    if (len) ASH_NEED(diag, text);
    ASH_TRY(ash_file_check_given(context, text, len, diag));
    const ash_allocator *a = ash_context__allocator(context);
    parser p = {.scan = {text, len, 0, diag ? diag : &ignored}};
    ash_strmap_init(&p.values, a);
    ash_text_init(&p.name, a);
    ash_status status;
    ASH_TRY_DONE(ash_scan__expect(&p.scan, "graph"));
    ASH_TRY_DONE(read_string(&p));
    ASH_TRY_DONE(ash_graph_create(context, p.name.at, &p.graph, p.scan.diag));
    p.graph->internal = ash_scan__accept(&p.scan, "internal");
    ASH_TRY_DONE(read_statements(&p));
    ash_graph_name_next(p.graph, NULL);
    *out = p.graph;
    p.graph = NULL;
done:
    ash_graph_destroy(p.graph);
    ash_vec_free(a, &p.ins);
    ash_strmap_free(&p.values);
    ash_text_free(&p.name);
    return status;
}
