/* States of suspended jobs, as files: bytes are refused, or unpacked to what packs to the same state again. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/move/job_state.h"
#include "tests/fuzz/fuzz.h"

static void check_again(const struct sy_job_state *first)
{
    struct sy_job_state second;
    unsigned char *bytes;
    size_t n;
    FUZZ_CHECK(first->name[0] && first->name[0] != '.' && !strchr(first->name, '/'));
    FUZZ_CHECK(first->bytes <= SY_JOB_STATE_MOST_BYTES && (first->bytes || !first->step));
    FUZZ_CHECK(sy_job_state_pack(first, &bytes, &n) == SY_OK);
    FUZZ_CHECK(sy_job_state_unpack(bytes, n, &second) == SY_OK);
    FUZZ_CHECK(strcmp(first->text, second.text) == 0 && strcmp(first->name, second.name) == 0);
    FUZZ_CHECK(first->step == second.step && first->total_steps == second.total_steps &&
               first->bytes == second.bytes && first->xxh3 == second.xxh3 &&
               first->has_priority == second.has_priority && first->priority == second.priority);
    sy_job_state_finish(&second);
    free(bytes);
}

/* Z3: the header's hash is made right; then the length, which may be of anything. */
static void repair(uint8_t *bytes, size_t size)
{
    uint64_t n = size - SY_JOB_STATE_PREFIX_BYTES, hash;
    hash = XXH3_64bits(bytes + SY_JOB_STATE_PREFIX_BYTES, n);
    memcpy(bytes + 8, &n, sizeof n);
    memcpy(bytes + 16, &hash, sizeof hash);
}

static void check(const uint8_t *bytes, size_t size)
{
    struct sy_job_state state;
    if (sy_job_state_unpack(bytes, size, &state) < 0) {
        FUZZ_CHECK(!state.text);
        return;
    }
    check_again(&state);
    sy_job_state_finish(&state);
}

/* With the snapshot behind it, whose length and hash the header has. */
static void check_file(const uint8_t *bytes, size_t size)
{
    struct sy_job_state state;
    uint64_t at = 0;
    int fd, status = sy_job_state_open(fuzz_file(bytes, size), &state, &fd, &at);
    FUZZ_CHECK((fd >= 0) == (status == SY_OK) && (state.text != NULL) == (status == SY_OK));
    if (status < 0)
        return;
    FUZZ_CHECK(at + state.bytes == size);
    close(fd);
    sy_job_state_finish(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    FUZZ_CHECK(bytes);
    memcpy(bytes, data, size);
    check(bytes, size);
    if (size >= SY_JOB_STATE_PREFIX_BYTES) {
        repair(bytes, size);
        check(bytes, size);
    }
    check_file(bytes, size);
    free(bytes);
    return 0;
}

/* A state whose snapshot is behind it, as a file has it. is_whole false: with another snapshot than its header says. */
static size_t seed_of_file(bool is_whole, uint8_t *to, size_t room)
{
    uint8_t snapshot[64], *all = NULL;
    unsigned char *head;
    size_t n;
    memset(snapshot, 7, sizeof snapshot);
    struct sy_job_state state = {.text = "{\"name\": \"a\"}", .step = 3, .bytes = sizeof snapshot};
    const char *path = fuzz_file(snapshot, sizeof snapshot);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(sy_job_state_hash(fd, path, 0, state.bytes, NULL, &state.xxh3) == SY_OK);
    close(fd);
    FUZZ_CHECK(sy_job_state_pack(&state, &head, &n) == SY_OK);
    FUZZ_CHECK((all = realloc(head, n + sizeof snapshot)) != NULL);
    snapshot[5] += !is_whole;
    memcpy(all + n, snapshot, sizeof snapshot);
    n = fuzz_give(all, n + sizeof snapshot, to, room);
    free(all);
    return n;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static char *const texts[] = {
        "{\"name\": \"a\"}",
        "{\"name\": \"net_2.b-c\", \"model\": \"m.onnx\", \"snapshot\": {\"folder\": \"s\"}}"};
    if (i >= 4)
        return i < 6 ? seed_of_file(i == 4, to, room) : 0;
    const struct sy_job_state state = {.text = texts[i % 2],
                                       .step = i < 2 ? 0 : 12,
                                       .total_steps = 100,
                                       .bytes = i < 2 ? 0 : 4096,
                                       .xxh3 = 0x123456789abcdef0,
                                       .has_priority = i == 3,
                                       .priority = -5};
    unsigned char *bytes;
    size_t n;
    FUZZ_CHECK(sy_job_state_pack(&state, &bytes, &n) == SY_OK);
    n = fuzz_give(bytes, n, to, room);
    free(bytes);
    return n;
}
