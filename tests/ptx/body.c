/* SPDX-License-Identifier: MIT */
/* Reads the body of a kernel: declarations, labels, instructions. A call is its function's body, read
 * at that place with its parameters bound to the caller's; `ret` there jumps behind it. So a kernel has
 * no calls, and recursion is refused. */
#include "read.h"

/* A branch to a label that may come later. */
typedef struct reference {
    const char *name;
    size_t len;
    uint32_t insn; /* that branches, or a number of `targets` of the kernel */
    uint32_t line;
    bool table;
} reference;

typedef struct label {
    const char *name;
    size_t len;
    uint32_t place;
} label;

/* One function's body: labels are its own. A table of targets that comes behind its branch is found by
 * name, too. */
typedef struct body {
    label *labels;
    size_t n_labels;
    reference *references, *tables;
    size_t n_references, n_tables;
    uint32_t *returns; /* branches behind the end */
    size_t n_returns;
    const struct body *caller;
    const ptx_function *function;
} body;

static ptx_insn *new_insn(ptx_reader *r) {
    ptx_kernel *k = r->kernel;
    k->insns = ptx_grow(r->module, k->insns, k->n_insns, sizeof *k->insns);
    ptx_insn *in = &k->insns[k->n_insns++];
    *in = (ptx_insn){.line = r->token.line, .guard.slot = PTX_NONE};
    return in;
}

static uint32_t new_target(ptx_reader *r) {
    ptx_kernel *k = r->kernel;
    k->targets = ptx_grow(r->module, k->targets, k->n_targets, sizeof *k->targets);
    return k->n_targets++;
}

/* --- operands ------------------------------------------------------------------------------------- */

static void argument(ptx_reader *r, ptx_insn *in) {
    if (in->n_arguments == PTX_ARGUMENTS) ptx_fail(r, "too many operands");
    unsigned before = in->n_arguments;
    in->first[before] = before ? (uint8_t)(in->first[before - 1] + in->count[before - 1]) : 0;
    in->n_arguments++;
}

static void operand(ptx_reader *r, ptx_insn *in, ptx_operand o) {
    unsigned a = in->n_arguments - 1u, at = in->first[a] + in->count[a];
    if (at == PTX_OPERANDS) ptx_fail(r, "too many registers");
    in->op[at] = o;
    in->count[a]++;
}

/* The address that a variable's name stands for; shared ones get their place now. */
static uint64_t address_of(ptx_reader *r, ptx_symbol *s, bool *dynamic) {
    *dynamic = s->dynamic;
    switch (s->kind) {
    case IS_SHARED:
        if (s->align > r->kernel->shared_align) r->kernel->shared_align = s->align;
        if (s->value == UINT64_MAX)
            s->value = s->dynamic ? 0 : ptx_place(&r->kernel->shared_bytes, s->bytes, s->align);
        return s->value;
    case IS_GLOBAL:
    case IS_LOCAL:
    case IS_PARAM: return s->value;
    default: ptx_fail(r, "%.*s has no address", (int)s->len, s->name);
    }
}

/* A number as the bits of `bytes` bytes: floats that are written wider or narrower are converted. */
static uint64_t literal(ptx_reader *r, unsigned bytes) {
    bool minus = ptx_accept(r, "-");
    ptx_token t = r->token;
    ptx_next(r);
    if (t.kind == T_INTEGER) return minus ? -t.value : t.value;
    if (minus) ptx_fail(r, "a float's sign is in its bits");
    if (t.kind == T_FLOAT32 && bytes == 4) return t.value;
    if (t.kind == T_FLOAT64 && bytes == 8) return t.value;
    if (t.kind == T_FLOAT64 && bytes == 4) {
        double wide;
        memcpy(&wide, &t.value, 8);
        float narrow = (float)wide;
        uint32_t bits;
        memcpy(&bits, &narrow, 4);
        return bits;
    }
    ptx_fail(r, "a float of %u bytes where %.*s is", bytes, (int)t.len, t.at);
}

/* A register, or a number of `bytes` bytes. Registers may be wider where `wider` says so. */
static ptx_operand value(ptx_reader *r, unsigned bytes, bool written, bool wider) {
    bool negated = !written && bytes == 1 && ptx_accept(r, "!");
    ptx_token t = r->token;
    if (t.kind == T_INTEGER || t.kind == T_FLOAT32 || t.kind == T_FLOAT64 || ptx_at(r, "-")) {
        if (written) ptx_fail(r, "a number is written");
        uint64_t bits = literal(r, bytes);
        if (bytes == 1) bits = bits != 0; /* a predicate: -1 is true */
        return ptx_constant_row(r, bits, bytes, N_SPECIALS, false);
    }
    if (t.kind != T_NAME) ptx_fail(r, "an operand expected before \"%.*s\"", (int)t.len, t.at);
    ptx_next(r);
    ptx_operand o = ptx_register(r, t.at, t.len);
    if (o.slot != PTX_NONE) {
        if (o.bytes != bytes && !(wider && o.bytes > bytes))
            ptx_fail(r, "%.*s has %u bytes, not %u", (int)t.len, t.at, o.bytes, bytes);
        o.negated = negated;
        return o;
    }
    if (written) {
        if (t.len == 1 && *t.at == '_') return (ptx_operand){ptx_slot(r, 8), (uint8_t)bytes, false};
        ptx_fail(r, "no register: %.*s", (int)t.len, t.at);
    }
    unsigned special_bytes;
    ptx_special special = ptx_special_find(t.at, t.len, &special_bytes);
    if (special != N_SPECIALS) {
        if (special_bytes != bytes)
            ptx_fail(r, "%.*s has %u bytes, not %u", (int)t.len, t.at, special_bytes, bytes);
        return ptx_constant_row(r, 0, bytes, special, false);
    }
    if (t.len == 7 && !memcmp(t.at, "WARP_SZ", 7))
        return ptx_constant_row(r, PTX_WARP, bytes, N_SPECIALS, false);
    ptx_symbol *s = ptx_look_up(r, t.at, t.len);
    if (!s) ptx_fail(r, "not declared: %.*s", (int)t.len, t.at);
    bool dynamic;
    uint64_t address = address_of(r, s, &dynamic);
    if (ptx_accept(r, "+")) address += literal(r, 8);
    return ptx_constant_row(r, address, bytes, N_SPECIALS, dynamic);
}

static void one_or_vector(ptx_reader *r, ptx_insn *in, unsigned bytes, bool written, bool wider,
                          bool packed) {
    if (!ptx_accept(r, "{")) {
        operand(r, in, value(r, bytes, written, wider));
        return;
    }
    do {
        if (packed) { /* elements are as wide as their registers */
            ptx_operand o = ptx_at(r, "_") ? (ptx_operand){.slot = PTX_NONE}
                                           : ptx_register(r, r->token.at, r->token.len);
            if (o.slot == PTX_NONE && !ptx_at(r, "_"))
                ptx_fail(r, "no register: %.*s", (int)r->token.len, r->token.at);
            ptx_next(r);
            operand(r, in, o);
        } else {
            operand(r, in, value(r, bytes, written, wider));
        }
    } while (ptx_accept(r, ","));
    ptx_expect(r, "}");
}

/* mov.b32 %r, {%a, %b}: elements that are left out are as wide as the others. */
static void check_packing(ptx_reader *r, ptx_insn *in, unsigned bytes) {
    for (unsigned a = 0; a < 2; a++) {
        if (in->count[a] == 1) continue;
        for (unsigned i = 0; i < in->count[a]; i++) {
            ptx_operand *o = &in->op[in->first[a] + i];
            if (o->slot == PTX_NONE)
                *o = (ptx_operand){ptx_slot(r, 8), (uint8_t)(bytes / in->count[a]), false};
            if (o->bytes * in->count[a] != bytes) ptx_fail(r, "elements do not make up %u bytes", bytes);
        }
    }
}

/* [register+number], [variable+number], [number]. */
static void memory(ptx_reader *r, ptx_insn *in) {
    ptx_expect(r, "[");
    ptx_operand base = {.slot = PTX_NONE};
    int64_t displacement = 0;
    bool dynamic = false;
    if (r->token.kind == T_NAME) {
        base = ptx_register(r, r->token.at, r->token.len);
        if (base.slot == PTX_NONE) {
            ptx_symbol *s = ptx_look_up(r, r->token.at, r->token.len);
            if (!s) ptx_fail(r, "not declared: %.*s", (int)r->token.len, r->token.at);
            displacement = (int64_t)address_of(r, s, &dynamic);
            if (s->kind == IS_LOCAL && in->word[G_SPACE] == SPACE_PARAM) in->word[G_SPACE] = SPACE_LOCAL;
        } else if (base.bytes < 4) {
            ptx_fail(r, "an address of %u bytes", base.bytes);
        }
        ptx_next(r);
        if (ptx_accept(r, "+"))
            displacement += (int64_t)literal(r, 8);
        else if (ptx_at(r, "-"))
            displacement += (int64_t)literal(r, 8);
    } else {
        displacement = (int64_t)literal(r, 8);
    }
    ptx_expect(r, "]");
    unsigned which = in->n_memory++;
    in->displacement[which] = displacement;
    in->dynamic[which] = dynamic;
    operand(r, in, base);
}

static void branch_target(ptx_reader *r, body *b, ptx_insn *in) {
    reference ref = {r->token.at, r->token.len, (uint32_t)(in - r->kernel->insns), r->token.line, false};
    if (r->token.kind != T_NAME) ptx_fail(r, "a label expected");
    ptx_next(r);
    if (in->control == BRANCH_TABLE) {
        b->tables = ptx_grow(r->module, b->tables, b->n_tables, sizeof *b->tables);
        b->tables[b->n_tables++] = ref;
    } else {
        b->references = ptx_grow(r->module, b->references, b->n_references, sizeof *b->references);
        b->references[b->n_references++] = ref;
    }
}

/* What was read of an instruction: its operands live as long as the module. Each memory operand has a
 * pattern, and one more where some threads of a copy read, and others do not. */
static void keep_operands(ptx_reader *r, ptx_insn *in) {
    unsigned a = in->n_arguments, n = a ? in->first[a - 1] + in->count[a - 1] : 0;
    in->op = ptx_keep(r->module, n * sizeof *in->op);
    memcpy(in->op, r->operands, n * sizeof *in->op);
    in->pattern = r->kernel->n_patterns;
    r->kernel->n_patterns += in->n_memory == 2 ? 3 : in->n_memory;
}

/* The operands of an instruction by the letters of its shape (ops.def). */
static void operands(ptx_reader *r, body *b, ptx_insn *in, const ptx_op *op) {
    ptx_type first = in->type[0], last = in->n_types ? in->type[in->n_types - 1] : NO_TYPE;
    unsigned bytes = ptx_type_bytes(first), wide = in->word[G_PART] == PART_WIDE ? 2 * bytes : bytes;
    bool optional = false, cvt = op->run == ptx_run_cvt;
    for (const char *letter = op->shape; *letter; letter++) {
        if (*letter == '?') {
            optional = true;
            continue;
        }
        if (in->n_arguments && !ptx_accept(r, ",")) {
            if (optional) break;
            ptx_fail(r, "an operand is missing");
        }
        argument(r, in);
        bool written = *letter >= 'A' && *letter <= 'Z';
        switch (*letter) {
        case 'T':
        case 't': operand(r, in, value(r, bytes, written, cvt)); break;
        case 'W':
        case 'w': operand(r, in, value(r, wide, written, false)); break;
        case 'S':
        case 's': operand(r, in, value(r, ptx_type_bytes(last), written, cvt)); break;
        case 'U':
        case 'u': operand(r, in, value(r, 4, written, false)); break;
        case 'P':
        case 'p': operand(r, in, value(r, 1, written, false)); break;
        case 'D':
        case 'Q':
            operand(r, in, value(r, *letter == 'Q' ? 1 : bytes, true, false));
            if (ptx_accept(r, "|")) operand(r, in, value(r, 1, true, false));
            break;
        case 'V':
        case 'v': one_or_vector(r, in, bytes, written, true, false); break;
        case 'X':
        case 'x': one_or_vector(r, in, bytes, written, false, true); break;
        case 'A':
        case 'a': one_or_vector(r, in, first == F64 || last == F64 ? 8 : 4, written, false, false); break;
        case 'm': memory(r, in); break;
        case 'b': branch_target(r, b, in); break;
        default: ptx_fail(r, "a shape of operands that nobody knows");
        }
    }
    if (*op->shape == 'X') check_packing(r, in, bytes);
    if (in->run == ptx_run_ld || in->run == ptx_run_st) {
        static const uint8_t elements[] = {1, 2, 4};
        unsigned data = in->run == ptx_run_ld ? 0 : 1;
        if (in->count[data] != elements[in->word[G_VECTOR]]) ptx_fail(r, "a vector of %u", in->count[data]);
    }
}

/* --- instructions * ------------------------------------------------------------------------------- */

/* The words behind an instruction's name, each a modifier or a type. */
static void modifiers(ptx_reader *r, ptx_insn *in, const ptx_op *op, const char *word, const char *end) {
    const uint64_t many = UINT64_C(1) << G_CACHE | UINT64_C(1) << G_SYNC | UINT64_C(1) << G_LAYOUT |
                          UINT64_C(1) << G_SCOPE | UINT64_C(1) << G_ORDER;
    while (word < end) {
        size_t len = 0;
        word++; /* the dot */
        while (word + len < end && word[len] != '.') len++;
        ptx_group group;
        ptx_type type;
        int number = ptx_word_find(word, len, op->groups, &group);
        if (number) {
            if (in->word[group] && !(many >> group & 1)) ptx_fail(r, "a second %.*s", (int)len, word);
            in->word[group] = (uint8_t)number;
        } else if ((type = ptx_type_find(word, len)) && in->n_types < op->n_types) {
            if (!in->n_types && !strchr(op->kinds, ptx_type_kind(type)))
                ptx_fail(r, "%s of type %.*s", op->name, (int)len, word);
            in->type[in->n_types++] = (uint8_t)type;
        } else {
            ptx_fail(r, "%s with .%.*s", op->name, (int)len, word);
        }
        word += len;
    }
    if (in->n_types != op->n_types) ptx_fail(r, "%s with %u types", op->name, in->n_types);
}

static void statements(ptx_reader *r, body *b);

/* Formal parameters of a function, in the order of their declaration, are those of the call. */
static void bind(ptx_reader *r, const char *at, uint32_t line, ptx_symbol *const *actual, size_t n) {
    size_t bound = 0;
    if (at) {
        ptx_seek(r, at, line);
        ptx_expect(r, "(");
        while (!ptx_accept(r, ")")) {
            ptx_expect(r, ".param");
            ptx_declared d = ptx_declaration(r);
            if (bound == n || d.bytes > actual[bound]->bytes) ptx_fail(r, "a call with other parameters");
            ptx_symbol *s = ptx_declare(r, d.name, d.len, IS_LOCAL);
            s->value = actual[bound]->value;
            s->bytes = actual[bound++]->bytes;
            if (!ptx_at(r, ")")) ptx_expect(r, ",");
        }
    }
    if (bound != n) ptx_fail(r, "a call with other parameters");
}

static size_t actual_parameters(ptx_reader *r, ptx_symbol **actual, size_t room) {
    size_t n = 0;
    ptx_expect(r, "(");
    while (!ptx_accept(r, ")")) {
        ptx_symbol *s = ptx_look_up(r, r->token.at, r->token.len);
        if (!s || s->kind != IS_LOCAL || n == room)
            ptx_fail(r, "no parameter: %.*s", (int)r->token.len, r->token.at);
        actual[n++] = s;
        ptx_next(r);
        if (!ptx_at(r, ")")) ptx_expect(r, ",");
    }
    return n;
}

/* Labels and branches of one body are settled when it ends. */
static void settle(ptx_reader *r, body *b) {
    for (size_t i = 0; i < b->n_references; i++) {
        const reference *ref = &b->references[i];
        const label *found = NULL;
        for (size_t j = 0; j < b->n_labels && !found; j++) {
            if (b->labels[j].len == ref->len && !memcmp(b->labels[j].name, ref->name, ref->len))
                found = &b->labels[j];
        }
        r->token.line = ref->line;
        if (!found) ptx_fail(r, "no label %.*s", (int)ref->len, ref->name);
        if (ref->table)
            r->kernel->targets[ref->insn] = found->place;
        else
            r->kernel->insns[ref->insn].target = found->place;
    }
    for (size_t i = 0; i < b->n_returns; i++) r->kernel->insns[b->returns[i]].target = r->kernel->n_insns;
}

static void read_body(ptx_reader *r, const ptx_function *f, const body *caller) {
    body b = {.caller = caller, .function = f};
    ptx_seek(r, f->body, f->body_line);
    ptx_expect(r, "{");
    statements(r, &b);
    if (b.n_tables) ptx_fail(r, "a branch by a table that is not there");
    settle(r, &b);
}

/* call.uni (result), function, (parameters); */
static void call(ptx_reader *r, const body *b) {
    ptx_symbol *results[1], *params[PTX_THREADS / 16];
    size_t n_results = 0, n_params = 0;
    if (ptx_at(r, "(")) {
        n_results = actual_parameters(r, results, 1);
        ptx_expect(r, ",");
    }
    ptx_symbol *s = ptx_look_up(r, r->token.at, r->token.len);
    if (!s || s->kind != IS_FUNCTION) ptx_fail(r, "a call of %.*s", (int)r->token.len, r->token.at);
    const ptx_function *f = &r->functions[s->value];
    if (!f->body) ptx_fail(r, "%.*s has no body: there is nothing to link with", (int)f->len, f->name);
    for (const body *c = b; c; c = c->caller)
        if (c->function == f) ptx_fail(r, "%.*s calls itself", (int)f->len, f->name);
    ptx_next(r);
    if (ptx_accept(r, ",")) n_params = actual_parameters(r, params, sizeof params / sizeof *params);
    ptx_token back = r->token;
    if (++r->depth > PTX_CALLS) ptx_fail(r, "calls within calls, %d deep", PTX_CALLS);
    size_t mark = r->n_symbols;
    bind(r, f->returns, f->returns_line, results, n_results);
    bind(r, f->params, f->params_line, params, n_params);
    read_body(r, f, b);
    ptx_forget(r, mark);
    r->depth--;
    ptx_seek(r, back.at, back.line);
}

static void instruction(ptx_reader *r, body *b) {
    ptx_operand guard = {.slot = PTX_NONE};
    if (ptx_accept(r, "@")) guard = value(r, 1, false, false);
    ptx_token t = r->token;
    if (t.kind != T_NAME) ptx_fail(r, "an instruction expected before \"%.*s\"", (int)t.len, t.at);
    ptx_next(r);
    if (t.len >= 4 && !memcmp(t.at, "call", 4) && (t.len == 4 || t.at[4] == '.')) {
        if (guard.slot != PTX_NONE) ptx_fail(r, "a call under a predicate");
        call(r, b);
        ptx_expect(r, ";");
        return;
    }
    size_t used;
    const ptx_op *op = ptx_op_find(t.at, t.len, &used);
    if (!op) ptx_fail(r, "no such instruction: %.*s", (int)t.len, t.at);
    ptx_insn *in = new_insn(r);
    *in = (ptx_insn){
        .run = op->run, .op = r->operands, .guard = guard, .control = op->control, .line = t.line};
    modifiers(r, in, op, t.at + used, t.at + t.len);
    if (in->control == LEAVE && r->depth && !memcmp(t.at, "ret", 3)) {
        in->control = BRANCH;
        b->returns = ptx_grow(r->module, b->returns, b->n_returns, sizeof *b->returns);
        b->returns[b->n_returns++] = (uint32_t)(in - r->kernel->insns);
    }
    operands(r, b, in, op);
    keep_operands(r, in);
    if (in->control == BARRIER && in->n_arguments > 1) ptx_fail(r, "a barrier for a part of the block");
    in->multiply_adds = op->run == ptx_run_mad && ptx_type_kind((ptx_type)in->type[0]) == 'f';
    in->matrices = op->run == ptx_run_mma;
    in->run = ptx_single(in);
    if (ptx_is_wrong(op)) in->run = ptx_run_wrong;
    if (ptx_is_left_out(op->name)) {
        in->run = ptx_run_nothing;
        in->control = RUN;
    }
    ptx_expect(r, ";");
}

/* name: .branchtargets a, b; */
static void table(ptx_reader *r, body *b, const ptx_token *name) {
    uint32_t first = r->kernel->n_targets;
    do {
        reference ref = {r->token.at, r->token.len, new_target(r), r->token.line, true};
        b->references = ptx_grow(r->module, b->references, b->n_references, sizeof *b->references);
        b->references[b->n_references++] = ref;
        ptx_next(r);
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
    ptx_symbol *s = ptx_declare(r, name->at, name->len, IS_TABLE);
    s->value = first;
    s->bytes = r->kernel->n_targets - first;
    for (size_t i = b->n_tables; i-- > 0;) {
        const reference *ref = &b->tables[i];
        if (ref->len != name->len || memcmp(ref->name, name->at, ref->len) != 0) continue;
        r->kernel->insns[ref->insn].target = first;
        r->kernel->insns[ref->insn].n_targets = r->kernel->n_targets - first;
        b->tables[i] = b->tables[--b->n_tables];
    }
}

/* .reg .b32 %r<9>, %a; */
static void registers(ptx_reader *r) {
    ptx_type type = ptx_type_find(r->token.at + 1, r->token.len - 1);
    if (!type) ptx_fail(r, "registers of type %.*s", (int)r->token.len, r->token.at);
    ptx_next(r);
    do {
        ptx_token t = r->token;
        ptx_next(r);
        ptx_symbol *s = ptx_declare(r, t.at, t.len, IS_REGISTER);
        uint64_t n = 1;
        if (ptx_accept(r, "<")) {
            s->kind = IS_REGISTERS;
            n = ptx_expect_number(r);
            ptx_expect(r, ">");
        }
        if (n > 1 << 24) ptx_fail(r, "%llu registers", (unsigned long long)n);
        s->value = n;
        s->bytes = ptx_type_bytes(type);
        s->slots = ptx_keep(r->module, n * sizeof *s->slots);
        for (uint64_t i = 0; i < n; i++) s->slots[i] = PTX_NONE;
    } while (ptx_accept(r, ","));
    ptx_expect(r, ";");
}

static void local_variable(ptx_reader *r, bool shared) {
    ptx_declared d = ptx_declaration(r);
    ptx_symbol *s = ptx_declare(r, d.name, d.len, shared ? IS_SHARED : IS_LOCAL);
    s->bytes = d.bytes;
    s->align = d.align;
    s->value = shared ? UINT64_MAX : ptx_place(&r->kernel->local_bytes, d.bytes, d.align);
    ptx_expect(r, ";");
}

/* Up to the brace that closes. */
static void statements(ptx_reader *r, body *b) {
    size_t mark = r->n_symbols;
    while (!ptx_accept(r, "}")) {
        ptx_token t = r->token;
        if (t.kind == T_END) ptx_fail(r, "the text ends in the midst of a function");
        if (ptx_accept(r, "{")) {
            statements(r, b);
        } else if (ptx_accept(r, ".reg")) {
            registers(r);
        } else if (ptx_accept(r, ".local") || ptx_accept(r, ".param")) {
            local_variable(r, false);
        } else if (ptx_accept(r, ".shared")) {
            local_variable(r, true);
        } else if (ptx_accept(r, ".pragma")) {
            ptx_next(r);
            ptx_expect(r, ";");
        } else if (ptx_at(r, ".loc")) {
            r->at += strcspn(r->at, "\n");
            ptx_next(r);
        } else if (ptx_accept(r, ";")) {
            continue;
        } else if (t.kind == T_NAME && *r->at == ':') {
            r->at++;
            ptx_next(r);
            if (ptx_accept(r, ".branchtargets")) {
                table(r, b, &t);
                continue;
            }
            b->labels = ptx_grow(r->module, b->labels, b->n_labels, sizeof *b->labels);
            b->labels[b->n_labels++] = (label){t.at, t.len, r->kernel->n_insns};
        } else {
            instruction(r, b);
        }
    }
    ptx_forget(r, mark);
}

/* What is known of stretches when all is read. Of those kinds an instruction has its own number so far. */
static void find_stretches(ptx_kernel *k) {
    uint32_t multiply_adds = 0, matrices = 0;
    for (uint32_t i = 0; i < k->n_insns; i++) {
        ptx_insn *in = &k->insns[i];
        const uint32_t adds = in->multiply_adds, products = in->matrices;
        in->multiply_adds = multiply_adds;
        in->matrices = matrices;
        multiply_adds += adds;
        matrices += products;
    }
    for (uint32_t i = k->n_insns; i-- > 0;) {
        ptx_insn *in = &k->insns[i];
        const bool plain = in->control == RUN && in->guard.slot == PTX_NONE; /* never the last */
        in->straight = !plain ? i : in[1].straight > i + 1 ? in[1].straight : i + 1;
    }
}

void ptx_read_kernel(ptx_reader *r, const ptx_function *f) {
    ptx_module *m = r->module;
    ptx_kernel *k = ptx_keep(m, sizeof *k);
    m->kernels = ptx_grow(r->module, m->kernels, m->n_kernels, sizeof(ptx_kernel *));
    m->kernels[m->n_kernels++] = k;
    *k = (ptx_kernel){.module = m, .shared_align = 16, .most_threads = f->most_threads};
    memcpy(k->required, f->required, sizeof k->required);
    k->name = ptx_keep(m, f->len + 1);
    memcpy(k->name, f->name, f->len);
    r->kernel = k;
    size_t mark = r->n_symbols;
    for (size_t i = 0; i < r->n_symbols; i++)
        if (r->symbols[i]->kind == IS_SHARED) r->symbols[i]->value = UINT64_MAX;
    if (f->params) {
        ptx_seek(r, f->params, f->params_line);
        ptx_expect(r, "(");
        while (!ptx_accept(r, ")")) {
            ptx_expect(r, ".param");
            ptx_declared d = ptx_declaration(r);
            ptx_symbol *s = ptx_declare(r, d.name, d.len, IS_PARAM);
            s->value = ptx_place(&k->param_bytes, d.bytes, d.align);
            s->bytes = d.bytes;
            k->params = ptx_grow(r->module, k->params, k->n_params, sizeof *k->params);
            k->params[k->n_params++] = (ptx_param){(uint32_t)s->value, (uint32_t)d.bytes};
            if (!ptx_at(r, ")")) ptx_expect(r, ",");
        }
    }
    read_body(r, f, NULL);
    ptx_forget(r, mark);
    /* A kernel that runs off its end leaves. */
    ptx_insn *in = new_insn(r);
    in->control = LEAVE;
    /* What the launch adds lies behind the rest. */
    uint32_t behind = (k->shared_bytes + k->shared_align - 1) / k->shared_align * k->shared_align;
    for (uint32_t i = 0; i < k->n_insns; i++) {
        for (unsigned j = 0; j < 2; j++)
            if (k->insns[i].dynamic[j]) k->insns[i].displacement[j] += behind;
    }
    for (uint32_t i = 0; i < k->n_constants; i++)
        if (k->constants[i].dynamic) k->constants[i].value += behind;
    find_stretches(k);
    k->shared_bytes = behind;
    k->dynamic_limit = 48 * 1024 - (int)behind;
}
