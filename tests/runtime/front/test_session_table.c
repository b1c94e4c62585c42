/* Sessions: which outputs belong to which inputs by their names; taking, storing, limits and ends, against the slab's books. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/slab.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/session_table.h"
#include "tests/nets/graph_builder.h"
#include "tests/rigs/seed.h"

#define TENSOR_BYTES 4096u

/* A core that has one model, and a slab. */
struct world {
    struct sy_slab *slab;
    struct sy_core_handlers handlers;
    struct sy_front front;
    struct sy_package package;
    struct sy_core_model_ref ref;
    bool is_gone;
};

static struct sy_slab *slab_of(void *core)
{
    return ((struct world *)core)->slab;
}

static int acquire(void *core, const char *name, int64_t version, struct sy_core_model_ref **out)
{
    struct world *w = core;

    (void)name, (void)version;
    *out = &w->ref;
    return w->is_gone ? sy_error_set(SY_ENOTFOUND, "gone") : SY_OK;
}

static void release(void *core, struct sy_core_model_ref *ref)
{
    (void)core, (void)ref;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

static void rename_tensor(struct sy_graph *g, int tensor, const char *name)
{
    free(g->tensors[tensor].name);
    g->tensors[tensor].name = strdup(name);
    assert_non_null(g->tensors[tensor].name);
}

/* One input and one Relu of it a name; the outputs' names are the others, in the opposite order. */
static struct sy_graph *graph_of(const char *const *inputs, const char *const *outputs, int n)
{
    struct sy_graph *g = gb_new("state");
    int results[8];

    for (int i = 0; i < n; i++) {
        int x = gb_input(g, 2, (int64_t[]){1, 4});
        results[i] = gb_node(g, SY_OP_RELU, 1, &x, 2, (int64_t[]){1, 4});
        rename_tensor(g, x, inputs[i]);
        rename_tensor(g, results[i], outputs[i]);
    }
    for (int i = n - 1; i >= 0; i--)
        gb_output(g, results[i]);
    return g;
}

static bool is_pair(const char *input, const char *output)
{
    struct sy_state_pair pairs[4];
    struct sy_graph *g = graph_of(&input, &output, 1);
    int n = sy_state_pairs_find(g, pairs, 4);

    sy_graph_free(g);
    return n == 1;
}

static void test_names(void **state)
{
    (void)state;
    assert_true(is_pair("past_key_values.0.key", "present.0.key"));
    assert_true(is_pair("past_key_values.11.value", "present_key_values.11.value"));
    assert_true(is_pair("past_0", "present_0"));
    assert_true(is_pair("past_key_3", "present_key_3"));
    assert_true(is_pair("decoder.past.0.encoder.key", "decoder.present.0.encoder.key"));
    assert_false(is_pair("past_key_values.1.key", "present.11.key"));
    assert_false(is_pair("past_key_values.0.key", "present.0.value"));
    assert_false(is_pair("a.past.0", "b.present.0"));
    assert_false(is_pair("input_ids", "present.0.key"));
    assert_false(is_pair("past_0", "logits"));
}

static void test_orders(void **state)
{
    const char *const inputs[] = {"x", "past.0", "past.1", "past.2"};
    const char *const outputs[] = {"logits", "present.0", "present.1", "present.2"};
    struct sy_graph *g = graph_of(inputs, outputs, 4);
    struct sy_state_pair pairs[4];

    (void)state;
    assert_int_equal(sy_state_pairs_find(g, pairs, 4), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pairs[i].input, i + 1);
        assert_int_equal(pairs[i].output, 2 - i); /* the outputs stand in the opposite order */
    }
    assert_int_equal(sy_state_pairs_find(g, pairs, 2), 2);
    sy_graph_free(g);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

static void open_world(struct world *w)
{
    const char *const inputs[] = {"past.0", "past.1"}, *const outputs[] = {"present.0",
                                                                           "present.1"};

    *w = (struct world){
        .handlers = {.slab = slab_of, .model_acquire = acquire, .model_release = release}};
    assert_int_equal(sy_slab_create(1 << 20, &w->slab), SY_OK);
    w->package.graph = graph_of(inputs, outputs, 2);
    w->package.content_hash = 77;
    w->ref = (struct sy_core_model_ref){.package = &w->package, .name = "m", .version = 1};
    w->front = (struct sy_front){.base = event_base_new(), .handlers = &w->handlers, .core = w};
}

static void close_world(struct world *w, struct sy_sessions *sessions)
{
    sy_sessions_destroy(sessions);
    assert_int_equal(sy_slab_used_bytes(w->slab), 0); /* nothing of any session is left */
    sy_slab_destroy(w->slab);
    sy_graph_free(w->package.graph);
    event_base_free(w->front.base);
}

static void fill(struct world *w, struct sy_session_tensor *tensors)
{
    for (int i = 0; i < 2; i++) {
        tensors[i] = (struct sy_session_tensor){.bytes = TENSOR_BYTES, .dims = {1, 4}};
        assert_int_equal(sy_slab_alloc(w->slab, TENSOR_BYTES, &tensors[i].at), SY_OK);
    }
}

static void store(struct world *w, struct sy_sessions *sessions, struct sy_session *session)
{
    struct sy_session_tensor tensors[2];

    fill(w, tensors);
    assert_true(sy_sessions_store(sessions, session, tensors));
}

static void test_one_session(void **state)
{
    struct world w;
    struct sy_sessions *sessions;
    struct sy_session *s, *other;

    (void)state;
    open_world(&w);
    assert_int_equal(sy_sessions_create(&w.front, NULL, &sessions), SY_OK);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", false, &s), SY_ENOTFOUND);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", true, &s), SY_OK);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", false, &other), SY_EBUSY); /* K1 */
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", true, &other), SY_EBUSY);
    assert_int_equal(sy_sessions_end(sessions, "m", "", "1"), SY_EBUSY);
    sy_sessions_give(sessions, s, false); /* it failed, and had nothing */
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", false, &s), SY_ENOTFOUND);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", true, &s), SY_OK);
    store(&w, sessions, s);
    sy_sessions_give(sessions, s, false);
    uint64_t at = s->tensors[0].at, used = sy_slab_used_bytes(w.slab);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", false, &s), SY_OK);
    sy_sessions_give(sessions, s, false); /* K2: it failed, and has what it had */
    assert_int_equal(s->tensors[0].at, at);
    assert_int_equal(sy_slab_used_bytes(w.slab), used);
    w.package.content_hash = 78; /* K4 */
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", false, &s), SY_ENOTFOUND);
    w.ref.version = 2;
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "1", false, &s), SY_EARG);
    assert_int_equal(sy_sessions_end(sessions, "m", "", "1"), SY_OK);
    assert_int_equal(sy_slab_used_bytes(w.slab), 0);
    close_world(&w, sessions);
}

static void test_limits(void **state)
{
    const struct sy_session_limits limits = {
        .max_sessions = 3, .bytes = 5 * TENSOR_BYTES, .tenant_bytes = 4 * TENSOR_BYTES};
    struct world w;
    struct sy_sessions *sessions;
    struct sy_session *s[4];
    char id[SY_SESSION_ID + 1];

    (void)state;
    open_world(&w);
    assert_int_equal(sy_sessions_create(&w.front, &limits, &sessions), SY_OK);
    memset(id, 'x', sizeof id - 1);
    id[SY_SESSION_ID] = '\0';
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", id, true, &s[0]), SY_EARG);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "", true, &s[0]), SY_EARG);
    for (int i = 0; i < 3; i++) {
        const char *tenant = i == 2 ? "b" : "a", *name = i == 1 ? "y" : "x";
        assert_int_equal(sy_sessions_take(sessions, &w.ref, tenant, name, true, &s[i]), SY_OK);
    }
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "z", true, &s[3]), SY_EBUSY);
    store(&w, sessions, s[0]);
    assert_int_equal(sy_sessions_check_room(sessions, s[0], 4 * TENSOR_BYTES),
                     SY_OK); /* its own goes */
    assert_int_equal(sy_sessions_check_room(sessions, s[0], 2 * TENSOR_BYTES), SY_OK);
    assert_int_equal(sy_sessions_check_room(sessions, s[1], 2 * TENSOR_BYTES), SY_OK);
    assert_int_equal(sy_sessions_check_room(sessions, s[1], 2 * TENSOR_BYTES + 1), SY_EBUSY);
    /* What a request under way will leave counts. */
    assert_int_equal(sy_sessions_check_room(sessions, s[2], 1 * TENSOR_BYTES), SY_OK);
    assert_int_equal(sy_sessions_check_room(sessions, s[2], 1 * TENSOR_BYTES + 1), SY_EBUSY);
    assert_int_equal(sy_sessions_check_room(sessions, s[2], UINT64_MAX / 2), SY_EBUSY);
    sy_sessions_give(sessions, s[0], true);
    sy_sessions_close(sessions); /* two are under way: their results are nobody's */
    struct sy_session_tensor none[2] = {{0}};
    assert_false(sy_sessions_store(sessions, s[1], none));
    sy_sessions_give(sessions, s[1], false);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "z", true, &s[3]), SY_EBUSY);
    close_world(&w, sessions);
}

/* Random calls beside a table of what must be there. */
static void test_random(void **state)
{
    struct world w;
    struct sy_sessions *sessions;
    struct sy_session *busy[4] = {NULL};
    bool stored[4] = {false};
    uint64_t seed = seed_of_run(25);

    (void)state;
    open_world(&w);
    assert_int_equal(sy_sessions_create(&w.front, NULL, &sessions), SY_OK);
    for (int i = 0; i < 4000; i++) {
        const char *const ids[] = {"a", "b", "c", "d"};
        uint64_t k = seed_below(&seed, 4), what = seed_below(&seed, 4);
        bool start = what == 0;
        if (busy[k]) {
            if (what < 3) {
                store(&w, sessions, busy[k]);
                stored[k] = true;
            }
            stored[k] &= what != 2;
            sy_sessions_give(sessions, busy[k], what == 2);
            busy[k] = NULL;
        } else if (what == 3) {
            assert_int_equal(sy_sessions_end(sessions, "m", "", ids[k]),
                             stored[k] ? SY_OK : SY_ENOTFOUND);
            stored[k] = false;
        } else {
            int status = sy_sessions_take(sessions, &w.ref, "", ids[k], start, &busy[k]);
            assert_int_equal(status, start || stored[k] ? SY_OK : SY_ENOTFOUND);
            stored[k] &= !start;
        }
        uint64_t n = 0;
        for (int j = 0; j < 4; j++)
            n += stored[j];
        assert_int_equal(sy_slab_used_bytes(w.slab), n * 2 * TENSOR_BYTES);
    }
    close_world(&w, sessions);
}

static void end_loop(evutil_socket_t fd, short what, void *base)
{
    (void)fd, (void)what;
    event_base_loopbreak(base);
}

/* The model goes, and its session within a second or two; one that is under way stays. */
static void test_model_gone(void **state)
{
    struct world w;
    struct sy_sessions *sessions;
    struct sy_session *kept, *s;
    struct timeval later = {0, 100000};

    (void)state;
    open_world(&w);
    assert_int_equal(sy_sessions_create(&w.front, NULL, &sessions), SY_OK);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "busy", true, &kept), SY_OK);
    assert_int_equal(sy_sessions_take(sessions, &w.ref, "", "idle", true, &s), SY_OK);
    store(&w, sessions, s);
    sy_sessions_give(sessions, s, false);
    w.is_gone = true;
    struct event *tick = event_new(w.front.base, -1, EV_PERSIST, end_loop, w.front.base);
    event_add(tick, &later);
    while (sy_slab_used_bytes(w.slab) > 0)
        event_base_dispatch(w.front.base);
    event_free(tick);
    assert_int_equal(sy_sessions_end(sessions, "m", "", "busy"), SY_EBUSY);
    close_world(&w, sessions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_orders),
        cmocka_unit_test(test_one_session), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random),      cmocka_unit_test(test_model_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
