/* Blocks of an LSTM in 8 bits with vectors of 8 floats. */
#include "workers/host/base/clones.h"
#include "workers/host/products/recurrence_int8_internal.h"

INT8_BLOCK(SY_CLONES, sy_int8_lstm_block_8)
