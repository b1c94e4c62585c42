/* The script page: 4 KiB that a foreign job's process (somebody's PyTorch script), `switchyard run` and a worker share.
 *
 *   worker:  gate odd ........................ waits until busy is 0 ... JOB_PAUSED ........... gate even, wake
 *   script:  ... operator ends: busy 0, wake ... next operator: sees the gate, sleeps on it ... goes on
 *
 * G1: a thread adds itself to `busy`, then looks at the gate; whoever closes the gate writes it, then looks at `busy`. Both are sequentially
 *     consistent, so one of the two sees the other: once the gate is odd and busy was 0, no operator computes.
 * G2: nothing here is trusted: whatever a script writes, the worker's answer to the runtime comes within the grace time (script_job.h).
 * G3: what operators launched on an accelerator goes on after they have returned. Once the gate is odd and busy is 0, nothing more is launched; the
 *     script's own thread then waits for the accelerator and writes the gate's value to `drained`. Only that and busy 0 together mean: paused.
 * G4: whoever opens the gate has written 0 to spill_want. A script whose tensors are out computes nothing before they are back, whatever the gate says.
 *
 * Read by C and by C++ (the hook); the Python package writes some fields by their offset. */
#ifndef SY_WORKERS_TORCH_SCRIPT_PAGE_H
#define SY_WORKERS_TORCH_SCRIPT_PAGE_H

#include <stddef.h>
#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
typedef std::atomic<uint32_t> sy_shared_u32;
typedef std::atomic<uint64_t> sy_shared_u64;
#else
typedef _Atomic uint32_t sy_shared_u32;
typedef _Atomic uint64_t sy_shared_u64;
#endif

/* Changes with the layout; not with fields that are added at the end, of which 0 says nothing. */
#define SY_SCRIPT_MAGIC      0x3365676150795331ull
#define SY_SCRIPT_PAGE_BYTES 4096u

/* How the script looks at the gate. */
enum sy_script_hook {
    SY_SCRIPT_HOOK_NONE = 0,    /* not yet, or never: it is stopped from outside */
    SY_SCRIPT_HOOK_MODULES = 1, /* at each module's forward and each optimizer step (no compiler) */
    SY_SCRIPT_HOOK_OPERATORS = 2
};

/* Where the script's large tensors are (G4). */
enum sy_script_spill {
    SY_SCRIPT_SPILL_NONE = 0, /* they are not to be spilled, or nobody is there who could */
    SY_SCRIPT_SPILL_IN = 1,
    SY_SCRIPT_SPILL_OUT = 2,   /* in a file; every thread of the script stands */
    SY_SCRIPT_SPILL_FAILED = 3 /* they are where they were; until spill_want is 0 */
};

#define SY_SCRIPT_FOLDER_BYTES 512u

struct sy_script_page {
    uint64_t magic;              /* at 0; by run */
    uint64_t limit_bytes;        /* at 8; by run: of CPU tensors, 0: no limit */
    uint64_t device_limit_bytes; /* at 16; by run: reserved on each accelerator, 0: no limit */
    uint64_t pad_head[5];

    /* At 64. Odd: closed. By the worker; by run while no worker is connected. A futex. */
    sy_shared_u32 gate;
    uint32_t pad_gate[15];

    /* At 128. By the script: its threads that are in an operator. A futex, woken when it becomes 0 while the gate is odd. */
    sy_shared_u32 busy;
    uint32_t pad_busy[15];

    /* At 192. By the script's process `owner` alone; its others park, and are not waited for. Of one that has ended the next to start takes the place. */
    sy_shared_u32 owner;       /* pid, 0: nobody yet */
    sy_shared_u32 hook;        /* at 196: enum sy_script_hook */
    sy_shared_u64 step;        /* at 200: iterations finished; by `stepper`, as the next two */
    sy_shared_u64 total_steps; /* at 208: 0: not known */
    sy_shared_u64 loss_bits;   /* at 216: double */
    sy_shared_u64 used_bytes;  /* at 224: of tensors */
    sy_shared_u64 peak_bytes;  /* at 232 */
    sy_shared_u64 n_refused;   /* at 240: allocations beyond the limit */

    sy_shared_u64 device_used_bytes; /* at 248: reserved on all accelerators, as of the last step */
    sy_shared_u64 device_peak_bytes; /* at 256: on the accelerator that had the most */
    sy_shared_u64 n_device_refused;  /* at 264 */
    sy_shared_u32 device;            /* at 272: 1: it launches on an accelerator (G3) */
    sy_shared_u32 drained;           /* at 276: G3. A futex */
    sy_shared_u32 is_over_memory;    /* at 280: by run, before it kills for that */
    sy_shared_u32
        n_retaken; /* at 284: how often the script had put another allocator in place of ours */

    sy_shared_u32 spill_want; /* at 288: 1: out, 0: in (G4). By the worker; 0 by run too. A futex */
    sy_shared_u32 spill_state;   /* at 292: enum sy_script_spill, by the script. A futex */
    sy_shared_u64 spilled_bytes; /* at 296: of the last spill */
    sy_shared_u32 spill_errno;   /* at 304: why it failed; ETIMEDOUT: a thread did not stop */
    sy_shared_u32 stepper;       /* at 308: pid of the process whose steps count, 0: nobody's yet */
    char spill_folder
        [SY_SCRIPT_FOLDER_BYTES]; /* at 312: by run, before the script; empty: it is not spilled */

    /* When `owner` and `stepper` started (/proc/PID/stat, 22), 0: not known. A pid may be another process's by now. Written before the pid, under flock. */
    sy_shared_u64 owner_started;   /* at 824 */
    sy_shared_u64 stepper_started; /* at 832 */
};

#ifndef __cplusplus
_Static_assert(offsetof(struct sy_script_page, gate) == 64, "the Python package goes by these");
_Static_assert(offsetof(struct sy_script_page, busy) == 128, "the Python package goes by these");
_Static_assert(offsetof(struct sy_script_page, step) == 200, "the Python package goes by these");
_Static_assert(offsetof(struct sy_script_page, n_refused) == 240, "and these");
_Static_assert(offsetof(struct sy_script_page, drained) == 276, "and these");
_Static_assert(offsetof(struct sy_script_page, stepper) == 308, "and this");
_Static_assert(offsetof(struct sy_script_page, spill_folder) == 312, "as in C++");
_Static_assert(offsetof(struct sy_script_page, owner_started) == 824, "as in Python");
_Static_assert(offsetof(struct sy_script_page, stepper_started) == 832, "as in Python");
_Static_assert(sizeof(struct sy_script_page) <= SY_SCRIPT_PAGE_BYTES, "all of it");
#endif

#endif
