/* Numbers of JSON to tensors, and requests without them. The first byte chooses the dtype and which of the two; what is taken is what jansson has. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/tensor_json.h"
#include "tests/fuzz/fuzz.h"

#define DEPTH 16

static const enum sy_dtype dtypes[] = {
#define X(name, value, bytes, wire, npy) SY_DTYPE_##name,
    SY_DTYPE_TABLE(X)
#undef X
};

static int64_t count(const json_t *value)
{
    const json_t *element;
    int64_t n = !json_is_array(value);
    size_t i;

    json_array_foreach(value, i, element) n += count(element);
    return n;
}

/* As many elements as jansson counts, no byte behind them, and the same again from our own text. */
static void read_tensor(enum sy_dtype dtype, const char *text, size_t size)
{
    static char to[FUZZ_MAX_BYTES * 8 + 8], back[FUZZ_MAX_BYTES * 8];
    struct sy_json_cut cut = {text, size};
    size_t flags = JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
    json_t *tree = json_loadb(text, size, flags, NULL);
    uint64_t n = tree ? (uint64_t)count(tree) : 1, bytes = n * sy_dtype_bytes(dtype);
    struct sy_text again = {0};

    to[bytes] = 'e';
    int status = sy_tensor_from_json(&cut, "x", dtype, n, to);
    FUZZ_CHECK(to[bytes] == 'e');
    FUZZ_CHECK(status < 0 || json_is_array(tree) || memchr(text, '\0', size));
    if (status == SY_OK && sy_tensor_to_json(&again, "x", dtype, to, n) == SY_OK) {
        cut = (struct sy_json_cut){again.at, again.used};
        FUZZ_CHECK(sy_tensor_from_json(&cut, "x", dtype, n, back) == SY_OK);
        FUZZ_CHECK(memcmp(to, back, bytes) == 0);
    }
    sy_text_finish(&again);
    json_decref(tree);
}

static void read_request(const char *text, size_t size)
{
    struct sy_request_json request;
    int status = sy_request_json_parse(text, size, DEPTH, &request);

    FUZZ_CHECK(status < 0 ? request.root == NULL : json_is_object(request.root));
    for (int i = 0; i < request.n_cuts; i++) {
        const struct sy_json_cut *cut = &request.cuts[i];
        float to[4];

        FUZZ_CHECK(cut->bytes > 0 && cut->text >= text && cut->text + cut->bytes <= text + size);
        (void)sy_tensor_from_json(cut, "x", SY_DTYPE_F32, SY_ARRAY_LEN(to), to);
    }
    sy_request_json_finish(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = malloc(size); /* of its own, so that what is read behind it is found */
    FUZZ_CHECK(text);
    memcpy(text, data + 1, size - 1);
    if (data[0] & 1)
        read_request(text, size - 1);
    else
        read_tensor(dtypes[data[0] / 2 % SY_ARRAY_LEN(dtypes)], text, size - 1);
    free(text);
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const tensors[] = {"[1,2.5,-3e2]",
                                          "[[1,2],[3,4]]",
                                          "[true,false,[0,1]]",
                                          "[]",
                                          "[ -0.0 , 1e-320, 9007199254740993 ]",
                                          "[255,-128,2147483647,-9223372036854775808]",
                                          "[0.1,3.4028235e38,65504,1.17549435e-38]"};
    static const char *const requests[] = {
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],[3,4]]}"
        "]}",
        "{\"id\":\"\\\"data\\\":[1]\",\"inputs\":[{\"data\":[1],\"name\":\"x\"},{\"d\\u0061ta\":[2]"
        "}],\"outputs\":[{}]}"};
    int n_tensors = (int)SY_ARRAY_LEN(tensors), n_dtypes = (int)SY_ARRAY_LEN(dtypes);

    if (i >= n_tensors * n_dtypes + (int)SY_ARRAY_LEN(requests) || room < 1)
        return 0;
    bool is_request = i >= n_tensors * n_dtypes;
    const char *text = is_request ? requests[i - n_tensors * n_dtypes] : tensors[i % n_tensors];
    to[0] = (uint8_t)(is_request ? 1 : 2 * (i / n_tensors));
    return 1 + fuzz_give(text, strlen(text), to + 1, room - 1);
}
