/* SPDX-License-Identifier: MIT */
/* Captures: a graph of the driver with a node for each operation, in a line. What a replay changes: the
 * records, which its first node uploads, and parameters of the nodes whose addresses are others than
 * before. Commands of several streams are issued instead. */
#include "stream.h"

struct ash_capture {
    cuda_script *script;
    cu_graph graph;
    cu_exec exec;
    bool made;        /* when the addresses that copies need are known: at the first replay at the latest */
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
    return op->operand ? *op->operand : op->kind == CUDA_IN ? script->records + op->offset : s->words;
}

static int add_node(cuda_streams *s, ash_capture *c, size_t i, cu_node *last) {
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
        cu_kernel_params p = kernel_params(script, item);
        result = f->graph_kernel(&node, c->graph, after, count, &p);
        break;
    }
    case CUDA_IN:
    case CUDA_OUT: {
        if (!op->bytes) break;
        c->last[i] = device_end(s, script, op);
        cu_copy_params p = copy_params(op->kind == CUDA_IN, op->host, c->last[i], op->bytes);
        result = f->graph_copy(&node, c->graph, after, count, &p, s->cuda->context);
        break;
    }
    case CUDA_CALL: {
        cu_host_params p = {ash_cuda_script__call, &script->calls.at[op->item]};
        result = f->graph_host(&node, c->graph, after, count, &p);
        break;
    }
    default: break; /* one stream needs neither records nor waits */
    }
    c->nodes[i] = node;
    if (node) *last = node;
    return result;
}

static ash_status make(cuda_streams *s, ash_capture *c, ash_diag *diag) {
    const cu_driver *f = &s->cuda->driver;
    cuda_script *script = c->script;
    cu_node last = NULL;
    ASH_TRY(ash_cuda__check(s->cuda, f->graph_create(&c->graph, 0), "a graph", diag));
    cu_copy_params all = copy_params(true, script->mirror, script->records, script->record_bytes);
    ASH_TRY(ash_cuda__check(s->cuda, f->graph_copy(&last, c->graph, NULL, 0, &all, s->cuda->context),
                            "a graph's node", diag));
    for (size_t i = 0; i < script->ops.len; i++)
        ASH_TRY(ash_cuda__check(s->cuda, add_node(s, c, i, &last), "a graph's node", diag));
    ASH_TRY(ash_cuda__check(s->cuda, f->graph_instantiate(&c->exec, c->graph, 0), "instantiating a graph",
                            diag));
    c->made = true;
    return ASH_OK;
}

/* The driver refuses a copy to nowhere. */
static bool is_placed(const cuda_streams *s, const cuda_script *script) {
    for (size_t i = 0; i < script->ops.len; i++) {
        const cuda_op *op = &script->ops.at[i];
        if ((op->kind == CUDA_IN || op->kind == CUDA_OUT) && op->bytes && !device_end(s, script, op))
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
    if (c->exec) s->cuda->driver.exec_destroy(c->exec);
    if (c->graph) s->cuda->driver.graph_destroy(c->graph);
    ash_mem_free(a, c->nodes, n, sizeof *c->nodes);
    ash_mem_free(a, c->last, n, sizeof *c->last);
    ash_cuda_script__free(s, c->script);
    if (entered) ash_cuda__leave(s->cuda);
    ash_mem_free(a, c, 1, sizeof *c);
}

static ash_status instantiate(cuda_streams *s, const ash_command *commands, size_t count, ash_capture *c,
                              ash_diag *diag) {
    const ash_allocator *a = s->allocator;
    ASH_TRY(ash_cuda_script__make(s, commands, count, &c->script, diag));
    size_t n = c->script->ops.len;
    c->nodes = ash_mem_calloc(a, n, sizeof *c->nodes);
    c->last = ash_mem_calloc(a, n, sizeof *c->last);
    if (!c->nodes || !c->last) return ASH_NO_MEMORY(diag);
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
static int update(cuda_streams *s, const ash_capture *c) {
    const cu_driver *f = &s->cuda->driver;
    cuda_script *script = c->script;
    int result = CU_OK;
    for (size_t i = 0; i < script->ops.len && result == CU_OK; i++) {
        const cuda_op *op = &script->ops.at[i];
        if (op->kind == CUDA_KERNEL) {
            cuda_item *item = &script->items.at[op->item];
            if (!ash_cuda_script__read_params(s, script, item)) continue;
            cu_kernel_params p = kernel_params(script, item);
            result = f->exec_kernel(c->exec, c->nodes[i], &p);
        } else if (c->last[i] && c->last[i] != device_end(s, script, op)) {
            c->last[i] = device_end(s, script, op);
            cu_copy_params p = copy_params(op->kind == CUDA_IN, op->host, c->last[i], op->bytes);
            result = f->exec_copy(c->exec, c->nodes[i], &p, s->cuda->context);
        }
    }
    return result;
}

static ash_status ready(cuda_streams *s, ash_capture *c, ash_diag *diag) {
    return c->made ? ash_cuda__check(s->cuda, update(s, c), "a graph's node", diag) : make(s, c, diag);
}

ash_status ash_cuda_graph__replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    cuda_streams *s = of(streams);
    const cu_driver *f = &s->cuda->driver;
    ash_capture *c = (ash_capture *)capture; /* ours; its nodes follow what tables say */
    ASH_TRY(ash_cuda__enter(s->cuda, diag));
    ash_status status = ready(s, c, diag);
    if (status == ASH_OK) {
        ash_cuda_streams__begin(s);
        ash_cuda_script__refresh_all(s, c->script);
        int result = f->event_record(s->begun, s->control);
        if (result == CU_OK) result = f->stream_wait(s->streams[0], s->begun, 0);
        if (result == CU_OK) result = f->exec_launch(c->exec, s->streams[0]);
        status = ash_cuda__check(s->cuda, result, "launching a graph", diag);
        ash_status waited = ash_cuda_streams__wait(s, c->script->steps, status == ASH_OK ? diag : NULL);
        if (status == ASH_OK) status = waited;
    }
    ash_cuda__leave(s->cuda);
    return status;
}

uint32_t ash_cuda_graph__captured(const ash_capture *capture) {
    return capture->script->steps;
}

bool ash_cuda_graph__compiled(const ash_capture *capture) {
    (void)capture;
    return false;
}
