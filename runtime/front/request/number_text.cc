/* std::to_chars: Ryu (Adams, PLDI '18), 20 times as fast as printf's nine digits, and shorter. */
#include "runtime/front/request/number_text.h"

#include <charconv>
#include <cstring>

template <typename T> static size_t text_of(T value, char *to)
{
    size_t n = static_cast<size_t>(std::to_chars(to, to + SY_NUMBER_TEXT_BYTES, value).ptr - to);
    for (size_t i = 0; i < n; i++)
        if (to[i] == '.' || to[i] == 'e')
            return n;
    std::memcpy(to + n, ".0", 2);
    return n + 2;
}

size_t sy_number_text_f32(float value, char *to)
{
    return text_of(value, to);
}

size_t sy_number_text_f64(double value, char *to)
{
    return text_of(value, to);
}
