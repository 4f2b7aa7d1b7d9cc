/* SPDX-License-Identifier: MIT */
/* A kernel's sections become one piece of memory, its image, which nobody else's code is in, so that each
 * can be given back alone:
 *
 *     | code | constants | stubs, one for each function that it calls |
 *
 * Code comes first: loops lie as LLVM has aligned them. Kernels refer to nothing outside but the
 * C library's functions in the list below, by name: object files stay valid in other processes. Such a
 * function may lie anywhere, and a call reaches 2 GiB: so it goes to a stub, which jumps.
 *
 * LLVM has a linker of its own, ORC. It is not used, as loading is most of what preparing does when all
 * kernels are in the cache on disk: ORC took a millisecond to begin and 0.04 for a kernel, and touched
 * megabytes of its own code. Kernels are position-independent, have no data, no exceptions and no thread's
 * variables; this takes some microseconds, and refuses what it does not know. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf.h"

#define UNARY(f)  {#f, (void (*)(void))(double (*)(double))f}
#define BINARY(f) {#f, (void (*)(void))(double (*)(double, double))f}

/* What generated code may call. The memory functions are LLVM's own choice for large moves. */
static const struct import {
    const char *name;
    void (*fn)(void);
} imports[] = {
    UNARY(exp),
    UNARY(log),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(tanh),
    UNARY(asinh),
    UNARY(acosh),
    UNARY(atanh),
    UNARY(erf),
    BINARY(pow),
    BINARY(fmod),
    {"fmodf", (void (*)(void))fmodf},
    {"memcpy", (void (*)(void))memcpy},
    {"memmove", (void (*)(void))memmove},
    {"memset", (void (*)(void))memset},
};

/* --- processors -------------------------------------------------------------------------------------- */

enum {
    JUMP = 8,             /* bytes of a jump to the address behind it, */
    STUB = JUMP + 8,      /* with the address */
    MOST_SECTIONS = 64,   /* of an object file; kernels have about ten */
    LARGEST_ALIGN = 4096, /* of a section */
    LARGEST = 1 << 30     /* bytes in memory: what relocations reach */
};

#if defined(__x86_64__)
enum { THIS_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { THIS_MACHINE = EM_AARCH64 };
#else
enum { THIS_MACHINE = EM_NONE };
#endif

static bool relocate_x86(uint32_t type, void *word, uint64_t place, uint64_t value) {
    int64_t far = (int64_t)(value - place);
    int32_t near = (int32_t)far;
    if ((type != R_X86_64_PC32 && type != R_X86_64_PLT32) || near != far) return false;
    memcpy(word, &near, sizeof near);
    return true;
}

/* Puts the low bits of a number into the bits [from, from + count) of an instruction. */
static uint32_t put_bits(uint32_t inst, uint64_t number, unsigned from, unsigned count) {
    uint32_t mask = ((UINT32_C(1) << count) - 1) << from;
    return (inst & ~mask) | ((uint32_t)number << from & mask);
}

/* ELF for the Arm 64-bit Architecture (IHI 0056), section 5.7. */
static bool relocate_arm(uint32_t type, void *word, uint64_t place, uint64_t value) {
    int64_t far = (int64_t)(value - place), pages = (int64_t)((value >> 12) - (place >> 12));
    uint32_t inst, within = value & 0xfff, shift = 0;
    memcpy(&inst, word, sizeof inst);
    switch (type) {
    case R_AARCH64_PREL32:
        if (far != (int32_t)far) return false;
        inst = (uint32_t)far;
        break;
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26:
        if (far & 3 || far < -(INT64_C(1) << 27) || far >= INT64_C(1) << 27) return false;
        inst = put_bits(inst, (uint64_t)far >> 2, 0, 26);
        break;
    case R_AARCH64_ADR_PREL_PG_HI21:
        if (pages < -(INT64_C(1) << 20) || pages >= INT64_C(1) << 20) return false;
        inst = put_bits(put_bits(inst, (uint64_t)pages, 29, 2), (uint64_t)pages >> 2, 5, 19);
        break;
    case R_AARCH64_LDST128_ABS_LO12_NC: shift++; /* fall through */
    case R_AARCH64_LDST64_ABS_LO12_NC: shift++;  /* fall through */
    case R_AARCH64_LDST32_ABS_LO12_NC: shift++;  /* fall through */
    case R_AARCH64_LDST16_ABS_LO12_NC: shift++;  /* fall through */
    case R_AARCH64_LDST8_ABS_LO12_NC:
    case R_AARCH64_ADD_ABS_LO12_NC: inst = put_bits(inst, within >> shift, 10, 12); break;
    default: return false;
    }
    memcpy(word, &inst, sizeof inst);
    return true;
}

static const struct machine {
    unsigned number;
    uint8_t jump[JUMP];
    bool (*relocate)(uint32_t type, void *word, uint64_t place, uint64_t value);
} machines[] = {
    /* jmp *2(%rip); ud2 */
    {EM_X86_64, {0xff, 0x25, 0x02, 0, 0, 0, 0x0f, 0x0b}, relocate_x86},
    /* ldr x16, .+8; br x16 */
    {EM_AARCH64, {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6}, relocate_arm},
};

static const struct machine *machine_of(unsigned number) {
    for (size_t i = 0; i < ASH_COUNT(machines); i++)
        if (machines[i].number == number) return &machines[i];
    return NULL;
}

bool ash_link__relocate(unsigned machine, uint32_t type, void *word, uint64_t place, uint64_t value) {
    const struct machine *m = machine_of(machine);
    return m && m->relocate(type, word, place, value);
}

/* --- an image ---------------------------------------------------------------------------------------- */

/* On the way from a file to memory. */
typedef struct image {
    ash_elf from;
    const struct machine *machine;
    uint8_t *at;
    size_t size, stubs;           /* bytes in all; where the stubs begin */
    size_t places[MOST_SECTIONS]; /* of the sections that are loaded */
    uint64_t called;              /* a bit for each import */
} image;

static bool is_loaded(const image *b, uint32_t section) {
    return b->from.sections[section].sh_flags & SHF_ALLOC;
}

static bool is_code(const image *b, uint32_t section) {
    return b->from.sections[section].sh_flags & SHF_EXECINSTR;
}

static ash_status place(image *b, bool code, ash_diag *diag) {
    for (uint32_t i = 1; i < b->from.n_sections; i++) {
        const Elf64_Shdr *s = &b->from.sections[i];
        size_t align = ASH_MAX((size_t)s->sh_addralign, (size_t)1);
        if (!is_loaded(b, i) || is_code(b, i) != code) continue;
        ASH_FAIL_IF(s->sh_flags & (SHF_WRITE | SHF_TLS) || s->sh_type == SHT_NOBITS ||
                        align > LARGEST_ALIGN,
                    diag, ASH_ERROR_INTERNAL, "a kernel has data of its own");
        b->places[i] = (b->size + align - 1) & ~(align - 1);
        b->size = b->places[i] + s->sh_size;
        ASH_FAIL_IF(b->size > LARGEST, diag, ASH_ERROR_INTERNAL, "a kernel of more than %d bytes", LARGEST);
    }
    return ASH_OK;
}

/* The number of a function that the symbol stands for, or that of all functions. */
static size_t import_of(const image *b, size_t symbol) {
    const char *name = b->from.names + b->from.symbols[symbol].st_name;
    size_t i = 0;
    while (i < ASH_COUNT(imports) && strcmp(imports[i].name, name) != 0) i++;
    return i;
}

static void find_calls(image *b) {
    _Static_assert(ASH_COUNT(imports) < 64, "a bit for each");
    for (uint32_t i = 1; i < b->from.n_symbols; i++) {
        size_t import = import_of(b, i);
        if (b->from.symbols[i].st_shndx == SHN_UNDEF && import < ASH_COUNT(imports))
            b->called |= UINT64_C(1) << import;
    }
    b->stubs = (b->size + STUB - 1) / STUB * STUB;
    if (b->called) b->size = b->stubs + (size_t)__builtin_popcountll(b->called) * STUB;
}

static uint8_t *stub_of(const image *b, size_t import) {
    uint64_t before = b->called & ((UINT64_C(1) << import) - 1);
    return b->at + b->stubs + (size_t)__builtin_popcountll(before) * STUB;
}

static void fill(const image *b) {
    for (uint32_t i = 1; i < b->from.n_sections; i++)
        if (is_loaded(b, i))
            memcpy(b->at + b->places[i], ash_elf__bytes(&b->from, i), b->from.sections[i].sh_size);
    for (size_t i = 0; i < ASH_COUNT(imports); i++) {
        uint64_t address = (uintptr_t)imports[i].fn;
        if (!(b->called >> i & 1)) continue;
        memcpy(stub_of(b, i), b->machine->jump, JUMP);
        memcpy(stub_of(b, i) + JUMP, &address, sizeof address);
    }
}

/* Where a symbol lies; 0: nowhere. */
static uint64_t address_of(const image *b, size_t symbol) {
    const Elf64_Sym *s = &b->from.symbols[symbol];
    uint32_t home = ash_elf__home(&b->from, symbol);
    if (home) return is_loaded(b, home) ? (uintptr_t)b->at + b->places[home] + s->st_value : 0;
    size_t import = symbol && s->st_shndx == SHN_UNDEF ? import_of(b, symbol) : ASH_COUNT(imports);
    return import < ASH_COUNT(imports) ? (uintptr_t)stub_of(b, import) : 0;
}

static ash_status relocate(const image *b, uint32_t section, ash_diag *diag) {
    enum { WORD = 4 };
    const ash_elf *e = &b->from;
    size_t count, size = e->sections[section].sh_size;
    const Elf64_Rela *r = ash_elf__relocations(e, ash_elf__relocations_of(e, section), &count);
    for (size_t i = 0; i < count; i++) {
        size_t symbol = ELF64_R_SYM(r[i].r_info), at = r[i].r_offset;
        uint32_t type = (uint32_t)ELF64_R_TYPE(r[i].r_info);
        uint64_t to = address_of(b, symbol);
        ASH_FAIL_IF(!to, diag, ASH_ERROR_INTERNAL, "a kernel refers to '%.100s', which it is not given",
                    e->names + e->symbols[symbol].st_name);
        ASH_FAIL_IF(size < WORD || at > size - WORD, diag, ASH_ERROR_INTERNAL,
                    "a kernel's relocation lies outside of its section");
        uint8_t *word = b->at + b->places[section] + at;
        ASH_FAIL_IF(!b->machine->relocate(type, word, (uintptr_t)word, to + (uint64_t)r[i].r_addend), diag,
                    ASH_ERROR_INTERNAL,
                    "a kernel's relocation is of type %u, which is not known, or too far", type);
    }
    return ASH_OK;
}

/* Writes the code and makes it executable. */
static ash_status finish(const image *b, ash_diag *diag) {
    fill(b);
    for (uint32_t i = 1; i < b->from.n_sections; i++)
        if (is_loaded(b, i)) ASH_TRY(relocate(b, i, diag));
    ASH_FAIL_IF(mprotect(b->at, b->size, PROT_READ | PROT_EXEC), diag, ASH_ERROR_UNSUPPORTED,
                "the system does not let kernels run: %s", strerror(errno));
    __builtin___clear_cache((char *)b->at, (char *)b->at + b->size);
    return ASH_OK;
}

/* --- what perf is told ------------------------------------------------------------------------------- */

/* The file in which perf looks for the names of generated code, opened for appending; -1 unless it is ours
 * alone: the folder is everybody's, and the name can be guessed. */
static int open_perf_map(void) {
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    int fd =
        open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
        !(info.st_mode & (S_IWGRP | S_IWOTH)))
        return fd;
    close(fd);
    return -1;
}

/* With ASHLAR_PERF_MAP=1 in the environment, tells Linux's perf where a kernel lies: a line in
 * /tmp/perf-PID.map. */
static void tell_perf(const image *b, uint32_t found) {
    const char *wanted = ash_environment__get("ASHLAR_PERF_MAP");
    if (!wanted || strcmp(wanted, "1") != 0) return;
    const Elf64_Sym *s = &b->from.symbols[found];
    int map = open_perf_map();
    if (map < 0) return;
    dprintf(map, "%" PRIx64 " %" PRIx64 " %s\n", address_of(b, found), s->st_size,
            b->from.names + s->st_name);
    close(map);
}

/* --- loading ----------------------------------------------------------------------------------------- */

ash_status ash_link__load(const void *object, size_t size, const char *symbol, ash_linked *out,
                          ash_diag *diag) {
    image b = {0};
    *out = (ash_linked){0};
    ASH_FAIL_IF(!ash_elf__open(object, size, &b.from) || b.from.n_sections > MOST_SECTIONS ||
                    b.from.head->e_machine != THIS_MACHINE,
                diag, ASH_ERROR_INTERNAL, "the object file of a kernel is of another kind than expected");
    b.machine = machine_of(THIS_MACHINE);
    uint32_t found = ash_elf__find(&b.from, symbol), home = ash_elf__home(&b.from, found);
    ASH_FAIL_IF(!found || !home || !is_loaded(&b, home) || !is_code(&b, home) ||
                    b.from.symbols[found].st_value >= b.from.sections[home].sh_size,
                diag, ASH_ERROR_INTERNAL, "no kernel %s in its object file", symbol);
    ASH_TRY(place(&b, true, diag));
    ASH_TRY(place(&b, false, diag));
    find_calls(&b);
    b.at = mmap(NULL, b.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (b.at == MAP_FAILED) return ASH_NO_MEMORY(diag);
    *out = (ash_linked){b.at, b.size, NULL};
    ash_status status = finish(&b, diag);
    if (status != ASH_OK) {
        ash_link__unload(out);
        return status;
    }
    out->fn = (ash_kernel_fn)(uintptr_t)address_of(&b, found);
    tell_perf(&b, found);
    return ASH_OK;
}

void ash_link__unload(ash_linked *linked) {
    if (linked->at) munmap(linked->at, linked->size);
    *linked = (ash_linked){0};
}
