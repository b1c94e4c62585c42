/* A list of devices, "cuda:0,cuda:1", that the ranks of a machine take in turns. */
#ifndef SY_CLI_RANK_DEVICES_H
#define SY_CLI_RANK_DEVICES_H

/* The one of this rank, counted on its machine; `devices` is cut. */
const char *sy_rank_device(char *devices, long local_rank);
/* The number of ranks on the device that has the most, of n_ranks. NULL (cores): all. */
int sy_rank_devices_most_on_one(const char *devices, int n_ranks);

#endif
