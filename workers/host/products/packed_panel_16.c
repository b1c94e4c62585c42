/* For AVX-512. */
#define LANES 16
#include "workers/host/products/packed_panel.h"

PANEL_PRODUCT(__attribute__((target("avx512f"))), sy_packed_panel_16)
