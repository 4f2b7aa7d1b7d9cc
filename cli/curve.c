/* SPDX-License-Identifier: MIT */
/* The losses over the epochs: rows of a CSV file, a page with a picture, and a picture of text. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train.h"

static const char head[] = "epoch,loss,held_out_loss,held_out_right,rate,seconds\n";

bool curve_add(struct curve *c, const struct point *point) {
    if (c->count == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 64;
        struct point *more = realloc(c->at, cap * sizeof *more);
        if (!more) return fprintf(stderr, "ashlar: out of memory\n"), false;
        c->at = more, c->cap = cap;
    }
    c->at[c->count++] = *point;
    return true;
}

void curve_free(struct curve *c) {
    free(c->at);
}

static bool ends_with(const char *text, const char *end) {
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

bool curve_read(struct curve *c, const char *path, unsigned before) {
    char row[256];
    struct point p;
    FILE *file = ends_with(path, ".csv") ? fopen(path, "r") : NULL;
    if (!file) return true;
    bool good = fgets(row, sizeof row, file) && strcmp(row, head) == 0;
    while (good && fgets(row, sizeof row, file) &&
           /* NOLINTNEXTLINE(cert-err34-c): a curve of ours */
           sscanf(row, "%u,%lf,%lf,%lf,%lf,%lf", &p.epoch, &p.loss, &p.held.loss, &p.held.right, &p.rate,
                  &p.seconds) == 6 &&
           p.epoch < before)
        good = curve_add(c, &p);
    fclose(file);
    return true;
}

static void write_csv(const struct curve *c, FILE *file) {
    fputs(head, file);
    for (size_t i = 0; i < c->count; i++) {
        const struct point *p = &c->at[i];
        fprintf(file, "%u,%.9g,%.9g,%.6g,%.6g,%.3f\n", p->epoch, p->loss, p->held.loss, p->held.right,
                p->rate, p->seconds);
    }
}

/* --- pictures --------------------------------------------------------------------------------------- */

static double value_of(const struct point *p, bool held) {
    return held ? p->held.loss : p->loss;
}

/* The least and the greatest loss. */
static void bounds(const struct curve *c, double *low, double *high) {
    *low = INFINITY, *high = -INFINITY;
    for (size_t i = 0; i < 2 * c->count; i++) {
        const double v = value_of(&c->at[i / 2], i % 2);
        if (!isfinite(v)) continue;
        *low = fmin(*low, v), *high = fmax(*high, v);
    }
    if (!(*high > *low)) *high = *low + 1;
}

enum { WIDE = 760, HIGH = 300, LEFT = 60, TOP = 20 };

static void write_line(const struct curve *c, FILE *file, bool held, double low, double high,
                       const char *colour) {
    fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (size_t i = 0; i < c->count; i++) {
        const double v = value_of(&c->at[i], held);
        const double x = c->count > 1 ? (double)i / (double)(c->count - 1) : 0;
        if (isfinite(v))
            fprintf(file, "%.1f,%.1f ", LEFT + x * WIDE, TOP + (high - v) / (high - low) * HIGH);
    }
    fprintf(file, "\"/>\n");
}

static void write_html(const struct curve *c, FILE *file) {
    double low, high;
    bounds(c, &low, &high);
    fprintf(file,
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>training</title>\n"
            "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto}td,th{text-align:right;"
            "padding:0 1em}</style>\n<h1>Loss over %zu epochs</h1>\n"
            "<svg viewBox=\"0 0 %d %d\" font-size=\"12\"><path d=\"M%d %dV%dH%d\" fill=\"none\" "
            "stroke=\"#888\"/>\n<text x=\"4\" y=\"%d\">%.4g</text><text x=\"4\" y=\"%d\">%.4g</text>\n",
            c->count, LEFT + WIDE + 20, TOP + HIGH + 30, LEFT, TOP, TOP + HIGH, LEFT + WIDE, TOP + 8, high,
            TOP + HIGH, low);
    write_line(c, file, false, low, high, "#1d3557");
    write_line(c, file, true, low, high, "#c1121f");
    fprintf(file,
            "<text x=\"%d\" y=\"%d\"><tspan fill=\"#1d3557\">trained on</tspan> <tspan fill=\"#c1121f\">"
            "held out</tspan></text></svg>\n<table><tr><th>epoch<th>loss<th>held out<th>right<th>rate<th>"
            "seconds\n",
            LEFT, TOP + HIGH + 20);
    for (size_t i = 0; i < c->count; i++) {
        const struct point *p = &c->at[i];
        fprintf(file, "<tr><td>%u<td>%.6g<td>", p->epoch, p->loss);
        if (isfinite(p->held.loss)) fprintf(file, "%.6g", p->held.loss);
        fprintf(file, "<td>");
        if (p->held.right >= 0) fprintf(file, "%.2f %%", 100 * p->held.right);
        fprintf(file, "<td>%.3g<td>%.2f\n", p->rate, p->seconds);
    }
    fprintf(file, "</table></html>\n");
}

/* Complete under its name, or not at all. */
bool curve_write(const struct curve *c, const char *path) {
    char part[1024];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) errno = ENAMETOOLONG;
    FILE *file = strlen(path) + 5 < sizeof part ? fopen(part, "w") : NULL;
    bool good = file != NULL;
    if (file) {
        if (ends_with(path, ".html"))
            write_html(c, file);
        else
            write_csv(c, file);
        good = !ferror(file);
        good = fclose(file) == 0 && good && rename(part, path) == 0;
        if (!good) unlink(part);
    }
    if (!good) fprintf(stderr, "ashlar: cannot write %s: %s\n", path, strerror(errno));
    return good;
}

enum { COLUMNS = 60, LINES = 8 };

/* Columns are epochs, or the last of several; losses as logarithms, where all have one. */
void curve_show(const struct curve *c) {
    char picture[LINES][COLUMNS + 1];
    double low, high;
    const size_t columns = c->count < COLUMNS ? c->count : COLUMNS;
    if (c->count < 2) return;
    bounds(c, &low, &high);
    const bool logarithms = low > 0;
    const double bottom = logarithms ? log(low) : low, top = logarithms ? log(high) : high;
    memset(picture, ' ', sizeof picture);
    for (size_t k = 0; k < 2 * columns; k++) {
        const double v = value_of(&c->at[(k / 2 + 1) * c->count / columns - 1], k % 2);
        if (!isfinite(v)) continue;
        const double way = (top - (logarithms ? log(v) : v)) / (top - bottom);
        char *at = &picture[(int)(way * (LINES - 1) + 0.5)][k / 2];
        *at = *at == '*' ? '#' : k % 2 ? 'o' : '*';
    }
    for (int i = 0; i < LINES; i++) {
        if (i == 0 || i == LINES - 1)
            printf("%10.4g |%.*s\n", i ? low : high, (int)columns, picture[i]);
        else
            printf("%10s |%.*s\n", "", (int)columns, picture[i]);
    }
    printf("%10s  * trained on%s, epochs %u to %u\n", "",
           isfinite(c->at[0].held.loss) ? ", o held out, # both" : "", c->at[0].epoch,
           c->at[c->count - 1].epoch);
}
