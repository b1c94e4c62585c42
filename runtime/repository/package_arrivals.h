/* Packages that are served while they are fetched: `switchyard fetch --progress` in a process of its own writes the file, the core reads behind it.
 *
 *   START ──head is there and checked──> ADDING (sy_core_model_add) ──> COMING ──> over: whole, under its name, durable
 *     │                                     │                             │
 *     └── fails ──> done(status, why)       └── fails: ended              └── fails: the model is unavailable, with the reason (core_arrival.h)
 *
 * A1: nothing is read that was not hashed before: the package's own table, which comes first, has a hash of each layer.
 * A2: a file has its name only when all of it is right; "#sha256=HEX" behind a URL says what it must hash to as a whole.
 * A3: no wait is unbounded: a silent connection, the number of tries and the whole fetch have limits (config).
 * A4: a model that is unloaded ends its fetch; what has come stays for the next.
 * A5: a load of a package that is under way, with the same options, joins that load and gets its result: at once where the model takes requests already.
 *     The sources are those of the first. With other options it is refused.
 *
 * One thread, the event loop's. */
#ifndef SY_REPOSITORY_PACKAGE_ARRIVALS_H
#define SY_REPOSITORY_PACKAGE_ARRIVALS_H

#include "runtime/core/core_handlers.h"

#define SY_ARRIVALS_MAX     16 /* at once */
#define SY_ARRIVALS_SOURCES 8  /* of one package */

struct event_base;
struct sy_arrivals;

struct sy_arrivals_config {
    const char *folder;  /* where packages are kept; it is there */
    const char *program; /* run as `PROGRAM fetch ...`; NULL: /proc/self/exe */
    double stall_s; /* a connection that does not move for so long is made again, twice; 0: 10 s */
    sy_ns limit_ns; /* of one fetch; 0: an hour */
};

/* ENOTFOUND, EARG: no such folder; ENOMEM_HOST. What the configuration points to is copied. */
int sy_arrivals_create(struct event_base *base, const struct sy_arrivals_config *config,
                       const struct sy_core_handlers *handlers, void *core,
                       struct sy_arrivals **out);
/* Answers EBUSY to all that wait for a model; what is fetched goes on until destroy. NULL is fine. */
void sy_arrivals_stop(struct sy_arrivals *arrivals);
/* Ends all fetches; their done is not called. Before the core is destroyed. NULL is fine. */
void sy_arrivals_destroy(struct sy_arrivals *arrivals);

/* Whether the word names a package elsewhere: http:// or https://. */
bool sy_arrivals_is_url(const char *word);
/* Adds a model whose package is at `urls`, sources of the same content, in this order. done(ctx, status, why): the model takes requests, or not. A package of a
 * known SHA-256 that was fetched before is taken from the folder. options: copied; `package` is NULL. EARG: no URL; EBUSY: SY_ARRIVALS_MAX are on their
 * way, or this one is with other options (A5); EIO, ENOMEM_HOST: then done is not called. */
int sy_arrivals_add(struct sy_arrivals *arrivals, const char *const *urls, int n_urls,
                    const struct sy_core_model_options *options, sy_core_done done, void *ctx);

#endif
