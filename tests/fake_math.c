#include "tests/fake_math.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/fake_math_internal.h"

#define MAX_QUEUED (1 << 20)

struct notes {
    int n, capacity;
    struct note *list;
};

struct sy_math {
    struct notes queue;
};

struct sy_math_graph {
    struct notes notes;
};

struct sy_math_plan {
    bool is_conv;
    struct sy_math_conv conv;
    struct sy_math_matmul matmul;
};

static struct sy_math *open_math;
static struct sy_math_graph *capturing;
static struct fake_math_counts counts;
static uint64_t fail_at;

/* ---- bookkeeping --------------------------------------------------------------------------------- */

int fake_call(const char *name)
{
    counts.calls++;
    return counts.calls == fail_at ? sy_error_set(SY_EDEVICE, "fake %s fails", name) : SY_OK;
}

void *fake_math_device(void *host)
{
    return host ? (void *)((uintptr_t)host | FAKE_MARK) : NULL;
}

/* A device pointer as the host's. */
void *fake_seen(const void *device)
{
    assert(!device || ((uintptr_t)device & FAKE_MARK));
    return (void *)((uintptr_t)device & ~FAKE_MARK);
}

static void *plain(const void *host)
{
    assert(host && !((uintptr_t)host & FAKE_MARK));
    return (void *)(uintptr_t)host;
}

static int append(struct notes *notes, const struct note *note)
{
    if (notes->n == notes->capacity) {
        notes->capacity = notes->capacity ? 2 * notes->capacity : 64;
        assert(notes->capacity <= MAX_QUEUED);
        notes->list = realloc(notes->list, (size_t)notes->capacity * sizeof *notes->list);
        assert(notes->list);
    }
    notes->list[notes->n++] = *note;
    return SY_OK;
}

int fake_enqueue(struct sy_math *math, const char *name, const struct note *note)
{
    assert(math && math == open_math);
    SY_TRY(fake_call(name));
    return append(capturing ? &capturing->notes : &math->queue, note);
}

int fake_math_synchronize(void)
{
    assert(!capturing);
    for (int i = 0; open_math && i < open_math->queue.n; i++)
        open_math->queue.list[i].run(&open_math->queue.list[i]);
    if (open_math)
        open_math->queue.n = 0;
    return SY_OK;
}

void fake_math_lose(void)
{
    if (open_math)
        open_math->queue.n = 0;
}

struct fake_math_counts fake_math_get_counts(void)
{
    counts.queued = open_math ? open_math->queue.n : 0;
    return counts;
}

void fake_math_fail(uint64_t n)
{
    counts.calls = 0;
    fail_at = n;
}

static int open_fake(struct sy_device *device, struct sy_stream *compute, struct sy_math **out)
{
    (void)device;
    (void)compute;
    assert(!open_math);
    SY_TRY(fake_call("open"));
    *out = open_math = calloc(1, sizeof *open_math);
    assert(open_math);
    counts.maths++;
    return SY_OK;
}

static void close_fake(struct sy_math *math)
{
    assert(math == open_math && counts.plans == 0 && counts.graphs == 0 && counts.host_blocks == 0);
    free(math->queue.list);
    free(math);
    open_math = NULL;
    counts.maths--;
}

static int host_take(struct sy_math *math, uint64_t bytes, void **out)
{
    (void)math;
    SY_TRY(fake_call("host_take"));
    *out = malloc(bytes);
    assert(*out);
    memset(*out, 0xff, bytes);
    counts.host_blocks++;
    return SY_OK;
}

static void host_drop(struct sy_math *math, void *memory)
{
    (void)math;
    counts.host_blocks -= memory != NULL;
    free(memory);
}

static int conv_plan(struct sy_math *math, const struct sy_math_conv *conv,
                     struct sy_math_plan **out)
{
    (void)math;
    SY_TRY(fake_call("conv_plan"));
    *out = calloc(1, sizeof **out);
    assert(*out);
    (*out)->is_conv = true;
    (*out)->conv = *conv;
    counts.plans++;
    return SY_OK;
}

static int matmul_plan(struct sy_math *math, const struct sy_math_matmul *matmul,
                       struct sy_math_plan **out)
{
    (void)math;
    SY_TRY(fake_call("matmul_plan"));
    *out = calloc(1, sizeof **out);
    assert(*out);
    (*out)->matmul = *matmul;
    counts.plans++;
    return SY_OK;
}

static void plan_drop(struct sy_math *math, struct sy_math_plan *plan)
{
    (void)math;
    counts.plans -= plan != NULL;
    free(plan);
}

/* ---- elements ------------------------------------------------------------------------------------ */

/* Offset of the k-th index tuple of dims. */
static int64_t offset_of(int64_t k, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; d--) {
        offset += k % dims[d] * strides[d];
        k /= dims[d];
    }
    return offset;
}

static int64_t elements(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dims[d];
    return n;
}

static double activate(double x, enum sy_activation activation, float alpha, float beta)
{
    switch (activation) {
    case SY_ACT_RELU:
        return x > 0 ? x : 0;
    case SY_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case SY_ACT_TANH:
        return tanh(x);
    case SY_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_ACT_CLIP:
        return x < alpha ? alpha : x > beta ? beta : x;
    case SY_ACT_SWISH: /* this engine refuses both */
    case SY_ACT_HARD_SWISH:
    case SY_ACT_NONE:
        break;
    }
    return x;
}

static double chain_unary(const struct sy_math_chain_step *s, double x)
{
    double linear = (double)s->alpha * x + (double)s->beta;
    switch ((enum sy_math_chain_code)s->code) {
    case SY_CHAIN_LEAKY:
        return x >= 0 || isnan(x) ? x : s->alpha == 0 ? 0 : (double)s->alpha * x;
    case SY_CHAIN_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_CHAIN_TANH:
        return tanh(x);
    case SY_CHAIN_CLIP:
        return x < s->alpha ? s->alpha : x > s->beta ? s->beta : x;
    case SY_CHAIN_ELU:
        return x < 0 ? (double)s->alpha * (exp(x) - 1) : x;
    case SY_CHAIN_EXP:
        return exp(x);
    case SY_CHAIN_LOG:
        return log(x);
    case SY_CHAIN_SQRT:
        return sqrt(x);
    case SY_CHAIN_ABS:
        return fabs(x);
    case SY_CHAIN_LINEAR:
        return linear;
    case SY_CHAIN_RECIPROCAL:
        return 1 / x;
    case SY_CHAIN_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case SY_CHAIN_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case SY_CHAIN_ERF:
        return erf(x);
    case SY_CHAIN_HARD_SIGMOID:
        return fmax(0, fmin(1, linear));
    case SY_CHAIN_HARD_SWISH:
        return x * fmax(0, fmin(1, x / 6 + 0.5));
    default:
        assert(!"a chain's code");
        return 0;
    }
}

static double chain_float(const struct sy_math_chain_step *s, double x, double y)
{
    if (s->code > SY_CHAIN_MUL_RSQRT && s->code <= SY_CHAIN_LAST_OPERAND)
        return fake_chain_slope(s, x, y);
    switch ((enum sy_math_chain_code)s->code) {
    case SY_CHAIN_LOAD:
        return y;
    case SY_CHAIN_ADD:
        return (float)x + (float)y;
    case SY_CHAIN_SUB:
        return (float)x - (float)y;
    case SY_CHAIN_MUL:
        return (float)x * (float)y;
    case SY_CHAIN_DIV:
        return (float)x / (float)y;
    case SY_CHAIN_POW:
        return pow(x, y);
    case SY_CHAIN_MAX:
        return x > y ? x : y;
    case SY_CHAIN_MIN:
        return x < y ? x : y;
    case SY_CHAIN_MUL_RSQRT:
        return x / sqrt(y + (double)s->alpha);
    default:
        return chain_unary(s, x);
    }
}

static int64_t power(int64_t a, int64_t b)
{
    uint64_t result = 1;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (uint64_t f = (uint64_t)a; b > 0; b >>= 1, f *= f)
        result *= b & 1 ? f : 1;
    return (int64_t)result;
}

static int64_t chain_integer(const struct sy_math_chain_step *s, int64_t x, int64_t y)
{
    switch ((enum sy_math_chain_code)s->code) {
    case SY_CHAIN_LOAD:
        return y;
    case SY_CHAIN_ADD:
        return (int64_t)((uint64_t)x + (uint64_t)y);
    case SY_CHAIN_SUB:
        return (int64_t)((uint64_t)x - (uint64_t)y);
    case SY_CHAIN_MUL:
        return (int64_t)((uint64_t)x * (uint64_t)y);
    case SY_CHAIN_DIV:
        return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
    case SY_CHAIN_POW:
        return power(x, y);
    case SY_CHAIN_MAX:
        return x > y ? x : y;
    case SY_CHAIN_MIN:
        return x < y ? x : y;
    default:
        assert(!"a chain of integers");
        return 0;
    }
}

double fake_float_at(enum sy_dtype type, const void *at, int64_t i)
{
    return (double)(type == SY_DTYPE_F16    ? sy_half_to_float(((const uint16_t *)at)[i])
                    : type == SY_DTYPE_BF16 ? sy_bf16_to_float(((const uint16_t *)at)[i])
                                            : ((const float *)at)[i]);
}

void fake_store_float(enum sy_dtype type, void *at, int64_t i, double value)
{
    if (type == SY_DTYPE_F16)
        ((uint16_t *)at)[i] = sy_float_to_half((float)value);
    else if (type == SY_DTYPE_BF16)
        ((uint16_t *)at)[i] = sy_float_to_bf16((float)value);
    else
        ((float *)at)[i] = (float)value;
}

static int64_t integer_at(enum sy_dtype dtype, const void *at, int64_t i)
{
    return dtype == SY_DTYPE_I64   ? ((const int64_t *)at)[i]
           : dtype == SY_DTYPE_I32 ? ((const int32_t *)at)[i]
                                   : ((const uint8_t *)at)[i];
}

static void store_integer(enum sy_dtype dtype, void *at, int64_t i, int64_t value)
{
    if (dtype == SY_DTYPE_I64)
        ((int64_t *)at)[i] = value;
    else if (dtype == SY_DTYPE_I32)
        ((int32_t *)at)[i] = (int32_t)value;
    else
        ((uint8_t *)at)[i] = (uint8_t)value;
}

static void chain_element(const struct note *q, int64_t k, const int64_t *in, int64_t out)
{
    const struct sy_math_chain *c = &q->chain;
    double x = 0;
    int64_t integer = 0;
    (void)k;
    for (int s = 0; s < c->n_steps; s++) {
        const struct sy_math_chain_step *step = &c->steps[s];
        bool reads = step->code <= SY_CHAIN_LAST_OPERAND;
        assert(!reads || step->input < c->n_inputs);
        if (c->dtype == SY_DTYPE_F32)
            x = chain_float(
                step, x,
                reads ? fake_float_at(c->in_types[step->input], q->at[step->input], in[step->input])
                      : 0);
        else
            integer = chain_integer(step, integer,
                                    integer_at(c->dtype, q->at[step->input], in[step->input]));
    }
    if (c->dtype == SY_DTYPE_F32)
        fake_store_float(c->out_type, q->at[5], out, x);
    else
        store_integer(c->dtype, q->at[5], out, integer);
}

static void run_chain(const struct note *q)
{
    const struct sy_math_chain *c = &q->chain;
    for (int64_t k = 0; k < elements(c->rank, c->dims); k++) {
        int64_t in[SY_MATH_CHAIN_IN] = {0};
        for (int i = 0; i < c->n_inputs; i++)
            in[i] = offset_of(k, c->rank, c->dims, c->in_strides[i]);
        chain_element(q, k, in, offset_of(k, c->rank, c->dims, c->out_strides));
    }
}

static int chain(struct sy_math *math, const struct sy_math_chain *c, const void *const *in,
                 void *out)
{
    struct note q = {.run = run_chain, .chain = *c};
    for (int i = 0; i < c->n_inputs; i++)
        q.at[i] = fake_seen(in[i]);
    q.at[5] = fake_seen(out);
    return fake_enqueue(math, "chain", &q);
}

static void run_where(const struct note *q)
{
    const struct sy_math_choice *c = &q->choice;
    size_t size = sy_dtype_bytes(c->dtype);
    for (int64_t k = 0; k < elements(c->rank, c->dims); k++) {
        bool pick = ((uint8_t *)q->at[0])[offset_of(k, c->rank, c->dims, c->in_strides[0])];
        int which = pick ? 1 : 2;
        int64_t from = offset_of(k, c->rank, c->dims, c->in_strides[which]),
                to = offset_of(k, c->rank, c->dims, c->out_strides);
        memcpy((char *)q->at[3] + (size_t)to * size, (char *)q->at[which] + (size_t)from * size,
               size);
    }
}

static int where(struct sy_math *math, const struct sy_math_choice *c, const void *pick,
                 const void *a, const void *b, void *out)
{
    struct note q = {.run = run_where,
                     .choice = *c,
                     .at = {fake_seen(pick), fake_seen(a), fake_seen(b), fake_seen(out)}};
    return fake_enqueue(math, "where", &q);
}

static void run_equal(const struct note *q)
{
    const struct sy_math_choice *c = &q->choice;
    for (int64_t k = 0; k < elements(c->rank, c->dims); k++) {
        int64_t a = offset_of(k, c->rank, c->dims, c->in_strides[1]),
                b = offset_of(k, c->rank, c->dims, c->in_strides[2]);
        bool same = c->dtype == SY_DTYPE_F32
                        ? ((float *)q->at[1])[a] == ((float *)q->at[2])[b]
                        : integer_at(c->dtype, q->at[1], a) == integer_at(c->dtype, q->at[2], b);
        ((uint8_t *)q->at[3])[offset_of(k, c->rank, c->dims, c->out_strides)] = same;
    }
}

static int equal(struct sy_math *math, const struct sy_math_choice *c, const void *a, const void *b,
                 void *out)
{
    struct note q = {
        .run = run_equal, .choice = *c, .at = {NULL, fake_seen(a), fake_seen(b), fake_seen(out)}};
    return fake_enqueue(math, "equal", &q);
}

static void run_cast(const struct note *q)
{
    for (int64_t i = 0; i < q->n; i++) {
        bool is_float = q->from == SY_DTYPE_F32 || sy_math_is_narrow(q->from);
        float x = (float)(is_float ? fake_float_at(q->from, q->at[0], i)
                                   : (double)integer_at(q->from, q->at[0], i));
        int64_t n = is_float ? (x > -9.2e18f && x < 9.2e18f ? (int64_t)x : 0)
                             : integer_at(q->from, q->at[0], i);
        if (q->to == SY_DTYPE_F32 || sy_math_is_narrow(q->to))
            fake_store_float(q->to, q->at[1], i, (double)x);
        else if (q->to == SY_DTYPE_BOOL)
            ((uint8_t *)q->at[1])[i] = is_float ? x != 0 : n != 0;
        else
            store_integer(q->to, q->at[1], i, n);
    }
}

static int cast(struct sy_math *math, enum sy_dtype from_type, enum sy_dtype to_type, int64_t n,
                const void *from, void *to)
{
    struct note q = {.run = run_cast,
                     .from = from_type,
                     .to = to_type,
                     .n = n,
                     .at = {fake_seen(from), fake_seen(to)}};
    return fake_enqueue(math, "cast", &q);
}

/* ---- moves --------------------------------------------------------------------------------------- */

static void run_move(const struct note *q)
{
    const struct sy_math_move *m = &q->move;
    for (int64_t k = 0; k < elements(m->rank, m->dims); k++) {
        int64_t from = m->from_offset + offset_of(k, m->rank, m->dims, m->from_strides),
                to = m->to_offset + offset_of(k, m->rank, m->dims, m->to_strides);
        memcpy((char *)q->at[1] + to * m->element_bytes, (char *)q->at[0] + from * m->element_bytes,
               (size_t)m->element_bytes);
    }
}

static int move(struct sy_math *math, const struct sy_math_move *m, const void *from, void *to)
{
    struct note q = {.run = run_move, .move = *m, .at = {fake_seen(from), fake_seen(to)}};
    return fake_enqueue(math, "move", &q);
}

static void run_fill(const struct note *q)
{
    for (int64_t i = 0; i < q->n; i++)
        ((float *)q->at[0])[i] = q->value;
}

static int fill(struct sy_math *math, void *to, int64_t n, float value)
{
    struct note q = {.run = run_fill, .n = n, .value = value, .at = {fake_seen(to)}};
    return fake_enqueue(math, "fill", &q);
}

static void run_zero(const struct note *q)
{
    memset(q->at[0], 0, (size_t)q->n);
}

static int zero(struct sy_math *math, void *to, uint64_t bytes)
{
    struct note q = {.run = run_zero, .n = (int64_t)bytes, .at = {fake_seen(to)}};
    return fake_enqueue(math, "zero", &q);
}

static void run_gather(const struct note *q)
{
    const struct sy_math_gather *g = &q->gather;
    struct sy_math_fault *fault = q->at[3];
    for (int64_t k = 0; k < g->n_indices; k++) {
        int64_t index = integer_at(g->wide ? SY_DTYPE_I64 : SY_DTYPE_I32, q->at[1], k);
        if (index < -g->extent || index >= g->extent) {
            *fault = (struct sy_math_fault){g->step, index};
            index = 0;
        }
        index += index < 0 ? g->extent : 0;
        for (int64_t o = 0; o < g->outer; o++)
            memcpy((char *)q->at[2] + (o * g->n_indices + k) * g->inner_bytes,
                   (char *)q->at[0] + (o * g->extent + index) * g->inner_bytes,
                   (size_t)g->inner_bytes);
    }
}

static int gather(struct sy_math *math, const struct sy_math_gather *g, const void *from,
                  const void *indices, void *to, struct sy_math_fault *fault)
{
    struct note q = {.run = run_gather,
                     .gather = *g,
                     .at = {fake_seen(from), fake_seen(indices), fake_seen(to), plain(fault)}};
    return fake_enqueue(math, "gather", &q);
}

static void run_copy(const struct note *q)
{
    memcpy(q->at[1], q->at[0], (size_t)q->n);
}

static int copy(struct sy_math *math, const void *from, void *to, uint64_t bytes)
{
    struct note q = {.run = run_copy, .n = (int64_t)bytes, .at = {fake_seen(from), fake_seen(to)}};
    return fake_enqueue(math, "copy", &q);
}

static int to_device(struct sy_math *math, const void *host, void *to, uint64_t bytes)
{
    assert(!capturing);
    struct note q = {.run = run_copy, .n = (int64_t)bytes, .at = {plain(host), fake_seen(to)}};
    return fake_enqueue(math, "to_device", &q);
}

static int to_host(struct sy_math *math, const void *from, void *host, uint64_t bytes)
{
    assert(!capturing);
    struct note q = {.run = run_copy, .n = (int64_t)bytes, .at = {fake_seen(from), plain(host)}};
    return fake_enqueue(math, "to_host", &q);
}

/* ---- windows ------------------------------------------------------------------------------------- */

static bool inside(int64_t at, int64_t extent)
{
    return at >= 0 && at < extent;
}

/* Position of window element `w` at output `o`, in dimension d; -1: in the padding. */
#define WINDOW_AT(c, o, w, d) ((o) * (c)->strides[d] - (c)->pads[d] + (w) * (c)->dilations[d])

static double conv_element(const struct note *q, int64_t n, int64_t channel, const int64_t *o)
{
    const struct sy_math_conv *c = &q->conv;
    int64_t ins = c->in_channels / c->groups, first = channel / (c->out_channels / c->groups) * ins;
    double sum = 0;
    for (int64_t k = 0; k < c->kernel[0] * c->kernel[1] * c->kernel[2]; k++) {
        int64_t a = WINDOW_AT(c, o[0], k / c->kernel[2] / c->kernel[1], 0),
                b = WINDOW_AT(c, o[1], k / c->kernel[2] % c->kernel[1], 1),
                d = WINDOW_AT(c, o[2], k % c->kernel[2], 2);
        if (!inside(a, c->in[0]) || !inside(b, c->in[1]) || !inside(d, c->in[2]))
            continue;
        int64_t at = ((n * c->in[0] + a) * c->in[1] + b) * c->in[2] + d;
        int64_t area = c->kernel[0] * c->kernel[1] * c->kernel[2];
        for (int64_t i = 0; i < ins; i++)
            sum += fake_float_at(c->type, q->at[0], at * c->in_channels + first + i) *
                   fake_float_at(c->type, q->at[1], (channel * area + k) * ins + i);
    }
    return sum;
}

void fake_spoil(void *scratch)
{
    memset(scratch, 0xee, FAKE_SCRATCH_BYTES);
}

void fake_spoil_back(void *scratch)
{
    memset(scratch, 0xee, FAKE_BACK_SCRATCH_BYTES);
}

/* at: x, w, bias, residual, y, scratch */
static void run_conv(const struct note *q)
{
    const struct sy_math_conv *c = &q->conv;
    const float *bias = q->at[2];
    fake_spoil(q->at[5]);
    int64_t area = c->out[0] * c->out[1] * c->out[2];
    for (int64_t k = 0; k < c->batch * area; k++) {
        int64_t o[3] = {k % area / c->out[2] / c->out[1], k % area / c->out[2] % c->out[1],
                        k % c->out[2]};
        for (int64_t channel = 0; channel < c->out_channels; channel++) {
            int64_t at = k * c->out_channels + channel;
            double v = conv_element(q, k / area, channel, o);
            v += c->has_bias ? (double)bias[channel] : 0;
            v += c->has_residual ? fake_float_at(c->type, q->at[3], at) : 0;
            fake_store_float(c->type, q->at[4], at,
                             activate(v, c->activation, c->act_alpha, c->act_beta));
        }
    }
}

static int conv(struct sy_math *math, struct sy_math_plan *plan, const void *x, const void *w,
                const void *bias, const void *residual, void *y, void *scratch)
{
    assert(plan && plan->is_conv && x != y && residual != y);
    assert(plan->conv.has_bias == !!bias && plan->conv.has_residual == !!residual);
    struct note q = {.run = run_conv,
                     .conv = plan->conv,
                     .at = {fake_seen(x), fake_seen(w), fake_seen(bias), fake_seen(residual),
                            fake_seen(y), fake_seen(scratch)}};
    if (plan->conv.direction != SY_MATH_FORWARD)
        q.run = fake_run_conv_gradient;
    return fake_enqueue(math, "conv", &q);
}

static double pool_element(const struct note *q, int64_t first, const int64_t *o)
{
    const struct sy_math_pool *c = &q->pool;
    double sum = 0, largest = -INFINITY;
    int64_t n = 0;
    for (int64_t k = 0; k < c->kernel[0] * c->kernel[1] * c->kernel[2]; k++) {
        int64_t a = WINDOW_AT(c, o[0], k / c->kernel[2] / c->kernel[1], 0),
                b = WINDOW_AT(c, o[1], k / c->kernel[2] % c->kernel[1], 1),
                d = WINDOW_AT(c, o[2], k % c->kernel[2], 2);
        if (!inside(a, c->in[0]) || !inside(b, c->in[1]) || !inside(d, c->in[2]))
            continue;
        double v = fake_float_at(c->type, q->at[0],
                                 first + a * c->in_strides[2] + b * c->in_strides[3] +
                                     d * c->in_strides[4]);
        sum += v;
        largest = v > largest ? v : largest;
        n++;
    }
    if (c->max)
        return largest;
    int64_t all = c->kernel[0] * c->kernel[1] * c->kernel[2];
    return sum / (double)(c->count_padding ? all : n);
}

static void run_pool(const struct note *q)
{
    const struct sy_math_pool *c = &q->pool;
    int64_t area = c->out[0] * c->out[1] * c->out[2];
    for (int64_t k = 0; k < c->batch * c->channels * area; k++) {
        int64_t n = k / area / c->channels, channel = k / area % c->channels;
        int64_t o[3] = {k % area / c->out[2] / c->out[1], k % area / c->out[2] % c->out[1],
                        k % c->out[2]};
        int64_t first = n * c->in_strides[0] + channel * c->in_strides[1],
                to = n * c->out_strides[0] + channel * c->out_strides[1] +
                     o[0] * c->out_strides[2] + o[1] * c->out_strides[3] + o[2] * c->out_strides[4];
        fake_store_float(c->type, q->at[1], to, pool_element(q, first, o));
    }
}

static int pool(struct sy_math *math, const struct sy_math_pool *c, const void *x, void *y)
{
    struct note q = {.run = run_pool, .pool = *c, .at = {fake_seen(x), fake_seen(y)}};
    return fake_enqueue(math, "pool", &q);
}

/* ---- products and rows --------------------------------------------------------------------------- */

/* at: a, b, bias, c, y, scratch */
static void run_matmul(const struct note *q)
{
    const struct sy_math_matmul *m = &q->matmul;
    const float *bias = q->at[2];
    fake_spoil(q->at[5]);
    for (int64_t i = 0; i < m->count * m->m * m->n; i++) {
        int64_t which = i / (m->m * m->n), row = i / m->n % m->m, column = i % m->n;
        int64_t a = which * m->a_stride, b = which * m->b_stride;
        int64_t to = which * m->y_stride + row * m->n + column;
        double sum = 0;
        for (int64_t k = 0; k < m->k; k++)
            sum += fake_float_at(m->type, q->at[0],
                                 a + (m->a_transposed ? k * m->m + row : row * m->k + k)) *
                   fake_float_at(m->type, q->at[1],
                                 b + (m->b_transposed ? column * m->k + k : k * m->n + column));
        sum *= (double)m->alpha;
        sum += m->beta != 0 ? (double)m->beta * fake_float_at(m->y_type, q->at[3], to) : 0;
        sum += m->has_bias ? (double)bias[column] : 0;
        fake_store_float(m->y_type, q->at[4], to,
                         activate(sum, m->activation, m->act_alpha, m->act_beta));
    }
}

static int matmul(struct sy_math *math, struct sy_math_plan *plan, const void *a, const void *b,
                  const void *bias, const void *c, void *y, void *scratch)
{
    assert(plan && !plan->is_conv && y != a && y != b);
    assert(plan->matmul.has_bias == !!bias && (plan->matmul.beta == 0 || c));
    assert(!sy_math_is_narrow(plan->matmul.y_type) || plan->matmul.y_type == plan->matmul.type);
    struct note q = {.run = run_matmul,
                     .matmul = plan->matmul,
                     .at = {fake_seen(a), fake_seen(b), fake_seen(bias), fake_seen(c), fake_seen(y),
                            fake_seen(scratch)}};
    return fake_enqueue(math, "matmul", &q);
}

static void run_softmax(const struct note *q)
{
    const struct sy_math_softmax *s = &q->softmax;
    for (int64_t k = 0; k < s->outer * s->inner; k++) {
        int64_t first = k / s->inner * s->extent * s->inner + k % s->inner;
        const float *x = (float *)q->at[0] + first;
        assert(!sy_math_is_narrow(s->out_type) || q->at[0] != q->at[1]);
        double largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < s->extent; i++)
            largest = fmax(largest, x[i * s->inner]);
        for (int64_t i = 0; i < s->extent; i++)
            sum += exp(x[i * s->inner] - largest);
        for (int64_t i = 0; i < s->extent; i++) {
            double v = x[i * s->inner] - largest;
            fake_store_float(s->out_type, q->at[1], first + i * s->inner,
                             s->logarithm ? v - log(sum) : exp(v) / sum);
        }
    }
}

static int softmax(struct sy_math *math, const struct sy_math_softmax *s, const void *x, void *y)
{
    struct note q = {.run = run_softmax, .softmax = *s, .at = {fake_seen(x), fake_seen(y)}};
    return fake_enqueue(math, "softmax", &q);
}

/* at: x, skip, scale, bias, out, sum */
static void norm_row(const struct note *q, int64_t row)
{
    int64_t n = q->norm.columns;
    const float *x = (float *)q->at[0] + row * n, *skip = q->at[1], *scale = q->at[2],
                *bias = q->at[3];
    float *sums = q->at[5];
    double mean = 0, variance = 0, *v = malloc((size_t)(n + 1) * sizeof *v);
    assert(v);
    for (int64_t i = 0; i < n; i++) {
        v[i] = (double)(x[i] + (skip ? skip[row * n + i] : 0));
        if (sums)
            sums[row * n + i] = (float)v[i];
        mean += v[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        variance += (v[i] - mean) * (v[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        fake_store_float(q->norm.out_type, q->at[4], row * n + i,
                         (v[i] - mean) / sqrt(variance + (double)q->norm.epsilon) * scale[i] +
                             (bias ? (double)bias[i] : 0));
    free(v);
}

static void run_norm(const struct note *q)
{
    for (int64_t row = 0; row < q->norm.rows; row++)
        norm_row(q, row);
}

static int layer_norm(struct sy_math *math, const struct sy_math_layer_norm *n, const void *x,
                      const void *skip, const void *scale, const void *bias, void *out, void *sum)
{
    struct note q = {.run = run_norm,
                     .norm = *n,
                     .at = {fake_seen(x), fake_seen(skip), fake_seen(scale), fake_seen(bias),
                            fake_seen(out), fake_seen(sum)}};
    return fake_enqueue(math, "layer_norm", &q);
}

static void run_reduce(const struct note *q)
{
    const struct sy_math_reduce *r = &q->reduce;
    int64_t kept[SY_MAX_RANK], stride = 1, n = elements(r->rank, r->dims);
    for (int d = r->rank - 1; d >= 0; d--) {
        kept[d] = r->reduced[d] ? 0 : stride;
        stride *= r->reduced[d] ? 1 : r->dims[d];
    }
    double *sums = calloc((size_t)stride, sizeof *sums);
    assert(sums);
    for (int64_t k = 0; k < n; k++)
        sums[offset_of(k, r->rank, r->dims, kept)] +=
            ((float *)q->at[0])[offset_of(k, r->rank, r->dims, r->strides)];
    for (int64_t k = 0; k < stride; k++)
        ((float *)q->at[1])[k] = (float)(r->mean ? sums[k] * (double)stride / (double)n : sums[k]);
    free(sums);
}

static int reduce(struct sy_math *math, const struct sy_math_reduce *r, const void *x, void *y)
{
    struct note q = {.run = run_reduce, .reduce = *r, .at = {fake_seen(x), fake_seen(y)}};
    return fake_enqueue(math, "reduce", &q);
}

/* ---- marks --------------------------------------------------------------------------------------- */

/* The mark in the queue: what is waited for is done up to there. */
static void run_mark(const struct note *note)
{
    (void)note;
}

static int mark(struct sy_math *math, unsigned slot)
{
    assert(slot < SY_MATH_MARKS);
    struct note q = {.run = run_mark, .n = slot};
    counts.marks++;
    return fake_enqueue(math, "mark", &q);
}

static void run_first(struct sy_math *math, int n)
{
    for (int i = 0; i < n; i++)
        math->queue.list[i].run(&math->queue.list[i]);
    math->queue.n -= n;
    memmove(math->queue.list, math->queue.list + n, (size_t)math->queue.n * sizeof(struct note));
}

static int wait_mark(struct sy_math *math, unsigned slot, int before, uint64_t *out_ns)
{
    int at = -1;
    assert(!capturing && before < (int)SY_MATH_MARKS);
    *out_ns = 0;
    SY_TRY(fake_call("wait_mark"));
    for (int i = 0; i < math->queue.n; i++)
        if (math->queue.list[i].run == run_mark && math->queue.list[i].n == (int64_t)slot)
            at = i;
    counts.waits++;
    counts.most_queued = counts.most_queued > math->queue.n ? counts.most_queued : math->queue.n;
    run_first(math, at + 1);
    return SY_OK;
}

static int synchronize(struct sy_math *math)
{
    assert(math == open_math);
    SY_TRY(fake_call("synchronize"));
    counts.synchronizations++;
    return fake_math_synchronize();
}

/* ---- graphs -------------------------------------------------------------------------------------- */

static int capture_begin(struct sy_math *math)
{
    assert(math == open_math && !capturing);
    SY_TRY(fake_call("capture_begin"));
    capturing = calloc(1, sizeof *capturing);
    assert(capturing);
    counts.graphs++;
    return SY_OK;
}

static void graph_drop(struct sy_math *math, struct sy_math_graph *graph)
{
    (void)math;
    if (!graph)
        return;
    counts.graphs--;
    free(graph->notes.list);
    free(graph);
}

static int capture_end(struct sy_math *math, struct sy_math_graph **out)
{
    struct sy_math_graph *graph = capturing;
    assert(graph);
    capturing = NULL;
    int status = fake_call("capture_end");
    if (status < 0)
        graph_drop(math, graph);
    *out = status < 0 ? NULL : graph;
    return status;
}

static int graph_launch(struct sy_math *math, struct sy_math_graph *graph)
{
    assert(graph && !capturing);
    SY_TRY(fake_call("graph_launch"));
    for (int i = 0; i < graph->notes.n; i++)
        append(&math->queue, &graph->notes.list[i]);
    return SY_OK;
}

const struct sy_math_ops fake_math = {
    .name = "fake",
    .scratch_bytes = FAKE_SCRATCH_BYTES,
    .back_scratch_bytes = FAKE_BACK_SCRATCH_BYTES,
    .open = open_fake,
    .close = close_fake,
    .host_take = host_take,
    .host_drop = host_drop,
    .conv_plan = conv_plan,
    .matmul_plan = matmul_plan,
    .plan_drop = plan_drop,
    .conv = conv,
    .matmul = matmul,
    .pool = pool,
    .chain = chain,
    .where = where,
    .equal = equal,
    .move = move,
    .fill = fill,
    .zero = zero,
    .gather = gather,
    .cast = cast,
    .softmax = softmax,
    .layer_norm = layer_norm,
    .reduce = reduce,
    .train = &fake_math_train,
    .columns = fake_columns,
    .norm_gradient = fake_norm_gradient,
    .pool_gradient = fake_pool_gradient,
    .loss = fake_loss,
    .update = fake_update,
    .mark = mark,
    .wait_mark = wait_mark,
    .synchronize = synchronize,
    .copy = copy,
    .to_device = to_device,
    .to_host = to_host,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_drop = graph_drop,
};
