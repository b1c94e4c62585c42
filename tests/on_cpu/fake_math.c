#include "tests/on_cpu/fake_math_internal.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/cpu_launch.h"
#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/kernels/kernels.h"

#define MAX_QUEUED         (1 << 20)
#define SCRATCH_BYTES      (64 << 10)
#define BACK_SCRATCH_BYTES (96 << 10)
#define LAUNCH_FAILURE     719 /* CUDA's number */

/* Something enqueued. */
struct note;
typedef void (*note_run)(const struct note *note);

struct note {
    note_run run;
    void *at[5];
    int64_t n;
    struct sy_math_matmul matmul;
    struct cpu_work work; /* of a kernel; the note's own copy of its arguments */
};

struct notes {
    int n, capacity;
    struct note *list;
};

struct sy_math {
    struct CUstream_st stream; /* the first, so that a kernel's stream leads here */
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

/* Counts a call, which may be the one to fail. */
int fake_math_call(const char *name)
{
    counts.calls++;
    return counts.calls == fail_at ? sy_error_set(SY_EDEVICE, "fake %s fails", name) : SY_OK;
}

void *fake_math_device(void *host)
{
    return host ? (void *)((uintptr_t)host | CPU_MARK) : NULL;
}

/* A device pointer as the host's; NULL stays NULL. */
void *fake_math_seen(const void *device)
{
    assert(!device || ((uintptr_t)device & CPU_MARK));
    return (void *)((uintptr_t)device & ~CPU_MARK);
}

static void *plain(const void *host)
{
    assert(host && !((uintptr_t)host & CPU_MARK));
    return (void *)(uintptr_t)host;
}

/* With a copy of a kernel's arguments. */
static void append(struct notes *notes, const struct note *note)
{
    if (notes->n == notes->capacity) {
        notes->capacity = notes->capacity ? 2 * notes->capacity : 64;
        assert(notes->capacity <= MAX_QUEUED);
        notes->list = realloc(notes->list, (size_t)notes->capacity * sizeof *notes->list);
        assert(notes->list);
    }
    struct note *kept = &notes->list[notes->n++];
    *kept = *note;
    if (note->work.bytes > 0) {
        void *body = malloc(note->work.bytes);
        assert(body);
        kept->work.body = memcpy(body, note->work.body, note->work.bytes);
    }
}

/* The first n are done, or will never be. */
static void forget(struct notes *notes, int n)
{
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)notes->list[i].work.body);
    notes->n -= n;
    if (notes->n > 0)
        memmove(notes->list, notes->list + n, (size_t)notes->n * sizeof(struct note));
}

static void run_first(struct sy_math *math, int n)
{
    for (int i = 0; i < n; i++)
        math->queue.list[i].run(&math->queue.list[i]);
    forget(&math->queue, n);
}

static int enqueue(struct sy_math *math, const char *name, const struct note *note)
{
    assert(math && math == open_math);
    SY_TRY(fake_math_call(name));
    append(capturing ? &capturing->notes : &math->queue, note);
    return SY_OK;
}

static void run_call(const struct note *note)
{
    note->work.call(note->work.body);
}

/* Kernels of two streams' threads run one behind the other. */
void fake_math_run(const struct cpu_work *work)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    cpu_run(work);
    pthread_mutex_unlock(&lock);
}

static void run_kernel(const struct note *note)
{
    fake_math_run(&note->work);
}

static int take_kernel(struct CUstream_st *stream, const struct cpu_work *work)
{
    struct note note = {.run = run_kernel, .work = *work};
    return enqueue((struct sy_math *)stream, "launch", &note) < 0 ? LAUNCH_FAILURE : 0;
}

int fake_math_enqueue(struct sy_math *math, const char *name, void (*call)(const void *body),
                      const void *body, size_t bytes)
{
    struct note note = {.run = run_call, .work = {.call = call, .body = body, .bytes = bytes}};
    return enqueue(math, name, &note);
}

struct CUstream_st *sy_math_kernel_stream(struct sy_math *math)
{
    return &math->stream;
}

uint64_t sy_math_kernel_scratch(void)
{
    return SCRATCH_BYTES;
}

bool sy_math_kernel_tf32(const struct sy_math *math)
{
    (void)math;
    return false;
}

int sy_math_kernel_check(struct sy_math *math, int error, const char *name)
{
    (void)math;
    return error == 0 ? SY_OK : sy_error_set(SY_EDEVICE, "fake %s kernel fails: %d", name, error);
}

int fake_math_synchronize(void)
{
    assert(!capturing);
    if (open_math)
        run_first(open_math, open_math->queue.n);
    return SY_OK;
}

void fake_math_lose(void)
{
    if (open_math)
        forget(&open_math->queue, open_math->queue.n);
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
    SY_TRY(fake_math_call("open"));
    *out = open_math = calloc(1, sizeof *open_math);
    assert(open_math);
    open_math->stream.take = take_kernel;
    counts.maths++;
    return SY_OK;
}

static void close_fake(struct sy_math *math)
{
    assert(math == open_math && counts.plans == 0 && counts.graphs == 0 && counts.host_blocks == 0);
    forget(&math->queue, math->queue.n);
    free(math->queue.list);
    free(math);
    open_math = NULL;
    counts.maths--;
}

static int host_take(struct sy_math *math, uint64_t bytes, void **out)
{
    (void)math;
    SY_TRY(fake_math_call("host_take"));
    *out = malloc(bytes);
    assert(*out);
    memset(*out, 0xff, bytes);
    cpu_allow(*out, bytes);
    counts.host_blocks++;
    return SY_OK;
}

static void host_drop(struct sy_math *math, void *memory)
{
    (void)math;
    counts.host_blocks -= memory != NULL;
    cpu_forbid(memory);
    free(memory);
}

static int conv_plan(struct sy_math *math, const struct sy_math_conv *conv,
                     struct sy_math_plan **out)
{
    (void)math;
    SY_TRY(fake_math_call("conv_plan"));
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
    SY_TRY(fake_math_call("matmul_plan"));
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

/* ---- memory --------------------------------------------------------------------------------------- */

static void run_zero(const struct note *q)
{
    memset(q->at[0], 0, (size_t)q->n);
}

static int zero(struct sy_math *math, void *to, uint64_t bytes)
{
    struct note q = {.run = run_zero, .n = (int64_t)bytes, .at = {fake_math_seen(to)}};
    return enqueue(math, "zero", &q);
}

static void run_copy(const struct note *q)
{
    memcpy(q->at[1], q->at[0], (size_t)q->n);
}

static int copy(struct sy_math *math, const void *from, void *to, uint64_t bytes)
{
    struct note q = {
        .run = run_copy, .n = (int64_t)bytes, .at = {fake_math_seen(from), fake_math_seen(to)}};
    return enqueue(math, "copy", &q);
}

static int to_device(struct sy_math *math, const void *host, void *to, uint64_t bytes)
{
    assert(!capturing);
    struct note q = {.run = run_copy, .n = (int64_t)bytes, .at = {plain(host), fake_math_seen(to)}};
    return enqueue(math, "to_device", &q);
}

static int to_host(struct sy_math *math, const void *from, void *host, uint64_t bytes)
{
    assert(!capturing);
    struct note q = {
        .run = run_copy, .n = (int64_t)bytes, .at = {fake_math_seen(from), plain(host)}};
    return enqueue(math, "to_host", &q);
}

/* ---- convolutions and products, which are libraries' ---------------------------------------------- */

/* Whoever trusts what lies in the scratch across calls is found out. at: scratch; n: bytes */
static void run_spoil(const struct note *q)
{
    memset(q->at[0], 0xee, (size_t)q->n);
}

static int conv(struct sy_math *math, struct sy_math_plan *plan, const void *x, const void *w,
                const void *bias, const void *residual, void *y, void *scratch)
{
    assert(plan && plan->is_conv && x != y && residual != y);
    bool is_narrow = plan->conv.direction == SY_MATH_FORWARD && !plan->conv.wide_scratch;
    assert(plan->conv.has_bias == !!bias && plan->conv.has_residual == !!residual);
    struct note spoil = {.run = run_spoil,
                         .n = is_narrow ? SCRATCH_BYTES : BACK_SCRATCH_BYTES,
                         .at = {fake_math_seen(scratch)}};
    SY_TRY(enqueue(math, "conv", &spoil));
    return sy_math_kernel_check(
        math, sy_kernel_conv(&math->stream, &plan->conv, x, w, bias, residual, y), "convolution");
}

static double float_at(enum sy_dtype type, const void *at, int64_t i)
{
    return (double)(type == SY_DTYPE_F16    ? sy_half_to_float(((const uint16_t *)at)[i])
                    : type == SY_DTYPE_BF16 ? sy_bf16_to_float(((const uint16_t *)at)[i])
                                            : ((const float *)at)[i]);
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

/* at: a, b, bias, c, y */
static void run_matmul(const struct note *q)
{
    const struct sy_math_matmul *m = &q->matmul;
    for (int64_t i = 0; i < m->count * m->m * m->n; i++) {
        int64_t which = i / (m->m * m->n), row = i / m->n % m->m, column = i % m->n;
        int64_t a = which * m->a_stride, b = which * m->b_stride;
        int64_t to = which * m->y_stride + row * m->n + column;
        double sum = 0;
        for (int64_t k = 0; k < m->k; k++)
            sum += float_at(m->type, q->at[0],
                            a + (m->a_transposed ? k * m->m + row : row * m->k + k)) *
                   float_at(m->type, q->at[1],
                            b + (m->b_transposed ? column * m->k + k : k * m->n + column));
        sum *= (double)m->alpha;
        sum += m->beta != 0 ? (double)m->beta * float_at(m->y_type, q->at[3], to) : 0;
        sum += m->has_bias ? float_at(m->bias_type, q->at[2], column) : 0;
        store_float(m->y_type, q->at[4], to,
                    (float)activate(sum, m->activation, m->act_alpha, m->act_beta));
    }
}

static int matmul(struct sy_math *math, struct sy_math_plan *plan, const void *a, const void *b,
                  const void *bias, const void *c, void *y, void *scratch)
{
    assert(plan && !plan->is_conv && y != a && y != b);
    assert(plan->matmul.has_bias == !!bias && (plan->matmul.beta == 0 || c));
    assert(!sy_math_is_narrow(plan->matmul.y_type) || plan->matmul.y_type == plan->matmul.type);
    struct note spoil = {.run = run_spoil, .n = SCRATCH_BYTES, .at = {fake_math_seen(scratch)}};
    struct note q = {.run = run_matmul,
                     .matmul = plan->matmul,
                     .at = {fake_math_seen(a), fake_math_seen(b), fake_math_seen(bias),
                            fake_math_seen(c), fake_math_seen(y)}};
    append(capturing ? &capturing->notes : &math->queue, &spoil);
    return enqueue(math, "matmul", &q);
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
    return enqueue(math, "mark", &q);
}

static int wait_mark(struct sy_math *math, unsigned slot, int before, uint64_t *out_ns)
{
    int at = -1;
    assert(!capturing && before < (int)SY_MATH_MARKS);
    *out_ns = 0;
    SY_TRY(fake_math_call("wait_mark"));
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
    SY_TRY(fake_math_call("synchronize"));
    counts.synchronizations++;
    return fake_math_synchronize();
}

/* ---- graphs -------------------------------------------------------------------------------------- */

static int capture_begin(struct sy_math *math)
{
    assert(math == open_math && !capturing);
    SY_TRY(fake_math_call("capture_begin"));
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
    forget(&graph->notes, graph->notes.n);
    free(graph->notes.list);
    free(graph);
}

static int capture_end(struct sy_math *math, struct sy_math_graph **out)
{
    struct sy_math_graph *graph = capturing;
    assert(graph);
    capturing = NULL;
    int status = fake_math_call("capture_end");
    if (status < 0)
        graph_drop(math, graph);
    *out = status < 0 ? NULL : graph;
    return status;
}

static int graph_launch(struct sy_math *math, struct sy_math_graph *graph)
{
    assert(graph && !capturing);
    SY_TRY(fake_math_call("graph_launch"));
    for (int i = 0; i < graph->notes.n; i++)
        append(&math->queue, &graph->notes.list[i]);
    return SY_OK;
}

const struct sy_math_ops fake_math = {
    .name = "fake",
    .scratch_bytes = SCRATCH_BYTES,
    .back_scratch_bytes = BACK_SCRATCH_BYTES,
    .open = open_fake,
    .close = close_fake,
    .host_take = host_take,
    .host_drop = host_drop,
    .conv_plan = conv_plan,
    .matmul_plan = matmul_plan,
    .plan_drop = plan_drop,
    .tune = fake_library_tune,
    .choices = fake_library_choices,
    .use_choices = fake_library_use_choices,
    .conv = conv,
    .matmul = matmul,
    .zero = zero,
    SY_KERNEL_OPS,
    .library = &fake_library,
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
