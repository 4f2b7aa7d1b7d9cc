/* SPDX-License-Identifier: MIT */
/* A test for each of the networks, in a context of its own. */
#ifndef ASH_NETS_RUN_H
#define ASH_NETS_RUN_H

#include "base/base.h"
#include "nets.h"
#include "testing.h"

typedef struct net_row {
    const char *name;
    void (*build)(net *n);
} net_row;

static const net_row nets[] = {
    {"SqueezeNet", squeezenet}, {"MobileNet v2", mobilenet}, {"BERT mini", bert_mini}};

typedef struct net_room {
    const char *name;
    ash_context *context;
    net n; /* verified; its images are small, and its sentences short */
} net_room;

static inline void net_open(net_room *room, const net_row *row) {
    ash_diag diag;
    *room = (net_room){.name = row->name, .n = {.seed = 1, .side = 64, .length = 32}};
    assert_ok(ash_context_create(NULL, &room->context, &diag));
    assert_ok(ash_graph_create(room->context, row->name, &room->n.g, &diag));
    row->build(&room->n);
    assert_ok(ash_graph_status(room->n.g, &diag));
}

static inline void net_close(net_room *room) {
    ash_graph_destroy(room->n.g);
    ash_context_destroy(room->context);
}

/* Runs the test once for each network: *state is its row. */
static inline int nets_run(CMUnitTestFunction test) {
    struct CMUnitTest tests[ASH_COUNT(nets)];
    for (size_t i = 0; i < ASH_COUNT(nets); i++)
        tests[i] = (struct CMUnitTest){nets[i].name, test, NULL, NULL, (void *)&nets[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
