/* safetensors: what opens covers its data exactly. input = the file; a first byte of 0 makes the header's length right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/safetensors.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"

/* What was read can be written, and is the same again. Out of order, with a hole or of another size it is refused. */
static void write_again(const struct sy_safetensors *file, uint8_t *data)
{
    static const char *const keys[] = {"step", "format"};
    struct sy_safetensors_text texts[2];
    struct sy_safetensors *again;
    struct sy_safetensor *tensors = file->tensors;
    char path[64];
    int n_texts = 0, n = file->n_tensors;
    snprintf(path, sizeof path, "%s/x", fuzz_folder());
    for (int i = 0; i < 2; i++) {
        const char *text = sy_safetensors_metadata(file, keys[i]);
        if (text)
            texts[n_texts++] = (struct sy_safetensors_text){keys[i], text};
    }
    FUZZ_CHECK(sy_safetensors_write(path, tensors, n, texts, n_texts, data, file->data_bytes) ==
               SY_OK);
    FUZZ_CHECK(sy_safetensors_open(path, &again) == SY_OK);
    FUZZ_CHECK(again->n_tensors == n && again->data_bytes == file->data_bytes);
    for (int i = 0; i < n; i++) {
        const struct sy_safetensor *t = sy_safetensors_find(again, tensors[i].name);
        FUZZ_CHECK(t && t->dtype == tensors[i].dtype && t->bytes == tensors[i].bytes &&
                   t->offset_bytes == tensors[i].offset_bytes);
    }
    sy_safetensors_close(again);
    FUZZ_CHECK(sy_safetensors_write(path, tensors, n, texts, n_texts, data, file->data_bytes + 1) <
               0);
    if (n == 0)
        return;
    struct sy_safetensor twice[2] = {tensors[0], tensors[0]};
    twice[1].offset_bytes = twice[0].bytes;
    FUZZ_CHECK(sy_safetensors_write(path, twice, 2, NULL, 0, data, 2 * twice[0].bytes) < 0);
    twice[0].bytes++;
    FUZZ_CHECK(sy_safetensors_write(path, twice, 1, NULL, 0, data, twice[0].bytes) < 0);
}

static void check_file(const struct sy_safetensors *file, size_t size)
{
    static uint8_t data[2 * FUZZ_MAX_BYTES];
    uint64_t end = 0;
    FUZZ_CHECK(file->data_offset + file->data_bytes == size);
    for (int i = 0; i < file->n_tensors; i++) {
        const struct sy_safetensor *t = &file->tensors[i];
        FUZZ_CHECK(t->offset_bytes == end && t->rank <= SY_MAX_RANK);
        FUZZ_CHECK(t->bytes % sy_dtype_bytes(t->dtype) == 0);
        FUZZ_CHECK(sy_safetensors_find(file, t->name) == t);
        FUZZ_CHECK(sy_safetensors_read(file, t->offset_bytes, t->bytes, data + end) == SY_OK);
        end += t->bytes;
    }
    FUZZ_CHECK(end == file->data_bytes);
    const char *text = sy_safetensors_metadata(file, "step");
    FUZZ_CHECK(!text || strlen(text) < size);
    FUZZ_CHECK(sy_safetensors_read(file, end, 1, data) < 0);
    write_again(file, data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_safetensors *file = NULL;
    if (size < 9)
        return 0;
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    /* The JSON ends at the last "}" that a space or the file's end follows. */
    for (size_t i = size; data[0] == 0 && i > 9; i--)
        if (copy[i - 1] == '}' && (i == size || copy[i] == ' ')) {
            uint64_t length = i - 8;
            memcpy(copy, &length, sizeof length);
            break;
        }
    if (sy_safetensors_open(fuzz_file(copy, size), &file) == SY_OK) {
        check_file(file, size);
        sy_safetensors_close(file);
    } else {
        FUZZ_CHECK(!file);
    }
    free(copy);
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const struct {
        const char *header, *data;
    } seeds[] = {
        {"{}", ""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", " 1234567"},
        {"{\"__metadata__\":{\"format\":\"x\",\"step\":\"12\"},\"w\":{\"dtype\":\"I64\",\"shape\":"
         "[1,1],\"data_offsets\":[1,9]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":"
         "[0,1]},\"e\":{\"shape\":[0,7],\"dtype\":\"BF16\",\"data_offsets\":[9,9]}}",
         " 12345678"},
    };
    uint8_t file[512] = {0};
    size_t n, m;
    if (i >= 6)
        return 0;
    n = strlen(seeds[i / 2].header);
    m = strlen(seeds[i / 2].data);
    file[1] = (uint8_t)(n >> 8);
    file[0] = i % 2 ? (uint8_t)n : 0; /* 0: the target fills in the length */
    memcpy(file + 8, seeds[i / 2].header, n);
    memcpy(file + 8 + n, seeds[i / 2].data, m);
    return fuzz_give(file, 8 + n + m, to, room);
}
