/* SPDX-License-Identifier: MIT */
/* What the files of convolutions share: conv.c has their tiles, conv_lines.c how lines are cut into them,
 * conv_rows.c the tiles that go row by row, conv_registers.c those of bytes in registers for tiles,
 * conv_across.c those of few channels. */
#ifndef ASH_CONV_H
#define ASH_CONV_H

#include "ahead.h"
#include "tile.h"

enum {
    ASH_CONV_ROWS = 16, /* window columns that are laid out (conv_rows.c) */
    ASH_CONV_SPACE = ASH_MAX_RANK - 2
};

/* A convolution under construction. */
typedef struct ash_conv {
    ash_kern *k;
    const ash_node *node;
    unsigned space; /* spatial dims that count: all that have more than one element, or one */
    unsigned axis[ASH_CONV_SPACE]; /* which of the operand's spatial dims each of them is */
    int64_t x_block, y_block, lanes, store_lanes;
    int64_t groups, c_group, o_group; /* channels of input and output in one group */
    bool in_lanes; /* groups of as many outputs as inputs, whole ones in each vector; of one: depthwise */
    bool merged;   /* all spatial dims as one, of a window of 1 */
    bool beside;   /* the direct form of a Winograd convolution, in a kernel that has both */
    int64_t usual; /* of it: positions a side of the images that it is for */
    ash_dim tiled; /* and the chunks of the other form */
    ash_tile_math math;
    int64_t terms;        /* channels that one step takes */
    bool across;          /* as many as a sum has lanes, which are channels; vectors are filters */
    int64_t number_bytes; /* of an element of either operand */
    ash_dim in[ASH_CONV_SPACE], out[ASH_CONV_SPACE];
    int64_t window[ASH_CONV_SPACE], stride[ASH_CONV_SPACE], dilation[ASH_CONV_SPACE];
    ash_dim before[ASH_CONV_SPACE];
    int64_t sums;            /* of one position in a tile, at most */
    ash_dim width, in_width; /* last spatial dim: output, input */
    ash_dim inside;  /* positions of a line that read inside the input at all: the others, behind them, are
                       those of wide padding */
    bool open;       /* a line's size, that of its input, or the padding before it is a variable */
    int64_t pad[2];  /* padding before it: the least, the most */
    ash_dim over;    /* of open lines, how far the window of the last position inside reaches past the */
    int64_t past[2]; /* input: below 0 not at all; the least and the most of it */
    ash_ref begins, reaches; /* the present pad and over, where they have several values */
    bool tested;             /* of the present tile, a single position: its window is cut at run time */
    bool padded;             /* some window may reach out of the input along the last spatial dim */
    uint16_t weights;        /* the nest's number of their buffer */
    /* symbols */
    ash_sym batch, group, block, lane, position[ASH_CONV_SPACE]; /* of the result; lane < store_lanes */
    ash_sym vector, vector_lane;                                 /* of the weights */
    ash_sym channel_block, channel, step[ASH_CONV_SPACE]; /* of the sum; channel counts inside a block */
    ash_sym four, four_lane;     /* of the weights: the step inside a block, and the lane */
    ash_ix anchor[ASH_MAX_RANK]; /* index of the result */
    ash_tile_shape few; /* tiles of short lines, of several strips side by side; rows 0: there are none */
    bool takes_few;     /* the present ones are such */
    ash_tile_slices slices; /* of the channel blocks */
    unsigned put; /* tiles are put in memory, as those of so many positions; 0: each is stored by itself */
    ash_partial_blocks
        sum_blocks[1 + ASH_CONV_SPACE]; /* partial sums: of the channel blocks, then of the window */
    unsigned top;                       /* level of the whole sums */
    ash_ref from, line;   /* the chunk's first line and the present one; positions, when merged */
    ash_ahead ahead;      /* of the weights */
    ash_ahead_tile ask;   /* of the present tile */
    bool from_all;        /* all positions pass a strip, not just those of the chunk */
    ash_nest_tiles tiles; /* bytes in registers for tiles; height 0: not so */
    int64_t far;          /* elements from a vector of the weights to the next one */
} ash_conv;

/* Which positions of a tile read inside the input, per window column; without padding, all in each. */
typedef struct ash_conv_pattern {
    unsigned rows;
    int8_t from[ASH_CONV_WINDOW], to[ASH_CONV_WINDOW];
} ash_conv_pattern;

/* Reads the node; false when it has no form as tiles. Then writes all of it, and the kernel's number of
 * chunks. Where it is `beside`, the symbols of the result are the caller's. */
bool ash_conv__prepare(ash_conv *c);
void ash_conv__emit(ash_conv *c, ash_dim *chunks);

/* Finds the operands at a window column. False where they do not lie as a tile reads them: positions at
 * one distance, *stride elements, lanes side by side. A reshape may leave that to some columns and not to
 * others, as (x - 1) / 5 is no x / 5. */
bool ash_conv__operands_at(ash_conv *c, ash_ix column, ash_tile_operand *x, ash_tile_operand *w,
                           int64_t *stride);
/* Vector v of a tile's weights at the present symbols, as the tile's math takes it. */
ash_ref ash_conv__load_weights(ash_conv *c, const ash_tile *t, const ash_tile_operand *w, unsigned v);
/* The input `further` elements behind `at`. */
ash_ref ash_conv__load_input(ash_conv *c, const ash_tile *t, const ash_tile_operand *x, ash_ref at,
                             int64_t further);

/* Of a tile, one position. */
int64_t ash_conv__inner_steps(const ash_conv *c);
/* One tile from position `first` on: a slice of the input channels, the whole window, then the results. */
void ash_conv__emit_tile(ash_conv *c, const ash_conv_pattern *p, unsigned vectors, ash_ref first,
                         ash_ref first_vector);
/* All tiles of the present line, whose size is a number or a variable, for `vectors` vectors of results
 * from `first_vector` on; or of positions [from, to) of one, at most `most`, all of them inside. */
void ash_conv__emit_line(ash_conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector);
void ash_conv__emit_open_line(ash_conv *c, ash_tile_shape shape, unsigned vectors, ash_ref first_vector);
void ash_conv__emit_inside(ash_conv *c, const ash_tile_heights *heights, int64_t most, unsigned vectors,
                           ash_ref first_vector, ash_ref from, ash_ref to);
/* The positions of such a line that read nothing, behind the others, in tiles of `rows` and of one. */
void ash_conv__emit_outside(ash_conv *c, unsigned rows, unsigned vectors, ash_ref first_vector);
/* Whether lines of a size that is a variable may have tiles of few positions, which take several strips;
 * all of a line that is no longer than these (`few`). */
bool ash_conv__may_be_few(const ash_conv *c);
void ash_conv__emit_few_line(ash_conv *c, unsigned vectors, ash_ref first_vector);
/* Whether the edges of such a line are longer than a tile needs to be. */
bool ash_conv__has_long_edges(const ash_conv *c);

/* A tile of so many positions and vectors of output channels, from that vector on. */
ash_tile ash_conv__tile(const ash_conv *c, unsigned rows, unsigned vectors, ash_ref first_vector);

/* What the tile at `position` asks for ahead, in so many steps. */
ash_ahead_tile ash_conv__open_ahead(ash_conv *c, const ash_tile *t, ash_ref position, int64_t steps);
/* Opens loops over the window but for its last dim, each cut to what lies inside the input; returns how
 * many. */
unsigned ash_conv__open_window(ash_conv *c);

/* Takes registers for tiles where that is faster than tiles of `shape`, which then has their shape. */
void ash_conv__choose_registers(ash_conv *c, const ash_tile_extents *extents, ash_tile_shape *shape);
/* Positions [from, to) of the present line, in such tiles. */
void ash_conv__emit_registers(ash_conv *c, unsigned vectors, ash_ref first_vector, ash_ref from,
                              ash_ref to);

/* Whether vectors of the weights of a convolution of f32 are filters, and lanes of a sum channels. The rows
 * of a tile that has `rows` at most, and the results of one from its sums, from position `first` on. */
bool ash_conv__sums_across(const ash_target *target, int64_t x_block, int64_t w_block);
unsigned ash_conv__rows_across(const ash_conv *c, unsigned rows);
void ash_conv__store_across(ash_conv *c, const ash_tile *t, ash_ref first);

/* Whether a tile goes row by row, and how many positions it may have then. */
bool ash_conv__is_by_rows(const ash_conv *c);
unsigned ash_conv__most_rows(const ash_conv *c);
/* Whether the operands of a depthwise convolution of bytes lie as ash_conv__emit_rows reads them in
 * fours. */
bool ash_conv__has_fours(ash_conv *c);
/* The multiply-adds of all window columns of such a tile, at the present line of the window. */
void ash_conv__emit_rows(ash_conv *c, ash_tile *t, const ash_conv_pattern *p);

#endif
