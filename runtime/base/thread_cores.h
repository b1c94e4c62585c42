/* Confines the calling thread, and nothing that it starts, to some cores. */
#ifndef SY_RUNTIME_BASE_THREAD_CORES_H
#define SY_RUNTIME_BASE_THREAD_CORES_H

#include <sched.h>

/* NULL: the thread computes on the cores that it had before the first call again. EIO: the kernel refuses them, and nothing changed. */
int sy_thread_cores_confine(const cpu_set_t *cores);
/* Before and after the thread starts a process or a thread, which inherits its cores: those before. Nothing where it is not confined. */
void sy_thread_cores_widen(void);
void sy_thread_cores_narrow(void);

#endif
