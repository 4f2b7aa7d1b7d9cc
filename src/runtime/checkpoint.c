/* SPDX-License-Identifier: MIT */
/* The states of a plan, to a file and back: a safetensors file that other programs read as well, with two
 * texts beside the tensors, the caller's note and the checksums:
 *
 *     "__metadata__": {"ashlar.crc32": "HHHHHHHH TTTTTTTT TTTTTTTT ...", "ashlar.note": NOTE}
 *
  * T is the CRC-32 of a tensor's bytes, in the order of the file; H that of the file before the tensors,
  * with eight zeros in H's own place. So any damage is found before anything is set, and where it is. */
#include <stdio.h>

#include "ashlar/train.h"
#include "base/file.h"
#include "base/text.h"
#include "plan.h"
#include "safetensors.h"

enum {
    DIGITS = 8,
    /* of a checksum */ ALIGN = 64 /* bytes; of the first tensor, as it lies in the file */
};

/* CRC-32 as zip has it (the reflected polynomial 0x04C11DB7). */
static uint32_t crc32_more(uint32_t crc, const void *data, uint64_t size) {
    static const uint32_t quarter[16] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
        0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    const uint8_t *at = data;
    crc = ~crc;
    for (uint64_t i = 0; i < size; i++) {
        crc = quarter[(crc ^ at[i]) & 15] ^ (crc >> 4);
        crc = quarter[(crc ^ (uint32_t)(at[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}

/* --- writing ---------------------------------------------------------------------------------------- */

/* In quotes, as JSON has it. */
static void add_json(ash_text *text, const char *s) {
    ash_text_add(text, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            ash_text_add(text, "\\%c", c);
        else if (c < 0x20)
            ash_text_add(text, "\\u%04x", c);
        else
            ash_text_add_bytes(text, s, 1);
    }
    ash_text_add(text, "\"");
}

typedef struct saved {
    ash_type type;
    uint64_t size; /* bytes */
    void *copy;    /* of a state that lies where the host does not reach it, or NULL */
} saved;

/* The bytes of a state, borrowed until the next execution. */
static ash_status look(ash_plan *plan, size_t position, saved *state, const void **out, ash_diag *diag) {
    const ash_view *view;
    ASH_TRY(ash_plan_state(plan, position, &view, diag));
    state->type = *ash_view_type(view);
    state->size = ash_view_bytes(view);
    if (ash_storage_device(ash_view_storage(view))->class->host_memory)
        return ash_view_data(view, out, diag);
    if (!state->copy) state->copy = ash_mem_alloc(plan->allocator, ASH_MAX(state->size, 1), 1);
    if (!state->copy) return ASH_NO_MEMORY(diag);
    *out = state->copy;
    return ash_view_copy_out(view, state->copy, state->size, diag);
}

static ash_status look_and_name(ash_plan *plan, size_t i, saved *state, const void **out, ash_diag *diag) {
    ash_status status = look(plan, i, state, out, diag);
    if (status != ASH_OK) ash_diag__add_node(diag, ash_plan_state_name(plan, i), "state", ASH_NO_OFFSET);
    return status;
}

/* The file up to the first tensor: *at is the place of its own checksum. */
static ash_status write_header(ash_plan *plan, const char *note, saved *states, ash_text *text, size_t *at,
                               ash_diag *diag) {
    uint64_t offset = 0;
    ash_text_add(text, "%8s{\"__metadata__\":{\"ashlar.crc32\":\"", "");
    *at = text->len;
    ash_text_add(text, "%0*d", DIGITS, 0);
    for (size_t i = 0; i < plan->n_states; i++) {
        const void *data;
        ASH_TRY(look_and_name(plan, i, &states[i], &data, diag));
        ash_text_add(text, " %08x", crc32_more(0, data, states[i].size));
    }
    ash_text_add(text, "\",\"ashlar.note\":");
    add_json(text, note ? note : "");
    ash_text_add(text, "}");
    for (size_t i = 0; i < plan->n_states; i++) {
        const ash_type *type = &states[i].type;
        ash_text_add(text, ",");
        add_json(text, ash_plan_state_name(plan, i));
        ash_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", ash_safetensors__dtype(type->dtype));
        for (unsigned d = 0; d < type->rank; d++)
            ash_text_add(text, "%s%lld", d ? "," : "", (long long)type->dims[d]);
        const uint64_t end = offset + states[i].size;
        ash_text_add(text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                     (unsigned long long)end);
        offset = end;
    }
    ash_text_add(text, "}");
    while (text->len % ALIGN && !text->failed) ash_text_add(text, " ");
    return ash_text_status(text, diag);
}

/* Length and checksum, which the header itself decides. */
static void seal_header(ash_text *text, size_t at) {
    char digits[DIGITS + 1];
    for (unsigned i = 0; i < 8; i++) text->at[i] = (char)((uint64_t)(text->len - 8) >> (8 * i) & 0xff);
    snprintf(digits, sizeof digits, "%08x", crc32_more(0, text->at, text->len));
    memcpy(text->at + at, digits, DIGITS);
}

static ash_status write_file(ash_plan *plan, const char *path, const ash_text *text, saved *states,
                             ash_diag *diag) {
    ash_sink sink;
    ash_status status = ASH_OK;
    ASH_TRY(ash_sink_open(plan->allocator, path, &sink, diag));
    sink.durable = true;
    ash_sink_write(&sink, text->at, text->len);
    for (size_t i = 0; i < plan->n_states && status == ASH_OK; i++) {
        const void *data;
        status = look_and_name(plan, i, &states[i], &data, diag);
        if (status == ASH_OK) ash_sink_write(&sink, data, states[i].size);
    }
    ash_status closed = ash_sink_close(&sink, status == ASH_OK, status == ASH_OK ? diag : NULL);
    return status == ASH_OK ? closed : status;
}

ash_status ash_plan_save_states(ash_plan *plan, const char *path, const char *note, ash_diag *diag) {
    ASH_NEED(diag, plan, path);
    const ash_allocator *a = plan->allocator;
    ash_text text;
    size_t at = 0;
    ash_text_init(&text, a);
    saved *states = ash_mem_calloc(a, plan->n_states, sizeof *states);
    ash_status status = states ? ash_plan__check_states(plan, diag) : ASH_NO_MEMORY(diag);
    if (status == ASH_OK) status = write_header(plan, note, states, &text, &at, diag);
    if (status == ASH_OK) {
        seal_header(&text, at);
        status = write_file(plan, path, &text, states, diag);
    }
    for (size_t i = 0; states && i < plan->n_states; i++)
        if (states[i].copy) ash_mem_free(a, states[i].copy, ASH_MAX(states[i].size, 1), 1);
    ash_mem_free(a, states, plan->n_states, sizeof *states);
    ash_text_free(&text);
    return status;
}

/* --- reading ---------------------------------------------------------------------------------------- */

typedef struct loading {
    ash_plan *plan;
    ash_arena arena;
    ash_file *file;
    ash_safetensors all;
    size_t *position; /* of each tensor: the state that it is */
    ash_diag *diag;
} loading;

static const ash_safetext *find_text(const ash_safetensors *all, const char *key) {
    for (size_t i = 0; i < all->n_texts; i++)
        if (!strcmp(all->texts[i].key, key)) return &all->texts[i];
    return NULL;
}

/* Whether a checksum is the one that stands at `digits`. */
static bool agrees(uint32_t crc, const char *digits) {
    char own[DIGITS + 1];
    snprintf(own, sizeof own, "%08x", crc);
    return !strncmp(own, digits, DIGITS);
}

static ash_status check_sums(const loading *l) {
    static const char zeros[] = "00000000";
    const ash_safetext *sums = find_text(&l->all, "ashlar.crc32");
    const uint8_t *data = l->file->data;
    const size_t length = DIGITS + l->all.n_tensors * (DIGITS + 1);
    ASH_FAIL_IF(!sums || strlen(sums->text) != length || sums->at + length > l->all.header, l->diag,
                ASH_ERROR_FORMAT,
                "a safetensors file that is no checkpoint: it has no checksum for each tensor");
    const uint64_t behind = sums->at + DIGITS;
    uint32_t crc = crc32_more(0, data, sums->at);
    crc = crc32_more(crc, zeros, DIGITS);
    crc = crc32_more(crc, data + behind, l->all.header - behind);
    if (!agrees(crc, sums->text))
        return ash_fail_at(l->diag, ASH_ERROR_FORMAT, 0, "a checkpoint whose header is damaged");
    for (size_t i = 0; i < l->all.n_tensors; i++) {
        const ash_safetensor *t = &l->all.tensors[i];
        if (!agrees(crc32_more(0, data + t->begin, t->end - t->begin),
                    sums->text + DIGITS + i * (DIGITS + 1) + 1))
            return ash_fail_at(l->diag, ASH_ERROR_FORMAT, t->begin,
                               "a checkpoint in which the bytes of \"%.200s\" are damaged", t->name);
    }
    return ASH_OK;
}

static bool is_bools(const uint8_t *data, uint64_t size) {
    for (uint64_t i = 0; i < size; i++)
        if (data[i] > 1) return false;
    return true;
}

/* Each tensor is one of the plan's states, of its type, and each state is one of the tensors. */
static ash_status match(loading *l) {
    const ash_safetensors *all = &l->all;
    bool *seen = ash_arena_alloc(&l->arena, l->plan->n_states, sizeof *seen);
    l->position = ash_arena_alloc(&l->arena, all->n_tensors, sizeof *l->position);
    if (!seen || !l->position) return ASH_NO_MEMORY(l->diag);
    for (size_t i = 0; i < all->n_tensors; i++) {
        const ash_safetensor *t = &all->tensors[i];
        size_t *position = &l->position[i];
        ash_type type;
        ASH_FAIL_IF(ash_plan_state_position(l->plan, t->name, position, NULL) != ASH_OK, l->diag,
                    ASH_ERROR_TYPE, "the checkpoint has \"%.200s\", which is no state of the plan",
                    t->name);
        ASH_FAIL_IF(seen[*position], l->diag, ASH_ERROR_TYPE, "the checkpoint has \"%.200s\" twice",
                    t->name);
        seen[*position] = true;
        ASH_TRY(ash_plan_state_type(l->plan, *position, &type, l->diag));
        ASH_FAIL_IF(!ash_type_equal(&type, &t->type), l->diag, ASH_ERROR_TYPE,
                    "\"%.200s\" has another type in the checkpoint than in the plan", t->name);
        if (type.dtype == ASH_BOOL && !is_bools(l->file->data + t->begin, t->end - t->begin))
            return ash_fail_at(l->diag, ASH_ERROR_FORMAT, t->begin, "a bool that is neither 0 nor 1");
    }
    for (size_t i = 0; i < l->plan->n_states; i++)
        ASH_FAIL_IF(!seen[i], l->diag, ASH_ERROR_TYPE, "the checkpoint lacks the state \"%.200s\"",
                    ash_plan_state_name(l->plan, i));
    return ASH_OK;
}

static ash_status set_all(const loading *l) {
    for (size_t i = 0; i < l->all.n_tensors; i++) {
        const ash_safetensor *t = &l->all.tensors[i];
        ASH_TRY(ash_plan_set_state(l->plan, l->position[i], &t->type, l->file->data + t->begin,
                                   t->end - t->begin, l->diag));
    }
    return ASH_OK;
}

static ash_status load(loading *l, const char *path, char *note, size_t room) {
    ASH_TRY(ash_file_map(l->plan->context, path, &l->file, l->diag));
    ASH_TRY(ash_safetensors__read(l->file->data, l->file->size, &l->arena, &l->all, l->diag));
    ASH_TRY(check_sums(l));
    ASH_TRY(match(l));
    const ash_safetext *said = find_text(&l->all, "ashlar.note");
    const char *text = said ? said->text : "";
    ASH_FAIL_IF(note && strlen(text) >= room, l->diag, ASH_ERROR_OUT_OF_RANGE,
                "the checkpoint's note has %zu bytes, and there is room for %zu", strlen(text), room);
    ASH_TRY(set_all(l));
    if (note) memcpy(note, text, strlen(text) + 1);
    return ASH_OK;
}

ash_status ash_plan_load_states(ash_plan *plan, const char *path, char *note, size_t room, ash_diag *diag) {
    ASH_NEED(diag, plan, path);
    loading l = {.plan = plan, .diag = diag};
    ash_arena_init(&l.arena, plan->allocator);
    ash_status status = load(&l, path, note, room);
    ash_file_release(l.file);
    ash_arena_free(&l.arena);
    return status;
}
