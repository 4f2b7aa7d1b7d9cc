/* SPDX-License-Identifier: MIT */
#include "modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

executor_mode modes[MOST_MODES] = {{"stream", ASH_MODE_STREAM, 1, false}};
size_t n_modes = 1;

/* Of each mode: times; plans on several streams; operations. */
static size_t executed[MOST_MODES], several[MOST_MODES], captured[MOST_MODES], operations[MOST_MODES];

static bool read_mode(const char *text, size_t len, executor_mode *out) {
    static const char prefix[] = "multi_stream=";
    char *end;
    if (len >= sizeof out->name) return false;
    *out = (executor_mode){.streams = 1};
    memcpy(out->name, text, len);
    out->eager = !strcmp(out->name, "eager");
    if (out->eager || !strcmp(out->name, "stream")) return true;
    out->mode = ASH_MODE_GRAPH;
    if (!strcmp(out->name, "graph")) return true;
    if (strncmp(out->name, prefix, sizeof prefix - 1) != 0) return false;
    out->mode = ASH_MODE_MULTI_STREAM;
    out->streams = (unsigned)strtoul(out->name + sizeof prefix - 1, &end, 10);
    return !*end && out->streams > 0;
}

bool modes_read(const char *list) {
    for (n_modes = 0; n_modes < MOST_MODES; n_modes++) {
        size_t len = strcspn(list, ",");
        if (!read_mode(list, len, &modes[n_modes])) break;
        if (!list[len]) return n_modes++, true;
        list += len + 1;
    }
    return fprintf(stderr, "conformance: no list of modes: %s\n", list), false;
}

static bool on_cuda(void) {
    const char *device = getenv("ASHLAR_TEST_DEVICE");
    return device && !strncmp(device, "CUDA", 4);
}

bool modes_count(size_t mode, ash_plan *plan, char *why, size_t size) {
    executed[mode]++;
    if (!plan) return true;
    ash_plan_report report = ash_plan_describe(plan);
    size_t issued = 0;
    for (size_t i = 0; i < report.ops && on_cuda(); i++) {
        ash_prepared_op op = ASH_INIT(ash_prepared_op);
        if (ash_plan_op_at(plan, i, &op, NULL) == ASH_OK) issued += op.kind == ASH_PREPARED_LOOP;
    }
    several[mode] += report.streams > 1;
    captured[mode] += report.captured;
    operations[mode] += report.ops;
    if (modes[mode].mode != ASH_MODE_GRAPH || report.captured + issued == report.ops) return true;
    return snprintf(why, size, "mode graph: %zu of %zu operations are captured", report.captured,
                    report.ops),
           false;
}

void modes_tell(void) {
    for (size_t m = 0; m < n_modes && n_modes > 1; m++) {
        printf("mode %s: executed %zu times", modes[m].name, executed[m]);
        if (modes[m].mode == ASH_MODE_GRAPH)
            printf(", %zu of %zu operations captured", captured[m], operations[m]);
        if (modes[m].streams > 1) printf(", %zu times on several streams", several[m]);
        printf("\n");
    }
}

bool modes_agree(const executor_mode *first, const ash_tensor *a, const executor_mode *second,
                 const ash_tensor *b, char *why, size_t size) {
    const ash_type *x = ash_tensor_type(a), *y = ash_tensor_type(b);
    const unsigned char *p = ash_tensor_data(a), *q = ash_tensor_data(b);
    bool same = x->dtype == y->dtype && x->rank == y->rank && ash_tensor_size(a) == ash_tensor_size(b);
    for (unsigned i = 0; same && i < x->rank; i++) same = x->dims[i] == y->dims[i];
    if (!same)
        return snprintf(why, size, "modes %s and %s have results of other types", first->name,
                        second->name),
               false;
    for (uint64_t i = 0; i < ash_tensor_size(a); i++) {
        if (p[i] == q[i]) continue;
        snprintf(why, size, "byte %llu is 0x%02x in mode %s and 0x%02x in mode %s", (unsigned long long)i,
                 p[i], first->name, q[i], second->name);
        return false;
    }
    return true;
}
