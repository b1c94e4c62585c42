/* CUDA without a GPU: the whole of cuda_api.h on this machine's memory and threads. It records the calls, fails the one that it is
 * told to, counts what is alive, and is strict: a call that needs a context fails in a thread that has not entered it.
 *
 * Device memory is a memfd, so that it can be exported and imported for real; a stream is a thread of the host device's.
 * Linked into a test binary it takes the place of cuda_api.c; the tests' plugin is made of it too. */
#ifndef SY_TESTS_FAKES_FAKE_CUDA_H
#define SY_TESTS_FAKES_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/cuda/cuda_api.h"

struct fake_cuda {
    int n_devices, capability, mode, has_vmm, has_fd; /* capability: 90 is 9.0 */
    uint64_t memory_bytes;
    const char *name;
    unsigned char uuid0;       /* first byte of the UUID; the others are the ordinal */
    bool registered_read_only; /* the last range of host memory was */
    int n_parts, n_sms;        /* of its multiprocessors, and of each; 0: no green contexts */
    int mps;                   /* it runs */
    bool moves_addresses;      /* address_reserve gives another address */
    long fail_at;              /* the N-th call from fake_cuda_reset on fails; 0: none */
    const char *fail_name;     /* or the next call of this name */
    int fail_error;            /* CUDA's number */
    int broken;                /* every call in a context fails with it from now on */
    long n_calls;
    char failed[32]; /* name of the call that was made to fail */
};

extern struct fake_cuda fake_cuda;

/* Settings back to those of a healthy H200-like device, the record empty. What is alive stays. */
void fake_cuda_reset(void);
/* The calls since reset: names, each with a space behind it. */
const char *fake_cuda_record(void);
/* Memory, reservations, mappings, streams, events, pinned ranges that are alive in this process. */
int fake_cuda_alive(void);
bool fake_cuda_has_context(void);
/* The parts that a stream's work is confined to, a bit each; 0: the whole device. */
uint64_t fake_cuda_stream_parts(const struct CUstream_st *stream);

#endif
