#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic.h"
#include "workers/host/dynamic/dynamic_help.h"
#include "workers/host/program/program.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/elementwise.h"

/* Incremented when the order of packed parameters changes for the same CPU and oneDNN version. */
#define PACKING 3

static const struct sy_host_op *const tables[] = {
    sy_host_ops_conv,    sy_host_ops_matmul,         sy_host_ops_pool,      sy_host_ops_eltwise,
    sy_host_ops_norm,    sy_host_ops_movement,       sy_host_ops_recurrent, sy_host_ops_quantize,
    sy_host_ops_control, sy_host_ops_dynamic,        sy_host_ops_attention, sy_host_ops_deconv,
    sy_host_ops_int8,    sy_host_ops_int8_recurrent, sy_host_ops_channel};

static const struct sy_host_op by_kernel = {.build = sy_program_add_kernel};

const struct sy_host_op *sy_host_op_find(enum sy_op op)
{
    for (size_t t = 0; t < SY_ARRAY_LEN(tables); t++)
        for (const struct sy_host_op *o = tables[t]; o->build; o++)
            if (sy_op_is_among(o->ops, o->n_ops, op))
                return o;
    return sy_kernel_find(op) ? &by_kernel : NULL;
}

static int describe(char *buffer, size_t bytes)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {{dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                 {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                 {dnnl_cpu_isa_avx512_core, "avx512_core"},
                 {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                 {dnnl_cpu_isa_avx2, "avx2"},
                 {dnnl_cpu_isa_sse41, "sse41"}};
    const dnnl_version_t *v = dnnl_version();
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    char name[32];
    snprintf(name, sizeof name, "isa-%#x", (unsigned)isa);
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        if (names[i].isa == isa)
            snprintf(name, sizeof name, "%s", names[i].name);
    snprintf(buffer, bytes, "onednn-%d.%d.%d %s packing-%d", v->major, v->minor, v->patch, name,
             PACKING);
    return SY_OK;
}

static int check_precision(enum sy_precision precision)
{
    if (precision == SY_PRECISION_F16)
        return sy_error_set(SY_EUNSUPPORTED,
                            "the host engine computes in f32 and bf16, not in f16: leave "
                            "--precision away, and a model of float16 is computed in f32");
    return SY_OK;
}

static int set_threads(const int *cores, int n)
{
    int failed = 0;
    if (n < 1)
        return sy_error_set(SY_EARG, "%d compute threads", n);
    omp_set_dynamic(0);
    omp_set_num_threads(n);
#pragma omp parallel num_threads(n) reduction(+ : failed)
    {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cores[omp_get_thread_num()], &set);
        failed += sched_setaffinity(0, sizeof set, &set) != 0;
    }
    if (failed)
        return sy_error_set(
            SY_EARG, "cannot pin %d of %d compute threads: are all of these cores this process's?",
            failed, n);
    dnnl_set_primitive_cache_capacity(SY_PRIMITIVES_KEPT);
    return SY_OK;
}

/* Constant floats and weights and tables of 8 bits are parameters; other integers (indices) are small and stay in the graph. */
static bool is_param(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    if (node->inputs[input] < 0)
        return false;
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    bool weights =
        (input == 1 && (node->op == SY_OP_QUANTIZED_CONV || node->op == SY_OP_QUANTIZED_MATMUL)) ||
        (input >= 1 && input <= 2 && node->op == SY_OP_QUANTIZED_LSTM);
    bool table = input == 0 && node->op == SY_OP_GATHER && t->data_bytes >= SY_LAYER_ALIGN &&
                 (t->dtype == SY_DTYPE_I8 || t->dtype == SY_DTYPE_U8);
    bool trees = node->op == SY_OP_TREES && input > 0;
    return t->data &&
           (t->dtype == SY_DTYPE_F32 || trees || (t->dtype == SY_DTYPE_I8 && weights) || table);
}

/* Large weights for which no primitive requires a layout: storing them in bf16 halves the transfer. Short rows may be coordinates, which bf16 would shift. */
static bool is_stored_narrow(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    const struct sy_shape *shape = &graph->tensors[node->inputs[input]].shape;
    const int64_t least = 4096, least_row = 16;
    bool weights = (node->op == SY_OP_GATHER && input == 0) ||
                   (node->op == SY_OP_MATMUL && input < 2) ||
                   (node->op == SY_OP_CONV_TRANSPOSE && input == 1) ||
                   (node->op == SY_OP_RNN && (input == 1 || input == 2));
    if (graph->precision != SY_PRECISION_BF16 || !weights || shape->rank < 2)
        return false;
    return sy_shape_elements(shape, 1) >= least &&
           (node->op != SY_OP_GATHER || shape->dims[shape->rank - 1].fixed >= least_row);
}

/* On a CPU without bf16: weights multiplied as float32 in that layout are stored in it as bf16. With bf16, the layer has chosen. */
static void store_narrow(dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_t narrow = *md, wide;
    narrow.data_type = dnnl_bf16;
    if (md->data_type == dnnl_f32 && sy_dnnl_widened_md(&narrow, &wide))
        *md = narrow;
}

static int param_layout(const struct sy_graph *graph, const struct sy_node *node, int input,
                        dnnl_memory_desc_t *md)
{
    const struct sy_host_op *op = sy_host_op_find(node->op);
    const struct sy_shape *shape = &graph->tensors[node->inputs[input]].shape;
    int64_t dims[SY_MAX_RANK];
    *md = (dnnl_memory_desc_t){0};
    if (op->layout)
        SY_TRY(op->layout(graph, node, input, md));
    if (md->ndims > 0 && graph->precision == SY_PRECISION_BF16 && !sy_dnnl_has_bf16())
        store_narrow(md);
    if (md->ndims > 0 || !is_stored_narrow(graph, node, input))
        return SY_OK;
    for (int i = 0; i < shape->rank; i++)
        dims[i] = shape->dims[i].fixed;
    sy_dnnl_plain_md_of(md, dnnl_bf16, shape->rank, dims);
    return SY_OK;
}

static int param_form(const struct sy_graph *graph, const struct sy_node *node, int input,
                      struct sy_param_form *out)
{
    dnnl_memory_desc_t md;
    _Static_assert(sizeof md <= sizeof out->layout, "a layout is a descriptor");
    SY_TRY(param_layout(graph, node, input, &md));
    out->bytes = graph->tensors[node->inputs[input]].data_bytes;
    if (md.ndims) {
        out->bytes = dnnl_memory_desc_get_size(&md);
        out->layout_bytes = sizeof md;
        memcpy(out->layout, &md, sizeof md);
    }
    return SY_OK;
}

/* Building the layer's steps on trial makes import reject, by name, what could not run. */
static int layout_layer(const struct sy_graph *graph, struct sy_layer *layer)
{
    static const struct sy_param_rules rules = {is_param, param_form};
    const struct sy_node *node = &graph->nodes[layer->node];
    layer->bytes = 0;
    layer->n_params = 0;
    if (!sy_host_op_find(node->op))
        return sy_unsupported(node, "the host engine does not have this operator");
    SY_TRY(sy_layer_lay_out(graph, &rules, layer));
    return sy_program_try_layer(graph, layer);
}

static int reorder_to(const dnnl_memory_desc_t *md, void *from, void *to, const char *name)
{
    dnnl_memory_desc_t plain;
    dnnl_engine_t engine = sy_dnnl_engine();
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_memory_t memory[2];
    sy_dnnl_plain_md_of(&plain, md->data_type == dnnl_s8 ? dnnl_s8 : dnnl_f32, md->ndims, md->dims);
    SY_DNNL(dnnl_reorder_primitive_desc_create(&pd, &plain, engine, md, engine, NULL), name);
    SY_DNNL(dnnl_primitive_create(&primitive, pd), name);
    SY_DNNL(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), name);
    SY_DNNL(dnnl_memory_create(&memory[0], &plain, engine, from), name);
    SY_DNNL(dnnl_memory_create(&memory[1], md, engine, to), name);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, memory[0]}, {DNNL_ARG_TO, memory[1]}};
    dnnl_status_t status = dnnl_primitive_execute(primitive, stream, 2, args);
    dnnl_stream_wait(stream);
    dnnl_memory_destroy(memory[0]);
    dnnl_memory_destroy(memory[1]);
    dnnl_stream_destroy(stream);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(pd);
    return sy_dnnl_check(status, "packing", name);
}

/* Packs as float32, then rounds: oneDNN converts to bf16 only on CPUs that have it. */
static int pack_narrow(const dnnl_memory_desc_t *md, void *plain, uint16_t *to, const char *name)
{
    dnnl_memory_desc_t wide;
    float *packed = NULL;
    if (sy_dnnl_has_bf16() || !sy_dnnl_widened_md(md, &wide))
        return reorder_to(md, plain, to, name);
    size_t bytes = dnnl_memory_desc_get_size(&wide);
    if (posix_memalign((void **)&packed, SY_PARAM_ALIGN, bytes) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to pack the weights of %s", name);
    int status = reorder_to(&wide, plain, packed, name);
    if (status == SY_OK)
        sy_elementwise_narrow((int64_t)(bytes / sizeof *packed), packed, to);
    free(packed);
    return status;
}

/* Bytes that `prepare` may write: the parameter in float32, padded as in its layout. */
static size_t room_to_prepare(const struct sy_tensor *t, const struct sy_param *param)
{
    dnnl_memory_desc_t md, wide;
    uint64_t bytes = param->bytes;
    if (param->layout_bytes == sizeof md) {
        memcpy(&md, param->layout, sizeof md);
        if (sy_dnnl_widened_md(&md, &wide))
            bytes = dnnl_memory_desc_get_size(&wide);
    }
    return SY_MAX(SY_MAX(t->data_bytes, (size_t)bytes), 1);
}

static int pack_param(const struct sy_graph *graph, const struct sy_node *node,
                      const struct sy_param *param, void *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[param->input]];
    const struct sy_host_op *op = sy_host_op_find(node->op);
    void *plain = calloc(1, room_to_prepare(t, param));
    int status = SY_OK;
    SY_TRY_ALLOC(plain, "no memory to pack %s", t->name);
    if (op->prepare)
        status = op->prepare(graph, node, param->input, plain);
    else
        memcpy(plain, t->data, t->data_bytes);
    if (status == SY_OK && param->layout_bytes)
        status = pack_narrow(param->layout, plain, to, node->name);
    else if (status == SY_OK)
        memcpy(to, plain, t->data_bytes);
    free(plain);
    return status;
}

static int pack_layer(const struct sy_graph *graph, const struct sy_layer *layer, void *to)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    memset(to, 0, layer->bytes);
    for (int i = 0; i < layer->n_params; i++)
        SY_TRY(
            pack_param(graph, node, &layer->params[i], (char *)to + layer->params[i].offset_bytes));
    return SY_OK;
}

static bool fuses(enum sy_op op, int64_t size)
{
    (void)size;
    if (op == SY_OP_QUANTIZED_CONV || op == SY_OP_QUANTIZED_MATMUL || op == SY_OP_QUANTIZED_SUM)
        return sy_dnnl_has_int8();
    return op == SY_OP_QUANTIZED_LSTM || op == SY_OP_ATTENTION || op == SY_OP_RMS_NORM ||
           op == SY_OP_SWISH || op == SY_OP_IF || op == SY_OP_LOOP || op == SY_OP_CHANNEL_AFFINE;
}

const struct sy_engine_ops sy_host_engine = {
    .name = "host",
    .describe = describe,
    .check_precision = check_precision,
    .set_threads = set_threads,
    .fuses = fuses,
    .layout_layer = layout_layer,
    .pack_layer = pack_layer,
    .program_create = sy_program_create,
    .program_destroy = sy_program_destroy,
    .program_workspace_bytes = sy_program_workspace_bytes,
    .program_run = sy_program_run,
    .on_turn = sy_dynamic_on_turn,
    .use_helper = sy_dynamic_use_helper,
};
