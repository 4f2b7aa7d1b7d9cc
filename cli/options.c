/* SPDX-License-Identifier: MIT */
/* Options from tables: the same rows are parsed and shown in the help. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void help(const char *usage, const struct option *const *tables) {
    printf("usage: ashlar %s\n\noptions:\n", usage);
    for (; *tables; tables++)
        for (const struct option *row = *tables; row->name; row++) {
            char left[64];
            snprintf(left, sizeof left, "%s%s%s", row->name, row->value ? " " : "",
                     row->value ? row->value : "");
            printf("  %-26s%s\n", left, row->help);
        }
    printf("  %-26s%s\n", "--help", "this text");
}

static const struct option *find(const struct option *const *tables, const char *name, size_t len) {
    for (; *tables; tables++)
        for (const struct option *row = *tables; row->name; row++)
            if (strlen(row->name) == len && !memcmp(row->name, name, len)) return row;
    return NULL;
}

static bool read_uint(const char *text, unsigned *out) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value > 1000000000) return false;
    *out = (unsigned)value;
    return true;
}

static bool read_bytes(const char *text, uint64_t *out) {
    static const char units[] = "kMGT";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !(value >= 0)) return false;
    const char *unit = *end ? strchr(units, *end == 'K' ? 'k' : *end) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) value *= 1000;
        end++;
    }
    if (*end == 'B') end++;
    if (*end || value > 1e18) return false;
    *out = (uint64_t)value;
    return true;
}

static bool read_real(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && *out >= 0;
}

static bool read_limits(const char *text, struct limits *out) {
    char part[64];
    out->count = 0;
    for (const char *end = text; *end; text = end + 1) {
        end = text + strcspn(text, ",");
        if (out->count == ASH_MOST_DEVICES || (size_t)(end - text) >= sizeof part) return false;
        snprintf(part, sizeof part, "%.*s", (int)(end - text), text);
        if (!read_bytes(part, &out->at[out->count++])) return false;
    }
    return out->count != 0;
}

static bool read_named(const char *text, int count, const char *(*name)(int), int *out) {
    for (int i = 0; i < count; i++)
        if (!strcmp(text, name(i))) {
            *out = i;
            return true;
        }
    return false;
}

static const char *mode_name(int i) {
    return ash_memory_mode_text((ash_memory_mode)i);
}

static const char *strategy_name(int i) {
    return ash_memory_strategy_text((ash_memory_strategy)i);
}

/* "stream", "multi_stream=2", "eager" */
static bool read_execution(const char *text, struct execution *out) {
    *out = (struct execution){.mode = ASH_MODE_STREAM, .eager = !strcmp(text, "eager")};
    if (out->eager) return true;
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    unsigned streams = 1;
    if (equals && !read_uint(equals + 1, &streams)) return false;
    for (int i = 0; i < ASH_MODE_COUNT; i++) {
        const char *name = ash_mode_text((ash_mode)i);
        if (strlen(name) != len || memcmp(text, name, len) != 0) continue;
        if ((i == ASH_MODE_MULTI_STREAM) != (equals != NULL)) return false;
        out->mode = (ash_mode)i;
        out->streams = streams;
        return true;
    }
    return false;
}

static const char *execution_name(int i) {
    return i == ASH_MODE_MULTI_STREAM ? "multi_stream=N" : ash_mode_text((ash_mode)i);
}

static const char *order_name(int i) {
    return ash_plan_order_text((ash_plan_order)i);
}

static const char *precision_name(int i) {
    return ash_precision_text((ash_precision)i);
}

static bool read_value(const struct option *row, const char *text) {
    int number;
    switch (row->kind) {
    case OPTION_UINT: return read_uint(text, row->target);
    case OPTION_BYTES: return read_limits(text, row->target);
    case OPTION_REAL: return read_real(text, row->target);
    case OPTION_TEXT: *(const char **)row->target = text; return true;
    case OPTION_LIST: {
        struct list *list = row->target;
        if (list->count == LIST_ROOM) return false;
        list->at[list->count++] = text;
        return true;
    }
    case OPTION_MODE:
        if (!read_named(text, ASH_MEMORY_MODE_COUNT, mode_name, &number)) return false;
        *(ash_memory_mode *)row->target = (ash_memory_mode)number;
        return true;
    case OPTION_STRATEGY:
        if (!read_named(text, ASH_MEMORY_STRATEGY_COUNT, strategy_name, &number)) return false;
        *(ash_memory_strategy *)row->target = (ash_memory_strategy)number;
        return true;
    case OPTION_EXECUTION: return read_execution(text, row->target);
    case OPTION_ORDER:
        if (!read_named(text, ASH_PLAN_ORDER_COUNT, order_name, &number)) return false;
        *(ash_plan_order *)row->target = (ash_plan_order)number;
        return true;
    case OPTION_PRECISION:
        if (!read_named(text, ASH_PRECISION_COUNT, precision_name, &number)) return false;
        *(ash_precision *)row->target = (ash_precision)number;
        return true;
    default: return false;
    }
}

/* What the option takes, for the message when it got something else. */
static const char *expected(const struct option *row, char *room, size_t size) {
    static const struct {
        option_kind kind;
        int count;
        const char *(*name)(int);
        const char *others; /* values that have no name */
    } named[] = {
        {OPTION_MODE, ASH_MEMORY_MODE_COUNT, mode_name, ""},
        {OPTION_STRATEGY, ASH_MEMORY_STRATEGY_COUNT, strategy_name, ""},
        {OPTION_ORDER, ASH_PLAN_ORDER_COUNT, order_name, ""},
        {OPTION_PRECISION, ASH_PRECISION_COUNT, precision_name, ""},
        {OPTION_EXECUTION, ASH_MODE_COUNT, execution_name, ", eager"},
    };
    if (row->kind == OPTION_UINT) return "a whole number up to 1000000000";
    if (row->kind == OPTION_REAL) return "a number that is not below 0";
    if (row->kind == OPTION_BYTES) return "a number of bytes, as 4096, 64M or 1.5G,";
    if (row->kind == OPTION_LIST) return "no more than 64 of them";
    int len = snprintf(room, size, "one of ");
    for (size_t i = 0; i < COUNT(named); i++) {
        if (named[i].kind != row->kind) continue;
        for (int v = 0; v < named[i].count && len < (int)size; v++)
            len += snprintf(room + len, size - (size_t)len, "%s%s", v ? ", " : "", named[i].name(v));
        if (len < (int)size) snprintf(room + len, size - (size_t)len, "%s", named[i].others);
    }
    return room;
}

static bool wrong_value(const char *command, const struct option *row, const char *value) {
    char room[256];
    fprintf(stderr, "ashlar %s: %s %s: %s is expected\n", command, row->name, value,
            expected(row, room, sizeof room));
    return false;
}

static bool wrong(const char *command, const char *what, const char *text) {
    fprintf(stderr, "ashlar %s: %s \"%s\"; `ashlar %s --help` lists the options\n", command, what, text,
            command);
    return false;
}

/* One word, and the next where it is the option's value. */
static bool read_word(int argc, char **argv, int *i, const struct option *const *tables,
                      struct list *words) {
    const char *word = argv[*i];
    if (word[0] != '-' || !word[1]) {
        if (words->count == LIST_ROOM) return wrong(argv[0], "one word too many:", word);
        words->at[words->count++] = word;
        return true;
    }
    const char *equals = strchr(word, '=');
    const struct option *row = find(tables, word, equals ? (size_t)(equals - word) : strlen(word));
    if (!row) return wrong(argv[0], "unknown option", word);
    if (row->kind == OPTION_FLAG) {
        if (equals) return wrong(argv[0], "no value is expected:", word);
        *(bool *)row->target = true;
        return true;
    }
    const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!value) return wrong(argv[0], "a value is missing after", word);
    return read_value(row, value) || wrong_value(argv[0], row, value);
}

bool options_read(int argc, char **argv, const char *usage, const struct option *const *tables,
                  struct list *words, int *exit_status) {
    *words = (struct list){0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help(usage, tables);
            *exit_status = EXIT_GOOD;
            return false;
        }
        *exit_status = EXIT_USAGE;
        if (!read_word(argc, argv, &i, tables, words)) return false;
    }
    return true;
}
