/* SPDX-License-Identifier: MIT */
/* What the threads of a warp do together: all that the instruction names must be there, or it is
 * undefined. */
#include "machine.h"

/* The active threads of the warp that begins at the i-th, as bits; *n of them. */
static uint32_t warp_at(const ptx_block *b, unsigned i, unsigned *warp, unsigned *n) {
    uint32_t mask = 0;
    *warp = b->lane[i] / PTX_WARP;
    for (*n = 0; i + *n < b->n && b->lane[i + *n] / PTX_WARP == *warp; ++*n)
        mask |= UINT32_C(1) << b->lane[i + *n] % PTX_WARP;
    return mask;
}

/* Whether all threads that `named` names are active: for warps, every thread of the block that it has. */
static bool converged(ptx_block *b, unsigned lane, uint32_t active, uint32_t named) {
    unsigned first = lane / PTX_WARP * PTX_WARP, have = b->threads - first;
    if (have < PTX_WARP) named &= (UINT32_C(1) << have) - 1;
    if (!ptx_checks(PTX_CONVERGENCE)) return true;
    if (!(named >> lane % PTX_WARP & 1))
        return ptx_found_at(b, PTX_CONVERGENCE, lane, "is not in its own mask 0x%x", named);
    if ((named & active) == named) return true;
    return ptx_found_at(b, PTX_CONVERGENCE, lane, "threads 0x%x of the warp are here, 0x%x should be",
                        active, named);
}

/* Every active warp, whole: calls `each`, which says whether to go on. */
static void whole_warps(ptx_block *b, const ptx_insn *in,
                        bool (*each)(ptx_block *, const ptx_insn *, unsigned warp)) {
    for (unsigned i = 0, n, warp; i < b->n; i += n) {
        uint32_t active = warp_at(b, i, &warp, &n);
        if (active != UINT32_MAX && ptx_checks(PTX_CONVERGENCE)) {
            ptx_found_at(b, PTX_CONVERGENCE, b->lane[i], "%u threads of the warp are here, 32 should be",
                         n);
            return;
        }
        if (!each(b, in, warp)) return;
    }
}

/* d|p = a of another thread: b says which, c clamps (the low 5 bits) and cuts the warp into parts. */
void ptx_run_shfl(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    uint8_t *p = in->count[0] > 1 ? ptx_row(b, in->op[1]) : NULL;
    const ptx_operand *op = in->op + in->first[1];
    const uint32_t *a = ptx_row(b, op[0]), *by = ptx_row(b, op[1]), *limits = ptx_row(b, op[2]),
                   *members = ptx_row(b, op[3]);
    uint32_t old[PTX_WARP];
    for (unsigned i = 0, n, warp; i < b->n; i += n) {
        uint32_t active = warp_at(b, i, &warp, &n);
        memcpy(old, a + warp * PTX_WARP, sizeof old);
        for (unsigned j = i; j < i + n; j++) {
            unsigned l = b->lane[j], lane = l % PTX_WARP;
            if (!converged(b, l, active, members[l])) return;
            unsigned offset = by[l] & 31, part = limits[l] >> 8 & 31, clamp = limits[l] & 31;
            unsigned most = (lane & part) | (clamp & ~part & 31), least = lane & part, from;
            bool inside;
            switch (in->word[G_WAY]) {
            case WAY_UP:
                from = lane - offset;
                inside = (int)from >= (int)most; /* for up, the clamp is the lower limit */
                break;
            case WAY_DOWN:
                from = lane + offset;
                inside = from <= most;
                break;
            case WAY_BFLY:
                from = lane ^ offset;
                inside = from <= most;
                break;
            default:
                from = least | (offset & ~part & 31);
                inside = from <= most;
                break;
            }
            if (!inside) from = lane;
            if (!(active >> from & 1) && ptx_checks(PTX_CONVERGENCE)) {
                ptx_found_at(b, PTX_CONVERGENCE, l, "reads lane %u, which is not here", from);
                return;
            }
            d[l] = old[from];
            if (p) p[l] = inside;
        }
    }
}

void ptx_run_vote(ptx_block *b, const ptx_insn *in) {
    void *d = ptx_row(b, in->op[0]);
    const uint8_t *p = ptx_row(b, in->op[1]);
    const uint32_t *members = ptx_row(b, in->op[2]);
    for (unsigned i = 0, n, warp; i < b->n; i += n) {
        uint32_t active = warp_at(b, i, &warp, &n), holds = 0;
        for (unsigned j = i; j < i + n; j++)
            holds |= (uint32_t)(p[b->lane[j]] != in->op[1].negated) << b->lane[j] % PTX_WARP;
        for (unsigned j = i; j < i + n; j++) {
            unsigned l = b->lane[j];
            if (!converged(b, l, active, members[l])) return;
            uint32_t named = members[l] & active, yes = holds & named;
            uint64_t result = in->word[G_WAY] == WAY_ALL   ? yes == named
                              : in->word[G_WAY] == WAY_ANY ? yes != 0
                              : in->word[G_WAY] == WAY_UNI ? yes == named || !yes
                                                           : yes;
            ptx_put(d, in->op[0].bytes, l, result);
        }
    }
}

void ptx_run_redux(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    const uint32_t *a = ptx_row(b, in->op[1]), *members = ptx_row(b, in->op[2]);
    bool is_signed = in->type[0] == S32;
    for (unsigned i = 0, n, warp; i < b->n; i += n) {
        uint32_t active = warp_at(b, i, &warp, &n), results[PTX_WARP];
        for (unsigned j = i; j < i + n; j++) {
            unsigned l = b->lane[j];
            if (!converged(b, l, active, members[l])) return;
            uint32_t sum = 0;
            bool begun = false;
            for (unsigned k = i; k < i + n; k++) {
                if (!(members[l] >> b->lane[k] % PTX_WARP & 1)) continue;
                uint32_t x = a[b->lane[k]];
                bool less = is_signed ? (int32_t)x < (int32_t)sum : x < sum;
                switch (in->word[G_ATOM]) {
                case ATOM_ADD: sum += x; break;
                case ATOM_MIN: sum = !begun || less ? x : sum; break;
                case ATOM_MAX: sum = begun && less ? sum : x; break;
                case ATOM_AND: sum = begun ? sum & x : x; break;
                case ATOM_OR: sum |= x; break;
                default: sum ^= x; break;
                }
                begun = true;
            }
            results[j - i] = sum;
        }
        for (unsigned j = i; j < i + n; j++) d[b->lane[j]] = results[j - i];
    }
}

void ptx_run_activemask(ptx_block *b, const ptx_insn *in) {
    uint32_t *d = ptx_row(b, in->op[0]);
    for (unsigned i = 0, n, warp; i < b->n; i += n) {
        uint32_t active = warp_at(b, i, &warp, &n);
        for (unsigned j = i; j < i + n; j++) d[b->lane[j]] = active;
    }
}

void ptx_run_bar_warp(ptx_block *b, const ptx_insn *in) {
    const uint32_t *members = ptx_row(b, in->op[0]);
    for (unsigned i = 0, n, warp; i < b->n; i += n) {
        uint32_t active = warp_at(b, i, &warp, &n);
        for (unsigned j = i; j < i + n; j++)
            if (!converged(b, b->lane[j], active, members[b->lane[j]])) return;
        ptx_shared_warp_barrier(b, warp);
    }
}

/* Matrices of 8 x 8 elements of 16 bits: thread t has the address of row t % 8 of matrix t / 8, and
 * gets elements 2 * (t % 4) and the next of row t / 4, of column t / 4 when they are transposed. */
static bool load_matrices(ptx_block *b, const ptx_insn *in, unsigned warp) {
    unsigned n = in->count[0];
    uint64_t rows[PTX_WARP] = {0};
    uint16_t element[4][8][8];
    for (unsigned t = 0; t < 8 * n; t++) {
        unsigned l = warp * PTX_WARP + t;
        rows[t] = ptx_address(b, in, 1, 0, l);
        const unsigned char *data = ptx_reach(b, l, SPACE_SHARED, rows[t], 16, READS, false);
        if (!data) return false;
        memcpy(element[t / 8][t % 8], data, 16);
    }
    ptx_count_matrix(b, rows, n);
    for (unsigned m = 0; m < n; m++) {
        uint32_t *d = ptx_row(b, in->op[m]);
        for (unsigned t = 0; t < PTX_WARP; t++) {
            unsigned r = t / 4, c = 2 * (t % 4);
            uint32_t low = in->word[G_TRANS] ? element[m][c][r] : element[m][r][c];
            uint32_t high = in->word[G_TRANS] ? element[m][c + 1][r] : element[m][r][c + 1];
            d[warp * PTX_WARP + t] = high << 16 | low;
        }
    }
    return true;
}

void ptx_run_ldmatrix(ptx_block *b, const ptx_insn *in) {
    whole_warps(b, in, load_matrices);
}

void ptx_run_mma(ptx_block *b, const ptx_insn *in) {
    whole_warps(b, in, ptx_mma_warp);
}
