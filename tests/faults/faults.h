/* The parts of libfaults.so. */
#ifndef SY_TESTS_FAULTS_H
#define SY_TESTS_FAULTS_H

#include <stdbool.h>

/* Maps what SY_FAULTS_ARM names; from then on allocations may fail. */
void faults_arm(void);
/* Counts one allocation, asked for by the code at `caller`; true: it fails, errno is set. */
bool faults_no_memory(const void *caller);

#endif
