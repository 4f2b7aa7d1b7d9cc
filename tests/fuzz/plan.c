/* SPDX-License-Identifier: MIT */
/* A case by the evaluator in double precision, and by a plan that is there, wherever it is. */
#include <math.h>

#include "case.h"

void case_results_free(case_results *r) {
    for (unsigned i = 0; r && i < CASE_ROUNDS; i++)
        for (unsigned o = 0; o < CASE_OUTPUTS; o++) free(r->at[i][o].bytes);
    free(r);
}

/* Whether both are NaNs, whose bits may be any. */
static bool are_nans(ash_dtype dtype, const char *a, const char *b) {
    const size_t size = ash_dtype_size(dtype);
    const uint64_t infinity = dtype == ASH_F64    ? UINT64_C(0x7ff0000000000000)
                              : dtype == ASH_F32  ? UINT64_C(0x7f800000)
                              : dtype == ASH_BF16 ? UINT64_C(0x7f80)
                                                  : UINT64_C(0x7c00),
                   magnitude = UINT64_MAX >> (65 - 8 * size);
    uint64_t x = 0, y = 0;
    memcpy(&x, a, size), memcpy(&y, b, size);
    return ash_dtype_is_float(dtype) && (x & magnitude) > infinity && (y & magnitude) > infinity;
}

/* Whether results differ in nothing but what bits NaNs have. */
static bool differ_in_nans(ash_dtype dtype, const char *a, const char *b, size_t bytes) {
    const size_t size = ash_dtype_size(dtype);
    for (size_t i = 0; i < bytes; i += size)
        if (memcmp(a + i, b + i, size) != 0 && !are_nans(dtype, a + i, b + i)) return false;
    return true;
}

bool case_same(const fuzz_case *c, const case_results *a, const case_results *b, unsigned rounds,
               bool to_the_bit, const char *than, char error[512]) {
    for (unsigned round = 0; round < rounds; round++)
        for (size_t o = 0; o < c->g->outputs.len; o++) {
            if (a->at[round][o].size == b->at[round][o].size &&
                (memcmp(a->at[round][o].bytes, b->at[round][o].bytes, a->at[round][o].size) == 0 ||
                 (!to_the_bit &&
                  differ_in_nans(ash_graph__type(c->g, c->g->outputs.at[o].value)->dtype,
                                 a->at[round][o].bytes, b->at[round][o].bytes, a->at[round][o].size))))
                continue;
            snprintf(error, 400, "round %u, output %s has other bits than %s", round,
                     c->g->outputs.at[o].name, than);
            return false;
        }
    return true;
}

/* --- the evaluator ---------------------------------------------------------------------------- */

static void dims_of(const ash_graph *g, const ash_type *type, const int64_t *vars, int64_t *dims) {
    for (unsigned d = 0; d < type->rank; d++) dims[d] = ash_dims_eval(g->dims, type->dims[d], vars);
}

static void spread_vars(const fuzz_case *c, unsigned round, int64_t *vars) {
    unsigned n = 0;
    for (size_t i = 0; i < ash_dims_var_count(c->g->dims); i++)
        vars[i] = ash_dims_var(c->g->dims, i)->settled ? 0 : c->vars[round][n++];
    ash_dims_reset_settled(c->g->dims, vars);
}

static bool make_inputs(const fuzz_case *c, unsigned round, const int64_t *vars, ash_wide *inputs) {
    ash_diag diag;
    for (size_t i = 0; i < c->g->inputs.len; i++) {
        const ash_type *type = ash_graph__type(c->g, c->g->inputs.at[i]);
        int64_t dims[ASH_MAX_RANK];
        dims_of(c->g, type, vars, dims);
        if (ash_wide_alloc(&ash_allocator__libc, type->dtype, type->rank, dims, &inputs[i], &diag) !=
            ASH_OK)
            return false;
        fuzz_fill(&inputs[i], c->fill[i].seed + 3 * round, c->fill[i].limit, c->fill[i].special);
    }
    return true;
}

static bool near_enough(const ash_wide *got, const ash_wide *want, double within, char *error,
                        size_t room) {
    bool is_float = ash_dtype_is_float(want->dtype);
    for (int64_t i = 0; i < want->count; i++) {
        if (!is_float && got->i[i] != want->i[i]) {
            snprintf(error, room, "element %lld is %lld, not %lld", (long long)i, (long long)got->i[i],
                     (long long)want->i[i]);
            return false;
        }
        if (!is_float || (isnan(got->f[i]) && isnan(want->f[i])) || got->f[i] == want->f[i] ||
            fabs(got->f[i] - want->f[i]) <= within)
            continue;
        snprintf(error, room, "element %lld is %.9g, not %.9g (may be off by %.3g)", (long long)i,
                 got->f[i], want->f[i], within);
        return false;
    }
    return true;
}

static bool compare_round(const fuzz_case *c, const case_results *r, unsigned round,
                          const ash_wide *expected, char error[512]) {
    for (size_t o = 0; o < c->g->outputs.len; o++) {
        const ash_wide *want = &expected[o];
        char why[256];
        ash_wide got;
        ash_diag diag;
        if (memcmp(r->at[round][o].dims, want->dims, want->rank * sizeof *want->dims) != 0 ||
            r->at[round][o].size != (size_t)want->count * ash_dtype_size(want->dtype)) {
            snprintf(error, 512, "round %u, output %s has another shape", round, c->g->outputs.at[o].name);
            return false;
        }
        if (ash_wide_alloc(&ash_allocator__libc, want->dtype, want->rank, want->dims, &got, &diag) !=
            ASH_OK)
            return false;
        ash_wide_load(&got, r->at[round][o].bytes);
        bool good = near_enough(&got, want, c->within[o], why, sizeof why);
        ash_wide_free(&ash_allocator__libc, &got);
        if (good) continue;
        snprintf(error, 512, "round %u, output %s: %s", round, c->g->outputs.at[o].name, why);
        return false;
    }
    return true;
}

bool case_check(const fuzz_case *c, const case_results *r, char error[512]) {
    const ash_allocator *a = &ash_allocator__libc;
    const ash_graph *g = c->g;
    ash_wide *states = calloc(g->states.len + 1, sizeof *states);
    bool good = true;
    ash_diag diag;
    ash_diag_clear(&diag);
    for (size_t s = 0; s < g->states.len; s++) {
        const ash_type *type = ash_graph__type(g, g->states.at[s].value);
        if (ash_wide_alloc(a, type->dtype, type->rank, type->dims, &states[s], &diag) != ASH_OK) abort();
        memset(states[s].f, 0, (size_t)states[s].count * sizeof *states[s].f);
    }
    for (unsigned round = 0; round < c->rounds && good; round++) {
        int64_t vars[64] = {0};
        ash_wide *inputs = calloc(g->inputs.len + 1, sizeof *inputs),
                 *expected = calloc(g->outputs.len + 1, sizeof *expected);
        spread_vars(c, round, vars);
        if (!make_inputs(c, round, vars, inputs)) abort();
        if (ash_eval_step(g, inputs, vars, ASH_EVAL_DOUBLE, states, expected, &diag) != ASH_OK) {
            ash_diag_format(&diag, error, 512);
            good = false;
        } else {
            good = compare_round(c, r, round, expected, error);
            for (size_t o = 0; o < g->outputs.len; o++) ash_wide_free(a, &expected[o]);
        }
        for (size_t i = 0; i < g->inputs.len; i++) ash_wide_free(a, &inputs[i]);
        free(inputs);
        free(expected);
    }
    for (size_t s = 0; s < g->states.len; s++) ash_wide_free(a, &states[s]);
    free(states);
    return good;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* The values of a round's variables, by their names; how many there are. */
static unsigned name_vars(const fuzz_case *c, unsigned round, ash_var_binding named[CASE_VARS]) {
    unsigned n = 0;
    for (size_t i = 0; i < ash_dims_var_count(c->g->dims); i++)
        if (!ash_dims_var(c->g->dims, i)->settled) {
            named[n] = (ash_var_binding){ash_dims_var(c->g->dims, i)->name, c->vars[round][n]};
            n++;
        }
    return n;
}

/* The bytes of a wide tensor, which is freed; the caller frees them. */
static void *store(ash_wide *t, size_t *size) {
    *size = (size_t)t->count * ash_dtype_size(t->dtype);
    char *bytes = malloc(*size + 1);
    if (!bytes) abort();
    ash_wide_store(t, bytes);
    ash_wide_free(&ash_allocator__libc, t);
    return bytes;
}

static ash_status keep_output(const ash_view *view, case_results *r, unsigned round, size_t o,
                              ash_diag *diag) {
    const ash_type *type = ash_view_type(view);
    memcpy(r->at[round][o].dims, type->dims, type->rank * sizeof *type->dims);
    r->at[round][o].size = (size_t)ash_view_bytes(view);
    r->at[round][o].bytes = malloc(r->at[round][o].size + 1);
    if (!r->at[round][o].bytes) abort();
    return ash_view_copy_out(view, r->at[round][o].bytes, r->at[round][o].size, diag);
}

static ash_status bind_round(const fuzz_case *c, ash_plan *plan, unsigned round, ash_diag *diag) {
    ash_var_binding named[CASE_VARS];
    int64_t vars[64] = {0};
    unsigned n = name_vars(c, round, named);
    if (n) ASH_TRY(ash_plan_set_vars(plan, named, n, diag));
    spread_vars(c, round, vars);
    ash_wide *inputs = calloc(c->g->inputs.len + 1, sizeof *inputs);
    if (!inputs || !make_inputs(c, round, vars, inputs)) abort();
    ash_status status = ASH_OK;
    for (size_t i = 0; i < c->g->inputs.len; i++) {
        size_t size;
        void *bytes = store(&inputs[i], &size);
        if (status == ASH_OK) status = ash_plan_set_input(plan, i, NULL, bytes, size, diag);
        free(bytes);
    }
    free(inputs);
    return status;
}

ash_status case_execute(const fuzz_case *c, ash_plan *plan, case_results *r, ash_diag *diag) {
    ASH_TRY(ash_plan_reset_states(plan, diag));
    for (unsigned round = 0; round < c->rounds; round++) {
        ASH_TRY(bind_round(c, plan, round, diag));
        ASH_TRY(ash_plan_execute(plan, diag));
        for (size_t o = 0; o < c->g->outputs.len; o++) {
            const ash_view *view;
            ASH_TRY(ash_plan_output(plan, o, &view, diag));
            ASH_TRY(keep_output(view, r, round, o, diag));
        }
    }
    return ASH_OK;
}

static ash_status eager_round(const fuzz_case *c, const ash_plan_options *options, unsigned round,
                              case_results *r, ash_diag *diag) {
    ash_var_binding named[CASE_VARS];
    int64_t vars[64] = {0};
    size_t n = c->g->inputs.len, m = c->g->outputs.len;
    ash_tensor **in = calloc(n + m + 1, sizeof *in), **out = in + n;
    ash_wide *inputs = calloc(n + 1, sizeof *inputs);
    ash_status status = ASH_OK;
    spread_vars(c, round, vars);
    if (!in || !inputs || !make_inputs(c, round, vars, inputs)) abort();
    for (size_t i = 0; i < n; i++) {
        size_t size;
        ash_type type = *ash_graph__type(c->g, c->g->inputs.at[i]);
        dims_of(c->g, &type, vars, type.dims);
        void *bytes = store(&inputs[i], &size);
        if (status == ASH_OK)
            status = ash_tensor_create(c->g->context, NULL, &type, bytes, size, &in[i], diag);
        free(bytes);
    }
    ash_eager_call call = ASH_INIT(ash_eager_call);
    call.vars = named;
    call.var_count = name_vars(c, round, named);
    call.inputs = (const ash_tensor *const *)in;
    call.input_count = n;
    call.outputs = out;
    call.output_count = m;
    if (status == ASH_OK) status = ash_eager(c->g->context, c->g, options, &call, diag);
    for (size_t o = 0; o < m && status == ASH_OK; o++)
        status = keep_output(ash_tensor_view(out[o]), r, round, o, diag);
    for (size_t i = 0; i < n + m; i++) ash_tensor_destroy(in[i]);
    free(in);
    free(inputs);
    return status;
}

ash_status case_execute_eagerly(const fuzz_case *c, const ash_plan_options *options, case_results *r,
                                ash_diag *diag) {
    for (unsigned round = 0; round < case_eager_rounds(c); round++)
        ASH_TRY(eager_round(c, options, round, r, diag));
    return ASH_OK;
}
