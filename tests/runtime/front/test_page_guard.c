/* Which POSTs of the page may act (runtime/front/page/page_guard.h): what browsers and programs send, line by line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/front/page/page_guard.h"

#define JSON "application/json"

static int guarded(enum sy_page_token token, struct sy_page_post post)
{
    const char *why = NULL;
    int code = sy_page_guard(token, &post, &why);

    assert_true(code == 0 || (why && *why));
    return code;
}

/* Our own page in a browser, by each name that this machine has. */
static void own_page_may(void **state)
{
    static const char *const hosts[] = {"localhost:8000", "LOCALHOST:8000", "127.0.0.1:8000",
                                        "127.0.0.1",      "[::1]:8000",     "192.168.1.20:80"};
    (void)state;

    for (size_t i = 0; i < SY_ARRAY_LEN(hosts); i++) {
        char origin[80] = "http://";
        strcat(origin, hosts[i]);
        assert_int_equal(
            guarded(SY_PAGE_TOKEN_UNNEEDED,
                    (struct sy_page_post){JSON, "same-origin", origin, hosts[i], true}),
            0);
    }
    /* A browser that sends no Sec-Fetch-Site, and curl. */
    assert_int_equal(guarded(SY_PAGE_TOKEN_UNNEEDED,
                             (struct sy_page_post){JSON, NULL, "http://a:1", "a:1", true}),
                     403);
    assert_int_equal(
        guarded(SY_PAGE_TOKEN_UNNEEDED,
                (struct sy_page_post){JSON "; charset=utf-8", NULL, NULL, "127.0.0.1:8000", true}),
        0);
}

static void types_that_need_no_preflight(void **state)
{
    static const char *const types[] = {NULL,
                                        "",
                                        "text/plain",
                                        "multipart/form-data; boundary=x",
                                        "application/x-www-form-urlencoded",
                                        "application/jsonp",
                                        "text/plain; application/json"};
    (void)state;

    for (size_t i = 0; i < SY_ARRAY_LEN(types); i++) {
        assert_int_equal(
            guarded(SY_PAGE_TOKEN_UNNEEDED,
                    (struct sy_page_post){types[i], NULL, NULL, "127.0.0.1:8000", true}),
            415);
        assert_int_equal(
            guarded(SY_PAGE_TOKEN_SHOWN,
                    (struct sy_page_post){types[i], NULL, NULL, "127.0.0.1:8000", true}),
            415);
    }
}

static void foreign_pages_may_not(void **state)
{
    static const struct sy_page_post posts[] = {
        {JSON, "cross-site", NULL, "127.0.0.1:8000", true},
        {JSON, "same-site", NULL, "127.0.0.1:8000", true},
        {JSON, NULL, "http://evil.example", "127.0.0.1:8000", true},
        {JSON, NULL, "http://127.0.0.1:8001", "127.0.0.1:8000", true},
        {JSON, NULL, "http://127.0.0.1:8000.evil.example", "127.0.0.1:8000", true},
        {JSON, NULL, "null", "127.0.0.1:8000", true},
        {JSON, NULL, "", "127.0.0.1:8000", true},
        {JSON, NULL, "http://127.0.0.1:8000", NULL, true},
        /* DNS rebinding: to the browser it is one site. */
        {JSON, "same-origin", "http://evil.example:8000", "evil.example:8000", true},
        {JSON, "same-origin", "http://127.0.0.1.evil.example", "127.0.0.1.evil.example", true},
        {JSON, NULL, NULL, NULL, true},
        {JSON, NULL, NULL, "", true},
        {JSON, NULL, NULL, "[", true},
        /* Another machine. */
        {JSON, "same-origin", "http://10.0.0.1:8000", "10.0.0.1:8000", false},
    };
    (void)state;

    for (size_t i = 0; i < SY_ARRAY_LEN(posts); i++)
        assert_int_equal(guarded(SY_PAGE_TOKEN_UNNEEDED, posts[i]), 403);
}

static void long_hosts(void **state)
{
    char host[4000];
    (void)state;

    memset(host, '1', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    for (size_t n = 1; n < sizeof(host); n = n * 2 + 1) {
        struct sy_page_post post = {JSON, NULL, NULL, host + sizeof(host) - 1 - n, true};
        assert_int_equal(guarded(SY_PAGE_TOKEN_UNNEEDED, post), 403);
    }
}

/* With a token nothing else is asked, where one is needed nothing else helps. */
static void tokens(void **state)
{
    struct sy_page_post foreign = {JSON, "cross-site", NULL, "public.example", false};
    struct sy_page_post own = {JSON, "same-origin", NULL, "127.0.0.1:8000", true};
    (void)state;

    assert_int_equal(guarded(SY_PAGE_TOKEN_SHOWN, foreign), 0);
    assert_int_equal(guarded(SY_PAGE_TOKEN_MISSING, foreign), 401);
    assert_int_equal(guarded(SY_PAGE_TOKEN_MISSING, own), 401);
    assert_int_equal(guarded(SY_PAGE_TOKEN_UNNEEDED, own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_page_may),
        cmocka_unit_test(types_that_need_no_preflight),
        cmocka_unit_test(foreign_pages_may_not),
        cmocka_unit_test(long_hosts),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
