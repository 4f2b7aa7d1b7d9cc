/* SPDX-License-Identifier: MIT */
/* The driver's functions: graphs of explicit nodes, and what is instantiated of them.
 *
 * An executable graph has its nodes in chains: a node continues the chain of a node before it, if that
 * one is its last, else it begins one. Each chain is a lane, so that a launch is an ordinary set of
 * commands between two others: the seed orders it as the edges allow, and clocks stay as short as the
 * graph is wide. */
#include "driver.h"

typedef struct CUgraphNode_st {
    CUgraph graph;
    CUgraphNodeType type;
    CUgraphNode *after; /* edges to it */
    size_t n_after;
    size_t number;      /* in its graph */
    const void *origin; /* of a node of an executable graph: the node that it was made from */
    ptx_task *command;  /* what launches copy; NULL: nothing */
    ptx_event *event;   /* to record or to wait for */
    CUgraph child;      /* a graph in its place, its nodes in a line: its own copy */
    uint32_t chain;     /* in an executable graph */
    ptx_moment over;    /* of the launch that is being issued */
} node;

typedef struct CUgraph_st {
    ptx_object object;
    node **nodes;
    size_t n_nodes;
} graph;

typedef struct CUgraphExec_st {
    ptx_object object;
    graph *graph;
    node **order; /* each after those that it depends on */
    uint32_t *lanes;
    uint32_t n_lanes;
    ptx_moment over; /* of the last launch */
} exec;

static void command_free(ptx_task *t) {
    if (!t) return;
    free(t->launch.params);
    free((void *)t->work.arg);
    free(t);
}

static void graph_free(graph *g);

static void node_free(node *n) {
    command_free(n->command);
    if (n->child) graph_free(n->child);
    free(n->after);
    free(n->over.clock.over);
    free(n);
}

static void graph_free(graph *g) {
    for (size_t i = 0; i < g->n_nodes; i++) node_free(g->nodes[i]);
    free(g->nodes);
    free(g);
}

static void graph_destroy(ptx_object *object) {
    graph_free((graph *)object);
}

/* A command like another, with its own parameters. */
static ptx_task *duplicate(const ptx_task *t, int stream) {
    ptx_task *copy = ptx_task_new(t->kind, t->device, stream);
    *copy = *t;
    copy->stream = stream;
    if (t->launch.params) {
        copy->launch.params = ptx_alloc(t->launch.kernel->param_bytes, 1);
        memcpy(copy->launch.params, t->launch.params, t->launch.kernel->param_bytes);
    }
    if (t->work.arg) {
        void *arg = ptx_alloc(t->work.arg_bytes, 1);
        memcpy(arg, t->work.arg, t->work.arg_bytes);
        copy->work.arg = arg;
    }
    return copy;
}

static bool add_edge(node *to, node *from) {
    if (from->graph != to->graph) return false;
    for (size_t i = 0; i < to->n_after; i++)
        if (to->after[i] == from) return false;
    to->after = realloc(to->after, (to->n_after + 1) * sizeof(node *));
    if (!to->after) abort();
    to->after[to->n_after++] = from;
    return true;
}

static bool is_node(const graph *g, const node *n) {
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i] == n) return true;
    return false;
}

static node *append(graph *g, CUgraphNodeType type) {
    node *n = ptx_alloc(1, sizeof *n);
    *n = (node){.graph = g, .type = type, .number = g->n_nodes};
    if (!(g->n_nodes & (g->n_nodes - 1))) {
        g->nodes = realloc(g->nodes, (g->n_nodes ? 2 * g->n_nodes : 1) * sizeof(node *));
        if (!g->nodes) abort();
    }
    return g->nodes[g->n_nodes++] = n;
}

/* A node of that type behind others; its command is the graph's. */
static CUresult add(CUgraphNode *handle, CUgraph g, const CUgraphNode *after, size_t n_after,
                    CUgraphNodeType type, ptx_task *command, ptx_event *event) {
    CUresult code = CUDA_SUCCESS;
    if (!handle || (n_after && !after)) code = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; !code && i < n_after; i++)
        if (!after[i] || !is_node(g, after[i])) code = CUDA_ERROR_INVALID_VALUE;
    if (code) {
        command_free(command);
        return code;
    }
    node *n = append(g, type);
    n->command = command;
    n->event = event;
    for (size_t i = 0; i < n_after; i++)
        if (!ptx_is_left_out("edge")) add_edge(n, after[i]);
    *handle = n;
    return CUDA_SUCCESS;
}

/* --- captures ------------------------------------------------------------------------------------- */

static void graph_destroy(ptx_object *object);

CUgraph ptx_graph_new(void) {
    graph *g = ptx_alloc(1, sizeof *g);
    ptx_object_add(&g->object, A_GRAPH, graph_destroy);
    return g;
}

void ptx_graph_append(CUgraph g, ptx_task *task) {
    static const CUgraphNodeType types[] = {[TASK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
                                            [TASK_WORK] = CU_GRAPH_NODE_TYPE_KERNEL,
                                            [TASK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
                                            [TASK_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
                                            [TASK_HOST] = CU_GRAPH_NODE_TYPE_HOST};
    node *last = g->n_nodes ? g->nodes[g->n_nodes - 1] : NULL, *n = append(g, types[task->kind]);
    n->command = task;
    if (last) add_edge(n, last);
}

/* --- nodes ---------------------------------------------------------------------------------------- */

static uint64_t end_of(uint64_t base, size_t x, size_t y, size_t z, size_t pitch, size_t height) {
    return base + x + (y + z * height) * pitch;
}

/* Rows of bytes of one plane: what is not an array, and is not deep. */
static ptx_task *memcpy_task(const CUDA_MEMCPY3D *p, CUresult *why) {
    *why = CUDA_ERROR_INVALID_VALUE;
    if (!p || p->Depth > 1 || p->srcArray || p->dstArray) return NULL;
    bool from_host = p->srcMemoryType == CU_MEMORYTYPE_HOST,
         to_host = p->dstMemoryType == CU_MEMORYTYPE_HOST;
    if (!p->srcMemoryType || !p->dstMemoryType || p->srcMemoryType > 4 || p->dstMemoryType > 4) return NULL;
    uint64_t from = from_host ? (uint64_t)(uintptr_t)p->srcHost : p->srcDevice;
    uint64_t to = to_host ? (uint64_t)(uintptr_t)p->dstHost : p->dstDevice;
    from = end_of(from, p->srcXInBytes, p->srcY, p->srcZ, p->srcPitch, p->srcHeight);
    to = end_of(to, p->dstXInBytes, p->dstY, p->dstZ, p->dstPitch, p->dstHeight);
    if (from_host == ptx_is_device(from) || to_host == ptx_is_device(to)) {
        if (p->srcMemoryType != CU_MEMORYTYPE_UNIFIED && p->dstMemoryType != CU_MEMORYTYPE_UNIFIED)
            return NULL;
    }
    ptx_task *t = ptx_copy_task(to, from, p->WidthInBytes, 0, why);
    if (!t) return NULL;
    free(t->snapshot); /* read when it runs */
    t->snapshot = NULL;
    t->rows = p->Height ? p->Height : 1;
    t->from_pitch = p->srcPitch;
    t->to_pitch = p->dstPitch;
    return t;
}

static ptx_task *memset_task(const CUDA_MEMSET_NODE_PARAMS *p, CUresult *why) {
    *why = CUDA_ERROR_INVALID_VALUE;
    if (!p || !p->width || !ptx_allocation_find(p->dst)) return NULL;
    if (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) return NULL;
    *why = CUDA_SUCCESS;
    ptx_task *t = ptx_task_new(TASK_FILL, ptx_current()->device, 0);
    t->to = p->dst;
    t->value = p->value;
    t->element = p->elementSize;
    t->bytes = p->width;
    t->rows = p->height ? p->height : 1;
    t->to_pitch = p->pitch;
    return t;
}

static ptx_task *host_task(const CUDA_HOST_NODE_PARAMS *p, CUresult *why) {
    *why = p && p->fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (*why) return NULL;
    ptx_task *t = ptx_task_new(TASK_HOST, ptx_current()->device, 0);
    t->function = p->fn;
    t->user = p->userData;
    return t;
}

static ptx_task *kernel_task(const CUDA_KERNEL_NODE_PARAMS *p, CUresult *why) {
    *why = CUDA_ERROR_INVALID_VALUE;
    return p ? ptx_kernel_task(p, 0, why) : NULL;
}

#define GRAPH(g) REFUSE_IF(!ptx_object_is(g, A_GRAPH), CUDA_ERROR_INVALID_HANDLE)

CUresult cuGraphCreate(CUgraph *phGraph, unsigned flags) {
    ENTER(cuGraphCreate, NEEDS_CONTEXT);
    REFUSE_IF(!phGraph || flags, CUDA_ERROR_INVALID_VALUE);
    *phGraph = ptx_graph_new();
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    ENTER(cuGraphDestroy, NEEDS_CONTEXT);
    GRAPH(hGraph);
    ptx_object_destroy(hGraph);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    ENTER(cuGraphAddKernelNode_v2, NEEDS_CONTEXT);
    GRAPH(hGraph);
    CUresult why;
    ptx_task *t = kernel_task(nodeParams, &why);
    REFUSE_IF(!t, why);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL, t, NULL);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    ENTER(cuGraphAddMemcpyNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    REFUSE_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    CUresult why;
    ptx_task *t = memcpy_task(copyParams, &why);
    REFUSE_IF(!t, why);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY, t, NULL);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                              CUcontext ctx) {
    ENTER(cuGraphAddMemsetNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    REFUSE_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    CUresult why;
    ptx_task *t = memset_task(memsetParams, &why);
    REFUSE_IF(!t, why);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET, t, NULL);
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    ENTER(cuGraphAddHostNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    CUresult why;
    ptx_task *t = host_task(nodeParams, &why);
    REFUSE_IF(!t, why);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST, t, NULL);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies) {
    ENTER(cuGraphAddEmptyNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY, NULL, NULL);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies, CUevent event) {
    ENTER(cuGraphAddEventRecordNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    REFUSE_IF(!ptx_object_is(event, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EVENT_RECORD, NULL,
               event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                 size_t numDependencies, CUevent event) {
    ENTER(cuGraphAddEventWaitNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    REFUSE_IF(!ptx_object_is(event, AN_EVENT), CUDA_ERROR_INVALID_HANDLE);
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_WAIT_EVENT, NULL,
               event);
}

/* One node behind the other, all of them commands. */
static bool is_line(const graph *g) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const node *n = g->nodes[i];
        if (!n->command || n->n_after != (i > 0) || (i && n->after[0] != g->nodes[i - 1])) return false;
    }
    return g->n_nodes > 0;
}

static graph *graph_copy(const graph *g);

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
    ENTER(cuGraphAddChildGraphNode, NEEDS_CONTEXT);
    GRAPH(hGraph);
    GRAPH(childGraph);
    REFUSE_IF(!is_line(childGraph), CUDA_ERROR_NOT_SUPPORTED);
    CUresult code =
        add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH, NULL, NULL);
    if (code == CUDA_SUCCESS) (*phGraphNode)->child = graph_copy(childGraph);
    return code;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies) {
    ENTER(cuGraphAddDependencies, NEEDS_CONTEXT);
    GRAPH(hGraph);
    REFUSE_IF(numDependencies && (!from || !to), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < numDependencies; i++) {
        REFUSE_IF(!is_node(hGraph, from[i]) || !is_node(hGraph, to[i]), CUDA_ERROR_INVALID_VALUE);
        REFUSE_IF(from[i] == to[i] || !add_edge(to[i], from[i]), CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    ENTER(cuGraphGetNodes, NEEDS_INIT);
    REFUSE_IF(!hGraph || !numNodes, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; nodes && i < *numNodes; i++)
        nodes[i] = i < hGraph->n_nodes ? hGraph->nodes[i] : NULL;
    if (!nodes || *numNodes > hGraph->n_nodes) *numNodes = hGraph->n_nodes;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
    ENTER(cuGraphGetEdges, NEEDS_INIT);
    REFUSE_IF(!hGraph || !numEdges || !from != !to, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0, room = *numEdges;
    for (size_t i = 0; i < hGraph->n_nodes; i++) {
        for (size_t j = 0; j < hGraph->nodes[i]->n_after; j++, n++) {
            if (!from || n >= room) continue;
            from[n] = hGraph->nodes[i]->after[j];
            to[n] = hGraph->nodes[i];
        }
    }
    if (!from || n < room) *numEdges = n;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    ENTER(cuGraphNodeGetType, NEEDS_INIT);
    REFUSE_IF(!hNode || !type, CUDA_ERROR_INVALID_VALUE);
    *type = hNode->type;
    return CUDA_SUCCESS;
}

/* --- executable graphs * -------------------------------------------------------------------------- */

static void exec_destroy(ptx_object *object) {
    exec *e = (exec *)object;
    graph_free(e->graph);
    for (uint32_t i = 0; i < e->n_lanes; i++) ptx_lane_free(e->lanes[i]);
    free(e->lanes);
    free(e->order);
    free(e->over.clock.over);
    free(e);
}

static graph *graph_copy(const graph *g) {
    graph *copy = ptx_alloc(1, sizeof *copy);
    for (size_t i = 0; i < g->n_nodes; i++) {
        node *n = append(copy, g->nodes[i]->type);
        n->origin = g->nodes[i];
        n->event = g->nodes[i]->event;
        if (g->nodes[i]->command) n->command = duplicate(g->nodes[i]->command, 0);
        if (g->nodes[i]->child) n->child = graph_copy(g->nodes[i]->child);
    }
    for (size_t i = 0; i < g->n_nodes; i++)
        for (size_t j = 0; j < g->nodes[i]->n_after; j++)
            add_edge(copy->nodes[i], copy->nodes[g->nodes[i]->after[j]->number]);
    return copy;
}

/* Depth first: false when nodes wait for each other. Marks: 0 not seen, 1 begun, 2 done. */
static bool visit(exec *e, node *n, uint8_t *marks, size_t *done) {
    if (marks[n->number]) return marks[n->number] == 2;
    marks[n->number] = 1;
    for (size_t i = 0; i < n->n_after; i++)
        if (!visit(e, n->after[i], marks, done)) return false;
    marks[n->number] = 2;
    e->order[(*done)++] = n;
    return true;
}

static void make_chains(exec *e) {
    size_t n = e->graph->n_nodes;
    node **last = ptx_alloc(n, sizeof(node *)); /* of each chain */
    for (size_t i = 0; i < n; i++) {
        node *at = e->order[i];
        uint32_t chain = UINT32_MAX;
        for (size_t j = 0; j < at->n_after && chain == UINT32_MAX; j++)
            if (last[at->after[j]->chain] == at->after[j]) chain = at->after[j]->chain;
        if (chain == UINT32_MAX) {
            chain = e->n_lanes++;
            e->lanes = realloc(e->lanes, e->n_lanes * sizeof *e->lanes);
            if (!e->lanes) abort();
            e->lanes[chain] = ptx_lane_new();
        }
        at->chain = chain;
        last[chain] = at;
    }
    free(last);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags, NEEDS_CONTEXT);
    GRAPH(hGraph);
    REFUSE_IF(!phGraphExec || flags > 15, CUDA_ERROR_INVALID_VALUE);
    exec *e = ptx_alloc(1, sizeof *e);
    e->graph = graph_copy(hGraph);
    e->order = ptx_alloc(hGraph->n_nodes, sizeof(node *));
    uint8_t *marks = ptx_alloc(hGraph->n_nodes, 1);
    size_t done = 0;
    bool sound = true;
    for (size_t i = 0; sound && i < hGraph->n_nodes; i++)
        sound = visit(e, e->graph->nodes[i], marks, &done);
    free(marks);
    if (!sound) {
        exec_destroy(&e->object);
        return CUDA_ERROR_INVALID_VALUE;
    }
    make_chains(e);
    ptx_object_add(&e->object, AN_EXEC, exec_destroy);
    *phGraphExec = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    ENTER(cuGraphExecDestroy, NEEDS_CONTEXT);
    REFUSE_IF(!ptx_object_is(hGraphExec, AN_EXEC), CUDA_ERROR_INVALID_HANDLE);
    ptx_wait_for(&hGraphExec->over);
    ptx_object_destroy(hGraphExec);
    return ptx_state();
}

CUgraph ptx_exec_graph(CUgraphExec e) {
    return e->graph;
}

/* Launches from now on have the new command; those that are on the way keep theirs. */
static CUresult set_params(exec *e, const node *origin, CUgraphNodeType type, ptx_task *task,
                           CUresult why) {
    if (!task) return why;
    for (size_t i = 0; i < e->graph->n_nodes; i++) {
        node *n = e->graph->nodes[i];
        if (n->origin != origin || n->type != type) continue;
        command_free(n->command);
        n->command = task;
        return CUDA_SUCCESS;
    }
    command_free(task);
    return CUDA_ERROR_INVALID_VALUE;
}

#define EXEC(e) REFUSE_IF(!ptx_object_is(e, AN_EXEC), CUDA_ERROR_INVALID_HANDLE)

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    ENTER(cuGraphExecKernelNodeSetParams_v2, NEEDS_CONTEXT);
    EXEC(hGraphExec);
    CUresult why;
    ptx_task *t = kernel_task(nodeParams, &why);
    return set_params(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, t, why);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    ENTER(cuGraphExecMemcpyNodeSetParams, NEEDS_CONTEXT);
    EXEC(hGraphExec);
    REFUSE_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    CUresult why;
    ptx_task *t = memcpy_task(copyParams, &why);
    return set_params(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, t, why);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    ENTER(cuGraphExecMemsetNodeSetParams, NEEDS_CONTEXT);
    EXEC(hGraphExec);
    REFUSE_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    CUresult why;
    ptx_task *t = memset_task(memsetParams, &why);
    return set_params(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, t, why);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams) {
    ENTER(cuGraphExecHostNodeSetParams, NEEDS_CONTEXT);
    EXEC(hGraphExec);
    CUresult why;
    ptx_task *t = host_task(nodeParams, &why);
    return set_params(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_HOST, t, why);
}

/* The nodes must be what they were, but for what they are given. */
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
    ENTER(cuGraphExecChildGraphNodeSetParams, NEEDS_CONTEXT);
    EXEC(hGraphExec);
    GRAPH(childGraph);
    for (size_t i = 0; i < hGraphExec->graph->n_nodes; i++) {
        node *n = hGraphExec->graph->nodes[i];
        if (n->origin != hNode || !n->child) continue;
        bool same = is_line(childGraph) && n->child->n_nodes == childGraph->n_nodes;
        for (size_t k = 0; same && k < childGraph->n_nodes; k++)
            same = n->child->nodes[k]->type == childGraph->nodes[k]->type;
        REFUSE_IF(!same, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        graph_free(n->child);
        n->child = graph_copy(childGraph);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
    ENTER(cuGraphUpload, NEEDS_CONTEXT);
    EXEC(hGraph);
    return ptx_stream_of(hStream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* The command of a node for one launch. */
static ptx_task *node_task(node *n, int stream) {
    if (n->command) return duplicate(n->command, stream);
    ptx_task *t = ptx_task_new(n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? TASK_EVENT : TASK_WAIT,
                               ptx_current()->device, stream);
    if (n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) t->when = n->event->when;
    if (n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && n->event->recorded)
        ptx_task_after(t, &n->event->moment);
    return t;
}

/* Between two commands of the stream; launches of one executable graph come one after the other. */
CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    ENTER(cuGraphLaunch, NEEDS_CONTEXT);
    EXEC(hGraph);
    ptx_stream *s = ptx_stream_of(hStream);
    REFUSE_IF(!s, CUDA_ERROR_INVALID_HANDLE);
    exec *e = hGraph;
    ptx_task *first = ptx_task_new(TASK_WAIT, ptx_current()->device, s->number);
    ptx_task_after(first, &e->over);
    ptx_stream_issue(s, first);
    ptx_moment begun = ptx_lane_end(s->lane);
    ptx_task *last = ptx_task_new(TASK_WAIT, ptx_current()->device, s->number);
    for (size_t i = 0; i < e->graph->n_nodes; i++) {
        node *n = e->order[i];
        ptx_task *t = node_task(n, s->number);
        if (!n->n_after) ptx_task_after(t, &begun);
        for (size_t j = 0; j < n->n_after; j++) ptx_task_after(t, &n->after[j]->over);
        free(n->over.clock.over);
        n->over = ptx_task_issue(t, e->lanes[n->chain]);
        for (size_t j = 0; n->child && j < n->child->n_nodes; j++) { /* behind it, in its lane */
            free(n->over.clock.over);
            n->over = ptx_task_issue(duplicate(n->child->nodes[j]->command, s->number), e->lanes[n->chain]);
        }
        if (n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
            ptx_moment_copy(&n->event->moment, &n->over);
            n->event->recorded = true;
        }
        ptx_task_after(last, &n->over);
    }
    ptx_stream_issue(s, last);
    free(begun.clock.over);
    free(e->over.clock.over);
    e->over = ptx_lane_end(s->lane);
    ptx_run_some();
    return ptx_state();
}
