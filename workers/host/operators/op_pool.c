/* Pooling on oneDNN, in the layout that the input has, where it has more than plain loops; the kernel (kernel_window.c) where not. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"

struct pool_shape {
    int spatial;
    dnnl_dims_t kernel, strides, dilations, pad_left, pad_right;
    dnnl_dims_t dst;
};

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && i < a->n ? a->ints[i] : otherwise;
}

static bool is_global(const struct sy_node *node)
{
    return node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL;
}

static void read_shape(const struct sy_program *p, const struct sy_value *src, struct pool_shape *s)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *auto_pad = sy_node_attr(node, "auto_pad");
    bool lower = auto_pad && strcmp(auto_pad->s, "SAME_LOWER") == 0;
    bool upper = auto_pad && strcmp(auto_pad->s, "SAME_UPPER") == 0;
    s->spatial = src->rank - 2;
    sy_program_dims(p, node->outputs[0], s->dst);
    for (int i = 0; i < s->spatial; i++) {
        s->kernel[i] = is_global(node) ? src->dims[2 + i] : attr_at(node, "kernel_shape", i, 1);
        s->strides[i] = is_global(node) ? 1 : attr_at(node, "strides", i, 1);
        s->dilations[i] = is_global(node) ? 0 : attr_at(node, "dilations", i, 1) - 1;
        int64_t extent = (s->kernel[i] - 1) * (s->dilations[i] + 1) + 1;
        int64_t total = (s->dst[2 + i] - 1) * s->strides[i] + extent - src->dims[2 + i];
        s->pad_left[i] = is_global(node) ? 0 : attr_at(node, "pads", i, 0);
        if (lower || upper)
            s->pad_left[i] = total <= 0 ? 0 : upper ? total / 2 : total - total / 2;
        s->pad_right[i] = total - s->pad_left[i];
    }
}

static dnnl_alg_kind_t algorithm(const struct sy_node *node)
{
    if (node->op == SY_OP_MAX_POOL || node->op == SY_OP_GLOBAL_MAX_POOL)
        return dnnl_pooling_max;
    return node->op == SY_OP_AVERAGE_POOL && sy_node_int(node, "count_include_pad", 0)
               ? dnnl_pooling_avg_include_padding
               : dnnl_pooling_avg_exclude_padding;
}

/* Averages over padding: with ceil_mode windows may reach past it, which oneDNN would count too. */
static bool counts_beyond_edge(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    return node->op == SY_OP_AVERAGE_POOL && sy_node_int(node, "count_include_pad", 0) != 0 &&
           sy_node_int(node, "ceil_mode", 0) != 0;
}

/* True for forms that only the kernel computes correctly; false: oneDNN may be used. */
static bool needs_kernel(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_tensor *x = sy_program_input_tensor(p, 0);
    bool largest_8_bits =
        algorithm(node) == dnnl_pooling_max && (x->dtype == SY_DTYPE_U8 || x->dtype == SY_DTYPE_I8);
    return (node->n_outputs > 1 && node->outputs[1] >= 0) ||
           (x->dtype != SY_DTYPE_F32 && !largest_8_bits) || x->shape.rank < 3 ||
           x->shape.rank > 5 || counts_beyond_edge(p);
}

/* oneDNN's primitive, if it is made for this layout. NULL: the kernel's loops are the faster ones of float32 ("ref", "simple"), or oneDNN
 * refuses the window, as it does one that may lie in the padding altogether. */
static dnnl_primitive_desc_t find_primitive(const struct sy_program *p, int src)
{
    const struct sy_value v = p->values[src];
    struct pool_shape s;
    dnnl_pooling_v2_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr;
    dnnl_memory_desc_t dst_md;
    const char *name = NULL;
    read_shape(p, &v, &s);
    dnnl_memory_desc_init_by_tag(&dst_md, v.rank, s.dst, v.md.data_type, dnnl_format_tag_any);
    if (dnnl_pooling_v2_forward_desc_init(
            &desc, dnnl_forward_inference, algorithm(sy_program_node(p)), &v.md, &dst_md, s.strides,
            s.kernel, s.dilations, s.pad_left, s.pad_right) != dnnl_success ||
        dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t status = dnnl_primitive_desc_create(&pd, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    if (status != dnnl_success)
        return NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    if (v.md.data_type != dnnl_f32 || (name && strncmp(name, "jit", 3) == 0))
        return pd;
    dnnl_primitive_desc_destroy(pd);
    return NULL;
}

static int build_pool(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int src, dst;
    if (needs_kernel(p))
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_native(p, 0, &src));
    dnnl_primitive_desc_t pd = find_primitive(p, src);
    if (!pd)
        return sy_program_add_kernel(p);
    dnnl_memory_desc_t dst_md = *sy_dnnl_md(pd, dnnl_query_dst_md);
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &dst_md, &dst));
    sy_program_set_output(p, 0, dst);
    const int args[][2] = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
    return sy_program_add_primitive(p, pd, args, 2);
}

const struct sy_host_op sy_host_ops_pool[] = {
    {.build = build_pool,
     SY_OPS(SY_OP_MAX_POOL, SY_OP_AVERAGE_POOL, SY_OP_GLOBAL_AVERAGE_POOL, SY_OP_GLOBAL_MAX_POOL)},
    {0}};
