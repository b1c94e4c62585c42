/* Spans of requests: their JSON, and their way to a collector that takes them, refuses them, is slow, or is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <jansson.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_trace.h"
#include "runtime/front/request/trace_settings.h"
#include "runtime/telemetry/otlp.h"
#include "runtime/telemetry/otlp_json.h"
#include "tests/rigs/seed.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static uint64_t seed = 1;

/* ---- reading what was built ------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *span, const char *key)
{
    return json_string_value(json_object_get(span, key));
}

static uint64_t number_of(const json_t *span, const char *key)
{
    const char *text = text_of(span, key); /* 64-bit numbers are strings */

    assert_non_null(text);
    return strtoull(text, NULL, 10);
}

static const json_t *attribute(const json_t *of, const char *key)
{
    size_t i;
    json_t *each;

    json_array_foreach(json_object_get(of, "attributes"), i, each)
    {
        if (strcmp(text_of(each, "key"), key) == 0)
            return json_object_get(each, "value");
    }
    return NULL;
}

static void check_id(const char *id, size_t digits)
{
    assert_non_null(id);
    assert_int_equal(strlen(id), digits);
    assert_int_equal(strspn(id, "0123456789abcdef"), digits);
    assert_true(strspn(id, "0") < digits);
}

/* The spans of an ExportTraceServiceRequest, each checked on its own; owned by `root`. */
static json_t *spans_of(json_t *root)
{
    json_t *resource_spans = json_array_get(json_object_get(root, "resourceSpans"), 0);
    json_t *resource = json_object_get(resource_spans, "resource");
    json_t *scope_spans = json_array_get(json_object_get(resource_spans, "scopeSpans"), 0);
    json_t *spans = json_object_get(scope_spans, "spans"), *span;
    size_t i;

    assert_string_equal(text_of(attribute(resource, "service.name"), "stringValue"), "switchyard");
    assert_non_null(text_of(attribute(resource, "service.version"), "stringValue"));
    assert_non_null(text_of(json_object_get(scope_spans, "scope"), "name"));
    json_array_foreach(spans, i, span)
    {
        check_id(text_of(span, "traceId"), 32);
        check_id(text_of(span, "spanId"), 16);
        assert_true(number_of(span, "startTimeUnixNano") <= number_of(span, "endTimeUnixNano"));
        assert_true(number_of(span, "startTimeUnixNano") > 1000000000ull * SY_NS_PER_S);
    }
    return spans;
}

/* Each child is its server's: same trace, its time within; returns how many servers there are. */
static int check_tree(json_t *spans)
{
    const json_t *server = NULL;
    int n_servers = 0;
    size_t i;
    json_t *span;

    json_array_foreach(spans, i, span)
    {
        if (json_integer_value(json_object_get(span, "kind")) == 2) {
            server = span;
            n_servers++;
            continue;
        }
        assert_int_equal(json_integer_value(json_object_get(span, "kind")), 1);
        assert_non_null(server);
        assert_string_equal(text_of(span, "parentSpanId"), text_of(server, "spanId"));
        assert_string_equal(text_of(span, "traceId"), text_of(server, "traceId"));
        assert_string_not_equal(text_of(span, "spanId"), text_of(server, "spanId"));
        assert_true(number_of(span, "startTimeUnixNano") >= number_of(server, "startTimeUnixNano"));
        assert_true(number_of(span, "endTimeUnixNano") <= number_of(server, "endTimeUnixNano"));
    }
    return n_servers;
}

/* ---- the JSON ------------------------------------------------------------------------------------------------------ */

static struct sy_request_report a_swap(sy_ns from)
{
    return (struct sy_request_report){.id = 7,
                                      .arrived_ns = from + 100,
                                      .started_ns = from + 300,
                                      .run_ns = from + 400,
                                      .first_layer_ns = from + 550,
                                      .finished_ns = from + 1000,
                                      .storage_start_ns = from + 310,
                                      .storage_end_ns = from + 700,
                                      .copy_start_ns = from + 330,
                                      .copy_end_ns = from + 800,
                                      .compute_wait_ns = 200,
                                      .moved_bytes = 4096,
                                      .swapped = true,
                                      .worker = 2,
                                      .attempts = 1};
}

static json_t *built(const struct sy_otlp_record *const *records, int n)
{
    char *text;
    size_t bytes;
    json_error_t error;

    assert_int_equal(sy_otlp_json("1.2\"3", records, n, &text, &bytes), SY_OK);
    json_t *root = json_loadb(text, bytes, 0, &error);
    if (!root)
        fail_msg("%s in %.*s", error.text, (int)bytes, text);
    free(text);
    return root;
}

static void test_a_swap_has_its_phases(void **state)
{
    static const char *const names[] = {"infer resnet", "queue", "storage",
                                        "link",         "wait",  "compute"};
    struct sy_otlp_record record = {.span_id = 0x1234,
                                    .wall_offset_ns = 1700000000000000000,
                                    .model = "resnet",
                                    .version = 3,
                                    .protocol = "http",
                                    .from_ns = 1050,
                                    .to_ns = 2100,
                                    .has_report = true,
                                    .report = a_swap(1000),
                                    .tracestate = "a=1"};
    const struct sy_otlp_record *records[] = {&record};

    (void)state;
    assert_true(sy_trace_context_parse("00-" TRACE "-" SPAN "-01", &record.context));
    json_t *root = built(records, 1), *spans = spans_of(root);
    assert_int_equal(json_array_size(spans), SY_ARRAY_LEN(names));
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++) {
        assert_string_equal(text_of(json_array_get(spans, i), "name"), names[i]);
        assert_string_equal(text_of(json_array_get(spans, i), "traceId"), TRACE);
        assert_string_equal(text_of(json_array_get(spans, i), "traceState"), "a=1");
    }
    assert_int_equal(check_tree(spans), 1);
    const json_t *server = json_array_get(spans, 0), *queue = json_array_get(spans, 1);
    assert_string_equal(text_of(server, "parentSpanId"), SPAN);
    assert_string_equal(text_of(server, "spanId"), "0000000000001234");
    assert_int_equal(number_of(server, "startTimeUnixNano"), 1700000000000001050);
    assert_int_equal(number_of(queue, "startTimeUnixNano"), 1700000000000001100);
    assert_int_equal(number_of(queue, "endTimeUnixNano"), 1700000000000001300);
    assert_string_equal(text_of(attribute(server, "switchyard.model"), "stringValue"), "resnet");
    assert_string_equal(text_of(attribute(server, "switchyard.moved_bytes"), "intValue"), "4096");
    assert_true(
        json_is_true(json_object_get(attribute(server, "switchyard.swapped"), "boolValue")));
    assert_null(json_object_get(server, "status"));
    json_decref(root);
}

static void test_any_record_is_valid_json(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct sy_otlp_record records[3];
        const struct sy_otlp_record *list[3] = {&records[0], &records[1], &records[2]};

        for (int i = 0; i < 3; i++) {
            struct sy_otlp_record *r = &records[i];
            uint64_t *words = (uint64_t *)&r->report;

            memset(r, 0, sizeof *r);
            for (size_t k = 0; k < 40; k++)
                r->model[k] = (char)seed_next(&seed), r->error[k] = (char)seed_next(&seed);
            for (size_t k = 0; k < sizeof r->report / sizeof *words; k++)
                words[k] = seed_below(&seed, 3) ? seed_below(&seed, 1000) : 0;
            r->report.swapped = r->report.preempted = false;
            r->report.finished_ns = SY_MAX(r->report.finished_ns, r->report.arrived_ns);
            r->context.trace_id[3] = 1;
            r->context.is_given = seed_below(&seed, 2) == 1;
            r->context.parent_id[2] = r->context.is_given;
            r->span_id = seed_next(&seed);
            r->wall_offset_ns = 1700000000000000000;
            r->protocol = "grpc";
            r->status = -(int)seed_below(&seed, 17);
            r->from_ns = seed_below(&seed, 1000);
            r->to_ns = r->from_ns + seed_below(&seed, 1000);
            r->has_report = seed_below(&seed, 2);
        }
        json_t *root = built(list, 3);
        assert_int_equal(check_tree(spans_of(root)), 3);
        json_decref(root);
    }
}

/* ---- a collector --------------------------------------------------------------------------------------------------- */

static struct event_base *base;
static struct evhttp *collector;
static char url[64];
static struct {
    int code;      /* that it answers with */
    int n_refuses; /* so many times first 503 */
    bool is_silent;
    const char *retry_after;
    int n_posts, n_servers;
    json_t *last; /* what came last */
} at_collector;

static void on_post(struct evhttp_request *request, void *ctx)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    size_t n = evbuffer_get_length(body);

    (void)ctx;
    at_collector.n_posts++;
    assert_string_equal(evhttp_request_get_uri(request), "/v1/traces");
    assert_string_equal(
        evhttp_find_header(evhttp_request_get_input_headers(request), "Content-Type"),
        "application/json");
    if (at_collector.is_silent)
        return;
    if (at_collector.n_refuses > 0) {
        at_collector.n_refuses--;
        if (at_collector.retry_after)
            evhttp_add_header(evhttp_request_get_output_headers(request), "Retry-After",
                              at_collector.retry_after);
        evhttp_send_reply(request, 503, "later", NULL);
        return;
    }
    json_t *root = json_loadb((const char *)evbuffer_pullup(body, -1), n, 0, NULL);
    assert_non_null(root);
    if (at_collector.code == 200)
        at_collector.n_servers += check_tree(spans_of(root));
    json_decref(at_collector.last);
    at_collector.last = root;
    evhttp_send_reply(request, at_collector.code, "as told", NULL);
}

static int start_collector(void **state)
{
    struct evhttp_bound_socket *bound;
    struct sockaddr_in address;
    socklen_t n = sizeof address;

    (void)state;
    sy_log_threshold = SY_LOG_ERROR;
    memset(&at_collector, 0, sizeof at_collector);
    at_collector.code = 200;
    base = event_base_new();
    collector = evhttp_new(base);
    bound = evhttp_bind_socket_with_handle(collector, "127.0.0.1", 0);
    assert_non_null(bound);
    getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&address, &n);
    snprintf(url, sizeof url, "http://localhost:%d", ntohs(address.sin_port));
    evhttp_set_gencb(collector, on_post, NULL);
    return 0;
}

static int stop_collector(void **state)
{
    (void)state;
    if (collector)
        evhttp_free(collector);
    collector = NULL;
    json_decref(at_collector.last);
    event_base_free(base);
    return 0;
}

static struct sy_otlp *exporter(void)
{
    struct sy_otlp_config config = {
        .url = url, .version = "0", .flush_ns = 5 * SY_NS_PER_MS, .retry_ns = 2 * SY_NS_PER_MS};
    struct sy_otlp *otlp;

    assert_int_equal(sy_otlp_create(base, &config, &otlp), SY_OK);
    return otlp;
}

static void note(struct sy_otlp *otlp, int n)
{
    sy_ns now = sy_clock_now();
    struct sy_request_report report = a_swap(now - 2000);

    for (int i = 0; i < n; i++)
        sy_otlp_note(otlp, &(struct sy_otlp_request){.model = "m",
                                                     .version = 1,
                                                     .protocol = "http",
                                                     .status = i % 2 ? SY_EBUSY : SY_OK,
                                                     .report = i % 2 ? NULL : &report});
}

/* Until nothing waits, or at most 5 s. */
static struct sy_otlp_counts run_until_sent(struct sy_otlp *otlp)
{
    struct sy_otlp_counts counts;
    sy_ns deadline = sy_clock_now() + 5 * SY_NS_PER_S;

    do {
        event_base_loop(base, EVLOOP_ONCE);
        sy_otlp_counts(otlp, &counts);
    } while (counts.n_waiting > 0 && sy_clock_now() < deadline);
    assert_int_equal(counts.n_waiting, 0);
    return counts;
}

static void test_batches_are_taken(void **state)
{
    struct sy_otlp *otlp = exporter();

    (void)state;
    note(otlp, 1);
    assert_int_equal(run_until_sent(otlp).n_exported, 1);
    assert_int_equal(at_collector.n_posts, 1);
    note(otlp, 3 * SY_OTLP_BATCH + 5);
    struct sy_otlp_counts counts = run_until_sent(otlp);
    assert_int_equal(counts.n_exported, 1 + 3 * SY_OTLP_BATCH + 5);
    assert_int_equal(counts.n_dropped_full + counts.n_dropped_refused, 0);
    assert_int_equal(at_collector.n_posts, 1 + 4);
    assert_int_equal(at_collector.n_servers, 1 + 3 * SY_OTLP_BATCH + 5);
    sy_otlp_destroy(otlp);
}

static void test_refused_for_now_comes_again(void **state)
{
    struct sy_otlp *otlp = exporter();

    (void)state;
    at_collector.n_refuses = 4;
    at_collector.retry_after = "0";
    note(otlp, 10);
    assert_int_equal(run_until_sent(otlp).n_exported, 10);
    assert_int_equal(at_collector.n_posts, 5);
    assert_int_equal(at_collector.n_servers, 10);
    sy_otlp_destroy(otlp);
}

static void test_retry_after_is_waited_for(void **state)
{
    struct sy_otlp *otlp = exporter();
    sy_ns begun = sy_clock_now();

    (void)state;
    at_collector.n_refuses = 1;
    at_collector.retry_after = "1";
    note(otlp, 1);
    assert_int_equal(run_until_sent(otlp).n_exported, 1);
    assert_true(sy_clock_now() - begun >= 900 * SY_NS_PER_MS);
    sy_otlp_destroy(otlp);
}

static void test_refused_for_good_is_dropped(void **state)
{
    struct sy_otlp *otlp = exporter();

    (void)state;
    at_collector.code = 400;
    note(otlp, 10);
    struct sy_otlp_counts counts = run_until_sent(otlp);
    assert_int_equal(counts.n_dropped_refused, 10);
    assert_int_equal(at_collector.n_posts, 1);
    at_collector.code = 200;
    note(otlp, 10);
    assert_int_equal(run_until_sent(otlp).n_exported, 10);
    sy_otlp_destroy(otlp);
}

static void test_nobody_there(void **state)
{
    struct sy_otlp *otlp = exporter();

    (void)state;
    evhttp_free(collector);
    collector = NULL;
    note(otlp, SY_OTLP_WAITING + 7); /* the loop never ran: nothing was sent yet */
    struct sy_otlp_counts counts;
    sy_otlp_counts(otlp, &counts);
    assert_int_equal(counts.n_waiting, SY_OTLP_WAITING);
    assert_int_equal(counts.n_dropped_full, 7);
    /* Six tries, 2 ms to 32 ms apart, then the first batch is given up. */
    for (sy_ns end = sy_clock_now() + 5 * SY_NS_PER_S; sy_clock_now() < end;) {
        event_base_loop(base, EVLOOP_ONCE);
        sy_otlp_counts(otlp, &counts);
        if (counts.n_dropped_refused > 0)
            break;
    }
    assert_int_equal(counts.n_dropped_refused, SY_OTLP_BATCH);
    assert_int_equal(counts.n_exported, 0);
    sy_otlp_drain(otlp, SY_NS_PER_S); /* it refuses: not tried again */
    sy_otlp_destroy(otlp);
}

static void test_destroyed_while_it_waits_for_an_answer(void **state)
{
    struct sy_otlp *otlp = exporter();

    (void)state;
    at_collector.is_silent = true;
    note(otlp, 3);
    while (at_collector.n_posts == 0)
        event_base_loop(base, EVLOOP_ONCE);
    sy_ns begun = sy_clock_now();
    sy_otlp_drain(otlp, 20 * SY_NS_PER_MS);
    assert_true(sy_clock_now() - begun < 5 * SY_NS_PER_S);
    sy_otlp_destroy(otlp);
}

static void test_drain_sends_what_waits(void **state)
{
    struct sy_otlp_counts counts;
    struct sy_otlp *otlp = exporter();

    (void)state;
    note(otlp, 70);
    sy_otlp_drain(otlp, 5 * SY_NS_PER_S);
    sy_otlp_counts(otlp, &counts);
    assert_int_equal(counts.n_exported, 70);
    sy_otlp_destroy(otlp);
}

static void test_urls(void **state)
{
    static const struct {
        const char *url;
        int status;
    } cases[] = {{"http://127.0.0.1", SY_OK},
                 {"http://127.0.0.1:4318/", SY_OK},
                 {"http://[::1]:4318/custom/path", SY_OK},
                 {"https://127.0.0.1:4318", SY_EUNSUPPORTED},
                 {"127.0.0.1:4318", SY_EARG},
                 {"grpc://127.0.0.1:4317", SY_EARG},
                 {"http://", SY_EARG},
                 {"http://me:secret@127.0.0.1", SY_EARG},
                 {"http://no such host", SY_EARG},
                 {"", SY_EARG}};
    struct sy_otlp *otlp;

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct sy_otlp_config config = {.url = cases[i].url, .version = "0"};

        assert_int_equal(sy_otlp_create(base, &config, &otlp), cases[i].status);
        if (cases[i].status == SY_OK)
            sy_otlp_destroy(otlp);
    }
}

/* ---- what a front end says, up to the collector ----------------------------------------------------------------------- */

static void test_front_ends_requests(void **state)
{
    struct sy_front front = {.base = base, .otlp = exporter()};
    struct sy_core_model_ref model = {.name = "m", .version = 4};
    struct sy_front_trace sampled = {0}, not_sampled = {0}, none = {0};

    (void)state;
    assert_int_equal(sy_trace_settings_create(true, 0, &front.trace_settings), SY_OK);
    sy_front_trace_take(&sampled, "grpc", 0, "00-" TRACE "-" SPAN "-01", "a=1");
    sy_front_trace_take(&not_sampled, "http", 0, "00-" TRACE "-" SPAN "-00", NULL);
    sy_front_trace_take(&none, "http", 0, "nonsense", NULL);
    sy_front_trace_note(&front, &not_sampled, &model, SY_OK, NULL, NULL);
    sy_front_trace_note(&front, &none, &model, SY_OK, NULL, NULL);
    sy_front_trace_note(&front, &sampled, &model, SY_EDEADLINE, "late \"by\" 3 ms", NULL);
    assert_int_equal(run_until_sent(front.otlp).n_exported, 1);
    json_t *spans = spans_of(at_collector.last), *server = json_array_get(spans, 0);
    assert_int_equal(json_array_size(spans), 1);
    assert_string_equal(text_of(server, "traceId"), TRACE);
    assert_string_equal(text_of(server, "parentSpanId"), SPAN);
    assert_string_equal(text_of(server, "traceState"), "a=1");
    json_t *status = json_object_get(server, "status");
    assert_int_equal(json_integer_value(json_object_get(status, "code")), 2);
    assert_string_equal(text_of(status, "message"), "late \"by\" 3 ms");
    assert_string_equal(text_of(attribute(server, "switchyard.status"), "stringValue"),
                        "EDEADLINE");
    sy_front_trace_finish(&sampled);
    sy_trace_settings_destroy(front.trace_settings);
    sy_otlp_destroy(front.otlp);
}

#define WITH_COLLECTOR(test) cmocka_unit_test_setup_teardown(test, start_collector, stop_collector)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_swap_has_its_phases),
        cmocka_unit_test(test_any_record_is_valid_json),
        WITH_COLLECTOR(test_batches_are_taken),
        WITH_COLLECTOR(test_refused_for_now_comes_again),
        WITH_COLLECTOR(test_retry_after_is_waited_for),
        WITH_COLLECTOR(test_refused_for_good_is_dropped),
        WITH_COLLECTOR(test_nobody_there),
        WITH_COLLECTOR(test_destroyed_while_it_waits_for_an_answer),
        WITH_COLLECTOR(test_drain_sends_what_waits),
        WITH_COLLECTOR(test_urls),
        WITH_COLLECTOR(test_front_ends_requests),
    };
    seed = seed_of_run(15);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
