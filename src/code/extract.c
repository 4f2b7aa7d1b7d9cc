/* SPDX-License-Identifier: MIT */
/* Out of an object file of several kernels, one of a single kernel.
 *
 *     several   .text.0  .rela.text.0  .text.1  .rela.text.1  .rodata.cst4  ...  .symtab  .strtab
 *     the 2nd   .text.1  .rodata.cst4  .rela.text.1  .symtab  .strtab
 *
 * LLVM sets itself up for each module, for some milliseconds, however little there is in it. So kernels are
 * compiled several at a time (compiler.c); but they are found, stored and given back one by one, whatever
 * they happened to be compiled with. Every function has a section of its own, and relocations lead from it
 * to all else that it needs. The constants of a module lie in a few sections, of which each kernel gets
 * all: where one constant ends is not to be seen. Nothing in a section changes, so a kernel's code is that
 * of the kernel compiled alone. */
#include "extract.h"

#include "elf.h"

typedef struct extraction {
    ash_elf from;
    /* per section and symbol: its number in the new file, 0 for what is left out */
    uint32_t *sections, *symbols;
    ash_text *out, headers, names;
    uint32_t count; /* of headers */
} extraction;

/* --- what is taken ------------------------------------------------------------------------------------ */

/* Marks a section, and what its relocations lead to. */
static void need(extraction *x, uint32_t section) {
    size_t count;
    if (!section || x->sections[section]) return;
    x->sections[section] = 1;
    const Elf64_Rela *r =
        ash_elf__relocations(&x->from, ash_elf__relocations_of(&x->from, section), &count);
    for (size_t i = 0; i < count; i++) {
        x->symbols[ELF64_R_SYM(r[i].r_info)] = 1;
        need(x, ash_elf__home(&x->from, ELF64_R_SYM(r[i].r_info)));
    }
}

/* What is marked gets its number. */
static uint32_t number(uint32_t *marks, uint32_t count) {
    uint32_t next = 1;
    marks[0] = 0;
    for (uint32_t i = 1; i < count; i++)
        if (marks[i]) marks[i] = next++;
    return next;
}

/* --- writing ----------------------------------------------------------------------------------------- */

static const char *name_of(const ash_elf *e, const Elf64_Shdr *section) {
    return (const char *)ash_elf__bytes(e, e->head->e_shstrndx) + section->sh_name;
}

static uint32_t add_name(extraction *x, const char *name) {
    uint32_t at = (uint32_t)x->names.len;
    ash_text_add_bytes(&x->names, name, strlen(name) + 1);
    return at;
}

/* Appends the header of a section whose bytes come next, and what goes in front of these. */
static void begin(extraction *x, const Elf64_Shdr *like, Elf64_Xword size, Elf64_Word link,
                  Elf64_Word info) {
    const ash_elf *e = &x->from;
    Elf64_Shdr header = *like;
    for (size_t k = ASH_MAX(like->sh_addralign, 1u), n = (k - x->out->len % k) % k; n > 0; n--)
        ash_text_add_bytes(x->out, "", 1);
    header.sh_name = add_name(x, name_of(e, like));
    header.sh_offset = x->out->len;
    header.sh_size = size;
    header.sh_link = link;
    header.sh_info = info;
    ash_text_add_bytes(&x->headers, &header, sizeof header);
    x->count++;
}

static void write_contents(extraction *x) {
    for (uint32_t i = 1; i < x->from.n_sections; i++) {
        const Elf64_Shdr *s = &x->from.sections[i];
        if (!x->sections[i]) continue;
        begin(x, s, s->sh_size, 0, 0);
        if (s->sh_type != SHT_NOBITS) ash_text_add_bytes(x->out, ash_elf__bytes(&x->from, i), s->sh_size);
    }
}

/* `table`: the number that the table of symbols will have. */
static void write_relocations(extraction *x, uint32_t table) {
    for (uint32_t i = 1; i < x->from.n_sections; i++) {
        size_t count;
        uint32_t section = x->sections[i] ? ash_elf__relocations_of(&x->from, i) : 0;
        const Elf64_Rela *r = ash_elf__relocations(&x->from, section, &count);
        if (!section) continue;
        begin(x, &x->from.sections[section], count * sizeof *r, table, x->sections[i]);
        for (size_t k = 0; k < count; k++) {
            Elf64_Rela to = r[k];
            to.r_info =
                ELF64_R_INFO((Elf64_Xword)x->symbols[ELF64_R_SYM(to.r_info)], ELF64_R_TYPE(to.r_info));
            ash_text_add_bytes(x->out, &to, sizeof to);
        }
    }
}

/* Local symbols come first, as they did. */
static void write_symbols(extraction *x, uint32_t count) {
    const ash_elf *e = &x->from;
    uint32_t locals = 1;
    for (uint32_t i = 1; i < e->sections[e->table].sh_info; i++) locals += x->symbols[i] != 0;
    begin(x, &e->sections[e->table], count * sizeof *e->symbols, x->count + 1, locals);
    for (uint32_t i = 0; i < e->n_symbols; i++) {
        Elf64_Sym to = e->symbols[i];
        if (i && !x->symbols[i]) continue;
        to.st_name = to.st_name ? add_name(x, e->names + to.st_name) : 0;
        if (ash_elf__home(e, i)) to.st_shndx = (Elf64_Section)x->sections[ash_elf__home(e, i)];
        ash_text_add_bytes(x->out, &to, sizeof to);
    }
}

/* The names of symbols and sections, the last of all. */
static void write_names(extraction *x) {
    const Elf64_Shdr *like = &x->from.sections[x->from.strings];
    const char *own = name_of(&x->from, like);
    begin(x, like, x->names.len + strlen(own) + 1, 0, 0);
    ash_text_add_bytes(x->out, x->names.at, x->names.len);
}

static void write_head(extraction *x) {
    Elf64_Ehdr head = *x->from.head;
    while (!x->out->failed && x->out->len % sizeof(Elf64_Xword)) ash_text_add_bytes(x->out, "", 1);
    head.e_shoff = x->out->len;
    head.e_shnum = (Elf64_Half)x->count;
    head.e_shstrndx = (Elf64_Half)(x->count - 1);
    ash_text_add_bytes(x->out, x->headers.at, x->headers.len);
    if (!x->out->failed) memcpy(x->out->at, &head, sizeof head);
}

static void write_all(extraction *x) {
    static const Elf64_Ehdr no_head;
    static const Elf64_Shdr no_section;
    uint32_t sections = number(x->sections, x->from.n_sections), tables = 0;
    uint32_t symbols = number(x->symbols, x->from.n_symbols);
    for (uint32_t i = 1; i < x->from.n_sections; i++)
        tables += x->sections[i] && ash_elf__relocations_of(&x->from, i);
    ash_text_add_bytes(x->out, &no_head, sizeof no_head); /* written last */
    ash_text_add_bytes(&x->headers, &no_section, sizeof no_section);
    ash_text_add_bytes(&x->names, "", 1);
    x->count = 1;
    write_contents(x);
    write_relocations(x, sections + tables);
    write_symbols(x, symbols);
    write_names(x);
    write_head(x);
}

ash_status ash_elf__extract(const void *object, size_t size, const char *symbol, ash_text *out,
                            ash_diag *diag) {
    const ash_allocator *a = out->allocator;
    extraction x = {.out = out};
    ASH_FAIL_IF(!ash_elf__open(object, size, &x.from), diag, ASH_ERROR_INTERNAL,
                "LLVM's object file is of another kind than expected");
    uint32_t found = ash_elf__find(&x.from, symbol);
    ASH_FAIL_IF(!found || !ash_elf__home(&x.from, found), diag, ASH_ERROR_INTERNAL,
                "no kernel %s in its object file", symbol);
    ash_text_init(&x.headers, a);
    ash_text_init(&x.names, a);
    x.sections = ash_mem_calloc(a, x.from.n_sections, sizeof *x.sections);
    x.symbols = ash_mem_calloc(a, x.from.n_symbols, sizeof *x.symbols);
    bool room = x.sections && x.symbols;
    if (room) {
        x.symbols[found] = 1;
        need(&x, ash_elf__home(&x.from, found));
        write_all(&x);
    }
    room = room && !out->failed && !x.headers.failed && !x.names.failed;
    ash_mem_free(a, x.sections, x.from.n_sections, sizeof *x.sections);
    ash_mem_free(a, x.symbols, x.from.n_symbols, sizeof *x.symbols);
    ash_text_free(&x.headers);
    ash_text_free(&x.names);
    return room ? ASH_OK : ASH_NO_MEMORY(diag);
}
