/* What stands for cuDNN's pools: loops by its documentation, over what library_pool.h describes. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/fake_math_internal.h"
#include "workers/cuda/library_pool.h"

struct sy_math_library_plan {
    struct sy_library_pool pool;
};

struct fake_library fake_library_state;
static struct sy_choices *choices;

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
    const struct sy_choice *chosen = sy_choices_find_any(open_choices(), plan->pool.words,
                                                         SY_CHOICE_WORDS, SY_LIBRARY_BATCH_WORD);
    (void)math;
    return chosen && chosen->way == 1;
}

static int choose(struct sy_math *math, const struct sy_math_library_plan *plan, bool library)
{
    struct sy_choice choice = {.way = library};
    (void)math;
    SY_TRY(fake_math_call("choose"));
    return sy_choices_put_any(open_choices(), plan->pool.words, SY_CHOICE_WORDS,
                              SY_LIBRARY_BATCH_WORD, &choice);
}

static bool is_cold(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    (void)math;
    (void)plan;
    return true;
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
    return status < 0 ? status : ended;
}

/* ---- plans -------------------------------------------------------------------------------------------- */

static int pool_plan(struct sy_math *math, const struct sy_math_pool *pool,
                     struct sy_math_library_plan **out)
{
    struct sy_library_pool s;
    (void)math;
    *out = NULL;
    SY_TRY(fake_math_call("pool_plan"));
    if (!sy_library_pool_of(pool, &s))
        return SY_OK;
    *out = calloc(1, sizeof **out);
    assert(*out);
    (*out)->pool = s;
    fake_library_state.plans++;
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

const struct sy_math_library_ops fake_library = {
    .pool_plan = pool_plan,
    .plan_drop = plan_drop,
    .is_tuning = is_tuning,
    .is_chosen = is_chosen,
    .choose = choose,
    .is_cold = is_cold,
    .memory_take = memory_take,
    .memory_drop = memory_drop,
    .time = time_recorded,
    .pool = pool,
};
