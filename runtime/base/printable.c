#include "runtime/base/printable.h"

#include <stdbool.h>
#include <stdint.h>

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

/* Bytes of the character at `at`; 0: none that may be shown. */
static size_t character(const unsigned char *at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800,
                                     0x10000}; /* longer than needed is no UTF-8 */
    size_t n = at[0] < 0x80 ? 1 : at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    uint32_t code = n == 1 ? at[0] : at[0] & (0x7fu >> n);
    if ((at[0] >= 0x80 && at[0] < 0xc0) || at[0] >= 0xf8)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) /* the end of the text too */
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    bool is_code = code >= least[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return is_code && !is_control(code) ? n : 0;
}

size_t sy_printable_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    for (size_t n; *at && (n = character(at)) > 0;)
        at += n;
    return (size_t)((const char *)at - text);
}

void sy_printable_make(char *text)
{
    for (text += sy_printable_length(text); *text; text += sy_printable_length(text))
        *text = '?';
}
