/* The worker: a resident process with the device open, the libraries warm and the pool mapped.
 *
 *   control socket ──> messages ──> models (packages, programs)
 *   control page   <─> epoch, heartbeat, progress        ├── one inference run at a time
 *   pool, image, slab, arrivals: mapped once at start    └── or one training job, step by step
 *
 * W1: one thread computes and reads the socket; the only other threads are the engine's, the transfer's feeder, the
 *     device's copy threads and the snapshot writer.
 * W2: between two training steps the worker looks at the preempt epoch (one relaxed load), and at the socket every few
 *     milliseconds; while paused it sleeps on the epoch.
 * W3: every offset from the runtime is checked against the memory that the worker maps.
 * W4: a lost socket or a dead runtime ends the worker; it owns nothing that outlives it.
 * W5: a device error in this process (SY_EDEVICE) ends it without an answer: the runtime runs the request again, and resumes the job, in
 *     another worker. */
#ifndef SY_WORKERS_PROCESS_WORKER_H
#define SY_WORKERS_PROCESS_WORKER_H

/* Runs the worker on control socket `fd` until SHUTDOWN (returns 0) or a failure (returns 1, after logging it). */
int sy_worker_main(int fd, int index);

#endif
