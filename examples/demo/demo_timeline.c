/* timeline.svg: a few seconds of the run, in the lanes storage, link, inference and training. */
#include "examples/demo/demo.h"

#include <stdio.h>
#include <string.h>

#define WINDOW_US   3e6
#define LEFT        90.0
#define WIDTH       1100.0
#define LANE_HEIGHT 46.0
#define TOP         64.0

static const char *const lanes[] = {"storage", "link", "inference", "training"};
static const char *const lane_colors[] = {"#8d6e63", "#5c6bc0", "#26a69a", "#cfd8dc"};
static const char *const model_colors[DEMO_MODELS] = {"#26a69a", "#ef6c00", "#7e57c2"};
#define N_LANES 4

/* The lane of an event: by its thread's name, which the trace gives in metadata events. */
static int lane_of(json_t *trace, json_t *event)
{
    size_t i;
    json_t *meta;
    json_int_t tid = json_integer_value(json_object_get(event, "tid"));
    json_array_foreach(trace, i, meta)
    {
        const char *name = json_string_value(json_object_get(meta, "name"));
        if (!name || strcmp(name, "thread_name") != 0 ||
            json_integer_value(json_object_get(meta, "tid")) != tid)
            continue;
        const char *lane =
            json_string_value(json_object_get(json_object_get(meta, "args"), "name"));
        for (int l = 0; lane && l < N_LANES; l++)
            if (strcmp(lane, lanes[l]) == 0)
                return l;
    }
    return -1;
}

static double number(json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static bool is_span(json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    return phase && strcmp(phase, "X") == 0;
}

static json_t *events_of(json_t *trace)
{
    return json_is_array(trace) ? trace : json_object_get(trace, "traceEvents");
}

double demo_idle_share(json_t *trace)
{
    size_t i;
    json_t *event, *events = events_of(trace);
    double first = -1, last = 0, training = 0;
    json_array_foreach(events, i, event)
    {
        if (!is_span(event) || lane_of(events, event) < 0)
            continue;
        double start = number(event, "ts"), end = start + number(event, "dur");
        first = first < 0 || start < first ? start : first;
        last = end > last ? end : last;
        if (lane_of(events, event) == N_LANES - 1)
            training += number(event, "dur");
    }
    return last > first ? training / (last - first) : 0;
}

/* Which of the demo's models a span is about, or -1. */
static int model_of(const struct demo *demo, const char *name)
{
    for (int m = 0; name && m < DEMO_MODELS; m++)
        if (strstr(name, demo->models[m].name))
            return m;
    return -1;
}

/* What a picture from `start` on would show: models that compute count before runs. */
static int worth_showing(const struct demo *demo, json_t *events, double start)
{
    bool seen[DEMO_MODELS] = {false};
    int n_runs = 0, n_models = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        double ts = number(event, "ts");
        if (!is_span(event) || ts < start || ts >= start + WINDOW_US || lane_of(events, event) != 2)
            continue;
        int model = model_of(demo, json_string_value(json_object_get(event, "name")));
        n_runs++;
        if (model >= 0 && !seen[model]) {
            seen[model] = true;
            n_models++;
        }
    }
    return 1000 * n_models + n_runs;
}

/* The window that shows the machine at work: with the most models, and then the most runs. */
static double choose_window(const struct demo *demo, json_t *events)
{
    size_t i;
    json_t *event;
    double best = 0;
    int most = -1;
    json_array_foreach(events, i, event)
    {
        if (!is_span(event) || lane_of(events, event) != 2)
            continue;
        double start = number(event, "ts") - 1e5;
        int worth = worth_showing(demo, events, start);
        if (worth > most) {
            most = worth;
            best = start;
        }
    }
    return best;
}

static const char *color_of(const struct demo *demo, int lane, const char *name)
{
    if (lane == N_LANES - 1)
        return lane_colors[lane];
    int model = model_of(demo, name);
    return model >= 0 ? model_colors[model] : lane_colors[lane];
}

static void draw_axis(FILE *out, double height)
{
    for (int tick = 0; tick <= 6; tick++) {
        double x = LEFT + WIDTH * tick / 6;
        fprintf(out, "<line x1='%.1f' y1='%.0f' x2='%.1f' y2='%.0f' stroke='#e0e0e0'/>\n", x,
                TOP - 6, x, height - 40);
        fprintf(out, "<text x='%.1f' y='%.0f' text-anchor='middle' fill='#555'>%.1f s</text>\n", x,
                height - 24, WINDOW_US / 1e6 * tick / 6);
    }
    for (int l = 0; l < N_LANES; l++)
        fprintf(out, "<text x='%.0f' y='%.0f' text-anchor='end'>%s</text>\n", LEFT - 10,
                TOP + l * LANE_HEIGHT + 22, lanes[l]);
}

static void draw_events(FILE *out, const struct demo *demo, json_t *events, double window)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        int lane = is_span(event) ? lane_of(events, event) : -1;
        double start = number(event, "ts"), end = start + number(event, "dur");
        if (lane < 0 || end < window || start > window + WINDOW_US)
            continue;
        const char *name = json_string_value(json_object_get(event, "name"));
        start = start < window ? window : start;
        end = end > window + WINDOW_US ? window + WINDOW_US : end;
        double x = LEFT + (start - window) / WINDOW_US * WIDTH;
        double w = (end - start) / WINDOW_US * WIDTH;
        fprintf(out,
                "<rect x='%.2f' y='%.0f' width='%.2f' height='%.0f' fill='%s' stroke='white' "
                "stroke-width='0.3'><title>%s, %.1f ms</title></rect>\n",
                x, TOP + lane * LANE_HEIGHT, w < 0.5 ? 0.5 : w, LANE_HEIGHT - 12,
                color_of(demo, lane, name), name ? name : "", (end - start) / 1e3);
    }
}

int demo_write_timeline(const struct demo *demo, const char *path)
{
    double height = TOP + N_LANES * LANE_HEIGHT + 48;
    json_t *events = events_of(demo->trace);
    FILE *out = fopen(path, "w");
    if (!out)
        return -1;
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
            LEFT + 150 * DEMO_MODELS, lane_colors[N_LANES - 1], LEFT + 150 * DEMO_MODELS + 17);
    draw_axis(out, height);
    draw_events(out, demo, events, choose_window(demo, events));
    fprintf(out, "</svg>\n");
    return fclose(out);
}
