/* Passes for inference and for training: the lists, and the runs through them. */
#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* The order matters: types before all that asks for float32, scales before biases (x*W*s + b), patterns of many nodes before activations
 * take their parts, residuals before activations (relu(conv + x)). */
static sy_fuse_pass *const passes[] = {
    sy_fuse_halves,
    sy_fuse_dequantized,
    sy_fuse_quantized,
    sy_fuse_group_norms,
    sy_fuse_prelus,
    sy_fuse_einsum_pairs,
    sy_fuse_einsums,
    sy_fuse_noops,
    sy_fuse_known_products,
    sy_fuse_transposes,
    sy_fuse_noops,
    sy_fuse_thin_reshapes,
    sy_fuse_reshapes,
    sy_fuse_noops,
    sy_fuse_pads,
    sy_fuse_batch_norms,
    sy_fuse_conv_pairs,
    sy_fuse_batch_norms,
    sy_fuse_conv_biases,
    sy_fuse_gelus,
    sy_fuse_curves,
    sy_fuse_layer_norms,
    sy_fuse_late_layer_norms,
    sy_fuse_skip_norms,
    sy_fuse_matmul_scales,
    sy_fuse_flat_biases,
    sy_fuse_matmul_biases,
    sy_fuse_product_norms,
    sy_fuse_reshapes,
    sy_fuse_noops,
    sy_fuse_residuals,
    sy_fuse_thin_reshapes,
    sy_fuse_reshapes,
    sy_fuse_noops,
    sy_fuse_activations,
};

/* Passes of sy_graph_fuse, and the engine features that they need. */
static const struct {
    sy_fuse_pass *pass;
    enum sy_op op;
} fusions[] = {{sy_fuse_attention, SY_OP_ATTENTION},
               {sy_fuse_rms_norms, SY_OP_RMS_NORM},
               {sy_fuse_swishes, SY_OP_SWISH},
               {sy_fuse_thin_reshapes, SY_OP_SWISH},
               {sy_fuse_reshapes, SY_OP_SWISH},
               {sy_fuse_noops, SY_OP_SWISH},
               {sy_fuse_gated_activations, SY_OP_SWISH},
               {sy_fuse_int8_recurrences, SY_OP_QUANTIZED_LSTM},
               {sy_fuse_int8_products, SY_OP_QUANTIZED_CONV},
               {sy_fuse_int8_sums, SY_OP_QUANTIZED_SUM},
               {sy_fuse_int8_moves, SY_OP_QUANTIZED_SUM},
               {sy_fuse_channel_affines, SY_OP_CHANNEL_AFFINE}};

typedef bool op_test(enum sy_op op, int64_t size);

/* has: NULL runs sy_graph_optimize on each body; otherwise sy_graph_fuse. Bodies that are sized at run are skipped: nothing is known of them. */
static int rewrite_bodies(struct sy_graph *graph, op_test *has)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->nodes[n].n_attrs; i++) {
            struct sy_graph *body = graph->nodes[n].attrs[i].graph;
            if (graph->nodes[n].op != SY_OP_DYNAMIC &&
                graph->nodes[n].attrs[i].kind == SY_ATTR_GRAPH)
                SY_TRY(has ? sy_graph_fuse(body, has) : sy_graph_optimize(body));
        }
    }
    return SY_OK;
}

/* These passes make no new constant from a parameter. */
static sy_fuse_pass *const training_passes[] = {
    sy_fuse_noops, sy_fuse_reshapes, sy_fuse_gelus, sy_fuse_layer_norms, sy_fuse_matmul_biases,
};

/* Finds what may depend on a parameter: a float tensor of the file of more than one number. */
static int find_learning(struct sy_fuse *f)
{
    const struct sy_graph *g = f->graph;
    SY_TRY(sy_graph_alloc((size_t)g->n_tensors, sizeof *f->learns, &f->learns));
    for (int t = 0; t < g->n_tensors; t++)
        f->learns[t] = g->tensors[t].data && !g->tensors[t].is_derived &&
                       g->tensors[t].dtype == SY_DTYPE_F32 &&
                       g->tensors[t].data_bytes > sizeof(float);
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++)
            for (int o = 0; o < g->nodes[n].n_outputs; o++)
                if (g->nodes[n].inputs[i] >= 0 && g->nodes[n].outputs[o] >= 0)
                    f->learns[g->nodes[n].outputs[o]] |= f->learns[g->nodes[n].inputs[i]];
    return SY_OK;
}

static int attention_in_training(struct sy_fuse *f)
{
    SY_TRY(find_learning(f));
    return sy_fuse_attention(f);
}

static int run_passes(struct sy_graph *graph, sy_fuse_pass *const *list, size_t n, op_test *has)
{
    for (size_t i = 0; i < n; i++) {
        struct sy_fuse f;
        SY_TRY(sy_fuse_open(&f, graph));
        f.has = has;
        int status = list[i](&f);
        sy_fuse_close(&f);
        SY_TRY(status);
        sy_graph_compact(graph);
        SY_TRY(sy_graph_remove_dead(graph));
    }
    return sy_graph_check(graph);
}

int sy_graph_optimize(struct sy_graph *graph)
{
    SY_TRY(rewrite_bodies(graph, NULL));
    return run_passes(graph, passes, SY_ARRAY_LEN(passes), NULL);
}

/* Bodies become nodes like others for an engine that has none; what they are then part of is looked at once more. */
static int write_out(struct sy_graph *graph, op_test *has)
{
    bool changed = false;
    if (has(SY_OP_IF, 0) && has(SY_OP_LOOP, 0))
        return SY_OK;
    SY_TRY(sy_graph_write_out(graph, &changed));
    return changed ? run_passes(graph, passes, SY_ARRAY_LEN(passes), NULL) : SY_OK;
}

int sy_graph_fuse(struct sy_graph *graph, bool (*has)(enum sy_op op, int64_t size))
{
    SY_TRY(write_out(graph, has));
    SY_TRY(rewrite_bodies(graph, has));
    for (size_t i = 0; i < SY_ARRAY_LEN(fusions); i++)
        if (has(fusions[i].op, 0))
            SY_TRY(run_passes(graph, (sy_fuse_pass *const[]){fusions[i].pass}, 1, has));
    /* Last: patterns of 8-bit products are matched by their direct neighbours, which this pass would change. */
    return run_passes(graph, (sy_fuse_pass *const[]){sy_fuse_depthwise_lines}, 1, has);
}

int sy_graph_optimize_training(struct sy_graph *graph)
{
    return run_passes(graph, training_passes, SY_ARRAY_LEN(training_passes), NULL);
}

int sy_graph_fuse_training(struct sy_graph *graph, bool (*has)(enum sy_op op, int64_t size))
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op == SY_OP_DROPOUT)
            SY_TRY(sy_node_set_int(&graph->nodes[n], "number", n));
    return run_passes(graph, (sy_fuse_pass *const[]){attention_in_training}, 1, has);
}
