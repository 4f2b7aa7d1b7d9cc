/* SPDX-License-Identifier: MIT */
/* The device registry of a context: names to open devices. */
#include "base/sized.h"
#include "blocks.h"
#include "device.h"

struct ash_devices {
    ash_context *context;
    ash_allocator allocator;
    pthread_mutex_t lock; /* guards the list and the counts */
    ash_device *first;
    _Atomic uint64_t next_id;
    ash_blocks blocks; /* of the CPU */
};

static const ash_device_class *const classes[] = {&ash_device__cpu, &ash_device__disk, &ash_device__cuda};

static ash_status create_slot(ash_context *context, void **out, ash_diag *diag) {
    const ash_allocator *a = ash_context__allocator(context);
    ash_devices *registry = ash_mem_calloc(a, 1, sizeof *registry);
    if (!registry) return ASH_NO_MEMORY(diag);
    registry->context = context;
    registry->allocator = *a;
    ash_blocks__init(&registry->blocks, ash_context__keep_bytes(context));
    pthread_mutex_init(&registry->lock, NULL);
    atomic_init(&registry->next_id, 1);
    *out = registry;
    return ASH_OK;
}

static void destroy_slot(void *object) {
    ash_devices *registry = object;
    ash_allocator a = registry->allocator;
    ash_blocks__drop(&registry->blocks, &a);
    pthread_mutex_destroy(&registry->lock);
    ash_mem_free(&a, registry, 1, sizeof *registry);
}

/* The class that a name speaks of, and what follows its colon (NULL without one). */
static const ash_device_class *find_class(const char *name, const char **rest) {
    const char *colon = strchr(name, ':');
    size_t len = colon ? (size_t)(colon - name) : strlen(name);
    *rest = colon ? colon + 1 : NULL;
    for (size_t i = 0; i < ASH_COUNT(classes); i++)
        if (strlen(classes[i]->kind) == len && memcmp(classes[i]->kind, name, len) == 0) return classes[i];
    return NULL;
}

static void free_device(ash_devices *registry, ash_device *device) {
    ash_mem_free(&registry->allocator, device->name, device->name_size, 1);
    ash_mem_free(&registry->allocator, device, 1, sizeof *device);
}

/* Under the lock. */
static ash_status open_new(ash_devices *registry, const ash_device_class *class, const char *name,
                           const char *rest, ash_device **out, ash_diag *diag) {
    ash_device *device = ash_mem_calloc(&registry->allocator, 1, sizeof *device);
    if (!device) return ASH_NO_MEMORY(diag);
    *device =
        (ash_device){class, registry, .name_size = strlen(name) + 1, .refs = 1, .capacity = UINT64_MAX};
    device->name = ash_mem_alloc(&registry->allocator, device->name_size, 1);
    ash_status status = ASH_OK;
    if (!device->name)
        status = ASH_NO_MEMORY(diag);
    else {
        memcpy(device->name, name, device->name_size);
        status = class->open(device, rest, diag);
    }
    if (status != ASH_OK) {
        free_device(registry, device);
        return status;
    }
    device->next = registry->first;
    registry->first = *out = device;
    return ASH_OK;
}

/* `rest`: what follows the name's colon, or NULL. */
static ash_status open_named(ash_context *context, const ash_device_class *class, const char *name,
                             const char *rest, ash_device **out, ash_diag *diag) {
    ash_devices *registry;
    ASH_TRY(
        ash_context__slot(context, ASH_SLOT_DEVICES, create_slot, destroy_slot, (void **)&registry, diag));
    pthread_mutex_lock(&registry->lock);
    for (ash_device *device = registry->first; device && !*out; device = device->next)
        if (strcmp(device->name, name) == 0 && class->current(device)) device->refs++, *out = device;
    ash_status status = *out ? ASH_OK : open_new(registry, class, name, rest, out, diag);
    pthread_mutex_unlock(&registry->lock);
    return status;
}

ash_status ash_device_open(ash_context *context, const char *name, ash_device **out, ash_diag *diag) {
    ASH_NEED(diag, out);
    *out = NULL;
    ASH_FAIL_IF(!context || !name, diag, ASH_ERROR_INVALID_ARGUMENT, "%s is NULL",
                context ? "the device's name" : "the context");
    const char *rest;
    const ash_device_class *class = find_class(name, &rest);
    ASH_FAIL_IF(!class, diag, ASH_ERROR_DEVICE,
                "there is no kind of device called \"%.100s\": known are CPU, "
                "DISK:path and CUDA:n",
                name);
    return open_named(context, class, name, rest, out, diag);
}

ash_status ash_device__open(ash_context *context, const ash_device_class *class, const char *name,
                            ash_device **out, ash_diag *diag) {
    *out = NULL;
    return open_named(context, class, name, NULL, out, diag);
}

ash_status ash_device__default(ash_context *context, ash_device **out, ash_diag *diag) {
    return ash_device__open(context, &ash_device__cpu, ash_device__cpu.kind, out, diag);
}

ash_status ash_streams__create(ash_device *device, const ash_streams_options *options, ash_streams **out,
                               ash_diag *diag) {
    *out = NULL;
    ASH_FAIL_IF(!device->class->create_streams, diag, ASH_ERROR_DEVICE, "%.100s computes nothing",
                device->name);
    ASH_FAIL_IF(options->streams == 0, diag, ASH_ERROR_INVALID_ARGUMENT, "no streams are asked for");
    return device->class->create_streams(device, options, out, diag);
}

ash_device *ash_device__retain(ash_device *device) {
    pthread_mutex_lock(&device->registry->lock);
    device->refs++;
    pthread_mutex_unlock(&device->registry->lock);
    return device;
}

void ash_device_close(ash_device *device) {
    if (!device) return;
    ash_devices *registry = device->registry;
    pthread_mutex_lock(&registry->lock);
    bool last = --device->refs == 0;
    if (last) {
        ash_device **link = &registry->first;
        while (*link != device) link = &(*link)->next;
        *link = device->next;
    }
    pthread_mutex_unlock(&registry->lock);
    if (!last) return;
    device->class->close(device);
    free_device(registry, device);
}

ASH_SIZED(ash_device_info, detail);

ash_status ash_device_describe_to(const ash_device *device, ash_device_info *out, ash_diag *diag) {
    ASH_NEED(diag, device, out);
    const ash_device_info own = {.name = device->name,
                                 .cpu_accessible = device->class->cpu_accessible,
                                 .writable = device->class->writable,
                                 .capacity = device->capacity,
                                 .detail = device->detail};
    return ASH_GIVE(ash_device_info, &own, out, diag);
}

const ash_allocator *ash_device__allocator(const ash_device *device) {
    return &device->registry->allocator;
}

ash_context *ash_device__context(const ash_device *device) {
    return device->registry->context;
}

uint64_t ash_device__new_id(ash_device *device) {
    return atomic_fetch_add_explicit(&device->registry->next_id, 1, memory_order_relaxed);
}

ash_blocks *ash_device__blocks(ash_device *device) {
    return &device->registry->blocks;
}

ash_status ash_device__connect(ash_device *to, ash_device *from, uint64_t most,
                               const ash_streams_options *options, ash_streams **out, ash_diag *diag) {
    const ash_device_class *class = to->class->cpu_accessible ? from->class : to->class;
    bool host = to->class->cpu_accessible || from->class->cpu_accessible;
    *out = NULL;
    if (!class->connect || (!host && to->class != from->class)) return ASH_OK;
    return class->connect(to, from, most, options, out, diag);
}

ash_status ash_passage__open(ash_passage *out, ash_device *to, ash_device *from, uint64_t most,
                             ash_diag *diag) {
    enum { ROOM = 8 << 20 };
    const ash_streams_options one = {.streams = 1, .commands = 1, .threads = 1};
    *out = (ash_passage){.to = to, .from = from};
    if (to == from || to->class->cpu_accessible || from->class->cpu_accessible || !most) return ASH_OK;
    ASH_TRY(ash_device__connect(to, from, most, &one, &out->way, diag));
    if (out->way) return ASH_OK;
    out->bytes = ASH_MIN(most, (uint64_t)ROOM);
    out->room = ash_mem_alloc(ash_device__allocator(to), out->bytes, 1);
    return out->room ? ASH_OK : ASH_NO_MEMORY(diag);
}

void ash_passage__close(ash_passage *passage) {
    if (!passage->to) return;
    ash_streams__destroy(passage->way);
    if (passage->room) ash_mem_free(ash_device__allocator(passage->to), passage->room, passage->bytes, 1);
    *passage = (ash_passage){0};
}

ash_status ash_passage__copy(const ash_passage *by, ash_address to, ash_address from, uint64_t size,
                             ash_diag *diag) {
    const ash_device_class *target = by->to->class, *source = by->from->class;
    if (by->to == by->from) return target->copy(by->to, to, from, size, diag);
    if (by->way) {
        const ash_address ends[] = {from, to};
        const ash_transfer copy = {.buffers = ends, .bytes = (int64_t)size};
        ash_streams__copy(by->way, 0, &copy, NULL);
        return ash_streams__finish(by->way, diag);
    }
    if (source->cpu_accessible) return target->copy_in(by->to, to, (void *)from, size, diag);
    if (target->cpu_accessible) return source->copy_out(by->from, (void *)to, from, size, diag);
    for (uint64_t at = 0, bytes; at < size; at += bytes) {
        bytes = ASH_MIN(size - at, by->bytes);
        ASH_TRY(source->copy_out(by->from, by->room, from + at, bytes, diag));
        ASH_TRY(target->copy_in(by->to, to + at, by->room, bytes, diag));
    }
    return ASH_OK;
}

ash_status ash_device__copy(ash_device *to_device, ash_address to, ash_device *from_device,
                            ash_address from, uint64_t size, ash_diag *diag) {
    ash_passage by;
    if (!size) return ASH_OK;
    ash_status status = ash_passage__open(&by, to_device, from_device, size, diag);
    if (status == ASH_OK) status = ash_passage__copy(&by, to, from, size, diag);
    ash_passage__close(&by);
    return status;
}
