/* Memory for outputs. Large blocks that were given back are kept for the next answers, of any client of this process: fresh pages cost as much as receiving
 * into them. At most SY_CLIENT_KEPT_BLOCKS of them, of SY_CLIENT_KEPT_BYTES together. Any thread. */
#ifndef SY_RUNTIME_CLIENT_CLIENT_BLOCK_H
#define SY_RUNTIME_CLIENT_CLIENT_BLOCK_H

#include <stddef.h>

#define SY_CLIENT_KEPT_BLOCKS 4
#define SY_CLIENT_KEPT_BYTES  (256u << 20)

/* At least `bytes`, aligned to 64, the caller's until it gives them back. ENOMEM_HOST. */
int sy_client_block_take(size_t bytes, void **out);
/* NULL is fine. bytes: as in take. */
void sy_client_block_give(void *block, size_t bytes);

#endif
