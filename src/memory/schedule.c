/* SPDX-License-Identifier: MIT */
/* Lifetimes and clocks from a schedule. A buffer begins with its first access and ends with its last; over
 * streams, its acquire is the meet of what is over before each access, its release the join of the
 * accesses' own ends. */
#include "schedule.h"

#include "ashlar/memory_schedule.h"

uint32_t ash_memory__stream_count(const ash_memory_schedule *schedule) {
    return schedule->streams ? schedule->streams : 1;
}

enum { MOST = 1 << 30 }; /* operations, and buffers */

ash_status ash_memory__schedule_verify(const ash_memory_schedule *s, size_t buffer_count, ash_diag *diag) {
    ASH_FAIL_IF((s->wait_count && !s->waits) || (s->access_count && !s->accesses), diag,
                ASH_ERROR_INVALID_ARGUMENT, "the waits or the accesses are NULL");
    ASH_FAIL_IF(s->op_count > MOST || buffer_count > MOST, diag, ASH_ERROR_OUT_OF_RANGE,
                "more than 2^30 operations or buffers");
    ASH_FAIL_IF(s->wait_count >= UINT32_MAX || s->access_count >= UINT32_MAX, diag, ASH_ERROR_OUT_OF_RANGE,
                "2^32 waits or accesses, or more");
    for (uint32_t i = 0; i < s->op_count && s->op_streams; i++)
        ASH_FAIL_IF(s->op_streams[i] >= ash_memory__stream_count(s), diag, ASH_ERROR_INVALID_ARGUMENT,
                    "operation %u is on stream %u of %u", i, s->op_streams[i], ash_memory__stream_count(s));
    for (uint32_t i = 0; i < s->wait_count; i++)
        ASH_FAIL_IF(s->waits[i].op >= s->op_count || s->waits[i].after >= s->waits[i].op, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "operation %u waits for %u, which is not before it",
                    s->waits[i].op, s->waits[i].after);
    for (uint32_t i = 0; i < s->access_count; i++) {
        const ash_memory_access *a = &s->accesses[i];
        ASH_FAIL_IF(a->op >= s->op_count || a->buffer >= buffer_count ||
                        (unsigned)a->kind >= ASH_MEMORY_ACCESS_KIND_COUNT,
                    diag, ASH_ERROR_INVALID_ARGUMENT,
                    "access %u: operation %u, buffer %u or kind %d is unknown", i, a->op, a->buffer,
                    (int)a->kind);
    }
    return ASH_OK;
}

static int64_t first_half(ash_memory_access_kind kind, int64_t position) {
    return kind == ASH_MEMORY_WRITE ? 2 * position + 1 : 2 * position;
}

static int64_t last_half(ash_memory_access_kind kind, int64_t position) {
    return kind == ASH_MEMORY_READ_EARLY ? 2 * position + 1 : 2 * position + 2;
}

ash_status ash_memory_schedule_lifetimes(const ash_memory_schedule *schedule, ash_memory_buffer *buffers,
                                         size_t count, ash_diag *diag) {
    ASH_NEED(diag, schedule);
    if (count) ASH_NEED(diag, buffers);
    ASH_TRY(ash_memory__schedule_verify(schedule, count, diag));
    ASH_FAIL_IF(schedule->streams > 1, diag, ASH_ERROR_INVALID_ARGUMENT,
                "%u streams have clocks, not lifetimes", schedule->streams);
    for (uint32_t i = 0; i < count; i++) buffers[i].begin = buffers[i].end = 0;
    for (uint32_t i = 0; i < schedule->access_count; i++) {
        const ash_memory_access *a = &schedule->accesses[i];
        ash_memory_buffer *b = &buffers[a->buffer];
        int64_t begin = first_half(a->kind, a->op), end = last_half(a->kind, a->op);
        bool fresh = b->begin == b->end;
        b->begin = fresh ? begin : ASH_MIN(b->begin, begin);
        b->end = fresh ? end : ASH_MAX(b->end, end);
    }
    return ASH_OK;
}

void ash_memory__rows(const void *field, size_t stride, uint32_t count, uint32_t groups, uint32_t *at,
                      uint32_t *index) {
    memset(at, 0, ((size_t)groups + 1) * sizeof *at);
    const char *record = field;
    for (uint32_t i = 0; i < count; i++) at[*(const uint32_t *)(record + i * stride)]++;
    uint32_t sum = 0;
    for (uint32_t g = 0; g <= groups; g++) {
        sum += at[g];
        at[g] = sum; /* the end of the group, which filling from the back moves to its start */
    }
    for (uint32_t i = count; i--;) index[--at[*(const uint32_t *)(record + i * stride)]] = i;
}

/* Per operation its position on its stream, and what is over before it begins. `waits_at` has op_count + 1
 * rows. */
static void fill_clocks(const ash_memory_schedule *s, const uint32_t *waits_at, const uint32_t *waits,
                        int64_t *clocks, int64_t *positions, uint32_t *last) {
    size_t streams = ash_memory__stream_count(s);
    for (size_t t = 0; t < streams; t++) last[t] = ASH_MEMORY_NONE;
    for (uint32_t o = 0; o < s->op_count; o++) {
        uint32_t stream = s->op_streams ? s->op_streams[o] : 0, previous = last[stream];
        int64_t *clock = clocks + o * streams;
        memset(clock, 0, streams * sizeof *clock);
        positions[o] = previous == ASH_MEMORY_NONE ? 0 : positions[previous] + 1;
        if (previous != ASH_MEMORY_NONE)
            memcpy(clock, clocks + previous * streams, streams * sizeof *clock);
        clock[stream] = 2 * positions[o];
        for (uint32_t w = waits_at[o]; w < waits_at[o + 1]; w++) {
            uint32_t after = s->waits[waits[w]].after, other = s->op_streams ? s->op_streams[after] : 0;
            for (size_t t = 0; t < streams; t++) clock[t] = ASH_MAX(clock[t], clocks[after * streams + t]);
            clock[other] = ASH_MAX(clock[other], 2 * positions[after] + 2);
        }
        last[stream] = o;
    }
}

ash_status ash_memory_schedule_clocks(ash_context *context, const ash_memory_schedule *schedule,
                                      size_t count, int64_t *acquire, int64_t *release, ash_diag *diag) {
    ASH_NEED(diag, context, schedule);
    if (count) ASH_NEED(diag, acquire, release);
    ASH_TRY(ash_memory__schedule_verify(schedule, count, diag));
    const ash_allocator *a = ash_context__allocator(context);
    size_t streams = ash_memory__stream_count(schedule), n = schedule->op_count;
    int64_t *clocks = ash_mem_alloc(a, n, streams * sizeof *clocks),
            *positions = ash_mem_alloc(a, n, sizeof *positions);
    uint32_t *waits_at = ash_mem_calloc(a, n + 1, sizeof *waits_at);
    uint32_t *waits = ash_mem_alloc(a, schedule->wait_count, sizeof *waits),
             *last = ash_mem_alloc(a, streams, sizeof *last);
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!clocks || !positions || !waits_at || !waits || !last, diag, ASH_ERROR_OUT_OF_MEMORY,
                     "out of memory");
    if (schedule->wait_count)
        ash_memory__rows(&schedule->waits[0].op, sizeof *schedule->waits, schedule->wait_count,
                         schedule->op_count, waits_at, waits);
    fill_clocks(schedule, waits_at, waits, clocks, positions, last);
    for (size_t i = 0; i < count * streams; i++) acquire[i] = release[i] = 0;
    /* An untouched buffer keeps release 0; the first touch of one copies its acquire. */
    for (uint32_t i = 0; i < schedule->access_count; i++) {
        const ash_memory_access *access = &schedule->accesses[i];
        const int64_t *clock = clocks + access->op * streams;
        uint32_t stream = schedule->op_streams ? schedule->op_streams[access->op] : 0;
        int64_t *from = acquire + access->buffer * streams, *to = release + access->buffer * streams;
        bool fresh = true;
        for (size_t t = 0; t < streams; t++) fresh &= !to[t];
        for (size_t t = 0; t < streams; t++) {
            int64_t over = t == stream ? first_half(access->kind, positions[access->op]) : clock[t];
            from[t] = fresh ? over : ASH_MIN(from[t], over);
        }
        to[stream] = ASH_MAX(to[stream], last_half(access->kind, positions[access->op]));
    }
done:
    ash_mem_free(a, last, streams, sizeof *last);
    ash_mem_free(a, waits, schedule->wait_count, sizeof *waits);
    ash_mem_free(a, waits_at, n + 1, sizeof *waits_at);
    ash_mem_free(a, positions, n, sizeof *positions);
    ash_mem_free(a, clocks, n, streams * sizeof *clocks);
    return status;
}

ash_status ash_memory_schedule_ancestors(ash_context *context, const ash_memory_schedule *schedule,
                                         ash_memory_buffer *buffers, size_t count, ash_diag *diag) {
    ASH_NEED(diag, context, schedule);
    if (count) ASH_NEED(diag, buffers);
    ASH_TRY(ash_memory__schedule_verify(schedule, count, diag));
    for (uint32_t i = 0; i < count; i++)
        ASH_FAIL_IF(buffers[i].root != ASH_MEMORY_NONE && buffers[i].root >= count, diag,
                    ASH_ERROR_INVALID_ARGUMENT, "buffer %u: its root %u is no buffer", i, buffers[i].root);
    const ash_allocator *a = ash_context__allocator(context);
    uint32_t *at = ash_mem_calloc(a, (size_t)schedule->op_count + 1, sizeof *at);
    uint32_t *index = ash_mem_alloc(a, schedule->access_count, sizeof *index);
    bool *marked = ash_mem_calloc(a, count, sizeof *marked); /* per root */
    ash_status status = ASH_OK;
    ASH_FAIL_IF_DONE(!at || !index || !marked, diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
    if (schedule->access_count)
        ash_memory__rows(&schedule->accesses[0].op, sizeof *schedule->accesses, schedule->access_count,
                         schedule->op_count, at, index);
#define ROOT(i) (buffers[i].root == ASH_MEMORY_NONE ? (i) : buffers[i].root)
    for (uint32_t i = 0; i < count; i++) marked[ROOT(i)] |= buffers[i].kind == ASH_MEMORY_OUTPUT;
    for (uint32_t o = schedule->op_count;
         o--;) { /* the order of issue is one of the dependences, so once back is enough */
        bool needed = false;
        for (uint32_t k = at[o]; k < at[o + 1]; k++) {
            const ash_memory_access *access = &schedule->accesses[index[k]];
            needed |= access->kind == ASH_MEMORY_WRITE && marked[ROOT(access->buffer)];
        }
        for (uint32_t k = at[o]; k < at[o + 1] && needed; k++) {
            const ash_memory_access *access = &schedule->accesses[index[k]];
            bool read = access->kind == ASH_MEMORY_READ || access->kind == ASH_MEMORY_READ_EARLY;
            if (read) marked[ROOT(access->buffer)] = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) buffers[i].output_ancestor = marked[ROOT(i)];
#undef ROOT
done:
    ash_mem_free(a, marked, count, sizeof *marked);
    ash_mem_free(a, index, schedule->access_count, sizeof *index);
    ash_mem_free(a, at, (size_t)schedule->op_count + 1, sizeof *at);
    return status;
}
