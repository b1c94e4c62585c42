/* What stands for cuDNN's pools and recurrent layers: loops by its documentation, over what library_pool.h and library_recurrence.h describe. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/fake_math_internal.h"
#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/math/library_pool.h"
#include "workers/cuda/math/library_recurrence.h"

#define WORK_BYTES 300 /* that a recurrence is said to want */

struct sy_math_library_plan {
    int64_t words[SY_CHOICE_WORDS];
    struct sy_library_pool pool;
    struct sy_math_recurrence recurrence;
    struct sy_library_places places;
    struct sy_library_parts parts;
    struct sy_library_room room;
};

struct fake_library fake_library_state;
static struct sy_choices *choices;
static bool has_failed; /* at a first run */

/* ---- choices ------------------------------------------------------------------------------------------ */

static struct sy_choices *open_choices(void)
{
    if (!choices && sy_choices_create("fake device", &choices) < 0)
        abort();
    return choices;
}

void fake_library_reset(void)
{
    assert(fake_library_state.plans == 0);
    sy_choices_destroy(choices);
    choices = NULL;
    has_failed = false;
    fake_library_state = (struct fake_library){0};
}

int fake_library_choices(struct sy_math *math, char **out)
{
    (void)math;
    return sy_choices_write(open_choices(), out);
}

int fake_library_use_choices(struct sy_math *math, const char *text)
{
    (void)math;
    return sy_choices_read(open_choices(), text);
}

void fake_library_tune(struct sy_math *math, bool on)
{
    (void)math;
    fake_library_state.is_tuning = on;
}

static bool is_tuning(const struct sy_math *math)
{
    (void)math;
    return fake_library_state.is_tuning;
}

static bool is_chosen(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    const struct sy_choice *chosen =
        sy_choices_find_any(open_choices(), plan->words, SY_CHOICE_WORDS, SY_LIBRARY_BATCH_WORD);
    (void)math;
    return chosen && chosen->way == 1 && !has_failed;
}

static int choose(struct sy_math *math, const struct sy_math_library_plan *plan, bool library)
{
    struct sy_choice choice = {.way = library};
    (void)math;
    SY_TRY(fake_math_call("choose"));
    return sy_choices_put_any(open_choices(), plan->words, SY_CHOICE_WORDS, SY_LIBRARY_BATCH_WORD,
                              &choice);
}

static bool is_cold(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    (void)math;
    (void)plan;
    return true;
}

static void note_failure(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    (void)math;
    (void)plan;
    has_failed = true;
}

/* ---- trials ------------------------------------------------------------------------------------------- */

static int memory_take(struct sy_math *math, uint64_t bytes, void **out)
{
    (void)math;
    *out = NULL;
    SY_TRY(fake_math_call("memory_take"));
    if (fake_library_state.has_no_memory)
        return SY_OK;
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    assert(memory);
    memset(memory, 0, bytes);
    *out = fake_math_device(memory);
    return SY_OK;
}

static void memory_drop(struct sy_math *math, void *memory)
{
    (void)math;
    fake_math_synchronize();
    free(fake_math_seen(memory));
}

/* The library's take 1 ms, ours 2; or 3 and 2. */
static int time_recorded(struct sy_math *math, int (*run)(void *ctx), void *ctx, float *out_ms)
{
    struct sy_math_graph *graph = NULL;
    int runs = fake_library_state.runs;
    SY_TRY(fake_math_call("time"));
    SY_TRY(fake_math.capture_begin(math));
    int status = run(ctx), ended = fake_math.capture_end(math, &graph);
    if (status == SY_OK && ended == SY_OK)
        status = fake_math.graph_launch(math, graph);
    fake_math_synchronize();
    fake_math.graph_drop(math, graph);
    *out_ms = fake_library_state.runs == runs ? 2 : fake_library_state.is_slow ? 3 : 1;
    *out_ms *= fake_library_state.is_at_rest ? 10 : 1;
    fake_library_state.is_at_rest = false;
    if (fake_library_state.fails_at_first && !fake_library_state.is_tuning)
        *out_ms = -1;
    return status < 0 ? status : ended;
}

/* ---- plans -------------------------------------------------------------------------------------------- */

static struct sy_math_library_plan *new_plan(const int64_t *words)
{
    struct sy_math_library_plan *plan = calloc(1, sizeof *plan);
    assert(plan);
    memcpy(plan->words, words, sizeof plan->words);
    fake_library_state.plans++;
    return plan;
}

static int pool_plan(struct sy_math *math, const struct sy_math_pool *pool,
                     struct sy_math_library_plan **out)
{
    struct sy_library_pool s;
    (void)math;
    *out = NULL;
    SY_TRY(fake_math_call("pool_plan"));
    if (!sy_library_pool_of(pool, &s))
        return SY_OK;
    *out = new_plan(s.words);
    (*out)->pool = s;
    return SY_OK;
}

/* A layout of its own: directions and gates from the last to the first, each bias in front of its matrix, a gap behind. Returns elements. */
static int64_t lay_out(const struct sy_math_recurrence *r, struct sy_library_places *out)
{
    int64_t at = 5;
    for (int64_t d = r->directions - 1; d >= 0; d--)
        for (int64_t k = 2 * r->gates - 1; k >= 0; k--) {
            out->bias[d][k] = at;
            at += r->has_bias ? r->hidden : 0;
            out->matrix[d][k] = at;
            at += r->hidden * (k < r->gates ? r->input : r->hidden) + 3;
        }
    return at;
}

static int recurrence_plan(struct sy_math *math, const struct sy_math_recurrence *r,
                           struct sy_math_library_plan **out)
{
    int64_t words[SY_CHOICE_WORDS];
    struct sy_library_places places;
    struct sy_library_room room;
    (void)math;
    *out = NULL;
    SY_TRY(fake_math_call("recurrence_plan"));
    int64_t n = lay_out(r, &places);
    sy_library_recurrence_room(r, (uint64_t)n * sizeof(float), WORK_BYTES, &room);
    if (room.bytes > sy_math_kernel_scratch())
        return SY_OK;
    sy_library_recurrence_words(r, words);
    *out = new_plan(words);
    (*out)->recurrence = *r;
    (*out)->places = places;
    (*out)->room = room;
    sy_library_recurrence_parts(r, &places, &(*out)->parts);
    return SY_OK;
}

static void plan_drop(struct sy_math *math, struct sy_math_library_plan *plan)
{
    (void)math;
    fake_library_state.plans -= plan != NULL;
    free(plan);
}

/* ---- pools -------------------------------------------------------------------------------------------- */

struct pool_work {
    struct sy_library_pool pool;
    const void *x;
    void *y;
    bool is_wrong;
};

static float float_at(enum sy_dtype type, const void *at, int64_t i)
{
    return type == SY_DTYPE_F16    ? sy_half_to_float(((const uint16_t *)at)[i])
           : type == SY_DTYPE_BF16 ? sy_bf16_to_float(((const uint16_t *)at)[i])
                                   : ((const float *)at)[i];
}

static void store_float(enum sy_dtype type, void *at, int64_t i, float value)
{
    if (type == SY_DTYPE_F16)
        ((uint16_t *)at)[i] = sy_float_to_half(value);
    else if (type == SY_DTYPE_BF16)
        ((uint16_t *)at)[i] = sy_float_to_bf16(value);
    else
        ((float *)at)[i] = value;
}

/* The window that begins at `first`, of the plane at `base`. */
static float pool_window(const struct pool_work *w, int64_t base, const int *first)
{
    const struct sy_library_pool *s = &w->pool;
    double sum = 0, largest = -INFINITY;
    int inside = 0, all = 1, k[SY_MATH_SPATIAL];
    for (int i = 0; i < s->spatial; i++)
        all *= s->window[i];
    for (int at = 0; at < all; at++) {
        int64_t from = base;
        bool is_inside = true;
        for (int i = s->spatial - 1, left = at; i >= 0; left /= s->window[i], i--) {
            k[i] = first[i] + left % s->window[i];
            is_inside = is_inside && k[i] >= 0 && k[i] < s->x_dims[2 + i];
            from += (int64_t)k[i] * s->x_strides[2 + i];
        }
        if (!is_inside)
            continue;
        double x = (double)float_at(s->type, w->x, from);
        sum += x;
        largest =
            x > largest || isnan(x) || isnan(largest) ? (isnan(largest) ? largest : x) : largest;
        inside++;
    }
    return (float)(s->max ? largest : sum / (s->count_padding ? all : inside));
}

static void pool_work(const void *body)
{
    const struct pool_work *w = body;
    const struct sy_library_pool *s = &w->pool;
    int64_t n = 1;
    for (int i = 0; i < 2 + s->spatial; i++)
        n *= s->y_dims[i];
    for (int64_t e = 0; e < n; e++) {
        int64_t to = 0, base = 0, left = e;
        int first[SY_MATH_SPATIAL];
        for (int i = 1 + s->spatial; i >= 0; i--) {
            int index = (int)(left % s->y_dims[i]);
            left /= s->y_dims[i];
            to += (int64_t)index * s->y_strides[i];
            if (i >= 2)
                first[i - 2] = index * s->strides[i - 2] - s->pads[i - 2];
            else
                base += (int64_t)index * s->x_strides[i];
        }
        store_float(s->type, w->y, to, pool_window(w, base, first) + (w->is_wrong ? 1 : 0));
    }
}

static int pool(struct sy_math *math, struct sy_math_library_plan *plan, const void *x, void *y)
{
    struct pool_work work = {.pool = plan->pool,
                             .x = fake_math_seen(x),
                             .y = fake_math_seen(y),
                             .is_wrong = fake_library_state.is_wrong};
    fake_library_state.runs++;
    return fake_math_enqueue(math, "library pool", pool_work, &work, sizeof work);
}

/* ---- recurrent layers --------------------------------------------------------------------------------- */

struct recurrence_work {
    struct sy_math_recurrence r;
    struct sy_library_places places;
    const float *space, *x, *h0, *c0;
    float *y, *yh, *yc; /* y [steps, batch, directions, hidden] */
    unsigned char *work;
    bool is_wrong;
};

/* Gate k of the input's or the state's (k >= gates), unit `unit`. */
static double gate_sum(const struct recurrence_work *w, int64_t d, int64_t k, int64_t unit,
                       const float *x, const double *h)
{
    bool of_state = k >= w->r.gates;
    int64_t n = of_state ? w->r.hidden : w->r.input;
    const float *row = w->space + w->places.matrix[d][k] + unit * n;
    double sum = w->r.has_bias ? (double)w->space[w->places.bias[d][k] + unit] : 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)row[i] * (of_state ? h[i] : (double)x[i]);
    return sum;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* One unit's new state; *c of an LSTM is changed. Gates in cuDNN's order: i f c o; r z (its i) h. */
static double new_state(const struct recurrence_work *w, int64_t d, int64_t unit, const float *x,
                        const double *h, double *c)
{
    double in[4], rec[4];
    for (int64_t k = 0; k < w->r.gates; k++) {
        in[k] = gate_sum(w, d, k, unit, x, h);
        rec[k] = gate_sum(w, d, w->r.gates + k, unit, x, h);
    }
    if (w->r.op == SY_OP_LSTM) {
        *c = sigmoid(in[1] + rec[1]) * *c + sigmoid(in[0] + rec[0]) * tanh(in[2] + rec[2]);
        return sigmoid(in[3] + rec[3]) * tanh(*c);
    }
    if (w->r.op == SY_OP_GRU) {
        double z = sigmoid(in[1] + rec[1]);
        return (1 - z) * tanh(in[2] + sigmoid(in[0] + rec[0]) * rec[2]) + z * h[unit];
    }
    double sum = in[0] + rec[0];
    return w->r.relu ? fmax(sum, 0) : tanh(sum);
}

/* One sample in one direction. */
static void run_sequence(const struct recurrence_work *w, int64_t d, int64_t b)
{
    int64_t n = w->r.hidden, state = (d * w->r.batch + b) * n;
    double *h = calloc((size_t)(3 * n), sizeof *h), *c = h + n, *next = c + n;
    assert(h);
    for (int64_t i = 0; i < n; i++) {
        h[i] = w->h0 ? (double)w->h0[state + i] : 0;
        c[i] = w->c0 ? (double)w->c0[state + i] : 0;
    }
    for (int64_t s = 0; s < w->r.steps; s++) {
        int64_t t = d ? w->r.steps - 1 - s : s, row = t * w->r.batch + b;
        for (int64_t i = 0; i < n; i++)
            next[i] = new_state(w, d, i, w->x + row * w->r.input, h, &c[i]);
        memcpy(h, next, (size_t)n * sizeof *h);
        for (int64_t i = 0; i < n; i++)
            w->y[(row * w->r.directions + d) * n + i] = (float)h[i] + (w->is_wrong ? 0.01f : 0);
    }
    for (int64_t i = 0; i < n; i++) {
        if (w->yh)
            w->yh[state + i] = (float)h[i];
        if (w->yc)
            w->yc[state + i] = (float)c[i];
    }
    free(h);
}

static void recurrence_work(const void *body)
{
    const struct recurrence_work *w = body;
    memset(w->work, 0xee, WORK_BYTES);
    for (int64_t d = 0; d < w->r.directions; d++)
        for (int64_t b = 0; b < w->r.batch; b++)
            run_sequence(w, d, b);
}

static int recurrence(struct sy_math *math, struct sy_math_library_plan *plan, void *const *at,
                      void *scratch)
{
    const struct sy_math_recurrence *r = &plan->recurrence;
    const struct sy_library_room *room = &plan->room;
    unsigned char *base = scratch;
    void *y = room->keeps_y ? base + room->y : at[SY_RECURRENCE_Y];
    struct recurrence_work work = {.r = *r,
                                   .places = plan->places,
                                   .space = fake_math_seen(base + room->weights),
                                   .x = fake_math_seen(at[SY_RECURRENCE_X]),
                                   .h0 = fake_math_seen(at[SY_RECURRENCE_H0]),
                                   .c0 = fake_math_seen(at[SY_RECURRENCE_C0]),
                                   .y = fake_math_seen(y),
                                   .yh = fake_math_seen(at[SY_RECURRENCE_YH]),
                                   .yc = fake_math_seen(at[SY_RECURRENCE_YC]),
                                   .work = fake_math_seen(base + room->work),
                                   .is_wrong = fake_library_state.is_wrong};
    assert(r->has_y == !!at[SY_RECURRENCE_Y] && r->has_bias == !!at[SY_RECURRENCE_BIAS]);
    fake_library_state.runs++;
    SY_TRY(sy_library_recurrence_begin(math, &plan->parts, room, at, scratch));
    SY_TRY(fake_math_enqueue(math, "library recurrence", recurrence_work, &work, sizeof work));
    return room->keeps_y && at[SY_RECURRENCE_Y]
               ? sy_library_recurrence_turn(math, r, y, at[SY_RECURRENCE_Y])
               : SY_OK;
}

const struct sy_math_library_ops fake_library = {
    .pool_plan = pool_plan,
    .recurrence_plan = recurrence_plan,
    .plan_drop = plan_drop,
    .is_tuning = is_tuning,
    .is_chosen = is_chosen,
    .choose = choose,
    .is_cold = is_cold,
    .note_failure = note_failure,
    .memory_take = memory_take,
    .memory_drop = memory_drop,
    .time = time_recorded,
    .pool = pool,
    .recurrence = recurrence,
};
