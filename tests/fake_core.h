/* An RPC server and a gRPC server in a thread of their own, on a core that answers from the loop a millisecond later:
 *
 *   "double"              y = 2 x, 4 numbers a row
 *   "cut"                 the same with a size that the run says: as many rows as the first number of x
 *   "held", "wide"        the same (wide: 16 KiB a row), held until it is canceled
 *   "EPEER", "EDEADLINE"  end with this status */
#ifndef SY_TESTS_FAKE_CORE_H
#define SY_TESTS_FAKE_CORE_H

#define FAKE_CORE_MOST_CLIENTS 32
#define FAKE_CORE_MOST_REGIONS 64

extern char fake_core_path[100], fake_core_tcp[40]; /* where it answers */
extern int fake_core_grpc_port;                     /* likewise */
extern _Atomic int fake_core_n_held;                /* requests that only canceling ends */
extern _Atomic int
    fake_core_n_regions; /* of shared memory; each connection: 4, of 8 MiB in all; all: 20 MiB */

/* cmocka's setup and teardown: afterwards nothing is left in the slab nor of regions, whatever the clients did. */
int fake_core_start(void **state);
int fake_core_finish(void **state);

#endif
