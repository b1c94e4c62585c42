/* For CPUs without AVX-512. */
#include "workers/host/base/clones.h"
#include "workers/host/products/packed_panel.h"

PANEL_PRODUCT(SY_CLONES, sy_packed_panel_8)
