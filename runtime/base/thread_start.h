/* A thread beside the one that handles the process's signals. */
#ifndef SY_RUNTIME_BASE_THREAD_START_H
#define SY_RUNTIME_BASE_THREAD_START_H

#include <pthread.h>

/* As pthread_create, with all signals blocked in the new thread: those of the process go to threads that wait for them. 0, or an errno. */
int sy_thread_start(pthread_t *thread, void *(*run)(void *ctx), void *ctx);

#endif
