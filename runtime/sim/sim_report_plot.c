/* The figure: device occupation over time, and a distribution. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_report.h"

#define WIDTH  960
#define HEIGHT 240 /* of a panel */
#define LEFT   60
#define TOP    40
#define GAP    70

static const char *const colours[] = {"#c0504d", "#4f81bd", "#9bbb59", "#8064a2", "#4bacc6",
                                      "#f79646", "#7f7f7f", "#1f497d", "#9e480e", "#000000"};
static_assert(SY_ARRAY_LEN(colours) >= SY_SIM_MAX_CLASSES, "a colour for each class");

/* 1, 2 or 5 times a power of ten, four to ten of them up to `most`. */
static double round_step(double most)
{
    if (!(most > 0))
        return 0;
    double power = pow(10, floor(log10(most / 4))), part = most / 4 / power;
    return power * (part >= 5 ? 5 : part >= 2 ? 2 : 1);
}

static void axis(FILE *to, int top, const char *title, const char *across, double most)
{
    fprintf(to,
            "<text x='%d' y='%d' font-weight='bold'>%s</text>\n"
            "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#888'/>\n",
            LEFT, top - 8, title, LEFT, top, WIDTH, HEIGHT);
    for (int i = 0; i <= 4; i++)
        fprintf(to, "<text x='%d' y='%d' text-anchor='end'>%d %%</text>\n", LEFT - 6,
                top + HEIGHT - i * HEIGHT / 4 + 4, 25 * i);
    double step = round_step(most);
    for (int i = 0; step > 0 && i * step <= most * 1.0001; i++)
        fprintf(to,
                "<text x='%.1f' y='%d' text-anchor='middle'>%.10g</text>\n"
                "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='#888'/>\n",
                LEFT + i * step / most * WIDTH, top + HEIGHT + 18, i * step,
                LEFT + i * step / most * WIDTH, LEFT + i * step / most * WIDTH, top + HEIGHT,
                top + HEIGHT + 4);
    fprintf(to, "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n", LEFT + WIDTH / 2,
            top + HEIGHT + 32, across);
}

/* Edges are as printed: two bars side by side leave no gap. */
static void bar(FILE *to, double left, double right, double from, double part, const char *colour)
{
    left = round(left * 100) / 100;
    right = round(right * 100) / 100;
    if (part > 0)
        fprintf(to, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'/>\n", left,
                TOP + HEIGHT * (1 - from - part), right - left, HEIGHT * part, colour);
}

static void plot_occupation(const struct sy_sim_report *r, FILE *to)
{
    double end_s = (double)SY_MAX(r->makespan_ns, 1) / 1e9, bin_s = (double)r->bin_ns / 1e9;
    bool in_minutes = end_s > 600;
    axis(to, TOP, "devices: requests (red), jobs (blue)", in_minutes ? "minutes" : "seconds",
         in_minutes ? end_s / 60 : end_s);
    fprintf(to, "<g shape-rendering='crispEdges'>\n");
    for (int i = 0; i < SY_SIM_BINS && i * bin_s < end_s; i++) {
        double all = SY_MIN(bin_s, end_s - i * bin_s) * 1e9 * r->n_devices;
        double x = LEFT + i * bin_s / end_s * WIDTH;
        double right = LEFT + SY_MIN((i + 1) * bin_s / end_s, 1) * WIDTH;
        double requests = SY_MIN(r->bins[i][SY_SIM_USE_REQUESTS] / all, 1);
        double jobs = SY_MIN(r->bins[i][SY_SIM_USE_JOBS] / all, 1 - requests);
        bar(to, x, right, 0, jobs, colours[1]);
        bar(to, x, right, jobs, requests, colours[0]);
    }
    fprintf(to, "</g>\n");
}

/* Points of a cumulative curve; the last is at the right edge. */
static void curve(FILE *to, int top, double most, double (*value)(const void *ctx, double q),
                  const void *ctx, const char *colour)
{
    fprintf(to, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colour);
    for (int i = 0; i <= 200; i++)
        fprintf(to, "%.2f,%.2f ",
                LEFT + (most > 0 ? SY_MIN(value(ctx, i / 200.0) / most, 1) : 0) * WIDTH,
                top + HEIGHT * (1 - i / 200.0));
    fprintf(to, "'/>\n");
}

static double latency_at(const void *ctx, double q)
{
    return sy_sim_quantile_ms(ctx, q);
}

static double jct_at(const void *ctx, double q)
{
    return sy_sim_jct_quantile_s(ctx, q) / 60;
}

static void plot_distribution(const struct sy_sim_report *r, FILE *to)
{
    int top = TOP + HEIGHT + GAP;
    double most = 0;
    for (int i = 0; i < SY_SIM_MAX_CLASSES; i++)
        most = SY_MAX(most, sy_sim_quantile_ms(&r->latency[i], 0.999));
    if (r->n_requests == 0) {
        most = jct_at(r, 1);
        axis(to, top, "completion times of jobs", "minutes", most);
        curve(to, top, most, jct_at, r, colours[1]);
        return;
    }
    axis(to, top, "latency of requests, by class", "milliseconds", most);
    for (int i = 0; i < SY_SIM_MAX_CLASSES; i++)
        if (r->latency[i].n > 0) {
            curve(to, top, most, latency_at, &r->latency[i], colours[i]);
            fprintf(to, "<text x='%d' y='%d' fill='%s'>class %d</text>\n", LEFT + WIDTH - 60,
                    top + HEIGHT - 10 - 16 * i, colours[i], i);
        }
}

/* Bytes that are not UTF-8, or that XML forbids, become '?'. */
static void words(FILE *to, const char *text)
{
    for (size_t n; *text; text += n) {
        size_t fine = sy_printable_length(text);
        n = SY_MAX(fine, 1);
        if (fine == 0)
            fputc('?', to);
        for (size_t i = 0; i < fine; i++)
            fputs(text[i] == '<' ? "&lt;" : text[i] == '&' ? "&amp;" : (char[]){text[i], 0}, to);
    }
}

/* Font size at which a long name fits: letters are 0.55 of their size wide. */
static double title_size(const char *title)
{
    size_t n = SY_MAX(strlen(title), 1);
    return SY_MIN(14, (WIDTH + 40) / (0.55 * (double)n));
}

int sy_sim_plot_svg(const struct sy_sim_report *r, const char *title, FILE *to)
{
    fprintf(to,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
            "fill='white'/>\n<text x='%d' y='16' font-size='%.1f'>",
            LEFT + WIDTH + 40, TOP + 2 * HEIGHT + GAP + 50, LEFT, title_size(title));
    words(to, title);
    fprintf(to, "</text>\n");
    plot_occupation(r, to);
    plot_distribution(r, to);
    fprintf(to, "</svg>\n");
    return ferror(to) ? sy_error_set(SY_EIO, "cannot write the figure") : SY_OK;
}
