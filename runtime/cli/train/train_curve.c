#include "runtime/cli/train/train_curve.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

#define WIDTH  900
#define HEIGHT 240 /* of a panel */
#define LEFT   64
#define TOP    44
#define GAP    72
#define TICKS  5

/* ---- gathering --------------------------------------------------------------------------------------- */

static void add(struct sy_train_point *points, int *n, uint64_t step, double value)
{
    if (!isfinite(value) || (*n && (double)step <= points[*n - 1].step))
        return;
    if (*n == SY_CURVE_POINTS) {
        for (int i = 0; i < SY_CURVE_POINTS / 2; i++)
            points[i] = (struct sy_train_point){
                points[2 * i + 1].step, (points[2 * i].value + points[2 * i + 1].value) / 2};
        *n = SY_CURVE_POINTS / 2;
    }
    points[(*n)++] = (struct sy_train_point){(double)step, value};
}

void sy_train_curve_add_loss(struct sy_train_curve *curve, uint64_t step, double loss)
{
    if (step)
        add(curve->loss, &curve->n_loss, step, loss);
}

void sy_train_curve_add_accuracy(struct sy_train_curve *curve, uint64_t step, double accuracy)
{
    if (step && accuracy >= 0)
        add(curve->accuracy, &curve->n_accuracy, step, accuracy);
}

/* ---- drawing ----------------------------------------------------------------------------------------- */

struct panel {
    FILE *to;
    int top;
    double from, till, low, high; /* steps across, values up */
};

static double x_of(const struct panel *p, double step)
{
    return LEFT + WIDTH * (step - p->from) / (p->till > p->from ? p->till - p->from : 1.0);
}

static double y_of(const struct panel *p, double value)
{
    return p->top + HEIGHT * (1.0 - (value - p->low) / (p->high - p->low));
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them span `range`. */
static double tick_of(double range)
{
    double raw = range / TICKS, power = pow(10.0, floor(log10(raw)));
    return power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
}

static void draw_axes(const struct panel *p, const char *title)
{
    double up = tick_of(p->high - p->low), across = tick_of(SY_MAX(p->till - p->from, 1.0));
    fprintf(p->to,
            "<text x='%d' y='%d' font-weight='bold'>%s</text>\n"
            "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#888'/>\n",
            LEFT, p->top - 8, title, LEFT, p->top, WIDTH, HEIGHT);
    for (double v = ceil(p->low / up) * up; v <= p->high + up * 1e-9; v += up)
        fprintf(p->to,
                "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%.6g</text>\n",
                LEFT, LEFT + WIDTH, y_of(p, v), y_of(p, v), LEFT - 6, y_of(p, v) + 4, v);
    for (double s = ceil(p->from / across) * across; s <= p->till; s += across)
        fprintf(p->to, "<text x='%.1f' y='%d' text-anchor='middle'>%.6g</text>\n", x_of(p, s),
                p->top + HEIGHT + 16, s);
    fprintf(p->to, "<text x='%d' y='%d' text-anchor='middle'>step</text>\n", LEFT + WIDTH / 2,
            p->top + HEIGHT + 34);
}

/* keep 0: as it is; else each value moves by 1 - keep towards the next: noise of single batches out. */
static void draw_line(const struct panel *p, const struct sy_train_point *points, int n,
                      double keep, const char *style)
{
    double value = 0, weight = 0;
    fprintf(p->to, "<polyline fill='none' %s points='", style);
    for (int i = 0; i < n; i++) {
        value = keep * value + (1 - keep) * points[i].value;
        weight = keep * weight + (1 - keep);
        fprintf(p->to, "%.1f,%.1f ", x_of(p, points[i].step), y_of(p, value / weight));
    }
    fprintf(p->to, "'/>\n");
}

static void find_range(const struct sy_train_point *points, int n, double *low, double *high)
{
    *low = *high = points[0].value;
    for (int i = 1; i < n; i++) {
        *low = SY_MIN(*low, points[i].value);
        *high = SY_MAX(*high, points[i].value);
    }
    *low = *low > 0 ? 0 : *low;
    *high += (*high - *low) * 0.02 + (*high == *low);
}

static void draw_loss(struct panel *p, const struct sy_train_curve *curve)
{
    find_range(curve->loss, curve->n_loss, &p->low, &p->high);
    draw_axes(p, "loss (light: as seen; dark: smoothed)");
    draw_line(p, curve->loss, curve->n_loss, 0, "stroke='#9fc0e8' stroke-width='1'");
    draw_line(p, curve->loss, curve->n_loss, 0.95, "stroke='#1f497d' stroke-width='2'");
}

static void draw_accuracy(struct panel *p, const struct sy_train_curve *curve)
{
    double low, high;
    find_range(curve->accuracy, curve->n_accuracy, &low, &high);
    p->low = 0;
    p->high = 1;
    draw_axes(p, "accuracy on the test set");
    draw_line(p, curve->accuracy, curve->n_accuracy, 0, "stroke='#c0504d' stroke-width='2'");
    for (int i = 0; i < curve->n_accuracy; i++)
        fprintf(p->to,
                "<circle cx='%.1f' cy='%.1f' r='3' fill='#c0504d'><title>%.4g</title></circle>\n",
                x_of(p, curve->accuracy[i].step), y_of(p, curve->accuracy[i].value),
                curve->accuracy[i].value);
    fprintf(p->to, "<text x='%d' y='%d' text-anchor='end'>best %.1f %%</text>\n", LEFT + WIDTH,
            p->top - 8, 100 * high);
}

/* Only the characters of a job's name are let through. */
static void draw(const struct sy_train_curve *curve, const char *name, FILE *to)
{
    bool has_accuracy = curve->n_accuracy > 0;
    int height = TOP + HEIGHT + GAP + (has_accuracy ? HEIGHT + GAP : 0);
    double till = curve->n_loss ? curve->loss[curve->n_loss - 1].step : 1;
    if (has_accuracy)
        till = SY_MAX(till, curve->accuracy[curve->n_accuracy - 1].step);
    struct panel p = {.to = to, .top = TOP, .from = 0, .till = till};
    fprintf(to,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
            "fill='white'/>\n<text x='%d' y='18' font-size='15'>%.*s</text>\n",
            LEFT + WIDTH + 24, height, LEFT, (int)strcspn(name, "<>&"), name);
    if (curve->n_loss)
        draw_loss(&p, curve);
    p.top += HEIGHT + GAP;
    if (has_accuracy)
        draw_accuracy(&p, curve);
    fprintf(to, "</svg>\n");
}

int sy_train_curve_write(const struct sy_train_curve *curve, const char *name, const char *path)
{
    struct sy_durable_file file;
    char *text = NULL;
    size_t bytes = 0;
    if (!curve->n_loss && !curve->n_accuracy)
        return sy_error_set(SY_EARG, "%s: no step was seen, so there is nothing to draw", path);
    FILE *memory = open_memstream(&text, &bytes);
    SY_TRY_ALLOC(memory, "%s: no room for the figure", path);
    draw(curve, name, memory);
    if (fclose(memory) != 0) {
        free(text);
        return sy_error_set(SY_ENOMEM_HOST, "%s: no room for the figure", path);
    }
    int status = sy_durable_file_create(path, &file);
    if (status == SY_OK) {
        status = sy_write_fully(file.fd, path, text, bytes, 0);
        if (status == SY_OK)
            status = sy_durable_file_commit(&file);
        else
            sy_durable_file_discard(&file);
    }
    free(text);
    return status;
}
