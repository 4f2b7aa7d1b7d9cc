/* SPDX-License-Identifier: MIT */
/* Kinds of GPUs: `CUDA:sm_80` is a device that plans can be made for and looked at where there is no such
 * GPU; `CUDA:H200` is that of its kind, with the numbers of that GPU for forecasts. It has addresses
 * without memory, loads kernels without running them, and refuses to execute. */
#include "stream.h"

#include <stdlib.h>

struct paper {
    ash_target target;
    _Atomic uint64_t next; /* address */
};

struct paper_streams {
    ash_streams base;
    ash_device *device;
    ash_streams_options options;
    uint64_t room; /* bytes of each of the two buffers of a way; 0: they are none */
    bool issued;
};

static struct paper *own(const ash_device *device) {
    return device->own;
}

static ash_status nothing(const ash_device *device, ash_diag *diag) {
    return ash_fail(diag, ASH_ERROR_DEVICE,
                    "%.100s is a kind of GPU, which nothing runs on: CUDA:0 is a GPU", device->name);
}

static void close_paper(ash_device *device) {
    ash_mem_free(ash_device__allocator(device), device->own, 1, sizeof(struct paper));
}

static bool current(ash_device *device) {
    (void)device;
    return true;
}

static const ash_target *target(const ash_device *device) {
    return &own(device)->target;
}

static ash_status allocate(ash_device *device, ash_block *block, ash_diag *diag) {
    (void)diag;
    uint64_t align = ASH_MAX(block->align, 256u),
             room = ash_align_up(ASH_MAX(block->size, 1u), 256) + align;
    block->address = (ash_address)ash_align_up(atomic_fetch_add(&own(device)->next, room), align);
    return ASH_OK;
}

static void release(ash_device *device, ash_block *block) {
    (void)device, (void)block;
}

static ash_status copy_in(ash_device *device, ash_address to, const void *from, uint64_t size,
                          ash_diag *diag) {
    (void)device, (void)to, (void)from, (void)size, (void)diag;
    return ASH_OK;
}

static ash_status copy_out(ash_device *device, void *to, ash_address from, uint64_t size, ash_diag *diag) {
    (void)to, (void)from, (void)size;
    return nothing(device, diag);
}

static ash_status copy(ash_device *device, ash_address to, ash_address from, uint64_t size,
                       ash_diag *diag) {
    (void)device, (void)to, (void)from, (void)size, (void)diag;
    return ASH_OK;
}

static ash_status fill(ash_device *device, ash_address to, uint8_t value, uint64_t size, ash_diag *diag) {
    (void)device, (void)to, (void)value, (void)size, (void)diag;
    return ASH_OK;
}

/* Plans that ask for a library are made where there is none. */
static ash_status need_products(ash_device *device, ash_diag *diag) {
    (void)device, (void)diag;
    return ASH_OK;
}

static ash_status load(ash_device *device, const ash_kernel_image *image, ash_kernel **out,
                       ash_diag *diag) {
    ASH_FAIL_IF(!image->blob && !image->product, diag, ASH_ERROR_UNSUPPORTED,
                "%.100s cannot run code for processors", device->name);
    ash_kernel *kernel = *out = ash_mem_calloc(ash_device__allocator(device), 1, sizeof **out);
    if (!kernel) return ASH_NO_MEMORY(diag);
    kernel->vars = image->vars;
    kernel->by_worker = image->by_worker;
    kernel->threads = image->threads;
    kernel->shared = image->shared;
    return ASH_OK;
}

static void unload(ash_device *device, ash_kernel *kernel) {
    ash_mem_free(ash_device__allocator(device), kernel, 1, sizeof *kernel);
}

/* --- streams that run nothing ------------------------------------------------------------------------ */

static void destroy(ash_streams *streams) {
    struct paper_streams *s = (struct paper_streams *)streams;
    ash_mem_free(ash_device__allocator(s->device), s, 1, sizeof *s);
}

static void issue(ash_streams *streams, const ash_command *commands, size_t count) {
    (void)commands;
    ((struct paper_streams *)streams)->issued |= count != 0;
}

static void stop(ash_streams *streams) {
    (void)streams;
}

static ash_status finish(ash_streams *streams, ash_diag *diag) {
    struct paper_streams *s = (struct paper_streams *)streams;
    bool issued = s->issued;
    s->issued = false;
    return issued ? nothing(s->device, diag) : ASH_OK;
}

static ash_streams_counts counts(const ash_streams *streams) {
    (void)streams;
    return (ash_streams_counts){0};
}

static uint64_t done(const ash_streams *streams) {
    (void)streams;
    return 0;
}

struct ash_capture {
    uint32_t steps;
};

static ash_status instantiate(ash_streams *streams, const ash_command *commands, size_t count,
                              const ash_capture *like, ash_capture **out, ash_diag *diag) {
    (void)like;
    ash_device *device = ((struct paper_streams *)streams)->device;
    *out = ash_mem_calloc(ash_device__allocator(device), 1, sizeof **out);
    if (!*out) return ASH_NO_MEMORY(diag);
    for (size_t i = 0; i < count; i++) (*out)->steps += ash_command__is_step(&commands[i]);
    return ASH_OK;
}

static ash_status replay(ash_streams *streams, const ash_capture *capture, ash_diag *diag) {
    (void)capture;
    return nothing(((struct paper_streams *)streams)->device, diag);
}

static void capture_free(ash_streams *streams, ash_capture *capture) {
    if (capture)
        ash_mem_free(ash_device__allocator(((struct paper_streams *)streams)->device), capture, 1,
                     sizeof *capture);
}

static uint32_t captured(const ash_capture *capture) {
    return capture->steps;
}

static uint32_t graphs(const ash_capture *capture) {
    (void)capture;
    return 1;
}

static bool compiled(const ash_capture *capture) {
    (void)capture;
    return false;
}

/* As much as a GPU's would hold; two GPUs of paper are taken to be no peers. */
static ash_status memory(const ash_streams *streams, const ash_command *commands, size_t count,
                         ash_streams_memory *out, ash_diag *diag) {
    const struct paper_streams *s = (const struct paper_streams *)streams;
    if (!s->room)
        return ash_cuda_script__measure(ash_device__allocator(s->device), &s->options, commands, count, out,
                                        diag);
    if (!commands) out->pinned += 2 * s->room;
    return ASH_OK;
}

static const ash_stream_class streams_class = {.kind = "CUDA",
                                               .destroy = destroy,
                                               .issue = issue,
                                               .stop = stop,
                                               .finish = finish,
                                               .counts = counts,
                                               .done = done,
                                               .memory = memory,
                                               .instantiate = instantiate,
                                               .replay = replay,
                                               .capture_free = capture_free,
                                               .captured = captured,
                                               .graphs = graphs,
                                               .compiled = compiled};

static ash_status make(ash_device *device, const ash_streams_options *options, uint64_t room,
                       ash_streams **out, ash_diag *diag) {
    struct paper_streams *s = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *s);
    if (!s) return ASH_NO_MEMORY(diag);
    *s = (struct paper_streams){
        .base = {.class = &streams_class}, .device = device, .options = *options, .room = room};
    *out = &s->base;
    return ASH_OK;
}

static ash_status create_streams(ash_device *device, const ash_streams_options *options, ash_streams **out,
                                 ash_diag *diag) {
    return make(device, options, 0, out, diag);
}

static ash_status connect_paper(ash_device *to, ash_device *from, uint64_t most,
                                const ash_streams_options *options, ash_streams **out, ash_diag *diag) {
    return make(to->class->paper ? to : from, options, ash_cuda__way_room(most), out, diag);
}

static const ash_device_class class = {
    .kind = "CUDA",
    .writable = true,
    .paper = true,
    .close = close_paper,
    .current = current,
    .target = target,
    .allocate = allocate,
    .free = release,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .fill = fill,
    .staging = ash_cuda__staging,
    .need_products = need_products,
    .load = load,
    .unload = unload,
    .create_streams = create_streams,
    .connect = connect_paper,
};

/* The capability that a name says; 0: none. */
static unsigned capability_of(const char *name) {
    size_t digits = strspn(name + 3, "0123456789");
    if (digits < 2 || digits > 4 || name[3 + digits]) return 0;
    return (unsigned)strtoul(name + 3, NULL, 10);
}

ash_status ash_cuda__open_paper(ash_device *device, const char *name, const ash_gpu *gpu, ash_diag *diag) {
    const unsigned capability = gpu ? gpu->capability : capability_of(name);
    struct paper *p = ash_mem_calloc(ash_device__allocator(device), 1, sizeof *p);
    if (!p) return ASH_NO_MEMORY(diag);
    if (!ash_target__gpu(capability, &p->target)) {
        ash_mem_free(ash_device__allocator(device), p, 1, sizeof *p);
        return ash_fail(diag, ASH_ERROR_DEVICE, "%.100s: there is no code for such GPUs: sm_70 and newer",
                        device->name);
    }
    atomic_init(&p->next, 256);
    device->own = p;
    device->class = &class;
    device->detail = "a kind of GPU: plans can be made for it, and not run";
    device->gpu = gpu ? gpu : ash_gpu__of(capability, NULL);
    return ASH_OK;
}
