/* One step of a recurrence for one sequence, n hidden units, and its gradient. Gates are in ONNX's order. */
#ifndef SY_WORKERS_HOST_TRAIN_TRAIN_CELLS_H
#define SY_WORKERS_HOST_TRAIN_TRAIN_CELLS_H

#include <stdbool.h>
#include <stdint.h>

/* g: sums of the gates in, the gates out. */
void sy_cell_lstm(float *g, const float *c, float *c_new, float *h, int64_t n);
void sy_cell_rnn(float *g, float *h, int64_t n);
/* late[i] is what the hidden state gives the third gate, before the reset: it is kept for backward. */
void sy_cell_gru_late(float *g, const float *late, const float *h, float *h_new, int64_t n);
/* The reset in front of the third product: first the gates and reset * h, behind the product the end. */
void sy_cell_gru_gates(float *g, const float *h, float *reset_h, int64_t n);
void sy_cell_gru_end(float *g, const float *h, float *h_new, int64_t n);

/* dc becomes that of the step before. */
void sy_cell_lstm_back(const float *g, const float *c, const float *c_new, const float *dh,
                       float *dc, float *dg, int64_t n);
void sy_cell_rnn_back(const float *g, const float *dh, float *dg, int64_t n);
/* dh becomes what passes straight to the state before. */
void sy_cell_gru_back(const float *g, const float *h, const float *extra, float *dh, float *dg,
                      float *dg_h, int64_t n, bool resets_late);
/* The reset in front of the third product, whose gradient d(reset * h) is there. */
void sy_cell_gru_back_early(const float *g, const float *h, const float *d, float *dh, float *dg,
                            float *dg_h, int64_t n);

#endif
