/* SPDX-License-Identifier: MIT */
/* Captures: graphs of the driver with a node for each operation, in a line. What a replay changes: the
 * records, which the first node uploads, and parameters of the nodes whose addresses are others than
 * before. Commands of several streams are issued instead.
 *
 * What a product of the library launches is its own affair: its call is captured, alone, on a stream
 * that nobody else has, and what that gives is one node, a child graph. Where an address is another one,
 * the call is captured once more, and the node becomes that.
 *
 * A repeat is cut out: what comes before it is one graph, what comes behind it another, and between the
 * two its commands are issued. Graphs that decide for themselves (conditional nodes) need a driver of
 * CUDA 12.4, and nodes with the addresses of every iteration would be as many as there are iterations; so
 * repeats are not in the capture, and not counted in it. */
#include "stream.h"

/* Operations that are a graph, and the repeat behind them. */
struct graph_piece {
    size_t begin, end; /* of operations; `end` is a repeat, or behind all */
    cu_graph graph;
    cu_exec exec; /* NULL: there is nothing in it */
};

struct ash_capture {
    cuda_script *script;
    struct graph_piece *pieces;
    size_t n_pieces;
    bool made;        /* when the addresses that copies need are known: at the first replay at the latest */
    bool stale;       /* an update failed: nodes may have other parameters than the script remembers */
    cu_stream own;    /* that products are captured on; NULL: there was none yet */
    cu_node *nodes;   /* per operation */
    cu_address *last; /* per operation: where a copy was told to go; 0: none of its own */
};

static cuda_streams *of(ash_streams *streams) {
    return (cuda_streams *)streams;
}

static cu_kernel_params kernel_params(const cuda_script *script, const cuda_item *item) {
    return (cu_kernel_params){.function = item->function,
                              .grid_x = item->grid,
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = item->block,
                              .block_y = 1,
                              .block_z = 1,
                              .shared = item->shared,
                              .params = &script->addresses.at[item->first]};
}

static cu_copy_params copy_params(bool in, void *host, cu_address device, uint64_t bytes) {
    cu_copy_params p = {.width = bytes, .height = 1, .depth = 1};
    if (in) {
        p.from_kind = CU_HOST, p.from_host = host;
        p.to_kind = CU_DEVICE, p.to_device = device;
    } else {
        p.from_kind = CU_DEVICE, p.from_device = device;
        p.to_kind = CU_HOST, p.to_host = host;
    }
    return p;
}

/* The device's end of a copy. */
static cu_address device_end(const cuda_streams *s, const cuda_script *script, const cuda_op *op) {
    return op->operand           ? *op->operand
           : op->kind == CUDA_IN ? script->records + op->offset
                                 : ash_cuda_streams__left_out(s);
}

/* Of the call of a product, with the addresses that were read last. The caller destroys it. */
static ash_status capture_product(cuda_streams *s, ash_capture *c, const cuda_item *item, cu_graph *out,
                                  ash_diag *diag) {
    cuda_device *d = s->cuda;
    const cu_driver *f = &d->driver;
    *out = NULL;
    if (!c->own) ASH_TRY(ash_cuda__check(d, f->stream_create(&c->own, CU_NON_BLOCKING), "a stream", diag));
    ASH_TRY(ash_cuda__check(d, f->capture_begin(c->own, CU_THREAD_LOCAL), "capturing a product", diag));
    ash_status status =
        ash_cuda_product__issue(d, item->product, &c->script->values.at[item->first], c->own, diag);
    int result = f->capture_end(c->own, out);
    if (status == ASH_OK) status = ash_cuda__check(d, result, "capturing a product", diag);
    if (status == ASH_OK) return ASH_OK;
    if (*out) f->graph_destroy(*out);
    f->stream_destroy(c->own); /* it may be capturing still */
    c->own = NULL;
    return status;
}

static ash_status add_node(cuda_streams *s, ash_capture *c, cu_graph graph, size_t i, cu_node *last,
                           ash_diag *diag) {
    cuda_script *script = c->script;
    const cu_driver *f = &s->cuda->driver;
    const cuda_op *op = &script->ops.at[i];
    const cu_node *after = *last ? last : NULL;
    size_t count = *last != NULL;
    cu_node node = NULL;
    int result = CU_OK;
    switch (op->kind) {
    case CUDA_KERNEL: {
        cuda_item *item = &script->items.at[op->item];
        ash_cuda_script__read_params(s, script, item);
        if (item->product) {
            cu_graph child;
            ASH_TRY(capture_product(s, c, item, &child, diag));
            result = f->graph_child(&node, graph, after, count, child);
            f->graph_destroy(child);
            break;
        }
        cu_kernel_params p = kernel_params(script, item);
        result = f->graph_kernel(&node, graph, after, count, &p);
        break;
    }
    case CUDA_IN:
    case CUDA_OUT: {
        if (!op->bytes) break;
        c->last[i] = device_end(s, script, op);
        cu_copy_params p = copy_params(op->kind == CUDA_IN, op->host, c->last[i], op->bytes);
        result = f->graph_copy(&node, graph, after, count, &p, s->cuda->context);
        break;
    }
    case CUDA_CALL: {
        cu_host_params p = {ash_cuda_script__call, &script->calls.at[op->item]};
        result = f->graph_host(&node, graph, after, count, &p);
        break;
    }
    default: break; /* one stream needs neither records nor waits */
    }
    ASH_TRY(ash_cuda__check(s->cuda, result, "a graph's node", diag));
    c->nodes[i] = node;
    if (node) *last = node;
    return ASH_OK;
}

/* The first piece begins with the upload of all records. */
static ash_status make_piece(cuda_streams *s, ash_capture *c, struct graph_piece *piece, ash_diag *diag) {
    const cu_driver *f = &s->cuda->driver;
    cuda_script *script = c->script;
    cu_node last = NULL;
    ASH_TRY(ash_cuda__check(s->cuda, f->graph_create(&piece->graph, 0), "a graph", diag));
    if (piece == c->pieces) {
        cu_copy_params all = copy_params(true, script->mirror, script->records, script->record_bytes);
        ASH_TRY(ash_cuda__check(s->cuda,
                                f->graph_copy(&last, piece->graph, NULL, 0, &all, s->cuda->context),
                                "a graph's node", diag));
    }
    for (size_t i = piece->begin; i < piece->end; i++)
        ASH_TRY(add_node(s, c, piece->graph, i, &last, diag));
    if (!last) return ASH_OK;
    return ash_cuda__check(s->cuda, f->graph_instantiate(&piece->exec, piece->graph, 0),
                           "instantiating a graph", diag);
}

static void drop_pieces(cuda_streams *s, ash_capture *c) {
    for (size_t i = 0; i < c->n_pieces; i++) {
        struct graph_piece *piece = &c->pieces[i];
        if (piece->exec) s->cuda->driver.exec_destroy(piece->exec);
        if (piece->graph) s->cuda->driver.graph_destroy(piece->graph);
        piece->exec = NULL;
        piece->graph = NULL;
    }
}

static ash_status make(cuda_streams *s, ash_capture *c, ash_diag *diag) {
    ash_status status = ASH_OK;
    for (size_t i = 0; i < c->n_pieces && status == ASH_OK; i++)
        status = make_piece(s, c, &c->pieces[i], diag);
    c->made = status == ASH_OK;
    if (!c->made) drop_pieces(s, c); /* another replay makes them anew */
    return status;
}

static bool has_addresses(const ash_launch *launch) {
    for (uint32_t i = 0; i < launch->count; i++)
        if (!launch->buffers[i]) return false;
    return true;
}

/* The driver refuses a copy to nowhere, and the library a product there. What is in a repeat is no node. */
static bool is_placed(const cuda_streams *s, const cuda_script *script) {
    for (size_t i = 0; i < script->ops.len; i = ash_cuda_script__after(script, i)) {
        const cuda_op *op = &script->ops.at[i];
        if ((op->kind == CUDA_IN || op->kind == CUDA_OUT) && op->bytes && !device_end(s, script, op))
            return false;
        if (op->kind == CUDA_KERNEL && script->items.at[op->item].product &&
            !has_addresses(script->items.at[op->item].command->launch))
            return false;
    }
    return true;
}

void ash_cuda_graph__free(ash_streams *streams, ash_capture *c) {
    cuda_streams *s = of(streams);
    const ash_allocator *a = s->allocator;
    if (!c) return;
    size_t n = c->script ? c->script->ops.len : 0;
    bool entered = ash_cuda__enter_last(s->cuda);
    drop_pieces(s, c);
    if (c->own) s->cuda->driver.stream_destroy(c->own);
    ash_mem_free(a, c->pieces, c->n_pieces, sizeof *c->pieces);
    ash_mem_free(a, c->nodes, n, sizeof *c->nodes);
    ash_mem_free(a, c->last, n, sizeof *c->last);
    ash_cuda_script__free(s, c->script);
    if (entered) ash_cuda__leave(s->cuda);
    ash_mem_free(a, c, 1, sizeof *c);
}

/* Pieces end where a repeat is that is in no other one. */
static ash_status cut(cuda_streams *s, ash_capture *c, ash_diag *diag) {
    const cuda_script *script = c->script;
    size_t n = script->ops.len, count = 1;
    for (size_t i = 0; i < n; i = ash_cuda_script__after(script, i))
        count += script->ops.at[i].kind == CUDA_REPEAT;
    c->pieces = ash_mem_calloc(s->allocator, count, sizeof *c->pieces);
    if (!c->pieces) return ASH_NO_MEMORY(diag);
    c->n_pieces = count;
    struct graph_piece *piece = c->pieces;
    for (size_t i = 0; i < n; i = ash_cuda_script__after(script, i)) {
        if (script->ops.at[i].kind != CUDA_REPEAT) continue;
        piece->end = i;
        (++piece)->begin = ash_cuda_script__after(script, i);
    }
    piece->end = n;
    return ASH_OK;
}

static ash_status instantiate(cuda_streams *s, const ash_command *commands, size_t count, ash_capture *c,
                              ash_diag *diag) {
    const ash_allocator *a = s->allocator;
    ASH_TRY(ash_cuda_script__make(s, commands, count, &c->script, diag));
    size_t n = c->script->ops.len;
    c->nodes = ash_mem_calloc(a, n, sizeof *c->nodes);
    c->last = ash_mem_calloc(a, n, sizeof *c->last);
    if (!c->nodes || !c->last) return ASH_NO_MEMORY(diag);
    ASH_TRY(cut(s, c, diag));
    return is_placed(s, c->script) ? make(s, c, diag) : ASH_OK;
}

ash_status ash_cuda_graph__instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                                       const ash_capture *like, ash_capture **out, ash_diag *diag) {
    cuda_streams *s = of(streams);
    (void)like; /* nothing was compiled for it */
    ASH_FAIL_IF(s->options.streams > 1, diag, ASH_ERROR_UNSUPPORTED,
                "commands of several streams are issued, and not made into a graph");
    for (size_t i = 0; i < count; i++)
        ASH_FAIL_IF(commands[i].timing, diag, ASH_ERROR_UNSUPPORTED,
                    "command %zu is timed, which a capture cannot be", i);
    ash_capture *c = ash_mem_calloc(s->allocator, 1, sizeof *c);
    if (!c) return ASH_NO_MEMORY(diag);
    ash_status status = ash_cuda__enter(s->cuda, diag);
    if (status == ASH_OK) {
        status = instantiate(s, commands, count, c, diag);
        ash_cuda__leave(s->cuda);
    }
    if (status == ASH_OK)
        *out = c;
    else
        ash_cuda_graph__free(streams, c);
    return status;
}

/* Nodes get the addresses that tables have now, where these are others. */
static ash_status update(cuda_streams *s, ash_capture *c, const struct graph_piece *piece, ash_diag *diag) {
    const cu_driver *f = &s->cuda->driver;
    cuda_script *script = c->script;
    for (size_t i = piece->begin; i < piece->end; i++) {
        const cuda_op *op = &script->ops.at[i];
        int result = CU_OK;
        if (op->kind == CUDA_KERNEL) {
            cuda_item *item = &script->items.at[op->item];
            if (!ash_cuda_script__read_params(s, script, item) && !c->stale) continue;
            if (item->product) {
                cu_graph child;
                ASH_TRY(capture_product(s, c, item, &child, diag));
                result = f->exec_child(piece->exec, c->nodes[i], child);
                f->graph_destroy(child);
            } else {
                cu_kernel_params p = kernel_params(script, item);
                result = f->exec_kernel(piece->exec, c->nodes[i], &p);
            }
        } else if (c->last[i] && (c->stale || c->last[i] != device_end(s, script, op))) {
            c->last[i] = device_end(s, script, op);
            cu_copy_params p = copy_params(op->kind == CUDA_IN, op->host, c->last[i], op->bytes);
            result = f->exec_copy(piece->exec, c->nodes[i], &p, s->cuda->context);
        }
        ASH_TRY(ash_cuda__check(s->cuda, result, "a graph's node", diag));
    }
    return ASH_OK;
}

static ash_status ready(cuda_streams *s, ash_capture *c, ash_diag *diag) {
    if (!c->made) return make(s, c, diag);
    ash_status status = ASH_OK;
    for (size_t i = 0; i < c->n_pieces && status == ASH_OK; i++) status = update(s, c, &c->pieces[i], diag);
    c->stale = status != ASH_OK;
    return status;
}

/* Piece by piece; failures of a repeat are the round's. */
static int launch(cuda_streams *s, const ash_capture *c) {
    const cu_driver *f = &s->cuda->driver;
    int result = f->event_record(s->begun, s->control);
    if (result == CU_OK) result = f->stream_wait(s->streams[0], s->begun, 0);
    for (size_t i = 0; i < c->n_pieces && result == CU_OK && s->line.failed == ASH_OK; i++) {
        const struct graph_piece *piece = &c->pieces[i];
        if (piece->exec) result = f->exec_launch(piece->exec, s->streams[0]);
        if (result == CU_OK && i + 1 < c->n_pieces)
            ash_cuda_streams__repeat(s, c->script, &c->script->ops.at[piece->end]);
    }
    return result;
}

void ash_cuda_graph__start(ash_streams *streams, const ash_capture *capture) {
    cuda_streams *s = of(streams);
    ash_capture *c = (ash_capture *)capture; /* ours; its nodes follow what tables say */
    ash_diag why = {0};
    ash_status status = ash_cuda__enter(s->cuda, &why);
    if (status == ASH_OK) {
        status = ready(s, c, &why);
        if (status == ASH_OK) {
            ash_cuda_streams__begin(s);
            c->script->before = s->steps;
            s->steps += c->script->steps;
            ash_cuda_script__refresh_all(s, c->script);
            status = ash_cuda__check(s->cuda, launch(s, c), "launching a graph", &why);
        }
        ash_cuda__leave(s->cuda);
    }
    ash_cuda_line__fail(&s->line, status, &why);
}

uint32_t ash_cuda_graph__captured(const ash_capture *capture) {
    return capture->script->steps - (uint32_t)(capture->n_pieces - 1);
}

/* The first piece begins with the upload of the records. */
uint32_t ash_cuda_graph__graphs(const ash_capture *capture) {
    uint32_t graphs = 0;
    for (size_t i = 0; i < capture->n_pieces; i++)
        graphs += i == 0 || capture->pieces[i].begin < capture->pieces[i].end;
    return graphs;
}

bool ash_cuda_graph__compiled(const ash_capture *capture) {
    (void)capture;
    return false;
}
