/* Small text files of the kernel, whole. */
#ifndef SY_DOCTOR_DOCTOR_FILE_H
#define SY_DOCTOR_DOCTOR_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The file's first size - 1 bytes, and an end. False, and "", when it cannot be read. */
bool sy_doctor_read_file(const char *path, char *out, size_t size);

#endif
