/* SPDX-License-Identifier: MIT */
/* Files: read-only mappings that outlive the function that made them, and buffered writing. */
#ifndef ASH_FILE_H
#define ASH_FILE_H

#include <pthread.h>

#include "base.h"

/* A whole regular file, mapped read-only; reference counted, thread safe. The mapping is of the file as it
 * was opened: a file that is replaced by renaming does not change it. One that is cut short under the
 * mapping would end the process at the next access (the kernel's SIGBUS), so who is about to read much of
 * it calls ash_file_check first. */
typedef struct ash_file {
    ash_context *context;
    const uint8_t *data; /* `size` bytes, page aligned; a valid pointer also when the file is empty */
    size_t size;         /* bytes when the file was mapped */
    int fd;              /* kept open for ash_file_check */
    long refs;           /* 0: it is about to go, and nobody may hold it any more */
    size_t path_size;    /* bytes, with the terminator */
    char path[];         /* as it was opened, for messages */
} ash_file;

/* The context must outlive the file. */
ash_status ash_file_map(ash_context *context, const char *path, ash_file **out, ash_diag *diag);
ash_file *ash_file_retain(ash_file *file);
void ash_file_release(ash_file *file); /* NULL is allowed */
/* ASH_ERROR_IO when the file has become shorter than the mapping: one call of the system, which a plan
 * makes before its prologue and before each execution that reads the file. */
ash_status ash_file_check(const ash_file *file, ash_diag *diag);
/* The same for some bytes of the mapping: ASH_ERROR_IO when the file ends before they do. */
ash_status ash_file_check_bytes(const ash_file *file, const void *data, uint64_t size, ash_diag *diag);

/* --- by address (files.c) ------------------------------------------------------------------------- */

/* A context knows its mapped files by where they lie. So bytes that come as a bare pointer are as safe as
 * those that come with their file: whoever is given some asks here before reading them, once if they are
 * copied, and holds the file if they will be read again. */
typedef struct ash_files {
    pthread_mutex_t lock;
    ash_file **at; /* that are not empty, by address; they do not overlap */
    size_t count, room;
} ash_files;

ash_files *ash_context__files(ash_context *context);
void ash_files__init(ash_files *files);
void ash_files__free(ash_files *files, const ash_allocator *a);
ash_status ash_files__add(ash_files *files, ash_file *file, ash_diag *diag);
void ash_files__remove(ash_files *files, const ash_file *file);

/* The file of the context in which some of the bytes lie, held for the caller; NULL: none. */
ash_file *ash_file_at(ash_context *context, const void *data, uint64_t size);
/* Whether bytes that were given can be read now: ASH_ERROR_IO when they lie in a file that was cut
 * short. */
ash_status ash_file_check_given(ash_context *context, const void *data, uint64_t size, ash_diag *diag);

/* A file that is being written. It grows under a name of its own beside `path` and takes that path when it
 * is closed without a failure, so a reader never meets half a file. What is there already and is no file (a
 * device, a pipe) is written to where it is. Failures are sticky: writers check once, at the end. */
typedef struct ash_sink {
    const ash_allocator *allocator;
    char *path, *part; /* the final and the temporary name */
    size_t path_size;  /* bytes of `path` with its terminator */
    uint8_t *buffer;
    size_t used;       /* bytes in the buffer */
    uint64_t position; /* bytes written so far, buffered ones included */
    int fd, error;     /* the first errno, or 0 */
    bool direct;       /* `path` itself is written: it is no regular file */
    bool durable;      /* for who opened it to set: the file is on the disk when it appears */
} ash_sink;

ash_status ash_sink_open(const ash_allocator *a, const char *path, ash_sink *sink, ash_diag *diag);
void ash_sink_write(ash_sink *sink, const void *data, size_t size);
void ash_sink_fill(ash_sink *sink, uint8_t byte, size_t count);
/* Ends the file: keeps it when nothing failed and `keep` is true, else removes it. Call exactly once after
 * a successful open. */
ash_status ash_sink_close(ash_sink *sink, bool keep, ash_diag *diag);

#endif
