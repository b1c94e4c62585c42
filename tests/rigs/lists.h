/* Lists as arguments: a count and values, or names that end with NULL. Valid to the end of the block they stand in. */
#ifndef SY_TESTS_RIGS_LISTS_H
#define SY_TESTS_RIGS_LISTS_H

#include <stdint.h>

#define DIMS(...)                                                                \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
    {                                                                            \
        __VA_ARGS__                                                              \
    }
#define INPUTS(...)                                                  \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) \
    {                                                                \
        __VA_ARGS__                                                  \
    }
#define NAMES(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

#endif
