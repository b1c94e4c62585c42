/* A worker that somebody else has taken over: well-formed messages with any numbers, in any order and state, from any worker, to a core that serves a
 * request and trains a job. The codec under them is fuzz_messages'. The core must neither crash nor hand out memory twice, whatever they say.
 *
 * An input is a list of messages: which, from whom, then a value for each field: a small number in one byte, any in nine. */
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "allocator/residency.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/rigs/core_rig.h"

#define N_WORKERS     3
#define MOST_MESSAGES 48
#define MOST_LIST     24
#define WIDE          200u /* a first byte from here on is followed by eight */

struct bytes {
    const uint8_t *at, *end;
};

static uint8_t byte_of(struct bytes *b)
{
    return b->at < b->end ? *b->at++ : 0;
}

static uint64_t take_U64(struct bytes *b)
{
    uint8_t first = byte_of(b);
    uint64_t value = 0;
    if (first < WIDE)
        return first;
    for (int i = 0; i < 8; i++)
        value = value << 8 | byte_of(b);
    return value;
}

static int64_t take_I64(struct bytes *b)
{
    return (int64_t)(0 - take_U64(b));
}

/* Another one is refused by the codec. */
static int64_t take_STATUS(struct bytes *b)
{
    int64_t status = take_I64(b);
    return sy_status_is_known(status) ? status : SY_OK;
}

static double take_F64(struct bytes *b)
{
    uint64_t value = take_U64(b);
    double real;
    memcpy(&real, &value, sizeof real);
    return value < WIDE ? (double)value : real;
}

static char *take_STR(struct bytes *b)
{
    static char text[9];
    snprintf(text, sizeof text, "%.*s", byte_of(b) % 8, "\x1b[2J\"%s%n");
    return text;
}

static struct sy_u64s take_U64S(struct bytes *b)
{
    static uint64_t values[MOST_LIST];
    struct sy_u64s list = {byte_of(b) % (MOST_LIST + 1), values};
    for (size_t i = 0; i < list.n; i++)
        values[i] = take_U64(b);
    return list;
}

/* What workers say; the other direction is refused by the codec. */
static const enum sy_message_id ids[] = {
#define KEEP_TO_RUNTIME(NAME) SY_MSG_##NAME,
#define KEEP_TO_WORKER(NAME)
#define M(NAME, name, id, direction) KEEP_##direction(NAME)
    SY_MESSAGE_TABLE(M)
#undef M
};

static void take_message(struct bytes *b, struct sy_message *out)
{
    memset(out, 0, sizeof *out);
    out->id = ids[byte_of(b) % SY_ARRAY_LEN(ids)];
#define TAKE(kind, name) m->name = take_##kind(b);
#define M(NAME, name_, id_, direction)          \
    if (out->id == SY_MSG_##NAME) {             \
        struct sy_msg_##name_ *m = &out->name_; \
        SY_FIELDS_##NAME(TAKE)                  \
    }
    SY_MESSAGE_TABLE(M)
#undef M
#undef TAKE
}

static bool is_training(struct core_rig *r, void *id)
{
    return core_rig_job_is(r, *(uint64_t *)id, "training");
}

static bool computes(struct core_rig *r, void *ctx)
{
    (void)ctx;
    return core_rig_worker_in(r, SY_WORKER_RUNNING) >= 0;
}

/* The core starts its workers as this program. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (fake_is_worker(*argc, *argv))
        exit(fake_worker_main(*argv));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct core_rig rig;
    static struct core_answer answer;
    struct core_done done = {0};
    struct bytes b = {data, data + size};
    uint64_t job;

    memset(&answer, 0, sizeof answer);
    core_rig_open(&rig, "host", N_WORKERS);
    core_rig_add_both(&rig);
    core_rig_submit(&rig, &done, &job);
    core_rig_until(&rig, is_training, &job, "a job");
    atomic_store(&rig.script->hold_runs, 1);
    core_rig_infer(&rig, "a", 1, &answer);
    core_rig_until(&rig, computes, NULL, "a run");
    for (int n = 0; n < MOST_MESSAGES && b.at < b.end; n++) {
        struct sy_message message;
        int worker = byte_of(&b) % N_WORKERS;
        take_message(&b, &message);
        (void)sy_core_message(rig.core, worker, &message);
    }
    core_rig_turn(&rig, 1);
    FUZZ_CHECK(answer.n_calls <= 1);
    atomic_store(&rig.script->hold_runs, 0);
    core_rig_close(&rig);
    FUZZ_CHECK(answer.n_calls <= 1);
    return 0;
}

/* One of each message, its job, model and run the ones that there are, from each worker. */
size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    size_t n = 0, most = 3 * SY_ARRAY_LEN(ids);
    if ((size_t)i >= most)
        return 0;
    to[n++] = (uint8_t)(i % N_WORKERS);
    to[n++] = (uint8_t)(i / N_WORKERS);
    for (int field = 0; field < 12 && n < room; field++)
        to[n++] = field < 2 ? (uint8_t)(1 - field) : 0;
    return n;
}
