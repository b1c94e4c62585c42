/* Tokenizer in front of TfIdfVectorizer (expand_text.c): nothing is sized at run where the counts do not tell how long the rows were padded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

struct text_case {
    int columns;        /* of texts, at rank 2; 0: rank 1 */
    const char *pad;    /* the pool has "b" */
    int64_t mark, axis; /* axis 0: no Flatten */
    bool tokens_go_out; /* another reader */
    bool is_sized;      /* wanted: known at import */
};

static void add_pool(struct sy_graph *g)
{
    static const char text[] = "a\0b";
    const int64_t at[] = {0, 2, 4}, counts[] = {0}, indexes[] = {0, 3};
    struct sy_attr pool = {.kind = SY_ATTR_STRINGS, .n = 2};
    pool.s = (char *)(uintptr_t)text;
    pool.ints = (int64_t *)(uintptr_t)at;
    assert_int_equal(sy_node_set_strings(&g->nodes[g->n_nodes - 1], "pool_strings", &pool), SY_OK);
    gb_ints(g, "ngram_counts", 1, counts);
    gb_ints(g, "ngram_indexes", 2, indexes);
    gb_string(g, "mode", "TF");
}

static struct sy_graph *texts_graph(const struct text_case *c)
{
    const int64_t dims[] = {1, c->columns, 1};
    struct sy_graph *g = gb_new("texts");
    int x = gb_input_of(g, SY_DTYPE_STRING, c->columns > 0 ? 2 : 1, dims), tokens;
    x = tokens = gb_node(g, SY_OP_MS_TOKENIZER, 1, &x, 2, dims);
    gb_type(g, x, SY_DTYPE_STRING);
    gb_string(g, "tokenexp", "[a-z]+");
    gb_string(g, "pad_value", c->pad);
    gb_int(g, "mark", c->mark);
    if (c->axis) {
        x = gb_node(g, SY_OP_FLATTEN, 1, &x, 2, dims);
        gb_type(g, x, SY_DTYPE_STRING);
        gb_int(g, "axis", c->axis);
    }
    x = gb_node(g, SY_OP_TF_IDF, 1, &x, 2, dims);
    add_pool(g);
    gb_output(g, x);
    if (c->tokens_go_out)
        gb_output(g, tokens);
    return g;
}

static void padding_that_counts_nothing(void **state)
{
    static const struct text_case cases[] = {
        {0, "#", 0, 0, false, true},  {0, "#", 0, 1, false, true},  {1, "#", 0, 1, false, true},
        {1, "b", 0, 1, false, false}, {2, "#", 0, 1, false, false}, {1, "#", 0, 2, false, false},
        {1, "#", 1, 1, false, false}, {1, "#", 0, 1, true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sy_graph *g = texts_graph(&cases[i]);
        if (sy_graph_infer(g) < 0)
            fail_msg("case %zu: %s", i, sy_error_text());
        bool sized = true;
        for (int n = 0; n < g->n_nodes; n++)
            sized = sized && g->nodes[n].op != SY_OP_DYNAMIC;
        if (sized != cases[i].is_sized)
            fail_msg("case %zu is %s", i, sized ? "sized at import" : "sized at run");
        if (sized) {
            const struct sy_shape *shape = &g->tensors[g->outputs[0]].shape;
            assert_int_equal(g->n_nodes, 1);
            assert_int_equal(shape->rank, 2);
            assert_int_equal(shape->dims[0].per_batch, 1);
            assert_int_equal(shape->dims[1].fixed, 4);
        }
        sy_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(padding_that_counts_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
