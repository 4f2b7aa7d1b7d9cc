/* Winograd convolutions by their definition: tile by tile, each input channel's share added to the result.
 */
#include "eval.h"
#include "winograd.h"

typedef double matrix[ASH_WINOGRAD_SIZE][ASH_WINOGRAD_SIZE];

/* to = t from t^T for a matrix t of `rows` x `size`. */
static void transform(unsigned rows, unsigned size, const double (*t)[ASH_WINOGRAD_SIZE], const matrix from,
                      matrix to) {
    matrix half = {{0}};
    for (unsigned r = 0; r < rows; r++)
        for (unsigned k = 0; k < size; k++)
            for (unsigned j = 0; j < size; j++) half[r][j] += t[r][k] * from[k][j];
    for (unsigned r = 0; r < rows; r++)
        for (unsigned s = 0; s < rows; s++) {
            to[r][s] = 0;
            for (unsigned k = 0; k < size; k++) to[r][s] += half[r][k] * t[s][k];
        }
}

/* A tile: image, first row and first column of its outputs. */
typedef struct tile {
    int64_t n, row, column;
} tile;

/* The tile's inputs of one channel, zero in the padding. */
static void read_input(const ash_eval *e, const ash_winograd *w, tile at, int64_t channel, matrix out) {
    const ash_wide *x = &e->ins[0];
    const int64_t *before = ash_node_list(e->node, ASH_ATTR_BEFORE), *d = x->dims;
    int64_t top = at.row - ash_eval__dim(e, before[0]), left = at.column - ash_eval__dim(e, before[1]);
    for (unsigned i = 0; i < w->size; i++)
        for (unsigned j = 0; j < w->size; j++) {
            int64_t r = top + i, c = left + j;
            bool inside = r >= 0 && r < d[2] && c >= 0 && c < d[3];
            out[i][j] = 0;
            if (inside)
                out[i][j] =
                    x->f[(((at.n * d[1] + channel / d[4]) * d[2] + r) * d[3] + c) * d[4] + channel % d[4]];
        }
}

/* Adds one input channel's share of one output channel. */
static void add_channel(const ash_eval *e, const ash_winograd *w, tile at, int64_t filter, int64_t channel,
                        const matrix input) {
    const ash_wide *u = &e->ins[1], *y = &e->outs[0];
    const int64_t *d = y->dims;
    matrix product, sum;
    for (unsigned p = 0; p < w->size * w->size; p++) {
        int64_t row = (p * u->dims[1] + filter / u->dims[3]) * u->dims[2] + channel;
        product[p / w->size][p % w->size] =
            input[p / w->size][p % w->size] * u->f[row * u->dims[3] + filter % u->dims[3]];
    }
    transform(w->tile, w->size, w->output, product, sum);
    for (unsigned i = 0; i < w->tile && at.row + i < d[2]; i++)
        for (unsigned j = 0; j < w->tile && at.column + j < d[3]; j++)
            y->f[(((at.n * d[1] + filter / d[4]) * d[2] + at.row + i) * d[3] + at.column + j) * d[4] +
                 filter % d[4]] += sum[i][j];
}

void ash_eval__winograd(const ash_eval *e) {
    const ash_wide *x = &e->ins[0], *y = &e->outs[0];
    ash_winograd w;
    matrix input, raw;
    memset(y->f, 0, (size_t)y->count * sizeof *y->f);
    ash_winograd_make(e->ins[1].dims[0], &w); /* inference has seen that it is there */
    tile at;
    for (at.n = 0; at.n < y->dims[0]; at.n++)
        for (at.row = 0; at.row < y->dims[2]; at.row += w.tile)
            for (at.column = 0; at.column < y->dims[3]; at.column += w.tile)
                for (int64_t c = 0; c < x->dims[1] * x->dims[4]; c++) {
                    read_input(e, &w, at, c, raw);
                    transform(w.size, w.size, w.input, raw, input);
                    for (int64_t o = 0; o < y->dims[1] * y->dims[4]; o++)
                        add_channel(e, &w, at, o, c, input);
                }
}
