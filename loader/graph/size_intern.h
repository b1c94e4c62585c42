/* Interned byte strings: equal strings have equal numbers, from 0 on; their addresses are valid until the process ends. Any thread. */
#ifndef SY_LOADER_GRAPH_SIZE_INTERN_H
#define SY_LOADER_GRAPH_SIZE_INTERN_H

#include <pthread.h>
#include <stddef.h>

struct sy_intern {
    pthread_mutex_t lock;
    int most;        /* numbers; below 2^30 */
    int n, capacity; /* of items */
    struct sy_interned {
        void *bytes;
        size_t n;
    } * items;
    int n_slots, *slots; /* item + 1, or 0; a power of two */
};

#define SY_INTERN_OF(bound)                                \
    {                                                      \
        .lock = PTHREAD_MUTEX_INITIALIZER, .most = (bound) \
    }

/* EUNSUPPORTED: the table is full. ENOMEM_HOST. */
int sy_intern_put(struct sy_intern *table, const void *bytes, size_t n, int *out);
/* The string with this number, from sy_intern_put. */
struct sy_interned sy_intern_get(struct sy_intern *table, int item);

#endif
