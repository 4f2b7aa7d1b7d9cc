/* SPDX-License-Identifier: MIT */
#include "case.h"

static size_t caller_vars(const ash_graph *g, const ash_var **out) {
    size_t n = 0;
    for (size_t i = 0; i < ash_dims_var_count(g->dims) && n < CASE_VARS; i++)
        if (!ash_dims_var(g->dims, i)->settled) out[n++] = ash_dims_var(g->dims, i);
    return n;
}

bool case_generate(ash_context *context, uint64_t seed, fuzz_case *c) {
    static fuzz f;
    ash_diag diag;
    *c = (fuzz_case){.rounds = 1};
    if (ash_graph_create(context, "fuzz", &c->g, &diag) != ASH_OK) return false;
    wide_build(&f, c->g, seed * UINT64_C(0x2545f4914f6cdd1d) + 1);
    for (unsigned i = 0; i < f.n_inputs; i++) {
        c->fill[i].seed = f.fill[i];
        c->fill[i].limit = f.limit[i];
        c->fill[i].special = f.is_special[i];
    }
    for (unsigned i = 0, n = 0; i < f.n_values; i++) {
        if (f.values[i].used && !chance(&f, 15) && i + 1 != f.n_values) continue;
        char name[16];
        snprintf(name, sizeof name, "y%u", n);
        c->within[n++] = 4 * f.values[i].error;
        ash_graph_output(c->g, name, f.values[i].id);
    }
    const ash_var *vars[CASE_VARS];
    c->n_vars = (unsigned)caller_vars(c->g, vars);
    c->rounds = c->n_vars ? 4 : 2;
    for (unsigned r = 0; r < c->rounds; r++)
        for (unsigned v = 0; v < c->n_vars; v++) c->vars[r][v] = fuzz_size(&f, vars[v], r);
    return ash_graph_status(c->g, &diag) == ASH_OK && c->g->outputs.len > 0;
}

/* --- the text --------------------------------------------------------------------------------- */

static bool comment(fuzz_case *c, const char *line) {
    char name[64];
    unsigned long long seed;
    long long limit, value;
    int special, used;
    double within;
    if (sscanf(line, "# fill %63s %llu %lld %d", name, &seed, &limit, &special) == 4) {
        for (size_t i = 0; i < c->g->inputs.len; i++)
            if (!strcmp(c->g->values.at[c->g->inputs.at[i]].name, name)) {
                c->fill[i].seed = seed;
                c->fill[i].limit = limit;
                c->fill[i].special = special != 0;
                return true;
            }
        return false;
    }
    if (sscanf(line, "# within %63s %lf", name, &within) == 2) {
        for (size_t i = 0; i < c->g->outputs.len; i++)
            if (!strcmp(c->g->outputs.at[i].name, name)) return c->within[i] = within, true;
        return false;
    }
    if (strncmp(line, "# vars", 6) != 0) return true;
    if (c->rounds == CASE_ROUNDS) return false;
    const char *at = line + 6;
    unsigned n = 0;
    for (; n < CASE_VARS && sscanf(at, " %lld%n", &value, &used) == 1; at += used)
        c->vars[c->rounds][n++] = value;
    c->rounds++;
    return n == c->n_vars;
}

bool case_parse(ash_context *context, const char *text, size_t len, fuzz_case *c, char error[512]) {
    ash_diag diag;
    *c = (fuzz_case){.rounds = 0};
    ash_diag_clear(&diag);
    if (ash_graph_parse(context, text, len, &c->g, &diag) != ASH_OK) {
        c->g = NULL;
        ash_diag_format(&diag, error, 512);
        return false;
    }
    const ash_var *vars[CASE_VARS];
    c->n_vars = (unsigned)caller_vars(c->g, vars);
    bool fits = c->g->inputs.len <= CASE_LEAVES && c->g->outputs.len <= CASE_OUTPUTS;
    for (size_t at = 0; at < len && fits;) {
        char line[256];
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        snprintf(line, sizeof line, "%.*s", (int)ASH_MIN(n, sizeof line - 1), text + at);
        if (!comment(c, line)) {
            snprintf(error, 512, "this line cannot be: %.200s", line);
            return false;
        }
        at += n + 1;
    }
    if (!fits || c->rounds == 0) snprintf(error, 512, "too many inputs or outputs, or no round");
    return fits && c->rounds > 0;
}

char *case_print(const fuzz_case *c) {
    char *body, *text = NULL;
    size_t len, room;
    ash_diag diag;
    if (ash_graph_print(c->g, true, &body, &len, &diag) != ASH_OK) return NULL;
    FILE *out = open_memstream(&text, &room);
    for (size_t i = 0; i < c->g->inputs.len; i++)
        fprintf(out, "# fill %s %llu %lld %d\n", c->g->values.at[c->g->inputs.at[i]].name,
                (unsigned long long)c->fill[i].seed, (long long)c->fill[i].limit, c->fill[i].special);
    for (size_t i = 0; i < c->g->outputs.len; i++)
        fprintf(out, "# within %s %.9g\n", c->g->outputs.at[i].name, c->within[i]);
    for (unsigned r = 0; r < c->rounds; r++) {
        fprintf(out, "# vars");
        for (unsigned v = 0; v < c->n_vars; v++) fprintf(out, " %lld", (long long)c->vars[r][v]);
        fprintf(out, "\n");
    }
    fprintf(out, "%.*s", (int)len, body);
    fclose(out);
    ash_context_free_text(c->g->context, body, len);
    return text;
}

void case_free(fuzz_case *c) {
    ash_graph_destroy(c->g);
    c->g = NULL;
}

/* --- making it smaller ------------------------------------------------------------------------ */

static void need(void *user, uint32_t var, ash_value value) {
    (void)var;
    if (value != ASH_NO_VALUE) ((bool *)user)[value] = true;
}

/* Marks what the outputs that stay need. */
static void mark(const fuzz_case *c, const fuzz_cut *cut, bool *needed) {
    const ash_graph *g = c->g;
    for (size_t i = 0; i < g->outputs.len; i++)
        if (!cut->output[i]) needed[g->outputs.at[i].value] = true;
    for (bool more = true; more;) { /* an update is needed when its state is */
        more = false;
        for (size_t i = g->nodes.len; i-- > 0;) {
            const ash_node *node = &g->nodes.at[i];
            bool live = false;
            for (unsigned o = 0; o < node->n_outs; o++)
                live |= needed[node->out + o] && !cut->leaf[node->out + o];
            if (!live) continue;
            for (unsigned k = 0; k < node->n_ins; k++) needed[node->ins[k]] = true;
            ash_graph__each_settler(g, node, need, needed);
        }
        for (size_t s = 0; s < g->states.len; s++) {
            const ash_state *state = &g->states.at[s];
            if (!needed[state->value] || cut->leaf[state->value] || state->update == ASH_NO_VALUE ||
                needed[state->update])
                continue;
            needed[state->update] = more = true;
        }
    }
}

static bool copy_values(const fuzz_case *c, const fuzz_cut *cut, const bool *needed, fuzz_case *to,
                        ash_value *map) {
    const ash_graph *g = c->g;
    for (size_t v = 0; v < g->values.len; v++) {
        const ash_value_info *info = &g->values.at[v];
        char name[24];
        if (!needed[v]) continue;
        size_t at = to->g->inputs.len;
        if (cut->leaf[v] && info->kind != ASH_VALUE_INPUT) {
            if (at == CASE_LEAVES) return false;
            snprintf(name, sizeof name, "r%zu", v);
            map[v] = ash_graph_input(to->g, name, &info->type);
            to->fill[at].seed = v * 3 + 1;
        } else if (info->kind != ASH_VALUE_NODE) {
            if (ash_graph__copy_leaf(to->g, g, (ash_value)v, &map[v]) != ASH_OK) return false;
            for (size_t i = 0; info->kind == ASH_VALUE_INPUT && i < g->inputs.len; i++)
                if (g->inputs.at[i] == v) to->fill[at] = c->fill[i];
        } else if (g->nodes.at[info->node].out == v || map[v] == ASH_NO_VALUE) {
            const ash_node *node = &g->nodes.at[info->node];
            ash_value ins[64], outs[ASH_OP_OUTS];
            if (node->n_ins > ASH_COUNT(ins)) return false;
            for (unsigned k = 0; k < node->n_ins; k++) ins[k] = map[node->ins[k]];
            if (ash_graph_add(to->g, node->op, ins, node->n_ins, node->attrs, node->n_attrs, outs) !=
                ASH_OK)
                return false;
            for (unsigned o = 0; o < node->n_outs; o++)
                if (!cut->leaf[node->out + o]) map[node->out + o] = outs[o];
        }
        if (map[v] == ASH_NO_VALUE) return false;
    }
    return true;
}

char *case_cut(const fuzz_case *c, const fuzz_cut *cut) {
    const ash_graph *g = c->g;
    fuzz_case to = {.n_vars = c->n_vars};
    ash_diag diag;
    char *text = NULL;
    bool *needed = calloc(g->values.len + 1, sizeof *needed);
    ash_value *map = malloc((g->values.len + 1) * sizeof *map);
    for (size_t v = 0; v < g->values.len; v++) map[v] = ASH_NO_VALUE;
    mark(c, cut, needed);
    if (ash_graph__derive(g, &to.g, &diag) != ASH_OK) goto done;
    if (!copy_values(c, cut, needed, &to, map)) goto done;
    for (size_t s = 0; s < g->states.len; s++) {
        const ash_state *state = &g->states.at[s];
        if (needed[state->value] && !cut->leaf[state->value] && state->update != ASH_NO_VALUE)
            ash_graph_update(to.g, map[state->value], map[state->update]);
    }
    for (size_t i = 0; i < g->outputs.len; i++) {
        if (cut->output[i]) continue;
        to.within[to.g->outputs.len] = c->within[i];
        ash_graph_output(to.g, g->outputs.at[i].name, map[g->outputs.at[i].value]);
    }
    for (unsigned r = 0; r < c->rounds; r++)
        if (cut->round < 0 || cut->round == (int)r)
            memcpy(to.vars[to.rounds++], c->vars[r], sizeof c->vars[r]);
    if (to.g->outputs.len && to.rounds && ash_graph_status(to.g, &diag) == ASH_OK) text = case_print(&to);
done:
    case_free(&to);
    free(needed);
    free(map);
    return text;
}
