/* Internal declarations of dynamic.h. */
#ifndef SY_WORKERS_HOST_DYNAMIC_DYNAMIC_INTERNAL_H
#define SY_WORKERS_HOST_DYNAMIC_DYNAMIC_INTERNAL_H

#include "workers/host/dynamic/dynamic.h"

struct sy_at_value {
    int refs;
    bool owns, is_constant; /* is_constant: known before any run */
    bool is_list;
    /* an empty optional: a list without items, accepted by operators on optionals only */
    bool is_none;
    int param; /* 1 + index of the run's input that holds these elements in all runs; 0: none */
    uint64_t bytes; /* that it owns */
    /* the value whose elements this one shows in another shape; NULL: none */
    struct sy_at_value *base;
    struct sy_array a;
    int n_items; /* of a list */
    struct sy_at_value **items;
};

/* State of a run, shared by its nodes. */
struct sy_at_state {
    uint64_t bytes; /* owned by values */
    /* no stretches: within an iteration whose shapes differ from the previous one's */
    bool by_node;
    int64_t n_turns;           /* of all loops */
    int n_open;                /* nested loops that only their condition ends */
    sy_ns open_since, open_ns; /* start of the outermost one; duration of earlier ones */
};

/* ---- values: new ones have one reference, the caller's ---- */

/* Allocates memory for sy_at_free; NULL: no memory. Large blocks use huge pages and are recycled: fresh pages cost more than most nodes take to run. */
void *sy_at_alloc(uint64_t bytes);
/* bytes: as requested. Large blocks are kept for later allocations, up to SY_DYNAMIC_KEPT per process. */
void sy_at_free(void *data, uint64_t bytes);
void sy_at_free_kept(void);
/* Elements are uninitialised. */
int sy_at_value_new(struct sy_at_state *state, enum sy_dtype dtype, int rank, const int64_t *dims,
                    struct sy_at_value **out);
/* References memory that outlives the value. */
int sy_at_value_borrow(const struct sy_array *a, struct sy_at_value **out);
/* A view of the elements of `of` in another shape; holds a reference to it. */
int sy_at_value_view(struct sy_at_value *of, int rank, const int64_t *dims,
                     struct sy_at_value **out);
/* Takes its own references to the items. */
int sy_at_value_new_list(struct sy_at_value *const *items, int n, struct sy_at_value **out);
struct sy_at_value *sy_at_value_ref(struct sy_at_value *v);
void sy_at_value_drop(struct sy_at_state *state, struct sy_at_value *v); /* NULL is fine */
/* Drops all n references and sets them to NULL. */
void sy_at_values_drop(struct sy_at_state *state, struct sy_at_value **values, int n);
/* Takes over the caller's reference to the item, unless it fails. */
int sy_at_value_append(struct sy_at_value *list, struct sy_at_value *item);
int sy_at_value_new_none(struct sy_at_value **out);
size_t sy_at_value_size(const struct sy_at_value *v); /* of its elements */
/* Reads one integer; `otherwise` if the operand is omitted; EARG names the node. */
int sy_at_value_integer(const struct sy_node *node, const struct sy_at_value *v, int64_t otherwise,
                        int64_t *out);

/* ---- nodes: inputs are NULL where left out, and tensors unless said; outputs are set ---- */

struct sy_at_node;
void sy_at_node_free(struct sy_at_node *made); /* NULL is fine */
/* Input of a node's run. */
struct sy_at_call {
    struct sy_at_state *state;
    const struct sy_graph *graph; /* that the node stands in */
    const struct sy_node *node;
    const int *last_use; /* per tensor of the graph; -1: no reader */
    struct sy_at_value *const *inputs;
    struct sy_at_value **outputs;
};
/* Whether input i holds weights that are worth packing, and the operator packs them. */
bool sy_at_node_packs(const struct sy_node *node, int i, const struct sy_at_value *v);
/* ---- a graph of numbers, made of nodes of another ---- */
struct sy_shape sy_at_shape_of(const struct sy_array *a);
/* Adds a constant with a copy of `bytes` of elements. */
int sy_at_add_constant(struct sy_graph *graph, const struct sy_array *a, size_t bytes, int *out);
/* Copies the constants that attributes of the copied node refer to from `from`. */
int sy_at_add_attributes(struct sy_graph *graph, const struct sy_graph *from, struct sy_node *node);

bool sy_at_wants(const struct sy_at_call *call, int output);
/* Executes any node without a body. *made: its program from before, or NULL; replaced. */
int sy_at_node_run(const struct sy_at_call *call, struct sy_at_node **made);
/* True for operators whose kernel counts the elements of its result. */
bool sy_at_node_counts(enum sy_op op);
int sy_at_node_count(struct sy_at_state *state, const struct sy_node *node,
                     struct sy_at_value *const *inputs, struct sy_at_value **outputs);
/* ---- nodes with bodies (dynamic_loop.c) ---- */
struct sy_at_plan; /* a graph, with what was made for its nodes */
const struct sy_graph *sy_at_plan_graph(const struct sy_at_plan *p);
/* inputs: one per input of the graph, NULL if omitted; results: one per output, owned by the caller. */
int sy_at_plan_run(struct sy_at_state *state, struct sy_at_plan *p,
                   struct sy_at_value *const *inputs, struct sy_at_value **results);
int sy_at_if_run(struct sy_at_state *state, const struct sy_node *node,
                 struct sy_at_plan *const *bodies, struct sy_at_value *const *inputs,
                 struct sy_at_value **outputs);
int sy_at_loop_run(struct sy_at_state *state, const struct sy_node *node, struct sy_at_plan *body,
                   struct sy_at_value *const *inputs, struct sy_at_value **outputs);
/* SequenceMap: executes the body once for each item of the first list. */
int sy_at_map_run(struct sy_at_state *state, const struct sy_node *node, struct sy_at_plan *body,
                  struct sy_at_value *const *inputs, struct sy_at_value **outputs);

/* Operators on lists. */
bool sy_at_is_of_lists(enum sy_op op);
int sy_at_list_run(struct sy_at_state *state, const struct sy_node *node,
                   struct sy_at_value *const *inputs, struct sy_at_value **outputs);
/* Lists from their parts, and parts of lists (loader/graph/list_ends.h). */
int sy_at_list_of_parts(struct sy_at_state *state, const struct sy_node *node,
                        struct sy_at_value *const *inputs, struct sy_at_value **outputs);
int sy_at_parts_of_list(struct sy_at_state *state, const struct sy_node *node,
                        const struct sy_at_value *list, struct sy_at_value **outputs);
/* Concatenates tensors along an axis, or stacks them along a new one. */
int sy_at_concat(struct sy_at_state *state, const struct sy_node *node,
                 struct sy_at_value *const *items, int n, int64_t axis, bool stacked,
                 struct sy_at_value **out);
/* Whether sy_at_concat is as fast as a Concat program, which would have to be made for each shape in a loop: the last rows are long, or the items few. */
bool sy_at_joins_rows(struct sy_at_value *const *items, int n);
int sy_at_fail(const struct sy_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
