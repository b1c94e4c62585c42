/* UTF-8 text: characters, upper and lower case. What is no UTF-8 is taken byte by byte, as it is. Case by character, as towlower and towupper have it in
 * C.UTF-8, whatever the process's locale. */
#ifndef SY_WORKERS_HOST_BASE_TEXT_CASE_H
#define SY_WORKERS_HOST_BASE_TEXT_CASE_H

#include <stdbool.h>
#include <stdint.h>

enum sy_text_case { SY_CASE_AS_IT_IS, SY_CASE_LOWER, SY_CASE_UPPER };

/* Bytes of the character at `text`, at least 1. */
uint32_t sy_text_character(const char *text, uint32_t left);
int64_t sy_text_characters(const char *text, uint32_t bytes);
/* Writes the text in that case to `to`, unless it is NULL; returns the length. */
uint64_t sy_text_case(enum sy_text_case to_case, const char *text, uint32_t bytes, char *to);
/* Whether `lower` is `text` in lower case. */
bool sy_text_is_lower_of(const char *lower, uint32_t n, const char *text, uint32_t bytes);

#endif
