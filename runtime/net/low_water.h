/* The rest of a long tensor in a few large reads.
 *
 * A sender wakes a reader that waits for any byte with each of its segments: 64 MiB over loopback, one way between two bare processes, take 0.54 ns of CPU a
 * byte (both sides), and 0.43 with a low water. */
#ifndef SY_RUNTIME_NET_LOW_WATER_H
#define SY_RUNTIME_NET_LOW_WATER_H

#include <stdint.h>

#define SY_LOW_WATER_BYTES (512u << 10) /* 256 KiB: 0.45 ns; 1 MiB and 2 MiB: 0.48 and 0.43 */

/* The TCP socket `fd` is readable from now on when min(left, SY_LOW_WATER_BYTES) bytes have come, or its peer has ended, or no more fit; at once, also for poll() and
 * epoll, if that is so already. left: what is certain to come before an answer is expected; 0: readable with any byte, as at first. *set: what was set last, 0 at
 * first. A kernel that refuses leaves the socket as it was. Not for TLS: bytes that were decrypted already are not in the socket. */
void sy_net_set_low_water(int fd, uint32_t *set, uint64_t left);

#endif
