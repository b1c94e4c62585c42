#include "workers/host/base/text_case.h"

#include <locale.h>
#include <string.h>
#include <wctype.h>

uint32_t sy_text_character(const char *text, uint32_t left)
{
    unsigned char c = (unsigned char)text[0];
    uint32_t bytes = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
    if (bytes > left)
        return 1;
    for (uint32_t i = 1; i < bytes; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 1;
    return bytes;
}

int64_t sy_text_characters(const char *text, uint32_t bytes)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < bytes; n++)
        i += sy_text_character(text + i, bytes - i);
    return n;
}

static uint32_t decode(const char *text, uint32_t bytes)
{
    uint32_t c = (unsigned char)text[0];
    if (bytes == 1)
        return c;
    c &= 0x7fu >> bytes;
    for (uint32_t i = 1; i < bytes; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    return c;
}

static uint32_t encode(uint32_t c, char *to)
{
    uint32_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = bytes; --i > 0; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)(first[bytes] | c);
    return bytes;
}

/* NULL if the system lacks the locale: then only ASCII letters have a case. */
static locale_t utf8_locale(void)
{
    static locale_t made;
    if (!made)
        made = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    return made;
}

static uint32_t in_case(enum sy_text_case to, uint32_t c)
{
    if (c < 0x80 || !utf8_locale())
        return to == SY_CASE_LOWER ? (c >= 'A' && c <= 'Z' ? c + 32 : c)
                                   : (c >= 'a' && c <= 'z' ? c - 32 : c);
    return to == SY_CASE_LOWER ? (uint32_t)towlower_l((wint_t)c, utf8_locale())
                               : (uint32_t)towupper_l((wint_t)c, utf8_locale());
}

uint64_t sy_text_case(enum sy_text_case to_case, const char *text, uint32_t bytes, char *to)
{
    uint64_t n = 0;
    char one[4];
    for (uint32_t i = 0; i < bytes;) {
        uint32_t length = sy_text_character(text + i, bytes - i), written = 1;
        one[0] = text[i];
        if (length > 1 || (unsigned char)text[i] < 0x80)
            written = encode(in_case(to_case, decode(text + i, length)), one);
        if (to)
            memcpy(to + n, one, written);
        n += written;
        i += length;
    }
    return n;
}

bool sy_text_is_lower_of(const char *lower, uint32_t n, const char *text, uint32_t bytes)
{
    uint32_t at = 0;
    char one[16];
    for (uint32_t i = 0; i < bytes;) {
        uint32_t length = sy_text_character(text + i, bytes - i);
        uint64_t written = sy_text_case(SY_CASE_LOWER, text + i, length, one);
        if (n - at < written || memcmp(lower + at, one, written) != 0)
            return false;
        at += (uint32_t)written;
        i += length;
    }
    return at == n;
}
