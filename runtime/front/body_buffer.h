/* Memory for a body that comes in pieces: it grows without copying what is there, takes pages only for what came, and gives them back beside the loop.
 *
 * Moving or freeing 100 MB costs 5 to 30 ms where pages are copied or given back one by one: short bodies are malloc'd, long ones are mappings. */
#ifndef SY_RUNTIME_FRONT_BODY_BUFFER_H
#define SY_RUNTIME_FRONT_BODY_BUFFER_H

#include <stdint.h>

struct sy_offload;

struct sy_body_buffer { /* zeroed: empty */
    unsigned char *at;
    uint64_t used, size;
};

/* Room for n bytes behind `used`, and at once for `expected` bytes in all (0: not known). What lies there may move. ENOMEM_HOST. */
int sy_body_buffer_room(struct sy_body_buffer *buffer, uint64_t n, uint64_t expected);
/* The first n bytes mean nothing from now on: their pages are given back. Any thread. */
void sy_body_buffer_forget(struct sy_body_buffer *buffer, uint64_t n);
/* Empty afterwards. offload NULL: on this thread. */
void sy_body_buffer_finish(struct sy_body_buffer *buffer, struct sy_offload *offload);

#endif
