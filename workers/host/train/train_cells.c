#include "workers/host/train/train_cells.h"

#include "workers/host/base/clones.h"
#include "workers/host/train/train_curves.h"

/* Each gate has a pointer of its own that is `restrict`: else the loops are not vectorised. */

SY_CLONES void sy_cell_lstm(float *g, const float *restrict c, float *restrict c_new,
                            float *restrict h, int64_t n)
{
    float *restrict in = g, *restrict out = g + n, *restrict forget = g + 2 * n,
                    *restrict fresh = g + 3 * n;
    for (int64_t i = 0; i < n; i++) {
        in[i] = sy_curve_sigmoid(in[i]);
        out[i] = sy_curve_sigmoid(out[i]);
        forget[i] = sy_curve_sigmoid(forget[i]);
        fresh[i] = sy_curve_tanh(fresh[i]);
        c_new[i] = forget[i] * c[i] + in[i] * fresh[i];
        h[i] = out[i] * sy_curve_tanh(c_new[i]);
    }
}

SY_CLONES void sy_cell_rnn(float *restrict g, float *restrict h, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        h[i] = g[i] = sy_curve_tanh(g[i]);
}

SY_CLONES void sy_cell_gru_late(float *g, const float *restrict late, const float *restrict h,
                                float *restrict h_new, int64_t n)
{
    float *restrict update = g, *restrict reset = g + n, *restrict fresh = g + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        update[i] = sy_curve_sigmoid(update[i]);
        reset[i] = sy_curve_sigmoid(reset[i]);
        fresh[i] = sy_curve_tanh(fresh[i] + reset[i] * late[i]);
        h_new[i] = (1.0f - update[i]) * fresh[i] + update[i] * h[i];
    }
}

SY_CLONES void sy_cell_gru_gates(float *g, const float *restrict h, float *restrict reset_h,
                                 int64_t n)
{
    float *restrict update = g, *restrict reset = g + n;
    for (int64_t i = 0; i < n; i++) {
        update[i] = sy_curve_sigmoid(update[i]);
        reset[i] = sy_curve_sigmoid(reset[i]);
        reset_h[i] = reset[i] * h[i];
    }
}

SY_CLONES void sy_cell_gru_end(float *g, const float *restrict h, float *restrict h_new, int64_t n)
{
    const float *restrict update = g;
    float *restrict fresh = g + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        fresh[i] = sy_curve_tanh(fresh[i]);
        h_new[i] = (1.0f - update[i]) * fresh[i] + update[i] * h[i];
    }
}

SY_CLONES void sy_cell_lstm_back(const float *g, const float *restrict c,
                                 const float *restrict c_new, const float *restrict dh,
                                 float *restrict dc, float *dg, int64_t n)
{
    const float *restrict in = g, *restrict out = g + n, *restrict forget = g + 2 * n,
                          *restrict fresh = g + 3 * n;
    float *restrict d_in = dg, *restrict d_out = dg + n, *restrict d_forget = dg + 2 * n,
                    *restrict d_fresh = dg + 3 * n;
    for (int64_t i = 0; i < n; i++) {
        float bent = sy_curve_tanh(c_new[i]), d = dc[i] + dh[i] * out[i] * (1.0f - bent * bent);
        d_in[i] = d * fresh[i] * in[i] * (1.0f - in[i]);
        d_out[i] = dh[i] * bent * out[i] * (1.0f - out[i]);
        d_forget[i] = d * c[i] * forget[i] * (1.0f - forget[i]);
        d_fresh[i] = d * in[i] * (1.0f - fresh[i] * fresh[i]);
        dc[i] = d * forget[i];
    }
}

SY_CLONES void sy_cell_rnn_back(const float *restrict g, const float *restrict dh,
                                float *restrict dg, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dg[i] = dh[i] * (1.0f - g[i] * g[i]);
}

SY_CLONES void sy_cell_gru_back(const float *g, const float *restrict h,
                                const float *restrict extra, float *restrict dh, float *dg,
                                float *dg_h, int64_t n, bool resets_late)
{
    const float *restrict update = g, *restrict reset = g + n, *restrict fresh = g + 2 * n;
    float *restrict d_update = dg, *restrict d_reset = dg + n, *restrict d_fresh = dg + 2 * n;
    float *restrict h_update = dg_h, *restrict h_reset = dg_h + n, *restrict h_fresh = dg_h + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        float third = dh[i] * (1.0f - update[i]) * (1.0f - fresh[i] * fresh[i]);
        d_update[i] = h_update[i] = dh[i] * (h[i] - fresh[i]) * update[i] * (1.0f - update[i]);
        d_fresh[i] = third;
        d_reset[i] = h_reset[i] =
            resets_late ? third * extra[i] * reset[i] * (1.0f - reset[i]) : 0.0f;
        h_fresh[i] = resets_late ? third * reset[i] : third;
        dh[i] *= update[i];
    }
}

SY_CLONES void sy_cell_gru_back_early(const float *g, const float *restrict h,
                                      const float *restrict d, float *restrict dh, float *dg,
                                      float *dg_h, int64_t n)
{
    const float *restrict reset = g + n;
    float *restrict d_reset = dg + n, *restrict h_reset = dg_h + n;
    for (int64_t i = 0; i < n; i++) {
        d_reset[i] = h_reset[i] = d[i] * h[i] * reset[i] * (1.0f - reset[i]);
        dh[i] += d[i] * reset[i];
    }
}
