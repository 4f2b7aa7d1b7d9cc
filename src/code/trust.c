/* SPDX-License-Identifier: MIT */
/* Who could have written what lies in the cache directory.
 *
 * Everything is asked of what was opened, not of a name, which may mean something else a moment later. What
 * belongs to this process's effective user or to root and is not writable for anybody else was put there by
 * one of the two: the directory, and so the names in it, and each file, which may have come there by a hard
 * link to somebody else's. Files are opened without following links and without waiting for the other end
 * of a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"

/* Says why nothing is taken from there; returns false. */
static bool refuse(char *why, const char *name, const char *reason) {
    if (why) snprintf(why, ASH_CACHE_WHY, "'%.200s' %s", name, reason);
    return false;
}

static bool is_ours(const struct stat *info, const char *name, char *why) {
    char text[80];
    if (info->st_uid != geteuid() && info->st_uid != 0) {
        snprintf(text, sizeof text, "belongs to user %lu", (unsigned long)info->st_uid);
        return refuse(why, name, text);
    }
    if (info->st_mode & (S_IWGRP | S_IWOTH)) {
        snprintf(text, sizeof text, "can be written by others (mode %04o)",
                 (unsigned)info->st_mode & 07777u);
        return refuse(why, name, text);
    }
    return true;
}

int ash_cache__open_dir(const char *dir, char *why) {
    struct stat info;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && is_ours(&info, dir, why)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

int ash_cache__open_file(int dir, const char *name, char *why) {
    struct stat info;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ELOOP) refuse(why, name, "is a symbolic link");
        return -1;
    }
    bool known = fstat(fd, &info) == 0;
    if (known && !S_ISREG(info.st_mode))
        refuse(why, name, "is not a regular file");
    else if (known && is_ours(&info, name, why))
        return fd;
    close(fd);
    return -1;
}
