/* The state of a suspended training job as one file, or as it travels between two servers: what the job is, and its newest snapshot.
 *
 *   [8 bytes "SYJOB\0\0\1"][u64 header length n][u64 XXH3 of the header][n bytes: header, JSON][the snapshot: a safetensors file]
 *
 * The header: {"format": "switchyard-job-1", "text": the job file, "step", "total_steps", "bytes" and "xxh3" of the snapshot, "priority" if it
 * was set while the job ran}. Numbers are little-endian. bytes 0: the job has not begun, and there is no snapshot.
 *
 * V1: nothing in a file or a message is trusted: lengths are compared with what is there before memory is taken, hashes before anything is used.
 * V2: the snapshot's file name is made from the job's name and the step, never taken from the state.
 *
 * Pure, but for sy_job_state_open and _save. */
#ifndef SY_RUNTIME_MOVE_JOB_STATE_H
#define SY_RUNTIME_MOVE_JOB_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SY_JOB_STATE_FORMAT     "switchyard-job-1"
#define SY_JOB_STATE_TEXT_BYTES (256u << 10) /* limit of a job file */
/* Limit of the header: quoting JSON in JSON doubles its quotes. */
#define SY_JOB_STATE_HEADER_BYTES (2u << 20)
#define SY_JOB_STATE_MOST_BYTES   (1ull << 40) /* limit of a snapshot */
#define SY_JOB_STATE_PIECE_BYTES  (1u << 20)   /* of one read or write between servers, at most */
#define SY_JOB_STATE_PREFIX_BYTES 24
#define SY_JOB_STATE_NAME         101 /* a job's name, with its end */

struct sy_job_state {
    char *text; /* owned */
    char name[SY_JOB_STATE_NAME];
    uint64_t step, total_steps;
    uint64_t bytes, xxh3; /* of the snapshot */
    bool has_priority;
    int priority;
};

/* Frees what it owns; a zeroed one is fine. */
void sy_job_state_finish(struct sy_job_state *state);
/* The name in a job's text that can name files: EARG otherwise, or if the text is no job's. */
int sy_job_state_name(const json_t *job, char name[SY_JOB_STATE_NAME]);
/* NULL: no memory. Caller decrefs. */
json_t *sy_job_state_json(const struct sy_job_state *state);
/* EARG, ETOOBIG, EUNSUPPORTED (a later format) name the key and the value; *out is to be finished if it is OK. */
int sy_job_state_parse(const json_t *json, struct sy_job_state *out);

/* Prefix and header as they stand in a file, malloc'd. */
int sy_job_state_pack(const struct sy_job_state *state, unsigned char **out, size_t *n);
/* Both, from bytes: ECORRUPT where they are cut off or were changed; as sy_job_state_parse. */
int sy_job_state_unpack(const unsigned char *bytes, size_t n, struct sy_job_state *out);

/* A state's file: *fd at the caller's to close, the snapshot from *at on to the end, its length and hash checked. Blocks. ENOTFOUND, EIO, ECORRUPT. */
int sy_job_state_open(const char *path, struct sy_job_state *out, int *fd, uint64_t *at);

/* XXH3 of [at, at + bytes) of a file. EIO, ECORRUPT (it is shorter), ENOMEM_HOST; ECANCELED: *stop became true (NULL: never). Blocks. */
int sy_job_state_hash(int fd, const char *path, uint64_t at, uint64_t bytes,
                      const _Atomic bool *stop, uint64_t *out);

#endif
