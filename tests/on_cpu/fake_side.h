/* device_side.h without a GPU: copies and kernels over host memory, marks that pass when what is in front of them has run. */
#ifndef SY_TESTS_FAKE_SIDE_H
#define SY_TESTS_FAKE_SIDE_H

/* The n-th call from now on that can fail does, with EDEVICE; 0: none. */
void fake_side_fail(int n);
/* Calls since then. */
int fake_side_calls(void);
/* Sides that are open, with what they took. */
int fake_side_n_open(void);

#endif
