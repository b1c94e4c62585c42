/* Lists that grow while a program or a training plan is made. */
#ifndef SY_WORKERS_ENGINE_APPEND_H
#define SY_WORKERS_ENGINE_APPEND_H

#include <stddef.h>

/* One element more behind `*n` of them, zero, and *n counts it. `array`: the address of the pointer to the list (NULL while it is empty), which is
 * freed with free(). Pointers into the list become invalid. NULL: ENOMEM_HOST is set. */
void *sy_append(void *array, int *n, size_t element_bytes);

#endif
