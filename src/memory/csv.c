/* SPDX-License-Identifier: MIT */
/* Reads problems in MiniMalloc's CSV format. Every number is checked; an error names the line, the column
 * and the text. */
#include "ashlar/memory_report.h"
#include "base/arena.h"
#include "base/map.h"

typedef enum column {
    ID,
    LOWER,
    UPPER,
    SIZE,
    ALIGNMENT,
    OFFSET,
    PINNED,
    LANE,
    KIND,
    ROOT,
    ROOT_OFFSET,
    COLUMNS
} column;

enum { MOST_FIELDS = 64 };
static const uint64_t LARGEST = UINT64_C(1) << 62; /* bytes and half steps: as the planner takes them */

struct ash_memory_csv {
    ash_allocator allocator;
    ash_arena names;
    ASH_VEC(ash_memory_buffer) buffers;
    ASH_VEC(ash_memory_place) places;
    ASH_VEC(ash_memory_arena) arenas;
    ash_memory_problem problem;
    bool placed; /* there is a column of offsets */
};

typedef struct csv_reader {
    const char *text;
    uint64_t size, at, line_at; /* bytes */
    uint64_t line;              /* from 1 */
    int where[MOST_FIELDS];     /* per field: its column, or -1 */
    int fields;
    const char *field[COLUMNS]; /* of the present line; NULL when there is no such column */
    size_t length[COLUMNS];
    ash_diag *diag;
} csv_reader;

static const char *const names[COLUMNS] = {"id",     "lower", "upper", "size", "alignment",  "offset",
                                           "pinned", "lane",  "kind",  "root", "root_offset"};
_Static_assert(ID == 0 && ALIGNMENT == 4 && ROOT_OFFSET + 1 == COLUMNS,
               "names are in the order of columns");

#define BAD(r, ...) ash_fail_at((r)->diag, ASH_ERROR_FORMAT, (r)->line_at, __VA_ARGS__)

/* The next line without its end; false at the end of the text. */
static bool next_line(csv_reader *r, const char **line, size_t *length) {
    while (r->at < r->size) {
        const char *start = r->text + r->at, *end = memchr(start, '\n', r->size - r->at);
        r->line_at = r->at;
        r->line++;
        *line = start;
        *length = end ? (size_t)(end - start) : (size_t)(r->size - r->at);
        r->at += *length + (end != NULL);
        if (*length && start[*length - 1] == '\r') --*length;
        if (*length) return true; /* empty lines are passed over */
    }
    return false;
}

/* Cuts the next field off a line, without the blanks around it. */
static void next_field(const char **at, const char *end, const char **field, size_t *length) {
    const char *start = *at, *stop = memchr(start, ',', (size_t)(end - start));
    if (!stop) stop = end;
    *at = stop < end ? stop + 1 : NULL;
    while (start < stop && (*start == ' ' || *start == '\t')) start++;
    while (stop > start && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
    *field = start;
    *length = (size_t)(stop - start);
}

static bool is_word(const char *field, size_t length, const char *word) {
    return strlen(word) == length && !memcmp(field, word, length);
}

static ash_status read_header(csv_reader *r) {
    const char *line, *field;
    size_t length;
    bool seen[COLUMNS] = {false};
    if (r->size >= 3 && !memcmp(r->text, "\xef\xbb\xbf", 3)) r->at = 3;
    if (!next_line(r, &line, &length)) return BAD(r, "no header: the text is empty");
    const char *end = line + length;
    for (const char *at = line; at;) {
        if (r->fields == MOST_FIELDS) return BAD(r, "more than %d columns", (int)MOST_FIELDS);
        next_field(&at, end, &field, &length);
        int found = -1;
        for (int c = 0; c < COLUMNS; c++)
            if (is_word(field, length, names[c])) found = c;
        if (is_word(field, length, "begin") || is_word(field, length, "start")) found = LOWER;
        if (is_word(field, length, "end")) found = UPPER;
        if (found >= 0 && seen[found]) return BAD(r, "two columns are called %s", names[found]);
        if (found >= 0) seen[found] = true;
        r->where[r->fields++] = found;
    }
    for (int c = ID; c <= SIZE; c++)
        if (!seen[c]) return BAD(r, "the header has no column %s", names[c]);
    return ASH_OK;
}

/* Fields of the present line by column. */
static ash_status split_line(csv_reader *r, const char *line, size_t line_length) {
    const char *end = line + line_length;
    int count = 0;
    for (const char *at = line; at; count++) {
        const char *field;
        size_t length;
        next_field(&at, end, &field, &length);
        if (count >= r->fields || r->where[count] < 0) continue;
        r->field[r->where[count]] = field;
        r->length[r->where[count]] = length;
    }
    if (count != r->fields)
        return BAD(r, "line %llu has %d fields, the header %d", (unsigned long long)r->line, count,
                   r->fields);
    return ASH_OK;
}

static ash_status read_i64(const csv_reader *r, column c, int64_t *out) {
    const char *at = r->field[c], *end = at + r->length[c];
    bool minus = at < end && *at == '-';
    int64_t value = 0;
    at += minus;
    bool ok = at < end;
    for (; at < end && ok; at++) {
        ok = *at >= '0' && *at <= '9' && ash_mul_i64(value, 10, &value);
        ok = ok && (minus ? !__builtin_sub_overflow(value, *at - '0', &value)
                          : ash_add_i64(value, *at - '0', &value));
    }
    if (!ok)
        return BAD(r, "line %llu, %s: \"%.*s\" is no number of 64 bits", (unsigned long long)r->line,
                   names[c], (int)ASH_MIN(r->length[c], 40), r->field[c]);
    *out = value;
    return ASH_OK;
}

static ash_status read_size(const csv_reader *r, column c, uint64_t *out) {
    int64_t value;
    ASH_TRY(read_i64(r, c, &value));
    if (value < 0)
        return BAD(r, "line %llu, %s: %lld is negative", (unsigned long long)r->line, names[c],
                   (long long)value);
    *out = (uint64_t)value;
    return ASH_OK;
}

static bool is_given(const csv_reader *r, column c) {
    return r->field[c] && r->length[c];
}

static ash_status read_kind(const csv_reader *r, ash_memory_kind *out) {
    for (int k = 0; k < ASH_MEMORY_KIND_COUNT; k++)
        if (is_word(r->field[KIND], r->length[KIND], ash_memory_kind_text((ash_memory_kind)k))) {
            *out = (ash_memory_kind)k;
            return ASH_OK;
        }
    return BAD(r, "line %llu, kind: \"%.*s\" is none", (unsigned long long)r->line,
               (int)ASH_MIN(r->length[KIND], 40), r->field[KIND]);
}

static ash_status read_root(const csv_reader *r, ash_memory_buffer *b) {
    uint64_t root = 0;
    ASH_TRY(read_size(r, ROOT, &root));
    if (root >= ASH_MEMORY_NONE)
        return BAD(r, "line %llu: root %llu", (unsigned long long)r->line, (unsigned long long)root);
    b->root = (uint32_t)root;
    if (is_given(r, ROOT_OFFSET)) ASH_TRY(read_size(r, ROOT_OFFSET, &b->root_offset));
    return ASH_OK;
}

static ash_status read_buffer(const csv_reader *r, ash_memory_csv *csv) {
    ash_memory_buffer b = ash_memory_buffer_init(0, 1, 0, 0);
    ash_memory_place place = {0};
    uint64_t lane = 0;
    ASH_TRY(read_i64(r, LOWER, &b.begin));
    ASH_TRY(read_i64(r, UPPER, &b.end));
    ASH_TRY(read_size(r, SIZE, &b.size));
    if (r->field[ALIGNMENT]) ASH_TRY(read_size(r, ALIGNMENT, &b.align));
    if (is_given(r, OFFSET)) ASH_TRY(read_size(r, OFFSET, &place.offset));
    if (r->field[OFFSET] && !is_given(r, OFFSET)) place.arena = ASH_MEMORY_NONE;
    if (is_given(r, PINNED)) ASH_TRY(read_size(r, PINNED, &b.pinned));
    if (is_given(r, KIND)) ASH_TRY(read_kind(r, &b.kind));
    if (is_given(r, ROOT)) ASH_TRY(read_root(r, &b));
    if (r->field[LANE]) ASH_TRY(read_size(r, LANE, &lane));
    if (lane > UINT32_MAX)
        return BAD(r, "line %llu: lane %llu", (unsigned long long)r->line, (unsigned long long)lane);
    if (b.begin > b.end)
        return BAD(r, "line %llu: the lifetime [%lld, %lld) ends before it begins",
                   (unsigned long long)r->line, (long long)b.begin, (long long)b.end);
    if (b.size > LARGEST)
        return BAD(r, "line %llu, size: %llu is more than 2^62", (unsigned long long)r->line,
                   (unsigned long long)b.size);
    if (b.begin < -(int64_t)LARGEST || b.end > (int64_t)LARGEST)
        return BAD(r, "line %llu: the lifetime [%lld, %lld) leaves 62 bits", (unsigned long long)r->line,
                   (long long)b.begin, (long long)b.end);
    if (b.align && !ash_is_pow2(b.align))
        return BAD(r, "line %llu: alignment %llu is no power of two", (unsigned long long)r->line,
                   (unsigned long long)b.align);
    b.lane = (uint32_t)lane;
    b.name = ash_arena_strndup(&csv->names, r->field[ID], r->length[ID]);
    if (csv->buffers.len >= (size_t)1 << 30) return BAD(r, "more than 2^30 buffers");
    if (!b.name || !ash_vec_push(&csv->allocator, &csv->buffers, b) ||
        !ash_vec_push(&csv->allocator, &csv->places, place))
        return ASH_NO_MEMORY(r->diag);
    return ASH_OK;
}

/* Roots are numbers of rows, so they can be judged when all are there. */
static ash_status check_roots(const ash_memory_csv *csv, ash_diag *diag) {
    for (size_t i = 0; i < csv->buffers.len; i++) {
        const ash_memory_buffer *b = &csv->buffers.at[i];
        if (b->root == ASH_MEMORY_NONE) continue;
        if (b->root >= csv->buffers.len || csv->buffers.at[b->root].root != ASH_MEMORY_NONE)
            return ash_fail(diag, ASH_ERROR_FORMAT, "row %llu (%s): its root %u is no row without a root",
                            (unsigned long long)i, b->name, b->root);
    }
    return ASH_OK;
}

/* One arena per lane in use, as large as the offsets need. */
static ash_status make_arenas(ash_memory_csv *csv, ash_diag *diag) {
    ash_map lanes;
    ash_map_init(&lanes, &csv->allocator);
    ash_status status = ASH_OK;
    for (size_t i = 0; i < csv->buffers.len; i++) {
        const ash_memory_buffer *b = &csv->buffers.at[i];
        ash_memory_place *place = &csv->places.at[i];
        uint64_t arena, end;
        if (place->arena == ASH_MEMORY_NONE) continue;
        if (!ash_map_get(&lanes, b->lane, &arena)) {
            arena = csv->arenas.len;
            ASH_FAIL_IF_DONE(!ash_map_put(&lanes, b->lane, arena) ||
                                 !ash_vec_push(&csv->allocator, &csv->arenas,
                                               (ash_memory_arena){.lane = b->lane, .align = 1}),
                             diag, ASH_ERROR_OUT_OF_MEMORY, "out of memory");
        }
        ASH_FAIL_IF_DONE(!ash_add_u64(place->offset, b->size, &end), diag, ASH_ERROR_OUT_OF_RANGE,
                         "buffer %s ends past 64 bits", b->name);
        ash_memory_arena *a = &csv->arenas.at[arena];
        place->arena = (uint32_t)arena;
        a->size = a->used = ASH_MAX(a->used, end);
        a->align = ASH_MAX(a->align, b->align);
        a->buffers++;
    }
done:
    ash_map_free(&lanes);
    return status;
}

ash_status ash_memory_csv_read(ash_context *context, const char *text, uint64_t size, ash_memory_csv **out,
                               ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_NEED(diag, context);
    if (size) ASH_NEED(diag, text);
    const ash_allocator *a = ash_context__allocator(context);
    ash_memory_csv *csv = ash_mem_calloc(a, 1, sizeof *csv);
    if (!csv) return ASH_NO_MEMORY(diag);
    csv->allocator = *a;
    ash_arena_init(&csv->names, &csv->allocator);
    csv_reader r = {.text = text, .size = size, .diag = diag};
    const char *line;
    size_t length;
    ash_status status = ASH_OK;
    ASH_TRY_DONE(read_header(&r));
    while (next_line(&r, &line, &length)) {
        ASH_TRY_DONE(split_line(&r, line, length));
        ASH_TRY_DONE(read_buffer(&r, csv));
    }
    for (int f = 0; f < r.fields; f++) csv->placed |= r.where[f] == OFFSET;
    ASH_TRY_DONE(check_roots(csv, diag));
    ASH_TRY_DONE(make_arenas(csv, diag));
    csv->problem =
        (ash_memory_problem){.buffers = csv->buffers.at, .buffer_count = (uint32_t)csv->buffers.len};
    *out = csv;
done:
    if (status != ASH_OK) ash_memory_csv_destroy(csv);
    return status;
}

void ash_memory_csv_destroy(ash_memory_csv *csv) {
    if (!csv) return;
    ash_allocator a = csv->allocator;
    ash_vec_free(&a, &csv->arenas);
    ash_vec_free(&a, &csv->places);
    ash_vec_free(&a, &csv->buffers);
    ash_arena_free(&csv->names);
    ash_mem_free(&a, csv, 1, sizeof *csv);
}

const ash_memory_problem *ash_memory_csv_problem(const ash_memory_csv *csv) {
    return csv ? &csv->problem : NULL;
}

const ash_memory_place *ash_memory_csv_places(const ash_memory_csv *csv) {
    return csv && csv->placed ? csv->places.at : NULL;
}

const ash_memory_arena *ash_memory_csv_arenas(const ash_memory_csv *csv, size_t *count) {
    if (count) *count = csv ? (uint32_t)csv->arenas.len : 0;
    return csv ? csv->arenas.at : NULL;
}
