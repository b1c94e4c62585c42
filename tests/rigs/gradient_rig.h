/* Small networks of every operator that can be trained, and a trainer of one of them bound to memory. */
#ifndef SY_TESTS_RIGS_GRADIENT_RIG_H
#define SY_TESTS_RIGS_GRADIENT_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/trainer.h"

#define BATCH 3
#define ROOM  8192
#define LIST(...)                                                          \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
#define IN(...)                                                      \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) \
    {                                                                \
        __VA_ARGS__                                                  \
    }

/* tests/nets/gradient_nets.c. make returns the output, of an input [BATCH, ...] of 24 numbers a sample. */
struct gradient_net {
    const char *name;
    int (*make)(struct sy_graph *g);
};
extern const struct gradient_net gradient_nets[];
extern const int n_gradient_nets;

/* tests/nets/gradient_nets_masks.c */
int gradient_net_masked(struct sy_graph *g);
int gradient_net_lower(struct sy_graph *g);
int gradient_net_upper(struct sy_graph *g);
int gradient_net_steps(struct sy_graph *g);
int gradient_net_choice(struct sy_graph *g);
int gradient_net_mirrored(struct sy_graph *g);
int gradient_net_edged(struct sy_graph *g);
int gradient_net_cut(struct sy_graph *g);
int gradient_net_bent_input(struct sy_graph *g);
int gradient_net_thin_gemm(struct sy_graph *g);

/* tests/nets/gradient_nets_attention.c; of all but the last two the CUDA trainer makes one node */
int gradient_net_attention(struct sy_graph *g);
int gradient_net_attention_masked(struct sy_graph *g);
int gradient_net_attention_dead_rows(struct sy_graph *g);
int gradient_net_attention_grouped(struct sy_graph *g);
int gradient_net_attention_shared(struct sy_graph *g);
int gradient_net_attention_learned(struct sy_graph *g);
int gradient_net_attention_of_one(struct sy_graph *g);
int gradient_net_attention_long(struct sy_graph *g);
int gradient_net_attention_wide(struct sy_graph *g);
int gradient_net_attention_dropped(struct sy_graph *g);
int gradient_net_attention_dropped_inside(struct sy_graph *g);
int gradient_net_attention_trained_mask(struct sy_graph *g);

/* A node with one output of this shape, -1 being the batch; a weight, or one above zero; the input by a weight, [BATCH, 4, 6]. */
int gradient_node(struct sy_graph *g, enum sy_op op, int n_in, const int *in, int rank,
                  int64_t *dims);
int gradient_weight(struct sy_graph *g, const char *name, int rank, int64_t *dims);
int gradient_positive(struct sy_graph *g, const char *name, int rank, int64_t *dims);
int gradient_start(struct sy_graph *g);

extern uint64_t gradient_seed;
/* The host trainer, unless the binary is linked with a rig_choose_trainer (tests/on_cpu/) that puts another here. */
extern const struct sy_trainer_ops *gradient_ops;
/* The trainer's view of what is bound; NULL: the pointer itself. */
extern void *(*gradient_view)(void *memory);
/* What gradient_open asks for. */
extern bool gradient_recomputes;
extern enum sy_train_precision gradient_precision;

struct gradient_rig {
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    void *persistent, *ephemeral;
    float input[BATCH * 24], wanted[ROOM];
    int64_t n_wanted;
};

/* Reads SY_SEED and prints it, chooses the trainer. */
void gradient_begin(void);
/* Binds to memory of NaN. */
void gradient_bind(struct gradient_rig *r);
bool gradient_open_with(struct gradient_rig *r, size_t which, const struct sy_train_options *o);
bool gradient_open(struct gradient_rig *r, size_t which);
void gradient_close(struct gradient_rig *r);
/* Of the rig's input, after a forward and a backward pass. */
double gradient_loss(struct gradient_rig *r);
void gradient_settle(struct gradient_rig *r);

#endif
