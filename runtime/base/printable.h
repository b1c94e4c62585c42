/* Text from outside that is shown: on terminals, in logs of one line an event, in JSON. */
#ifndef SY_RUNTIME_BASE_PRINTABLE_H
#define SY_RUNTIME_BASE_PRINTABLE_H

#include <stddef.h>

/* How many bytes of `text` from its start are whole UTF-8 characters without control characters; its length if all of it is. */
size_t sy_printable_length(const char *text);
/* Puts '?' for each byte that is not part of such a character, in place. */
void sy_printable_make(char *text);

#endif
