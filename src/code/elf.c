/* SPDX-License-Identifier: MIT */
#include "elf.h"

/* Whether `count` things of `bytes` each lie at this offset, aligned for numbers of 64 bits. */
static bool holds(size_t size, uint64_t offset, uint64_t count, size_t bytes) {
    return offset <= size && count <= (size - offset) / bytes && offset % sizeof(Elf64_Xword) == 0;
}

static bool is_head(const Elf64_Ehdr *head, size_t size) {
    const uint16_t one = 1;
    unsigned char order = *(const uint8_t *)&one ? ELFDATA2LSB : ELFDATA2MSB;
    return size >= sizeof *head && !memcmp(head->e_ident, ELFMAG, SELFMAG) &&
           head->e_ident[EI_CLASS] == ELFCLASS64 && head->e_ident[EI_DATA] == order &&
           head->e_shentsize == sizeof(Elf64_Shdr) && head->e_shstrndx < head->e_shnum &&
           holds(size, head->e_shoff, head->e_shnum, sizeof(Elf64_Shdr));
}

/* Whether it holds texts, the last of which ends. */
static bool is_text(const ash_elf *e, uint32_t section) {
    const Elf64_Shdr *s = &e->sections[section];
    return s->sh_type == SHT_STRTAB && s->sh_size && !e->at[s->sh_offset + s->sh_size - 1];
}

static bool check_section(const ash_elf *e, const Elf64_Shdr *s, size_t size) {
    uint64_t align = s->sh_addralign;
    if (align & (align - 1) || s->sh_name >= e->sections[e->head->e_shstrndx].sh_size) return false;
    if (s->sh_type == SHT_NULL || s->sh_type == SHT_NOBITS) return true;
    if (s->sh_type == SHT_REL || s->sh_offset > size || s->sh_size > size - s->sh_offset) return false;
    if (s->sh_type == SHT_SYMTAB)
        return s->sh_link < e->n_sections && s->sh_size &&
               holds(size, s->sh_offset, s->sh_size / sizeof(Elf64_Sym), sizeof(Elf64_Sym));
    if (s->sh_type == SHT_RELA)
        return s->sh_info < e->n_sections &&
               holds(size, s->sh_offset, s->sh_size / sizeof(Elf64_Rela), sizeof(Elf64_Rela));
    return true;
}

static void take_symbols(ash_elf *e, uint32_t section) {
    const Elf64_Shdr *s = &e->sections[section];
    e->symbols = ash_elf__bytes(e, section);
    e->n_symbols = (uint32_t)(s->sh_size / sizeof *e->symbols);
    e->table = section;
    e->strings = s->sh_link;
    e->names = ash_elf__bytes(e, s->sh_link);
}

static bool check_symbols(const ash_elf *e) {
    if (!e->n_symbols || !is_text(e, e->strings)) return false;
    for (uint32_t i = 0; i < e->n_symbols; i++)
        if (e->symbols[i].st_name >= e->sections[e->strings].sh_size ||
            ash_elf__home(e, i) >= e->n_sections)
            return false;
    return true;
}

static bool check_relocations(const ash_elf *e) {
    for (uint32_t i = 1; i < e->n_sections; i++) {
        size_t count;
        if (e->sections[i].sh_type != SHT_RELA) continue;
        const Elf64_Rela *r = ash_elf__relocations(e, i, &count);
        for (size_t k = 0; k < count; k++)
            if (ELF64_R_SYM(r[k].r_info) >= e->n_symbols) return false;
    }
    return true;
}

static const void *at(const ash_elf *e, uint64_t offset) {
    return e->at + offset;
}

bool ash_elf__open(const void *object, size_t size, ash_elf *out) {
    const Elf64_Ehdr *head = object;
    if (!is_head(head, size)) return false;
    *out = (ash_elf){.at = object, .head = head, .n_sections = head->e_shnum};
    out->sections = at(out, head->e_shoff);
    for (uint32_t i = 0; i < out->n_sections; i++) {
        if (!check_section(out, &out->sections[i], size)) return false;
        if (out->sections[i].sh_type == SHT_SYMTAB) take_symbols(out, i);
    }
    return is_text(out, head->e_shstrndx) && check_symbols(out) && check_relocations(out);
}

const void *ash_elf__bytes(const ash_elf *e, uint32_t section) {
    return at(e, e->sections[section].sh_offset);
}

uint32_t ash_elf__home(const ash_elf *e, size_t symbol) {
    uint32_t at = e->symbols[symbol].st_shndx;
    return at < SHN_LORESERVE ? at : 0;
}

uint32_t ash_elf__find(const ash_elf *e, const char *name) {
    uint32_t i = e->n_symbols - 1;
    while (i && strcmp(e->names + e->symbols[i].st_name, name) != 0) i--;
    return i;
}

uint32_t ash_elf__relocations_of(const ash_elf *e, uint32_t section) {
    uint32_t i = e->n_sections - 1;
    while (i && (e->sections[i].sh_type != SHT_RELA || e->sections[i].sh_info != section)) i--;
    return i;
}

const Elf64_Rela *ash_elf__relocations(const ash_elf *e, uint32_t section, size_t *count) {
    *count = section ? e->sections[section].sh_size / sizeof(Elf64_Rela) : 0;
    return ash_elf__bytes(e, section);
}
