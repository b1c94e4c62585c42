/* Floating-point numbers as JSON writes them: the shortest digits that read back as the same value of the same type, with ".0" or an exponent, so that readers
 * take them for floats. Pure; any thread. */
#ifndef SY_RUNTIME_FRONT_REQUEST_NUMBER_TEXT_H
#define SY_RUNTIME_FRONT_REQUEST_NUMBER_TEXT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SY_NUMBER_TEXT_BYTES 32 /* the longest of both types has 24, and ".0" */

/* Their length, without a zero at the end. `value` is finite; `to` has SY_NUMBER_TEXT_BYTES. */
size_t sy_number_text_f32(float value, char *to);
size_t sy_number_text_f64(double value, char *to);

#ifdef __cplusplus
}
#endif

#endif
