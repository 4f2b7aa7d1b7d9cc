/* SPDX-License-Identifier: MIT */
/* What names in PTX stand for, and the rows that registers and numbers get. */
#include "read.h"

static size_t bucket(const char *name, size_t len) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash % PTX_BUCKETS;
}

ptx_symbol *ptx_declare(ptx_reader *r, const char *name, size_t len, ptx_symbol_kind kind) {
    ptx_symbol *s = ptx_keep(r->module, sizeof *s);
    size_t i = bucket(name, len);
    *s = (ptx_symbol){.name = name, .len = len, .kind = kind, .below = r->buckets[i]};
    r->buckets[i] = s;
    r->symbols = ptx_grow(r->module, r->symbols, r->n_symbols, sizeof *r->symbols);
    r->symbols[r->n_symbols++] = s;
    return s;
}

ptx_symbol *ptx_look_up(ptx_reader *r, const char *name, size_t len) {
    for (ptx_symbol *s = r->buckets[bucket(name, len)]; s; s = s->below)
        if (s->len == len && !memcmp(s->name, name, len)) return s;
    return NULL;
}

void ptx_forget(ptx_reader *r, size_t n_symbols) {
    while (r->n_symbols > n_symbols) {
        ptx_symbol *s = r->symbols[--r->n_symbols];
        r->buckets[bucket(s->name, s->len)] = s->below;
    }
}

uint64_t ptx_place(uint32_t *used, uint64_t bytes, uint32_t align) {
    uint64_t at = (*used + (uint64_t)align - 1) / align * align;
    *used = (uint32_t)(at + bytes);
    return at;
}

uint32_t ptx_slot(ptx_reader *r, unsigned bytes) {
    return (uint32_t)ptx_place(&r->kernel->frame_bytes, bytes, bytes);
}

ptx_operand ptx_register(ptx_reader *r, const char *name, size_t len) {
    ptx_symbol *s = ptx_look_up(r, name, len);
    uint64_t number = 0;
    if (!s) {
        size_t stem = len, power = 1;
        while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9' && len - stem < 9) {
            number += power * (uint64_t)(name[--stem] - '0');
            power *= 10;
            s = ptx_look_up(r, name, stem);
            if (s && s->kind == IS_REGISTERS) break;
        }
        if (s && (s->kind != IS_REGISTERS || number >= s->value)) s = NULL;
    }
    if (!s || (s->kind != IS_REGISTER && s->kind != IS_REGISTERS)) return (ptx_operand){.slot = PTX_NONE};
    if (s->slots[number] == PTX_NONE) s->slots[number] = ptx_slot(r, (unsigned)s->bytes);
    return (ptx_operand){.slot = s->slots[number], .bytes = (uint8_t)s->bytes};
}

ptx_operand ptx_constant_row(ptx_reader *r, uint64_t value, unsigned bytes, ptx_special special,
                             bool dynamic) {
    ptx_kernel *k = r->kernel;
    if (bytes < 8) value &= (UINT64_C(1) << 8 * bytes) - 1;
    for (uint32_t i = k->n_constants; i-- > 0;) {
        const ptx_constant *c = &k->constants[i];
        if (c->value == value && c->row.bytes == bytes && c->special == special && c->dynamic == dynamic)
            return c->row;
    }
    ptx_operand row = {.slot = ptx_slot(r, bytes), .bytes = (uint8_t)bytes};
    k->constants = ptx_grow(r->module, k->constants, k->n_constants, sizeof *k->constants);
    k->constants[k->n_constants++] = (ptx_constant){value, row, special, dynamic};
    return row;
}
