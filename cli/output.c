/* SPDX-License-Identifier: MIT */
/* What is printed, on its way out. A model's names may hold anything, also what a terminal obeys: moving
 * the cursor, setting the title, answering as if somebody typed. So both standard streams go through one
 * function, which writes each control character but the end of a line and a tab as \xNN. And what could not
 * be written (a full disk, a closed pipe) is an error of the program. */
#define _GNU_SOURCE 1 /* fopencookie */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static struct output_stream {
    int fd;
    int error;          /* errno of the first write that failed, or 0 */
    unsigned char last; /* byte that was written */
} streams[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};

static bool write_all(struct output_stream *s, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(s->fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            if (!s->error) s->error = errno;
            return false;
        }
        data += n, size -= (size_t)n;
    }
    return true;
}

/* Controls are the bytes below a blank, DEL, and U+0080 to U+009F: in UTF-8 the second byte after 0xC2. */
static bool is_control(unsigned char byte, unsigned char before) {
    if (byte == '\n' || byte == '\t') return false;
    return byte < ' ' || byte == 0x7f || (before == 0xc2 && byte >= 0x80 && byte < 0xa0);
}

static ssize_t write_clean(void *cookie, const char *data, size_t size) {
    struct output_stream *s = cookie;
    char room[4096];
    size_t len = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)data[i];
        if (len + 5 > sizeof room) {
            if (!write_all(s, room, len)) return 0;
            len = 0;
        }
        if (is_control(byte, s->last))
            len += (size_t)snprintf(room + len, 5, "\\x%02x", byte);
        else
            room[len++] = (char)byte;
        s->last = byte;
    }
    return write_all(s, room, len) ? (ssize_t)size : 0;
}

bool output_open(void) {
    FILE *files[COUNT(streams)];
    for (size_t i = 0; i < COUNT(streams); i++) {
        files[i] = fopencookie(&streams[i], "w", (cookie_io_functions_t){.write = write_clean});
        if (!files[i]) return false;
    }
    setvbuf(files[0], NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
    setvbuf(files[1], NULL, _IOLBF, BUFSIZ);
    stdout = files[0];
    stderr = files[1];
    return true;
}

int output_close(int status) {
    bool bad = fflush(stdout) != 0;
    if (bad | ferror(stdout)) {
        fprintf(stderr, "ashlar: standard output: %s\n", strerror(streams[0].error));
        if (status == EXIT_GOOD) status = EXIT_BAD;
    }
    fflush(stderr);
    return status;
}
