/* LSTM, GRU and RNN as the trainer runs them: one step of the plan a direction, cut into pieces of a few steps of time so that a pause
 * waits for about a millisecond. Private to train_recurrent*.c.
 *
 * Everything is kept in the order of steps, not of time: step s of sequence b reads time s, or from the sequence's end in the
 * reverse direction; behind a sequence's end the state is carried. So both directions are the same loops:
 *
 *   inputs [S, B, I]  --W-->  gates [S, B, G H]  --curves-->  states h, c [S + 1, B, H], the first is the initial one
 *   backward: d gates [S, B, G H] step by step, then each weight's gradient in one product a piece
 *
 * Sequences are independent: a thread takes some of them through all steps of a piece without a barrier. Where there are
 * not half as many sequences as threads, and the weights are many, the products of a step are split instead: all threads make each, its
 * columns shared out, and meet before and behind it; the first thread alone does the rest. The bits are the same either way. */
#ifndef SY_WORKERS_HOST_TRAIN_TRAIN_RECURRENT_H
#define SY_WORKERS_HOST_TRAIN_TRAIN_RECURRENT_H

#include "workers/host/train/train_internal.h"

struct cell {
    enum sy_op op;
    int64_t steps, batch, input, hidden, gates, directions;
    int64_t piece_steps; /* of one piece */
    int direction;
    bool is_reverse, resets_late; /* GRU: linear_before_reset */
    bool clears;                  /* the first direction makes the input's gradient, others add */
};

/* Positions of values in the steps: forward. */
enum { F_Y, F_YH, F_YC, F_SAVED, F_X, F_W, F_R, F_B, F_LENGTHS, F_STATE, F_COUNT };
/* Backward. */
enum {
    B_DX,
    B_DW,
    B_DR,
    B_DB,
    B_DSTATE,
    B_SAVED,
    B_DY,
    B_DYH,
    B_DYC,
    B_W,
    B_R,
    B_LENGTHS,
    B_COUNT
};

/* Buffers of one direction, in floats: gates, h, c (LSTM) or the product with reset (GRU), inputs, gradients of the gates (separate for the hidden side where
 * they differ, GRU) and of the state, scratch for a step, and the recurrent weights in the layout of a step's products. */
struct room {
    float *gates, *dgates, *dgates_h, *h, *c, *x, *dh, *dc, *swap, *packed;
};

/* A piece's products, about. Tests make it small. */
extern double sy_tr_recurrent_piece_flops;

int64_t sy_tr_recurrent_floats(const struct cell *c);
struct room sy_tr_recurrent_room(const struct cell *c, float *memory);
/* The row of [time, batch] that step s of sequence b is; -1: behind its end. */
int64_t sy_tr_recurrent_row(const struct cell *c, const int32_t *lengths, int64_t s, int64_t b);
/* From `from` [directions, batch, hidden], or zero. */
void sy_tr_recurrent_start(float *to, const float *from, const struct cell *c);
/* Columns of the gates that the first product of a step makes: all of them, or two thirds (GRU). */
int64_t sy_tr_recurrent_first(const struct cell *c);
/* A thread's part of a step: products of the sequences [from, to), curves of [from, own). */
struct share {
    int64_t from, to, own;
    bool splits; /* products, with the other threads */
};

/* Fewer weights than these are multiplied with faster than two threads meet twice. Tests make it small. */
extern int64_t sy_tr_recurrent_split_floats;

/* The share of the calling thread, inside a parallel region. */
struct share sy_tr_recurrent_share(const struct cell *c);
/* c [rows, n] = a [rows, k] times a packed matrix, or (adds) plus that. Splits: all threads of the region call it. */
void sy_tr_recurrent_step_product(bool splits, bool adds, int64_t rows, int64_t n, int64_t k,
                                  const float *a, int64_t lda, const float *packed, float *c,
                                  int64_t ldc);
/* c = op(a) op(b) + beta c: row-major, m x n, all threads. */
int sy_tr_recurrent_product(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a,
                            int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                            int64_t ldc);

/* t->piece is which one; the pieces of a step run in order, from 0. */
int sy_tr_recurrent_run_forward(struct sy_trainer *t, const struct sy_tr_step *step);
int sy_tr_recurrent_run_backward(struct sy_trainer *t, const struct sy_tr_step *step);

#endif
