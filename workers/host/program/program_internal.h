/* The host engine's program inside: values, steps, and what the operators use to add them.
 *
 *   graph tensor ──> value (bytes somewhere, seen through one oneDNN layout)
 *   layer        ──> steps: primitives and loops over values, added when the program is made
 *
 * P1: everything is decided when the program is made; a run allocates nothing.
 * P2: a value's bytes are in the workspace, in an input or output tensor, in the layer's parameters, or in the graph (constants).
 * P3: values of the workspace whose lives (first to last layer that names them) do not overlap may share bytes; an
 *     alias is another view of the same bytes and lives with them.
 * P12: a float32 tensor's value may hold bf16 (its md says so) in a graph of that precision; what asks for it row-major
 *     gets float32.
 * P4: a step reads parameters of its own layer only, so layers can run as soon as their group is there. */
#ifndef SY_WORKERS_HOST_PROGRAM_PROGRAM_INTERNAL_H
#define SY_WORKERS_HOST_PROGRAM_PROGRAM_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/engine.h"
#include "workers/engine/append.h"
#include "workers/engine/keeps_precision.h"
#include "workers/engine/layer_node.h"
#include "workers/host/base/cpu_class.h"
#include "workers/host/base/dnnl_compat.h"
#include "workers/host/program/program.h"

#define SY_STEP_MAX_ARGS    40
#define SY_STEP_MAX_NUMBERS 48
/* oneDNN's cache of primitives, least recently used first out, in a process: some 0.1 MB of generated code each, so 25 MB. A program holds its own
 * primitives; the cache serves the layers of one program that are alike (ResNet-152 has 40 different ones) and programs made again. With 4096 a
 * worker grew by 0.2 MB with each size that it had never seen. */
#define SY_PRIMITIVES_KEPT 256

enum sy_place { SY_IN_WORKSPACE, SY_IN_INPUT, SY_IN_OUTPUT, SY_IN_PARAMS, SY_IN_CONSTANT };

struct sy_value {
    enum sy_place place;
    int index; /* input, output or layer */
    const void *constant;
    uint64_t offset; /* in the workspace (once planned) or in the layer's parameters */
    uint64_t bytes;
    int root;        /* itself, or the value that it is a view of */
    int first, last; /* first and last layer that use it; of a root: over all its views */
    /* f32: its layout, of bf16 perhaps; 8 bits: its layout; other types: plain, md.ndims == 0 */
    dnnl_memory_desc_t md;
    enum sy_dtype dtype;
    int64_t dims[SY_MAX_RANK];
    int rank;
    /* its elements are part of another value: it gets bytes, and a copy, when it is asked for (program_parts.c) */
    bool pending;
};

/* Channels [first, ...) of a value that holds a group of concatenations (concat_homes.h) are a tensor's elements. */
struct sy_part {
    int value; /* -1: of none */
    int64_t first;
};

struct sy_concat_home;
struct sy_step;
struct sy_strided_move;
typedef int (*sy_step_run)(struct sy_program *program, struct sy_step *step);

struct sy_step_arg {
    int dnnl_arg, value;
    dnnl_memory_t memory;
};

struct sy_step {
    sy_step_run run;
    dnnl_primitive_t primitive; /* NULL: our own loop */
    int n_args;
    int threads; /* number of threads that it was made for */
    struct sy_step_arg *args;
    int64_t *numbers; /* parameters of a loop: dims, strides, ... */
    float *floats;
    const struct sy_kernel *kernel; /* kernel of a kernel step (kernel_step.c), and its node */
    const struct sy_node *node;
    const char *name;
    void *state; /* further state of a step, and its destructor */
    void (*free_state)(void *state);
};

struct sy_program {
    const struct sy_graph *graph;
    const struct sy_layer *layers;
    int n_layers;
    int64_t batch;
    int team; /* threads of layers that are not solo (P13) */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int n_values;
    struct sy_value *values;
    int *native, *plain;  /* per tensor: its value in the producer's layout, and row-major; -1 */
    int *narrow;          /* per tensor: its value as bf16, row-major; -1 */
    unsigned char *wants; /* per tensor: SY_WANT_ of its readers; zero unless the graph is bf16 */
    int *last_use;        /* per tensor: last layer that reads it */
    struct sy_concat_home *homes; /* per tensor */
    struct sy_part *parts;        /* per tensor, of the layers before the one being built */
    int n_steps;
    struct sy_step *steps;
    int *layer_steps; /* first step of each layer, n_layers + 1 entries */
    uint64_t workspace_bytes, scratch_bytes, scratch_offset;
    int strings;                              /* the run's string heap; -1: a body, or no strings */
    int layer;                                /* being built */
    const struct sy_captured_param *captured; /* per input, while the program is made; or NULL */
    const struct sy_binding *binding;         /* of the current run */
};

/* ---- values ---- */
int sy_program_new_value(struct sy_program *p, enum sy_dtype dtype, int rank, const int64_t *dims,
                         int *out);
/* Allocates row-major workspace memory for the tensor. */
int sy_program_new_of(struct sy_program *p, int tensor, int *out);
/* Allocates workspace memory with this layout (dims of the tensor). */
int sy_program_new_laid_out(struct sy_program *p, int tensor, const dnnl_memory_desc_t *md,
                            int *out);
/* A view of `value` with the tensor's dims. `md` NULL: plain. */
int sy_program_new_alias(struct sy_program *p, int value, int tensor, const dnnl_memory_desc_t *md,
                         int *out);
/* A parameter of the layer being built: node input `input`. */
int sy_program_param(struct sy_program *p, int input, int *out);
/* As sy_program_param, in the package's type: perhaps bf16 on a CPU that cannot multiply it. */
int sy_program_stored_param(struct sy_program *p, int input, int *out);
bool sy_program_is_param(const struct sy_program *p, int input);
/* The parameter that node input `input` of the layer being built is, of this layer or captured from around the graph; `layer` NULL: none, or not row-major. */
struct sy_captured_param sy_program_param_of(const struct sy_program *p, int input);
/* A constant whose elements are in the graph. */
int sy_program_constant(struct sy_program *p, int tensor, int *out);
bool sy_program_is_plain(const struct sy_value *value);          /* row-major */
void *sy_program_pointer(const struct sy_program *p, int value); /* during a run */
/* Strings (program_strings.c): entries of a block, made in the layer being built; a graph output's block from a value's entries; of one whose
 * entries lie where the output begins (AtRun). */
int sy_program_take_strings(struct sy_program *p, int block, int tensor, int *out);
int sy_program_give_strings(struct sy_program *p, int from, int output);
/* Makes the heap, if the graph has strings. */
int sy_program_open_strings(struct sy_program *p);
/* Call before the layers from `first` on run. */
void sy_program_use_strings(const struct sy_program *p, int first);
/* Records that the layer being built uses it. */
void sy_program_touch(struct sy_program *p, int value);

/* Node input `input` of the layer being built, row-major; a reorder is added if it is not. Constants and parameters too. */
int sy_program_input_plain(struct sy_program *p, int input, int *out);
/* Input `input` in its present layout (f32, not a parameter). */
int sy_program_input_native(struct sy_program *p, int input, int *out);
/* Input `input` in the layout `md`; adds a reorder if it has another one. */
int sy_program_input_as(struct sy_program *p, int input, const dnnl_memory_desc_t *md, int *out);
/* Input `input` row-major, in its own element type: float32 or bf16. */
int sy_program_input_rows(struct sy_program *p, int input, int *out);
/* Input `input`, a float32 tensor, as row-major bf16. */
int sy_program_input_narrow(struct sy_program *p, int input, int *out);
/* Declares this value to be node output `output`. */
void sy_program_set_output(struct sy_program *p, int output, int value);
/* Makes a row-major value for node output `output`, and declares it. */
int sy_program_output_plain(struct sy_program *p, int output, int *out);
/* As sy_program_output_plain, with the element type of value `like`. */
int sy_program_output_rows(struct sy_program *p, int output, int like, int *out);
/* Output `output`, row-major, if the graph names it; else -1, or with `needed` float32 memory of these dimensions. */
int sy_program_output_or_room(struct sy_program *p, int output, bool needed, int rank,
                              const int64_t *dims, int *out);
/* True if nothing reads the input's bytes after this layer, so that they may be overwritten. */
bool sy_program_is_last_use(const struct sy_program *p, int input, int value);

const struct sy_node *sy_program_node(const struct sy_program *p);
const struct sy_tensor *sy_program_input_tensor(const struct sy_program *p, int input);
/* At the program's batch. */
void sy_program_dims(const struct sy_program *p, int tensor, int64_t *dims);

/* ---- concatenations that grow (program_parts.c) ---- */
/* Fills p->homes and p->parts. */
int sy_program_plan_parts(struct sy_program *p);
/* Concat of channels: copies the parts that are not in its group's value yet. *built false: not such a Concat, or a single one of row-major inputs. */
int sy_program_add_part(struct sy_program *p, bool *built);
/* The node's output is channels [first, ...) of `value`, which stay there. */
int sy_program_show_part(struct sy_program *p, int output, int value, int64_t first);
/* Whether channels of `value`, so many of each, can be shown in its layout. Row-major ones are not: what reads them copies as fast. */
bool sy_program_shows_parts(const struct sy_program *p, int value, const int64_t *channels, int n);
/* The node's input `input` as a part of a larger value, which is named by this layer; false: it is no part. */
bool sy_program_input_part(struct sy_program *p, int input, struct sy_part *out);
/* Materialises a pending value: copies it to memory of its own. */
int sy_program_fetch(struct sy_program *p, int tensor);

/* ---- bf16 (program_narrow.c) ---- */
bool sy_value_is_narrow(const struct sy_value *v);
size_t sy_value_element_bytes(const struct sy_value *v);
/* At import: whether the node's weights are to be bf16. In a graph of that precision; and, where the CPU has the instructions, of a product
 * of whole numbers (attribute `whole`) that bf16 holds exactly. */
bool sy_node_packs_narrow(const struct sy_graph *graph, const struct sy_node *node);
/* Whether values may be bf16: a graph of that precision, on a CPU that multiplies it. On others weights are stored so, in the layout that
 * their float32 has, and are widened in front of each run of their layer. */
bool sy_computes_narrow(const struct sy_graph *graph);
/* The float32 layout that corresponds to `stored`, a bf16 layout; false: not bf16, or no such layout is known. */
bool sy_dnnl_widened_md(const dnnl_memory_desc_t *stored, dnnl_memory_desc_t *md);
/* Converts bf16 to float32 in the same layout. */
int sy_program_add_widen(struct sy_program *p, int from, int to);
/* Whether the layer's product takes its factors as bf16. */
bool sy_program_multiplies_narrow(const struct sy_program *p, const struct sy_layer *layer);
/* Forms that readers of the node's output want: SY_WANT_ bits; others convert when reading. */
unsigned sy_program_wanted(const struct sy_program *p, int output);
/* A fresh row-major value of bf16 for a tensor. */
int sy_program_new_narrow(struct sy_program *p, int tensor, int *out);
/* Fills p->wants. */
void sy_program_plan_narrow(struct sy_program *p);

/* ---- steps ---- */
/* NULL: no memory */
struct sy_step *sy_program_add_step(struct sy_program *p, sy_step_run run, int n_args);
/* Adds a step with these values as arguments, in this order, without a primitive. ENOMEM_HOST. */
int sy_program_add_values(struct sy_program *p, sy_step_run run, const int *values, int n,
                          struct sy_step **out);
/* Adds a step with a copy of `bytes` bytes as state, which reads and writes these values; negative ones are omitted. ENOMEM_HOST. */
int sy_program_add_own_step(struct sy_program *p, sy_step_run run, const void *state, size_t bytes,
                            const int *values, size_t n_values);
void sy_step_set(struct sy_program *p, struct sy_step *step, int arg, int dnnl_arg, int value);
/* Copies the numbers. */
int sy_step_set_numbers(struct sy_step *step, const int64_t *numbers, int n);
int sy_step_set_floats(struct sy_step *step, const float *floats, int n);
/* A oneDNN primitive with these (argument, value) pairs; takes over `pd`. */
int sy_program_add_primitive(struct sy_program *p, dnnl_primitive_desc_t pd, const int (*args)[2],
                             int n_args);
/* As sy_program_add_primitive, for a layer with weights: source, weights, a bias or -1, destination, which becomes the node's output. Keeps `pd`. */
int sy_program_add_weighted(struct sy_program *p, const_dnnl_primitive_desc_t pd, int src,
                            int weights, int bias, int dst);
/* Adds a copy of the elements of `from` to their places in `to` (sy_move). ENOMEM_HOST. */
int sy_program_add_move(struct sy_program *p, const struct sy_strided_move *move, int from, int to);
int sy_program_add_reorder(struct sy_program *p, int from, int to);
/* `from` broadcast to the shape of `to`; both row-major, of one type. */
int sy_program_add_expand(struct sy_program *p, int from, int to);

/* ---- oneDNN ---- */
int sy_dnnl_check(dnnl_status_t status, const char *what, const char *name);
/* Before a product's or convolution's primitive descriptor is made. EUNSUPPORTED: one of them has 2^32 elements or more. oneDNN counts in 32
 * bits in places; what is larger has ended the process (2.6: a division by zero, an exception of C++) or would be computed wrong. */
int sy_dnnl_check_sizes(const char *name, const dnnl_memory_desc_t *source,
                        const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *destination);
#define SY_DNNL(expr, name) SY_TRY(sy_dnnl_check((expr), #expr, (name)))
void sy_dnnl_plain_md(dnnl_memory_desc_t *md, int rank, const int64_t *dims); /* f32 */
void sy_dnnl_plain_md_of(dnnl_memory_desc_t *md, dnnl_data_type_t type, int rank,
                         const int64_t *dims);
/* The layout that the primitive wants; NULL: none. Valid in the enclosing block. */
#define sy_dnnl_md(pd, what) dnnl_primitive_desc_query_md((pd), (what), 0)
/* u8, s8 or f32 of that type; undef for others. */
dnnl_data_type_t sy_dnnl_type(enum sy_dtype dtype);
dnnl_engine_t sy_dnnl_engine(void); /* of this process; NULL if it cannot be had */
/* The node's fused activation, if it has one. */
dnnl_status_t sy_dnnl_append_activation(const struct sy_node *node, dnnl_post_ops_t ops);
/* Attributes with user scratchpad; what is in the destination, of this type, already is added times `sum_scale` (0: not at all), then comes the node's
 * fused activation, unless that is a step of its own (op_blocked.h). */
int sy_dnnl_node_attr(const struct sy_node *node, dnnl_data_type_t type, float sum_scale,
                      dnnl_primitive_attr_t *out);

/* ---- operators: each adds the steps of one node ---- */
struct sy_host_op {
    SY_OPS_FIELDS;
    int (*build)(struct sy_program *p);
    /* (optional) The layout of parameter `input`; NULL or *md with ndims 0: plain. */
    int (*layout)(const struct sy_graph *graph, const struct sy_node *node, int input,
                  dnnl_memory_desc_t *md);
    /* (optional) Plain row-major constant -> what is reordered into the layout (transposed, scaled); NULL: as it is. `to` has room for the
     * constant, and for the layout. The dims are those of the layout's md. */
    int (*prepare)(const struct sy_graph *graph, const struct sy_node *node, int input, void *to);
};
const struct sy_host_op *sy_host_op_find(enum sy_op op);
extern const struct sy_host_op sy_host_ops_conv[], sy_host_ops_deconv[], sy_host_ops_matmul[],
    sy_host_ops_pool[], sy_host_ops_eltwise[], sy_host_ops_norm[], sy_host_ops_recurrent[],
    sy_host_ops_quantize[], sy_host_ops_movement[], sy_host_ops_control[], sy_host_ops_dynamic[],
    sy_host_ops_attention[], sy_host_ops_int8[], sy_host_ops_int8_recurrent[],
    sy_host_ops_channel[]; /* each ends with build NULL */

/* Executes the node by a kernel (kernel.h), row-major: for operators and element types without faster code. EUNSUPPORTED names what is missing. */
int sy_program_add_kernel(struct sy_program *p);
int sy_build_quantized_sum(struct sy_program *p); /* op_int8_sum.c */

/* ---- conv_chain.c ---- */
/* Adds the steps of the chain that begins with layer p->layer, fills layer_steps of its layers, and leaves p->layer at its last one. *built
 * false: there is none, and nothing was added. */
int sy_program_add_chain(struct sy_program *p, bool *built);

#endif
