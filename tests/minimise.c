/* SPDX-License-Identifier: MIT */
/* Minimising against bisection, on problems with room above their load.
 *
 *     minimise [--nodes N] [--first I] [--count C] [--quiet] [PROBLEM.csv ...]
 *
 * Two ways to spend N search steps (default: 100,000) on a problem: one call without a capacity, and
 * bisection over capacities (room_calls.h). Then one call with a capacity that is just below what these
 * two found, and the first one's options otherwise. Prints what each found as a ratio to the load, the
 * seconds of processor time, and `above` where the first is above the second, or what the refusal of the
 * last names is above the first. Takes the random problems I to I + C - 1 of room.h (default: the first
 * 210, of 50 to 2,000 buffers), or variants of files: as they are, shuffled and turned round, with a
 * twentieth of the buffers left out, with trimmed lives, with sizes a little smaller. Exits with 1 when a
 * refusal or a call without a capacity is above. */
#include "ashlar/memory_report.h"
#include "room.h"
#include "room_calls.h"

enum { VARIANTS = 8, PROBLEMS = 210 };

static ash_diag diag;
static ash_context *context;
static uint64_t nodes = 100000;
static bool quiet;

/* Sums of ratios and seconds, and lines that are above. */
static struct {
    uint32_t problems, above_bisection, above_refusal, better;
    double ratio[2], seconds[2], worst;
} total;

static void compare(const char *name, const ash_memory_buffer *b, uint32_t count, uint64_t known) {
    ash_memory_problem problem = {.buffers = b, .buffer_count = count};
    room_answer free_one, halved = room_bisect(context, &problem, nodes), refused = {0};
    room_call(context, &problem, ASH_MEMORY_SEARCH, nodes, 0, &free_one);
    uint64_t load = free_one.load;
    uint64_t least = free_one.size < halved.size ? free_one.size : halved.size;
    bool fits = least > load &&
                room_call(context, &problem, ASH_MEMORY_SEARCH, ROOM_FITTED * nodes, least - 1, &refused);
    bool worse = free_one.size > halved.size;
    bool dishonest = least > load && !fits && refused.size > free_one.size;
    double ratio[2] = {(double)free_one.size / (double)load, (double)halved.size / (double)load};
    total.problems++;
    total.above_bisection += worse;
    total.above_refusal += dishonest;
    total.better += free_one.size < halved.size;
    for (int k = 0; k < 2; k++) total.ratio[k] += ratio[k];
    total.seconds[0] += free_one.seconds;
    total.seconds[1] += halved.seconds;
    if (ratio[0] / ratio[1] > total.worst) total.worst = ratio[0] / ratio[1];
    if (quiet && !worse && !dishonest) return;
    printf("%-24s %5u  known %.4f  bound %.4f  minimise %.4f %5.2f s  bisection %.4f %5.2f s  refusal "
           "%.4f%s%s\n",
           name, count, (double)known / (double)load, (double)free_one.bound / (double)load, ratio[0],
           free_one.seconds, ratio[1], halved.seconds, (double)refused.size / (double)load,
           worse ? " above" : "", dishonest ? " above (refusal)" : "");
    fflush(stdout);
}

/* --- random problems and files -------------------------------------------------------------------- */

static void compare_random(uint32_t number) {
    static const uint32_t counts[] = {50, 100, 200, 350, 600, 1000, 2000};
    static room r;
    char name[64];
    room_make(&r, number, counts[number / ROOM_FAMILIES / 2 % 7]);
    snprintf(name, sizeof name, "%s %u", room_names[number % ROOM_FAMILIES], number);
    compare(name, r.b, r.count, ROOM_HEIGHT);
}

/* Fits wherever the file's problem does. */
static void vary(room *r, uint32_t variant) {
    r->seed = UINT64_C(0x2545f4914f6cdd1d) * (variant + 1);
    if (!variant) return;
    int64_t last = 0;
    for (uint32_t i = 0; i < r->count; i++) last = r->b[i].end > last ? r->b[i].end : last;
    for (uint32_t i = r->count; i > 1; i--) {
        uint32_t j = (uint32_t)room_below(r, i);
        ash_memory_buffer b = r->b[i - 1];
        r->b[i - 1] = r->b[j];
        r->b[j] = b;
    }
    for (uint32_t i = r->count; i--;) {
        ash_memory_buffer *b = &r->b[i];
        int64_t begin = b->begin, span = b->end - begin;
        if (variant % 2) b->begin = last - b->end, b->end = last - begin;
        if (variant % 4 == 1 && room_below(r, 10) == 0)
            b->end -= (int64_t)room_below(r, (uint64_t)span) / 4;
        if (variant % 4 == 2 && room_below(r, 20) == 0) room_drop(r, i);
        if (variant % 4 == 3 && room_below(r, 5) == 0) b->size -= room_below(r, b->size / 64 + 1);
    }
}

static void compare_file(const char *path) {
    static char text[1 << 24];
    static room r;
    FILE *file = fopen(path, "rb");
    ash_memory_csv *csv;
    if (!file) {
        perror(path);
        exit(2);
    }
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    if (ash_memory_csv_read(context, text, size, &csv, &diag) != ASH_OK) {
        fprintf(stderr, "minimise: %s: %s\n", path, diag.message);
        exit(2);
    }
    const ash_memory_problem *problem = ash_memory_csv_problem(csv);
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    while (dot > path && dot[-1] != '.' && dot[-1] != '/') dot--;
    uint64_t known = dot ? strtoull(dot, NULL, 10) : 0;
    for (uint32_t v = 0; v < VARIANTS && problem->buffer_count <= ROOM_MOST; v++) {
        char name[64];
        r.count = problem->buffer_count;
        memcpy(r.b, problem->buffers, r.count * sizeof *r.b);
        vary(&r, v);
        snprintf(name, sizeof name, "%.20s %u", slash ? slash + 1 : path, v);
        compare(name, r.b, r.count, known);
    }
    ash_memory_csv_destroy(csv);
}

int main(int argc, char **argv) {
    uint32_t first = 0, count = PROBLEMS;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        const char *value = at + 1 < argc ? argv[at + 1] : "0";
        if (!strcmp(argv[at], "--quiet")) {
            quiet = true;
            continue;
        }
        if (!strcmp(argv[at], "--nodes"))
            nodes = strtoull(value, NULL, 10);
        else if (!strcmp(argv[at], "--first"))
            first = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[at], "--count"))
            count = (uint32_t)strtoul(value, NULL, 10);
        else
            return 2;
        at++;
    }
    if (ash_context_create(NULL, &context, &diag) != ASH_OK) return 2;
    if (at == argc)
        for (uint32_t i = 0; i < count; i++) compare_random(first + i);
    for (; at < argc; at++) compare_file(argv[at]);
    ash_context_destroy(context);
    printf("%u problems: minimise %.4f in %.1f s, bisection %.4f in %.1f s; better %u, above %u (at most "
           "%.4f), "
           "refusals above %u\n",
           total.problems, total.ratio[0] / total.problems, total.seconds[0],
           total.ratio[1] / total.problems, total.seconds[1], total.better, total.above_bisection,
           total.worst, total.above_refusal);
    return total.above_refusal || total.above_bisection;
}
