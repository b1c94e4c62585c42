/* Blocks of 8 units, for CPUs without AVX-512: 12 sums in 16 registers. */
#include "workers/host/base/clones.h"
#include "workers/host/products/recurrence_block.h"

BLOCK(SY_CLONES, sy_lstm_block_8, some_sequences, 4, 3)
BLOCK(SY_CLONES, sy_gru_block_8, some_sequences, 3, 4)
