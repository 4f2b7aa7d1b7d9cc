/* SPDX-License-Identifier: MIT */
/* Keeping the cache directory small: when it has grown past a number of bytes, the kernels that were not
 * used for the longest time go, until it is a fifth smaller. Any number of processes may do so at the same
 * time, and others use the files meanwhile: a file that is gone is compiled again, and one that is open
 * stays readable. What is not named as the cache names its files is left alone. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cache.h"

enum {
    FRESH = 3600, /* seconds: a use that was noted is not noted again; a draft that is older was given up */
    KEY = ASH_KEY_TEXT - 1
};

struct file {
    char name[KEY + 3]; /* with ".o" and the terminator */
    struct timespec used;
    uint64_t size; /* bytes */
};

struct cache_listing {
    const ash_allocator *allocator;
    ASH_VEC(struct file) files;
    uint64_t size; /* bytes of all */
    time_t now;
};

/* "KEY.o" is a kernel, "KEY.o.PID.NUMBER" a draft of one. */
static bool is_ours(const char *name, bool *draft) {
    size_t hex = strspn(name, "0123456789abcdef");
    if (hex != KEY || strncmp(name + hex, ".o", 2) != 0) return false;
    *draft = name[hex + 2] != 0;
    return !*draft || name[hex + 2] == '.';
}

static bool add(struct cache_listing *l, int dir, const char *name) {
    bool draft;
    struct stat info;
    if (!is_ours(name, &draft) || fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
        return true;
    if (draft) {
        if (l->now - info.st_mtim.tv_sec > FRESH) unlinkat(dir, name, 0);
        return true;
    }
    struct file file = {.used = info.st_mtim, .size = (uint64_t)info.st_size};
    memcpy(file.name, name, sizeof file.name);
    l->size += file.size;
    return ash_vec_push(l->allocator, &l->files, file);
}

static int by_use(const void *a, const void *b) {
    const struct file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

void ash_cache__prune(const ash_allocator *a, const char *dir, uint64_t most) {
    int fd = ash_cache__open_dir(dir, NULL);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0) close(fd);
        return;
    }
    struct cache_listing l = {.allocator = a, .now = time(NULL)};
    bool listed = true;
    for (struct dirent *entry; listed && (entry = readdir(d));) listed = add(&l, fd, entry->d_name);
    if (listed && l.size > most) {
        qsort(l.files.at, l.files.len, sizeof *l.files.at, by_use);
        for (size_t i = 0; i < l.files.len && l.size > most / 5 * 4; i++) {
            unlinkat(fd, l.files.at[i].name, 0);
            l.size -= l.files.at[i].size; /* gone, if not by us then by another */
        }
    }
    ash_vec_free(a, &l.files);
    closedir(d);
}

void ash_cache__note_use(int fd) {
    struct stat info;
    if (fstat(fd, &info) == 0 && time(NULL) - info.st_mtim.tv_sec > FRESH) futimens(fd, NULL);
}
