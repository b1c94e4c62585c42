/* The states of an LSTM in 8 bits, before each step. */
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/int8_rows.h"
#include "workers/host/program_internal.h"
#include "workers/host/recurrence_internal.h"

/* ONNX Runtime cuts batches of more than 4 sequences, or of 2 with at most 256 units, among its threads. */
int64_t sy_recurrence_int8_group(int64_t batch, int64_t hidden, int threads)
{
    bool is_cut = batch > 4 || (batch >= 2 && hidden <= 256);
    return is_cut ? (batch + threads - 1) / threads : batch;
}

int64_t sy_recurrence_int8_bytes(int64_t batch, int64_t hidden, int threads)
{
    return threads * batch * recurrence_int8_stride(hidden);
}

sy_recurrence_block *sy_recurrence_int8_block(void)
{
    return sy_dnnl_has_avx512() ? sy_int8_lstm_block_16 : sy_int8_lstm_block_8;
}

/* Sequences [first, end), by their common range. */
static void quantize_group(const struct place *p, int64_t first, int64_t end, uint8_t *states)
{
    const int64_t hidden = p->r->hidden, stride = recurrence_int8_stride(hidden);
    float low = 0, high = 0, scale, zero;
    for (int64_t b = first; b < end; b++) {
        float least, largest;
        sy_int8_range_of(hidden, recurrence_state_before(p, b), &least, &largest);
        low = SY_MIN(low, least);
        high = SY_MAX(high, largest);
    }
    sy_int8_scale_of(low, high, &scale, &zero);
    for (int64_t b = first; b < end; b++) {
        uint8_t *row = states + b * stride, *numbers = row + sizeof(struct int8_state);
        sy_int8_quantize(hidden, recurrence_state_before(p, b), scale, zero, 0, 255, numbers);
        const struct int8_state state = {.scale = scale,
                                         .zero = (int32_t)zero,
                                         .sum = sy_int8_sum(hidden, numbers) -
                                                (int32_t)hidden * (int32_t)zero};
        memcpy(row, &state, sizeof state);
    }
}

void sy_recurrence_int8_start(struct place *p, int thread)
{
    const struct sy_recurrence *r = p->r;
    uint8_t *states = r->int8->states + thread * r->batch * recurrence_int8_stride(r->hidden);
    p->states = recurrence_state_before(p, 0) ? states : NULL;
    for (int64_t b = 0; b < r->batch && p->states; b += r->int8->group)
        quantize_group(p, b, SY_MIN(b + r->int8->group, r->batch), states);
}
