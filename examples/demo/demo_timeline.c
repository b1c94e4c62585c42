/* timeline.svg: a few seconds of the run, in the lanes storage, link, inference and training. */
#include "examples/demo/demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_US   3e6
#define LEFT        90.0
#define WIDTH       1100.0
#define LANE_HEIGHT 46.0
#define TOP         64.0

enum { STORAGE, LINK, INFERENCE, TRAINING, N_LANES };
static const char *const lanes[N_LANES] = {
    [STORAGE] = "storage", [LINK] = "link", [INFERENCE] = "inference", [TRAINING] = "training"};
static const char *const lane_colors[N_LANES] = {
    [STORAGE] = "#8d6e63", [LINK] = "#5c6bc0", [INFERENCE] = "#26a69a", [TRAINING] = "#cfd8dc"};
static const char *const model_colors[DEMO_MODELS] = {"#26a69a", "#ef6c00", "#7e57c2"};

/* The lane of each thread, by the name that the trace gives it in metadata events. */
struct lane_ids {
    json_int_t tids[N_LANES];
};

struct span {
    const char *name; /* the trace's */
    int lane;
    double start, end; /* us */
};

struct spans {
    struct span *all; /* by start */
    size_t n;
    int n_rows, rows[N_LANES]; /* a row of the picture for each lane that has spans; else -1 */
};

static json_t *events_of(json_t *trace)
{
    return json_is_array(trace) ? trace : json_object_get(trace, "traceEvents");
}

static const char *text(json_t *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event, key));
    return value ? value : "";
}

static double number(json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static struct lane_ids find_lanes(json_t *events)
{
    size_t i;
    json_t *meta;
    struct lane_ids ids = {{-1, -1, -1, -1}};
    json_array_foreach(events, i, meta)
    {
        const char *lane = text(json_object_get(meta, "args"), "name");
        for (int l = 0; strcmp(text(meta, "name"), "thread_name") == 0 && l < N_LANES; l++)
            if (strcmp(lane, lanes[l]) == 0)
                ids.tids[l] = json_integer_value(json_object_get(meta, "tid"));
    }
    return ids;
}

static int lane_of(const struct lane_ids *ids, json_t *event)
{
    json_int_t tid = json_integer_value(json_object_get(event, "tid"));
    for (int l = 0; l < N_LANES; l++)
        if (ids->tids[l] == tid)
            return l;
    return -1;
}

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static bool has_lane(const struct spans *spans, int lane)
{
    for (size_t i = 0; i < spans->n; i++)
        if (spans->all[i].lane == lane)
            return true;
    return false;
}

/* The spans of all lanes; free `all`. */
static int read_spans(json_t *trace, struct spans *out)
{
    size_t i;
    json_t *event, *events = events_of(trace);
    struct lane_ids ids = find_lanes(events);
    *out = (struct spans){calloc(json_array_size(events) + 1, sizeof *out->all), 0, 0, {0}};
    if (!out->all)
        return -1;
    json_array_foreach(events, i, event)
    {
        int lane = lane_of(&ids, event);
        double start = number(event, "ts");
        if (lane >= 0 && strcmp(text(event, "ph"), "X") == 0)
            out->all[out->n++] =
                (struct span){text(event, "name"), lane, start, start + number(event, "dur")};
    }
    qsort(out->all, out->n, sizeof *out->all, by_start);
    for (int l = 0; l < N_LANES; l++)
        out->rows[l] = has_lane(out, l) ? out->n_rows++ : -1;
    return 0;
}

double demo_idle_share(json_t *trace)
{
    struct spans spans;
    double last = 0, training = 0;
    if (read_spans(trace, &spans) < 0)
        return 0;
    double first = spans.n > 0 ? spans.all[0].start : 0;
    for (size_t i = 0; i < spans.n; i++) {
        const struct span *s = &spans.all[i];
        last = s->end > last ? s->end : last;
        training += s->lane == TRAINING ? s->end - s->start : 0;
    }
    free(spans.all);
    return last > first ? training / (last - first) : 0;
}

/* Which of the demo's models a span is about, or -1. */
static int model_of(const struct demo *demo, const char *name)
{
    for (int m = 0; m < DEMO_MODELS; m++)
        if (strstr(name, demo->models[m].name))
            return m;
    return -1;
}

/* Value of a picture from span `first` on: models that compute count more than changes between training and requests. */
static int worth_showing(const struct demo *demo, const struct spans *spans, size_t first)
{
    bool seen[DEMO_MODELS] = {false};
    int n_changes = 0, n_models = 0, holder = -1;
    double end = spans->all[first].start + WINDOW_US;
    for (size_t i = first; i < spans->n && spans->all[i].start < end; i++) {
        const struct span *s = &spans->all[i];
        int model = model_of(demo, s->name);
        if (s->lane != INFERENCE && s->lane != TRAINING)
            continue;
        n_changes += holder >= 0 && holder != s->lane;
        holder = s->lane;
        if (s->lane == INFERENCE && model >= 0 && !seen[model]) {
            seen[model] = true;
            n_models++;
        }
    }
    return 1000 * n_models + n_changes;
}

/* The window that shows the device shared: with the most models, and then the most changes. */
static double choose_window(const struct demo *demo, const struct spans *spans)
{
    double best = 0;
    int most = -1;
    for (size_t i = 0; i < spans->n; i++) {
        int worth = worth_showing(demo, spans, i);
        if (worth > most) {
            most = worth;
            best = spans->all[i].start;
        }
    }
    return best;
}

static const char *color_of(const struct demo *demo, int lane, const char *name)
{
    if (lane == TRAINING)
        return lane_colors[lane];
    int model = model_of(demo, name);
    return model >= 0 ? model_colors[model] : lane_colors[lane];
}

static void draw_axis(FILE *out, const struct spans *spans, double height)
{
    for (int tick = 0; tick <= 6; tick++) {
        double x = LEFT + WIDTH * tick / 6;
        fprintf(out, "<line x1='%.1f' y1='%.0f' x2='%.1f' y2='%.0f' stroke='#e0e0e0'/>\n", x,
                TOP - 6, x, height - 40);
        fprintf(out, "<text x='%.1f' y='%.0f' text-anchor='middle' fill='#555'>%.1f s</text>\n", x,
                height - 24, WINDOW_US / 1e6 * tick / 6);
    }
    for (int l = 0; l < N_LANES; l++)
        if (spans->rows[l] >= 0)
            fprintf(out, "<text x='%.0f' y='%.0f' text-anchor='end'>%s</text>\n", LEFT - 10,
                    TOP + spans->rows[l] * LANE_HEIGHT + 22, lanes[l]);
}

static void draw_spans(FILE *out, const struct demo *demo, const struct spans *spans)
{
    double window = choose_window(demo, spans);
    for (size_t i = 0; i < spans->n; i++) {
        const struct span *s = &spans->all[i];
        if (s->end < window || s->start > window + WINDOW_US)
            continue;
        double start = s->start < window ? window : s->start;
        double end = s->end > window + WINDOW_US ? window + WINDOW_US : s->end;
        double x = LEFT + (start - window) / WINDOW_US * WIDTH;
        double w = (end - start) / WINDOW_US * WIDTH;
        fprintf(out,
                "<rect x='%.2f' y='%.0f' width='%.2f' height='%.0f' fill='%s' stroke='white' "
                "stroke-width='0.3'><title>%s, %.1f ms</title></rect>\n",
                x, TOP + spans->rows[s->lane] * LANE_HEIGHT, w < 0.5 ? 0.5 : w, LANE_HEIGHT - 12,
                color_of(demo, s->lane, s->name), s->name, (s->end - s->start) / 1e3);
    }
}

int demo_write_timeline(const struct demo *demo, const char *path)
{
    struct spans spans;
    if (read_spans(demo->trace, &spans) < 0)
        return -1;
    FILE *out = fopen(path, "w");
    if (!out) {
        free(spans.all);
        return -1;
    }
    double height = TOP + spans.n_rows * LANE_HEIGHT + 48;
    fprintf(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' font-family='sans-serif' "
        "font-size='13'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
        LEFT + WIDTH + 30, height);
    fprintf(out,
            "<text x='%.0f' y='24' font-size='16'>Switchyard on %s: three seconds of training and "
            "requests on one device</text>\n",
            LEFT, demo->device_name);
    for (int m = 0; m < DEMO_MODELS; m++)
        fprintf(out,
                "<rect x='%.0f' y='34' width='12' height='12' fill='%s'/>"
                "<text x='%.0f' y='45'>%s</text>\n",
                LEFT + 150 * m, model_colors[m], LEFT + 150 * m + 17, demo->models[m].name);
    fprintf(out,
            "<rect x='%.0f' y='34' width='12' height='12' fill='%s'/><text x='%.0f' "
            "y='45'>training</text>\n",
            LEFT + 150 * DEMO_MODELS, lane_colors[TRAINING], LEFT + 150 * DEMO_MODELS + 17);
    draw_axis(out, &spans, height);
    draw_spans(out, demo, &spans);
    free(spans.all);
    fprintf(out, "</svg>\n");
    return fclose(out);
}
