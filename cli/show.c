/* SPDX-License-Identifier: MIT */
/* What a person reads: units, tensors, the summary of a plan. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cli.h"

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t peak_resident(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* A line of /proc/self/status, in bytes; 0: there is none. */
static uint64_t status_bytes(const char *name) {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long kilobytes = 0;
    size_t len = strlen(name);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, len) && line[len] == ':') kilobytes = strtoull(line + len + 1, NULL, 10);
    if (file) fclose(file);
    return kilobytes * 1024;
}

void show_resident(void) {
    uint64_t own = status_bytes("RssAnon"), files = status_bytes("RssFile");
    printf("peak resident  %s\n", show_bytes(peak_resident()).text);
    if (!own) return;
    printf(
        "resident       %s: %s of its own, %s of files (code of programs and libraries, mapped weights)\n",
        show_bytes(own + files).text, show_bytes(own).text, show_bytes(files).text);
}

struct line show_padded(const char *text, int width) {
    struct line out;
    int seen = 0, most = width < 0 ? -width : width;
    size_t bytes = 0;
    while (text[bytes]) { /* characters are counted by their first bytes */
        bool first = ((unsigned char)text[bytes] & 0xc0) != 0x80;
        if (first && (seen == most || bytes + 4 + (size_t)most >= sizeof out.text)) break;
        seen += first;
        bytes++;
    }
    int blank = most - seen;
    snprintf(out.text, sizeof out.text, "%*s%.*s%*s", width > 0 ? blank : 0, "", (int)bytes, text,
             width < 0 ? blank : 0, "");
    return out;
}

/* Three digits and a unit. */
static struct line scaled(double value, double base, const char *const *units, size_t count) {
    struct line out;
    size_t unit = 0;
    while (unit + 1 < count && value >= base) value /= base, unit++;
    int digits = value >= 100 || value == floor(value) ? 0 : value >= 10 ? 1 : 2;
    snprintf(out.text, sizeof out.text, "%.*f %s", digits, value, units[unit]);
    return out;
}

struct line show_bytes(uint64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    return scaled((double)bytes, 1000, units, COUNT(units));
}

struct line show_time(double nanoseconds) {
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    return scaled(nanoseconds, 1000, units, COUNT(units));
}

struct line show_count(double count) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    return scaled(count, 1000, units, COUNT(units));
}

struct line show_type(const ash_type *type) {
    struct line out;
    int at = snprintf(out.text, sizeof out.text, "%s[", ash_dtype_name(type->dtype));
    for (unsigned i = 0; i < type->rank && at < (int)sizeof out.text - 24; i++) {
        const char *comma = i ? ", " : "";
        if (type->dims[i] >= 0)
            at += snprintf(out.text + at, sizeof out.text - (size_t)at, "%s%lld", comma,
                           (long long)type->dims[i]);
        else
            at += snprintf(out.text + at, sizeof out.text - (size_t)at, "%s?", comma);
    }
    snprintf(out.text + at, sizeof out.text - (size_t)at, "]");
    return out;
}

static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 0x1f;
    double fraction = bits & 0x3ff, sign = bits >> 15 ? -1 : 1;
    if (exponent == 0x1f) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

double element(ash_dtype dtype, const void *data, uint64_t i) {
    uint32_t raw;
    float single;
    switch (dtype) {
    case ASH_F64: return ((const double *)data)[i];
    case ASH_F32: return (double)((const float *)data)[i];
    case ASH_F16: return half_value(((const uint16_t *)data)[i]);
    case ASH_BF16:
        raw = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&single, &raw, sizeof single);
        return (double)single;
    case ASH_I64: return (double)((const int64_t *)data)[i];
    case ASH_U64: return (double)((const uint64_t *)data)[i];
    case ASH_I32: return (double)((const int32_t *)data)[i];
    case ASH_U32: return (double)((const uint32_t *)data)[i];
    case ASH_I16: return (double)((const int16_t *)data)[i];
    case ASH_U16: return (double)((const uint16_t *)data)[i];
    case ASH_I8: return (double)((const int8_t *)data)[i];
    case ASH_U8:
    case ASH_BOOL: return (double)((const uint8_t *)data)[i];
    default: return (double)NAN;
    }
}

/* --- outputs ---------------------------------------------------------------------------------- */

static void show_first(ash_dtype dtype, const void *data, uint64_t count) {
    printf("    ");
    for (uint64_t i = 0; i < count && i < 8; i++) printf("%s%.6g", i ? "  " : "", element(dtype, data, i));
    printf("%s\n", count > 8 ? "  ..." : "");
}

/* The five largest, as a classifier's answer is read. */
static void show_top(ash_dtype dtype, const void *data, uint64_t count) {
    uint64_t taken[5];
    printf("    top 5: ");
    for (int n = 0; n < 5; n++) {
        uint64_t best = count;
        for (uint64_t i = 0; i < count; i++) {
            bool again = false;
            for (int k = 0; k < n; k++) again |= taken[k] == i;
            if (!again && (best == count || element(dtype, data, i) > element(dtype, data, best))) best = i;
        }
        taken[n] = best;
        printf("%s#%llu %.4g", n ? ", " : "", (unsigned long long)best, element(dtype, data, best));
    }
    printf("\n");
}

void show_output(const struct output *output) {
    const ash_type *type = &output->type;
    const void *data = output->data;
    uint64_t count = output->bytes / ash_dtype_size(type->dtype);
    printf("  %s: %s\n", output->name, show_type(type).text);
    int64_t last = type->rank ? type->dims[type->rank - 1] : 1;
    if (count >= 10 && count <= 100000 && (uint64_t)last == count)
        show_top(type->dtype, data, count);
    else
        show_first(type->dtype, data, count);
}

/* --- plans ------------------------------------------------------------------------------------ */

static const char *certificate(ash_memory_certificate c) {
    switch (c) {
    case ASH_MEMORY_OPTIMAL_BY_LOAD: return "the least possible";
    case ASH_MEMORY_OPTIMAL_BY_SEARCH: return "the least possible, by search";
    default: return "not proven to be the least";
    }
}

void show_order(const ash_plan_report *report) {
    const ash_plan_order_report *o = &report->order;
    if (!o->searched) return;
    printf("  reordered    from %s: %zu operations moved, %zu computed again\n",
           show_bytes(o->given_size).text, o->moved, o->recomputed);
    if (o->recomputed)
        printf("  again        an estimated %s beside %s, %.3f times as long\n",
               show_time(o->again_ns).text, show_time(o->given_ns).text,
               (o->given_ns + o->again_ns) / o->given_ns);
}

void show_training(const ash_plan_training *t) {
    if (!t->activations && !t->gradients && !t->optimizer) return;
    printf("  training     activations %s at most, gradients %s; of an optimiser, among the states, %s\n",
           show_bytes(t->activations).text, show_bytes(t->gradients).text, show_bytes(t->optimizer).text);
    printf("  fullest      activations %s, gradients %s, other %s\n", show_bytes(t->peak_activations).text,
           show_bytes(t->peak_gradients).text, show_bytes(t->peak_others).text);
}

void show_memory(const ash_plan_report *report) {
    ash_plan_report r = *report;
    r.memory.size -= r.state; /* which are never a part of the room that is shared */
    r.memory.lower_bound -= r.state;
    r.memory.unshared -= r.state;
    printf("weights        %s packed, %s read in place (%s in mapped files)\n", show_bytes(r.weights).text,
           show_bytes(r.constants).text, show_bytes(r.mapped).text);
    if (r.originals)
        printf("  originals    %s kept on the heap to make them again\n", show_bytes(r.originals).text);
    if (r.state) printf("states         %s\n", show_bytes(r.state).text);
    printf("code           %s, tables %s, caches %s\n", show_bytes(r.code).text, show_bytes(r.tables).text,
           show_bytes(r.caches).text);
    printf("arena          %s: %s\n", show_bytes(r.memory.size).text, certificate(r.memory.certificate));
    double least = r.memory.lower_bound ? (double)r.memory.size / (double)r.memory.lower_bound : 1;
    printf("  lower bound  %s (%.3f times)\n", show_bytes(r.memory.lower_bound).text, least);
    double most = r.memory.size ? (double)r.memory.unshared / (double)r.memory.size : 1;
    printf("  no reuse     %s (%.1f times as much)\n", show_bytes(r.memory.unshared).text, most);
    show_training(&r.training);
    show_order(&r);
    if (r.splits) printf("  split        kernels at %zu results, for less memory\n", r.splits);
    if (r.no_winograd || r.one_worker)
        printf("  limited      %s%s%zu operations on one thread\n", r.no_winograd ? "no Winograd" : "",
               r.no_winograd ? ", " : "", r.one_worker);
    printf("  checked      %llu buffers, %llu accesses to %llu pieces of memory\n",
           (unsigned long long)r.check.buffers, (unsigned long long)r.replay.accesses,
           (unsigned long long)r.replay.pieces);
}

/* What a plan holds on a GPU beside arenas and weights. */
static void show_records(ash_plan *plan) {
    for (size_t d = 0; d < ash_plan_device_count(plan); d++) {
        ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
        if (ash_plan_device_at(plan, d, &info, NULL) != ASH_OK || !info.records) continue;
        printf("records        %s on %s, %s pinned; %s pinned there for all plans\n",
               show_bytes(info.records).text, ash_device_describe(info.device).name,
               show_bytes(info.pinned).text, show_bytes(info.transfers).text);
    }
}

static const char *planner(const struct session *s, char *room, size_t size) {
    const ash_memory_options *o = &s->plan_options.memory;
    if (o->mode != ASH_MEMORY_ARENA) return ash_memory_mode_text(o->mode);
    snprintf(room, size, "%s, %s%s", ash_memory_mode_text(o->mode), ash_memory_strategy_text(o->strategy),
             o->arena_no_reuse ? ", no reuse" : "");
    return room;
}

void show_devices(ash_plan *plan) {
    size_t count = ash_plan_device_count(plan);
    show_records(plan);
    if (count > 1)
        printf("\ndevices\n%6s  %-12s%12s%12s%12s%12s%12s%10s%12s%10s%10s\n", "", "name", "operations",
               "arena", "weights", "originals", "twice", "copies", "bytes", "direct", "beside");
    for (size_t d = 0; count > 1 && d < count; d++) {
        ash_plan_device_info info = ASH_INIT(ash_plan_device_info);
        if (ash_plan_device_at(plan, d, &info, NULL) != ASH_OK) continue;
        printf("%6zu  %-12s%12llu%12s%12s%12s%12s%10llu%12s%10llu%10llu\n", d,
               ash_device_describe(info.device).name, (unsigned long long)info.ops,
               show_bytes(info.arena).text, show_bytes(info.weights).text, show_bytes(info.originals).text,
               show_bytes(info.twice).text, (unsigned long long)info.copies, show_bytes(info.copied).text,
               (unsigned long long)info.direct, (unsigned long long)info.beside);
    }
}

void show_prepare(const struct session *s) {
    char room[64];
    const ash_plan_report r = s->report;
    printf("model          %s\n", s->path);
    if (s->unsaid[0])
        printf(
            "sizes          nothing says those of %s, and they are 1 (--var NAME=N, --input NAME=FILE)\n",
            s->unsaid);
    printf("plan           %zu operations, %zu kernels, %zu prologue operations, %u thread%s, planner %s\n",
           r.ops, r.kernels, r.prologue_ops, r.threads, r.threads == 1 ? "" : "s",
           planner(s, room, sizeof room));
    if (s->execution.eager) printf("mode           eager: prepared and dropped at every call\n");
    printf("prepare        %s: lowering %s, compiling %s, memory %s, weights %s\n",
           show_time((double)r.prepare_ns).text, show_time((double)r.lower_ns).text,
           show_time((double)r.compile_ns).text, show_time((double)r.memory_ns).text,
           show_time((double)r.prologue_ns).text);
    printf("  kernels      %llu compiled, %llu from the cache on disk, %llu shared",
           (unsigned long long)r.kernels_compiled, (unsigned long long)r.kernels_from_disk,
           (unsigned long long)r.kernels_shared);
    if (r.kernels_refused) printf(", %llu on disk refused", (unsigned long long)r.kernels_refused);
    printf("\n");
}
