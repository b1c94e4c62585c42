/* Expressions of sizes against brute force: random ones are made, and what they are for random sizes is computed beside, with plain integers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/size_choice.h"
#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/inputs/size_text.h"
#include "tests/rigs/seed.h"

#ifdef SY_SANITIZED
#define N_SEEDS 60
#else
#define N_SEEDS 200
#endif
enum { N_POINTS = 24, N_SYMBOLS = 3, N_POOL = 12 };

/* An expression and its value at each point; INT64_MIN: too large to follow. */
struct sample {
    struct sy_dim dim;
    int64_t at[N_POINTS];
};

struct world {
    uint64_t seed;
    struct sy_size_env env[N_POINTS];
    int64_t n[N_POINTS];
    struct sample pool[N_POOL];
    int atoms[N_SYMBOLS];
};

static uint64_t draw(struct world *w, uint64_t below)
{
    return seed_below(&w->seed, below);
}

static struct sy_dim symbol(struct world *w, int i)
{
    struct sy_dim dim;
    char name[16];
    snprintf(name, sizeof name, "size%d", i);
    assert_int_equal(sy_size_symbol(name, &dim), SY_OK);
    assert_true(sy_size_is_symbol(dim, &w->atoms[i]));
    return dim;
}

static void start(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed};
    for (int i = 0; i < N_POOL; i++) {
        struct sample *s = &w->pool[i];
        if (i < N_SYMBOLS)
            s->dim = symbol(w, i);
        else if (i == N_SYMBOLS)
            s->dim = (struct sy_dim){0, 1};
        else
            s->dim = (struct sy_dim){(int64_t)draw(w, 12), 0};
    }
    for (int p = 0; p < N_POINTS; p++) {
        w->env[p].n = N_SYMBOLS;
        w->n[p] = 1 + (int64_t)draw(w, 5);
        for (int i = 0; i < N_SYMBOLS; i++) {
            w->env[p].symbols[i] = w->atoms[i];
            w->env[p].values[i] = (int64_t)draw(w, p < 8 ? 4 : 70);
        }
        for (int i = 0; i < N_POOL; i++)
            w->pool[i].at[p] = i < N_SYMBOLS    ? w->env[p].values[i]
                               : i == N_SYMBOLS ? w->n[p]
                                                : w->pool[i].dim.fixed;
    }
}

static int64_t floor_of(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static bool small(int64_t value)
{
    return value > -(INT64_C(1) << 30) && value < INT64_C(1) << 30;
}

/* One more expression of two from the pool, and what it is at each point. False: there is none. */
static bool grow(struct world *w, struct sample *out)
{
    const struct sample *a = &w->pool[draw(w, N_POOL)], *b = &w->pool[draw(w, N_POOL)];
    int kind = (int)draw(w, 10), status;
    int64_t by = 1 + (int64_t)draw(w, 9);
    struct sy_dim truth = {0, 0};
    switch (kind) {
    case 0:
        status = sy_size_add(a->dim, b->dim, &out->dim);
        break;
    case 1:
        status = sy_size_sub(a->dim, b->dim, &out->dim);
        break;
    case 2:
        status = sy_size_mul(a->dim, b->dim, &out->dim);
        break;
    case 3:
        status = sy_size_floor_div(a->dim, (struct sy_dim){by, 0}, &out->dim);
        break;
    case 4:
        status = sy_size_min(a->dim, b->dim, &out->dim);
        break;
    case 5:
        status = sy_size_max(a->dim, b->dim, &out->dim);
        break;
    case 6:
        status = sy_size_at_least(a->dim, b->dim, &out->dim);
        break;
    case 7:
        status = sy_size_same(a->dim, b->dim, &out->dim);
        break;
    case 8:
        status = sy_size_abs(a->dim, &out->dim);
        break;
    default: /* b where a is 0 */
        status = sy_size_truth(a->dim, &truth);
        if (status == SY_OK)
            status = sy_size_choose(truth, a->dim, b->dim, &out->dim);
        break;
    }
    for (int p = 0; status == SY_OK && p < N_POINTS; p++) {
        int64_t x = a->at[p], y = b->at[p];
        out->at[p] = kind == 0   ? x + y
                     : kind == 1 ? x - y
                     : kind == 2 ? x * y
                     : kind == 3 ? floor_of(x, by)
                     : kind == 4 ? SY_MIN(x, y)
                     : kind == 5 ? SY_MAX(x, y)
                     : kind == 6 ? x >= y
                     : kind == 7 ? x == y
                     : kind == 8 ? (x < 0 ? -x : x)
                     : x != 0    ? x
                                 : y;
        if (!small(out->at[p]))
            return false;
    }
    return status == SY_OK;
}

/* The text says the same, to who reads it again. */
static void check_text(const struct world *w, const struct sample *s)
{
    static const char *const names[] = {"size0", "size1", "size2", "N"};
    char text[4000];
    if (sy_size_text(s->dim, text, sizeof text) >= (int)sizeof text)
        return; /* choices of choices: longer than a person would read */
    for (int p = 0; p < N_POINTS; p++) {
        int64_t values[N_SYMBOLS + 1], size;
        memcpy(values, w->env[p].values, N_SYMBOLS * sizeof *values);
        values[N_SYMBOLS] = w->n[p];
        if (!sy_cli_size_of(text, &(struct sy_size_names){names, values, N_SYMBOLS + 1}, &size))
            fail_msg("%s cannot be read", text);
        if (size != s->at[p])
            fail_msg("%s: %lld as text, not %lld", text, (long long)size, (long long)s->at[p]);
    }
}

static void check(const struct world *w, const struct sample *s)
{
    int64_t least, most;
    char text[400];
    check_text(w, s);
    sy_size_text(s->dim, text, sizeof text);
    sy_size_bounds(s->dim, &least, &most);
    for (int p = 0; p < N_POINTS; p++) {
        struct sy_dim value;
        assert_int_equal(sy_size_evaluate(s->dim, &w->env[p], &value), SY_OK);
        if (value.fixed + value.per_batch * w->n[p] != s->at[p])
            fail_msg("%s: %lld, not %lld", text,
                     (long long)(value.fixed + value.per_batch * w->n[p]), (long long)s->at[p]);
        if (s->at[p] < least || s->at[p] > most)
            fail_msg("%s: %lld is outside its bounds", text, (long long)s->at[p]);
    }
}

/* a symbol replaced by another expression is what the expression is there. */
static void check_substitution(struct world *w, const struct sample *s)
{
    int atom = w->atoms[draw(w, N_SYMBOLS)];
    const struct sample *to = &w->pool[draw(w, N_POOL)];
    struct sy_dim made, before, after;
    if (!sy_dim_is_number(to->dim) || to->dim.fixed < 0 ||
        sy_size_substitute(s->dim, atom, to->dim, &made) < 0)
        return;
    assert_false(sy_size_mentions(made, atom));
    for (int p = 0; p < N_POINTS; p++) {
        struct sy_size_env env = w->env[p];
        for (int i = 0; i < env.n; i++)
            if (env.symbols[i] == atom)
                env.values[i] = to->dim.fixed;
        assert_int_equal(sy_size_evaluate(s->dim, &env, &before), SY_OK);
        assert_int_equal(sy_size_evaluate(made, &env, &after), SY_OK);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

/* An expression of one open size gives that size back. */
static void check_solution(const struct world *w, const struct sample *s)
{
    for (int p = 0; p < N_POINTS; p++)
        for (int skip = 0; skip < N_SYMBOLS; skip++) {
            struct sy_size_env env = {0};
            int atom;
            int64_t number;
            for (int i = 0; i < N_SYMBOLS; i++)
                if (i != skip) {
                    env.symbols[env.n] = w->env[p].symbols[i];
                    env.values[env.n++] = w->env[p].values[i];
                }
            if (sy_size_solve(s->dim, &env, w->n[p], s->at[p], &atom, &number)) {
                assert_int_equal(atom, w->atoms[skip]);
                assert_int_equal(number, w->env[p].values[skip]);
            }
        }
}

static void test_random(void **state)
{
    (void)state;
    struct world w;
    int n_open = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        start(&w, seed);
        for (int step = 0; step < 40; step++) {
            struct sample made = {0};
            if (!grow(&w, &made))
                continue;
            check(&w, &made);
            check_substitution(&w, &made);
            check_solution(&w, &made);
            n_open += sy_dim_is_expr(made.dim);
            w.pool[N_SYMBOLS + 1 + draw(&w, N_POOL - N_SYMBOLS - 1)] = made;
        }
    }
    assert_true(n_open > 500);
}

/* What is the same is the same struct, however it was made. */
static void test_canonical(void **state)
{
    (void)state;
    struct world w = {0};
    struct sy_dim s = symbol(&w, 0), t = symbol(&w, 1), n = {0, 1}, two = {2, 0}, a, b;
    assert_int_equal(sy_size_mul(s, t, &a), SY_OK);
    assert_int_equal(sy_size_mul(t, s, &b), SY_OK);
    assert_memory_equal(&a, &b, sizeof a);
    /* (N s t) / (N t) = s */
    assert_int_equal(sy_size_mul(a, n, &a), SY_OK);
    assert_int_equal(sy_size_mul(t, n, &b), SY_OK);
    assert_int_equal(sy_size_div(a, b, &a), SY_OK);
    assert_memory_equal(&a, &s, sizeof a);
    /* (s + 1) (s - 1) / (s + 1) = s - 1 */
    struct sy_dim up, down, product;
    assert_int_equal(sy_size_add(s, (struct sy_dim){1, 0}, &up), SY_OK);
    assert_int_equal(sy_size_sub(s, (struct sy_dim){1, 0}, &down), SY_OK);
    assert_int_equal(sy_size_mul(up, down, &product), SY_OK);
    assert_int_equal(sy_size_div(product, up, &a), SY_OK);
    assert_memory_equal(&a, &down, sizeof a);
    /* five times halved, rounded up: once by 32 */
    a = s;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(sy_size_add(a, (struct sy_dim){1, 0}, &a), SY_OK);
        assert_int_equal(sy_size_floor_div(a, two, &a), SY_OK);
    }
    assert_int_equal(sy_size_add(s, (struct sy_dim){31, 0}, &b), SY_OK);
    assert_int_equal(sy_size_floor_div(b, (struct sy_dim){32, 0}, &b), SY_OK);
    assert_memory_equal(&a, &b, sizeof a);
    /* s - s is a number again */
    assert_int_equal(sy_size_sub(s, s, &a), SY_OK);
    assert_true(sy_dim_is_number(a) && a.fixed == 0);
    /* min(s, 512) whichever way */
    assert_int_equal(sy_size_min(s, (struct sy_dim){512, 0}, &a), SY_OK);
    assert_int_equal(sy_size_min((struct sy_dim){512, 0}, s, &b), SY_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(sy_size_min(s, (struct sy_dim){INT64_C(1) << 31, 0}, &a), SY_OK);
    assert_memory_equal(&a, &s, sizeof a);
}

static void test_limits(void **state)
{
    (void)state;
    struct world w = {0};
    struct sy_dim s = symbol(&w, 0), n = {0, 1}, big = {INT64_MAX / 2, 0}, out, sum;
    assert_int_equal(sy_size_mul(n, n, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_mul(s, n, &out), SY_OK);
    assert_int_equal(sy_size_mul(out, n, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_floor_div(n, (struct sy_dim){2, 0}, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_min(n, (struct sy_dim){7, 0}, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_floor_div(s, (struct sy_dim){0, 0}, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_div(s, (struct sy_dim){0, 0}, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_mul(s, big, &out), SY_OK);
    assert_int_equal(sy_size_mul(out, (struct sy_dim){3, 0}, &out), SY_EUNSUPPORTED);
    assert_int_equal(sy_size_mul(s, big, &out), SY_OK);
    struct sy_size_env env = {.n = 1, .symbols = {w.atoms[0]}, .values = {SY_SIZE_MOST}};
    assert_int_equal(sy_size_evaluate(out, &env, &sum), SY_EUNSUPPORTED);
    env.n = 0;
    assert_int_equal(sy_size_evaluate(s, &env, &sum), SY_EUNSUPPORTED);
    /* terms, degree and depth end */
    out = (struct sy_dim){1, 0};
    int status = SY_OK;
    for (int i = 0; status == SY_OK; i++) {
        assert_true(i <= SY_SIZE_MAX_DEGREE);
        status = sy_size_mul(out, s, &out);
    }
    out = s;
    status = SY_OK;
    for (int i = 0; status == SY_OK; i++) {
        assert_true(i < 100);
        status = sy_size_mul(out, out, &out);
        if (status == SY_OK)
            status = sy_size_floor_div(out, (struct sy_dim){1000, 0}, &out);
    }
}

static void test_text(void **state)
{
    (void)state;
    struct world w = {0};
    char text[64];
    struct sy_dim s = symbol(&w, 0), out;
    assert_int_equal(sy_size_mul(s, (struct sy_dim){2, 0}, &out), SY_OK);
    assert_int_equal(sy_size_add(out, (struct sy_dim){-1, 3}, &out), SY_OK);
    sy_size_text(out, text, sizeof text);
    assert_true(strcmp(text, "3*N+2*size0-1") == 0 || strcmp(text, "2*size0+3*N-1") == 0);
    assert_true(sy_size_text(out, text, 5) > 5 && strlen(text) == 4);
}

/* 288 N - 32 N size0 is 0 for one size0, whatever N is. */
static void test_isolated(void **state)
{
    (void)state;
    struct world w = {0};
    struct sy_dim a = symbol(&w, 0), b = symbol(&w, 1), zero, value;
    int atom;
    assert_int_equal(sy_size_mul(a, (struct sy_dim){0, -32}, &zero), SY_OK);
    assert_int_equal(sy_size_add(zero, (struct sy_dim){0, 288}, &zero), SY_OK);
    assert_true(sy_size_isolate(zero, &atom, &value));
    assert_int_equal(atom, w.atoms[0]);
    assert_true(sy_dim_is(value, 9));
    assert_int_equal(sy_size_mul(a, b, &zero), SY_OK);
    assert_false(sy_size_isolate(zero, &atom, &value)); /* either may be 0 */
    assert_int_equal(sy_size_sub(b, a, &zero), SY_OK);
    assert_true(sy_size_isolate(zero, &atom, &value));
    assert_true(sy_dim_equal(value, atom == w.atoms[0] ? b : a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_text),
        cmocka_unit_test(test_isolated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
