#include "tests/rigs/sized_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

struct sy_graph *sized_import(const char *path)
{
    struct sy_graph *g;
    g = onnx_optimized(path);
    if (rig_engine.ops->fuses && sy_graph_fuse(g, rig_engine.ops->fuses) < 0)
        fail_msg("%s", sy_error_text());
    return g;
}

int sized_at_run(const struct sy_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op == SY_OP_DYNAMIC)
            return sy_node_attr(&graph->nodes[n], "body")->graph->n_nodes;
    return 0;
}

static int bind(const struct sy_graph *graph, int n, const struct sized_input *inputs,
                int64_t *batch, struct sy_graph **out)
{
    struct sy_given_input given[8];
    struct sy_sizes sizes;
    assert_true(n <= 8 && n == graph->n_inputs);
    for (int i = 0; i < n; i++)
        given[i] = (struct sy_given_input){i, inputs[i].rank, inputs[i].dims};
    SY_TRY(sy_graph_solve(graph, n, given, batch, &sizes));
    return sy_graph_bind(graph, &sizes, out);
}

int sized_run(const struct sy_graph *graph, int n, const struct sized_input *inputs,
              struct sized_output *out)
{
    struct engine_rig rig;
    struct rig_tensors in, results;
    struct sy_graph *bound;
    int64_t batch;
    SY_TRY(bind(graph, n, inputs, &batch, &bound));
    if (rig_open(&rig, bound, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, batch);
    rig_take(&rig, bound->inputs, n, batch, 0, &in);
    for (int i = 0; i < n; i++)
        memcpy(in.data[i], inputs[i].data, in.bytes[i]);
    rig_take(&rig, bound->outputs, bound->n_outputs, batch, 0xff, &results);
    int status = rig_run(&rig, program, &in, &results, 0xff, NULL);
    if (status == SY_OK)
        status = sy_graph_output_shape(bound, bound->outputs[0], batch, results.data[0],
                                       &out->shape, &out->bytes);
    if (status < 0 && status != SY_EARG)
        fail_msg("%s", sy_error_text());
    if (status == SY_OK) {
        out->data = malloc(out->bytes + 1);
        assert_non_null(out->data);
        memcpy(out->data, results.data[0], out->bytes);
    }
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&results);
    rig_close(&rig);
    sy_graph_free(bound);
    return status;
}
