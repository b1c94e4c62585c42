#include "runtime/base/half.h"

#include <math.h>

uint16_t sy_float_to_half(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    int exponent;
    if (isnan(value))
        return 0x7e00;
    if (size >= 65520.0f)
        return sign | 0x7c00;
    if (size == 0) /* has no exponent */
        return sign;
    frexpf(size, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* below 2^-14 the step stays 2^-24 */
    int steps = (int)nearbyintf(ldexpf(size, 11 - exponent));
    return (uint16_t)(sign | ((exponent + 13) * 1024 + steps));
}
