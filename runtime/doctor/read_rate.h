/* Reading memory so that the compiler cannot leave it out. */
#ifndef SY_DOCTOR_READ_RATE_H
#define SY_DOCTOR_READ_RATE_H

#include <stdint.h>

/* Reads every byte of [from, from + bytes), 8-aligned, in order; a multiple of 64 bytes. */
void sy_read_once(const void *from, uint64_t bytes);
/* 10^9 bytes a second of one thread that reads all of it, best of `n_times`. */
double sy_read_gbps(const void *from, uint64_t bytes, int n_times);
/* Reads a second, in 10^9, of single words at `n` pseudo-random places of it; best of `n_times`. `bytes` is a power of two. */
double sy_read_random_rate(const void *from, uint64_t bytes, uint64_t n, int n_times);

#endif
