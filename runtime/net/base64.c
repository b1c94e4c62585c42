#include "runtime/net/base64.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "runtime/base/status.h"

json_t *sy_base64_json(const unsigned char *bytes, size_t n)
{
    unsigned char *text = malloc(n / 3 * 4 + 8);
    json_t *out = text ? json_stringn_nocheck((const char *)text,
                                              (size_t)EVP_EncodeBlock(text, bytes, (int)n))
                       : NULL;

    free(text);
    return out;
}

int sy_base64_take(const json_t *object, const char *key, size_t most, unsigned char **out,
                   size_t *n)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), whole = length / 4 * 3;
    size_t pad = length >= 4 ? (text[length - 1] == '=') + (text[length - 2] == '=') : 0;

    if (length == 0 || length % 4 != 0 || whole - pad > most)
        return sy_error_set(SY_EARG, "\"%s\" is missing, or no base64 of 1 to %zu bytes", key,
                            most);
    *out = malloc(whole);
    SY_TRY_ALLOC(*out, "no memory for %zu bytes", whole);
    /* OpenSSL trims spaces, and counts padding as bytes. */
    if (EVP_DecodeBlock(*out, (const unsigned char *)text, (int)length) != (int)whole) {
        free(*out);
        *out = NULL;
        return sy_error_set(SY_EARG, "\"%s\" is no base64", key);
    }
    *n = whole - pad;
    return SY_OK;
}
