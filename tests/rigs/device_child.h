/* The second process of the device tests: what it does, and what it leaves in the pool. */
#ifndef SY_TESTS_RIGS_DEVICE_CHILD_H
#define SY_TESTS_RIGS_DEVICE_CHILD_H

#include <stdatomic.h>
#include <stdint.h>

#define DEVICE_CHILD_BYTES 300001u /* of the patterns below, and of each copy of role "link" */
#define DEVICE_CHILD_READS \
    12345u /* the pool offset of the parent's pattern, behind which its address is written */
#define DEVICE_CHILD_WRITES 4000001u
#define DEVICE_CHILD_COPIES 40
#define DEVICE_CHILD_SLOTS  20000

/* Role "slots": at the start of the pool, filled in by all children. */
struct device_child_slot {
    uint64_t start_ns, end_ns;
};
struct device_child_slots {
    _Atomic unsigned n, started;
    struct device_child_slot slots[2 * DEVICE_CHILD_SLOTS];
};

/* Byte i of pattern `which`. */
unsigned char device_child_byte(unsigned i, int which);

/* Opens the device, imports the pool and does what `role` says: "bytes" (reads pattern 1, writes pattern 2), "sticky" (its
 * second copy fails), "slots", "link" (copies), or the name of a call whose second use fails. Returns 0, or where it went wrong. */
int device_child_main(const char *role, const char *spec_text, int fd, uint64_t bytes);

#endif
