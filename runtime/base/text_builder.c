#include "runtime/base/text_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"

#define FIRST_SIZE 512

char *sy_text_reserve(struct sy_text *text, size_t n)
{
    if (text->failed)
        return NULL;
    if (text->used + n > text->size) {
        size_t size = SY_MAX(2 * text->size, text->used + n);
        char *at = realloc(text->at, SY_MAX(size, (size_t)FIRST_SIZE));

        if (!at) {
            text->failed = true;
            return NULL;
        }
        text->at = at;
        text->size = SY_MAX(size, (size_t)FIRST_SIZE);
    }
    return text->at + text->used;
}

void sy_text_add(struct sy_text *text, const char *bytes, size_t n)
{
    char *to = sy_text_reserve(text, n);

    if (to) {
        memcpy(to, bytes, n);
        text->used += n;
    }
}

void sy_text_add_string(struct sy_text *text, const char *string)
{
    sy_text_add(text, string, strlen(string));
}

void sy_text_add_int(struct sy_text *text, long long value)
{
    char digits[24], *at = digits + sizeof(digits);
    unsigned long long left =
        value < 0 ? 0ull - (unsigned long long)value : (unsigned long long)value;

    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        *--at = '-';
    sy_text_add(text, at, (size_t)(digits + sizeof(digits) - at));
}

static void add_escaped(struct sy_text *text, unsigned char c)
{
    char escape[8];

    if (c == '"' || c == '\\')
        snprintf(escape, sizeof(escape), "\\%c", c);
    else if (c < 0x20)
        snprintf(escape, sizeof(escape), "\\u%04x", c);
    else
        snprintf(escape, sizeof(escape), "?");
    sy_text_add_string(text, escape);
}

/* Bytes that stand for themselves in a JSON string. */
static size_t plain_length(const char *string)
{
    size_t n = 0, printable = sy_printable_length(string);

    while (n < printable && string[n] != '"' && string[n] != '\\' &&
           (unsigned char)string[n] >= 0x20)
        n++;
    return n;
}

void sy_text_add_json_string(struct sy_text *text, const char *string)
{
    sy_text_add(text, "\"", 1);
    while (*string) {
        size_t n = plain_length(string);

        sy_text_add(text, string, n);
        string += n;
        if (*string)
            add_escaped(text, (unsigned char)*string++);
    }
    sy_text_add(text, "\"", 1);
}

void sy_text_finish(struct sy_text *text)
{
    free(text->at);
    *text = (struct sy_text){0};
}
