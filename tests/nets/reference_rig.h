/* Requests to a real server whose outputs are known: what the same inputs gave on an idle system. */
#ifndef SY_TESTS_NETS_REFERENCE_RIG_H
#define SY_TESTS_NETS_REFERENCE_RIG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/rigs/server_fixture.h"

#define SMALL_POOL "15500K" /* less than these models together and a training job */
#define N_MODELS   3
#define VARIANTS   3
extern const char *const reference_models[N_MODELS];

struct references {
    sy_client_result *of[N_MODELS][VARIANTS];
};

/* Asks for all of them. The test fails if one does. */
void references_take(struct fixture *f, struct references *r);
void references_free(struct references *r);
/* One request for each model, compared. */
void references_ask(struct fixture *f, const struct references *r, int variant);
void references_evict(struct fixture *f, bool image_too); /* so that each next one is a swap */

/* A thread with a connection of its own. */
struct asker {
    const struct fixture *f;
    const struct references *references;
    int seed, n_wrong, n_failed;
    int n; /* it asks so often */
    atomic_int n_done;
    char error[256]; /* of the first failure */
    pthread_t thread;
};

void *asker_main(void *asker);

#endif
