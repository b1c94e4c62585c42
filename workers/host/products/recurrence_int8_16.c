/* Blocks of an LSTM in 8 bits with vectors of 16 floats. */
#define LANES 16
#include "workers/host/products/recurrence_int8_internal.h"

INT8_BLOCK(__attribute__((target("avx512f"))), sy_int8_lstm_block_16)
