#include "tests/fakes/fake_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "tests/fakes/fake_cuda_internal.h"

#define GRANULE      (2u << 20)
#define MAX_OBJECTS  64
#define RECORD_BYTES 65536

struct memory {
    int fd; /* -1: free */
    uint64_t bytes;
};

struct range {
    uint64_t address, bytes; /* bytes 0: free */
    bool mapped;
};

struct fake_cuda fake_cuda;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char record_text[RECORD_BYTES];
static size_t record_length;
static struct memory memories[MAX_OBJECTS];
static struct range reservations[MAX_OBJECTS], allocations[MAX_OBJECTS], pinned[MAX_OBJECTS];
static int allocation_fds[MAX_OBJECTS];
static bool initialized, has_context;
static _Thread_local bool entered;
struct sy_device *fake_cuda_host_device;

void fake_cuda_reset(void)
{
    fake_cuda = (struct fake_cuda){.n_devices = 1,
                                   .capability = 90,
                                   .has_vmm = 1,
                                   .has_fd = 1,
                                   .memory_bytes = 1ull << 33,
                                   .n_parts = 16,
                                   .n_sms = 8,
                                   .mps = 1,
                                   .name = "Fake GPU",
                                   .uuid0 = 7};
    record_length = 0;
    record_text[0] = 0;
}

const char *fake_cuda_record(void)
{
    return record_text;
}

bool fake_cuda_has_context(void)
{
    return has_context;
}

static int count_ranges(const struct range *ranges)
{
    int n = 0;
    for (int i = 0; i < MAX_OBJECTS; i++)
        n += (ranges[i].bytes > 0) + ranges[i].mapped;
    return n;
}

int fake_cuda_alive(void)
{
    pthread_mutex_lock(&lock);
    int n = fake_cuda_n_streams() + count_ranges(reservations) + count_ranges(allocations) +
            count_ranges(pinned);
    for (int i = 0; i < MAX_OBJECTS; i++)
        n += memories[i].bytes > 0;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- recording --------------------------------------------------------------------------------------- */

/* Returns the error that the call shall fail with, or 0. Asking again and again counts once: how often depends on the time. */
static int note_call(const char *name)
{
    static const char *last_name = "";
    pthread_mutex_lock(&lock);
    bool again = strcmp(name, "event_query") == 0 && strcmp(last_name, name) == 0;
    last_name = name;
    if (again) {
        pthread_mutex_unlock(&lock);
        return 0;
    }
    fake_cuda.n_calls++;
    size_t left = sizeof record_text - record_length;
    int n = snprintf(record_text + record_length, left, "%s ", name);
    record_length += (size_t)n < left ? (size_t)n : 0;
    bool named = fake_cuda.fail_name && strcmp(fake_cuda.fail_name, name) == 0;
    bool fails = named || fake_cuda.n_calls == fake_cuda.fail_at;
    if (fails) {
        snprintf(fake_cuda.failed, sizeof fake_cuda.failed, "%s", name);
        fake_cuda.fail_name = NULL;
        fake_cuda.fail_at = 0;
    }
    pthread_mutex_unlock(&lock);
    return fails ? fake_cuda.fail_error : 0;
}

/* CUDA reports earlier failures from any call; what gives something back has given it back all the same. */
static bool gives_back(const char *name)
{
    return strstr(name, "destroy") || strstr(name, "release") || strstr(name, "free") ||
           strstr(name, "unmap") || strstr(name, "close") || strcmp(name, "host_unregister") == 0;
}

/* ---- no context -------------------------------------------------------------------------------------- */

static int fake_init(void)
{
    initialized = true;
    return fake_cuda.n_devices > 0 ? 0 : SY_CUDA_NoDevice;
}

static int fake_device_count(int *out)
{
    *out = fake_cuda.n_devices;
    return initialized ? 0 : SY_CUDA_InitializationError;
}

static int check_ordinal(int ordinal)
{
    if (!initialized)
        return SY_CUDA_InitializationError;
    return ordinal >= 0 && ordinal < fake_cuda.n_devices ? 0 : SY_CUDA_InvalidDevice;
}

static int fake_device_name(int ordinal, char *out, int bytes)
{
    snprintf(out, (size_t)bytes, "%s", fake_cuda.name);
    return check_ordinal(ordinal);
}

static int fake_device_memory(int ordinal, uint64_t *out_bytes)
{
    *out_bytes = fake_cuda.memory_bytes;
    return check_ordinal(ordinal);
}

static int fake_device_uuid(int ordinal, unsigned char *out)
{
    memset(out, ordinal, SY_CUDA_UUID_BYTES);
    out[0] = fake_cuda.uuid0;
    return check_ordinal(ordinal);
}

static int fake_device_pci(int ordinal, char *out, int bytes)
{
    snprintf(out, (size_t)bytes, "ffff:ff:1f.7");
    return check_ordinal(ordinal);
}

static int fake_device_attribute(int ordinal, enum sy_cuda_attribute which, int *out)
{
    switch (which) {
    case SY_CUDA_COMPUTE_MODE:
        *out = fake_cuda.mode;
        break;
    case SY_CUDA_CAPABILITY_MAJOR:
        *out = fake_cuda.capability / 10;
        break;
    case SY_CUDA_CAPABILITY_MINOR:
        *out = fake_cuda.capability % 10;
        break;
    case SY_CUDA_HAS_VMM:
        *out = fake_cuda.has_vmm;
        break;
    case SY_CUDA_HAS_FD:
        *out = fake_cuda.has_fd;
        break;
    case SY_CUDA_READ_ONLY_REGISTER:
        *out = 1;
        break;
    case SY_CUDA_NUMA_NODE:
        *out = 3;
        break;
    case SY_CUDA_MPS:
        *out = fake_cuda.mps;
        break;
    }
    return check_ordinal(ordinal);
}

static int fake_sm_parts(int ordinal, int *out_n, int *out_each)
{
    *out_n = fake_cuda.n_parts;
    *out_each = fake_cuda.n_sms;
    return fake_cuda.n_parts ? check_ordinal(ordinal) : SY_CUDA_NotSupported;
}

static int fake_context_active(int ordinal, int *out)
{
    *out = has_context;
    return check_ordinal(ordinal);
}

static int fake_mem_granularity(int ordinal, uint64_t *out_bytes)
{
    *out_bytes = GRANULE;
    return check_ordinal(ordinal);
}

/* A slot for the memory of `fd`, which it takes over. */
static int keep_memory(int fd, uint64_t bytes, uint64_t *out)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (memories[i].bytes > 0)
            continue;
        memories[i] = (struct memory){fd, bytes};
        *out = (uint64_t)i + 1000;
        return 0;
    }
    close(fd);
    return SY_CUDA_MemoryAllocation;
}

static int fake_mem_create(int ordinal, uint64_t bytes, uint64_t *out)
{
    if (bytes == 0 || bytes % GRANULE)
        return SY_CUDA_InvalidValue;
    if (bytes > fake_cuda.memory_bytes)
        return SY_CUDA_MemoryAllocation;
    int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return SY_CUDA_OperatingSystem;
    int error = check_ordinal(ordinal);
    return error ? (close(fd), error) : keep_memory(fd, bytes, out);
}

static struct memory *find_memory(uint64_t handle)
{
    bool known = handle >= 1000 && handle < 1000 + MAX_OBJECTS && memories[handle - 1000].bytes > 0;
    return known ? &memories[handle - 1000] : NULL;
}

static int fake_mem_release(uint64_t handle)
{
    struct memory *memory = find_memory(handle);
    if (!memory)
        return SY_CUDA_InvalidValue;
    close(memory->fd);
    memory->bytes = 0;
    return 0;
}

static int fake_mem_export(uint64_t handle, int *out_fd)
{
    struct memory *memory = find_memory(handle);
    if (!memory || !fake_cuda.has_fd)
        return memory ? SY_CUDA_NotSupported : SY_CUDA_InvalidValue;
    *out_fd = fcntl(memory->fd, F_DUPFD, 0);
    return *out_fd < 0 ? SY_CUDA_OperatingSystem : 0;
}

static int fake_mem_import(int fd, uint64_t *out)
{
    struct stat st;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || fstat(own, &st) != 0)
        return SY_CUDA_InvalidValue;
    return keep_memory(own, (uint64_t)st.st_size, out);
}

static struct range *find_range(struct range *ranges, uint64_t address, uint64_t bytes)
{
    for (int i = 0; i < MAX_OBJECTS; i++)
        if (ranges[i].bytes > 0 && ranges[i].address == address &&
            (bytes == 0 || ranges[i].bytes == bytes))
            return &ranges[i];
    return NULL;
}

static struct range *add_range(struct range *ranges, uint64_t address, uint64_t bytes)
{
    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (ranges[i].bytes > 0)
            continue;
        ranges[i] = (struct range){address, bytes, false};
        return &ranges[i];
    }
    return NULL;
}

static int fake_address_reserve(uint64_t bytes, uint64_t align, uint64_t wish, uint64_t *out)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *place = MAP_FAILED;
    if (bytes == 0 || bytes % 4096 || wish % 4096 || (align & (align - 1)))
        return SY_CUDA_InvalidValue;
    if (wish && !fake_cuda.moves_addresses)
        place = mmap((void *)(uintptr_t)wish, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (place == MAP_FAILED)
        place = mmap(NULL, bytes, PROT_NONE, flags, -1, 0);
    if (place == MAP_FAILED)
        return SY_CUDA_MemoryAllocation;
    *out = (uint64_t)(uintptr_t)place;
    return add_range(reservations, *out, bytes) ? 0 : SY_CUDA_MemoryAllocation;
}

static int fake_address_free(uint64_t address, uint64_t bytes)
{
    struct range *range = find_range(reservations, address, bytes);
    if (!range || range->mapped)
        return SY_CUDA_InvalidValue;
    munmap((void *)(uintptr_t)address, bytes);
    range->bytes = 0;
    return 0;
}

/* ---- in the context ---------------------------------------------------------------------------------- */

static int fake_context_open(int ordinal)
{
    if (!fake_cuda_host_device)
        (void)sy_device_host_ops.open(&(struct sy_device_spec){.kind = "host"},
                                      &fake_cuda_host_device);
    has_context = true;
    return fake_cuda.broken ? fake_cuda.broken : check_ordinal(ordinal);
}

static int fake_context_enter(int ordinal)
{
    entered = true;
    return fake_cuda.broken ? fake_cuda.broken : check_ordinal(ordinal);
}

/* C2, and what a broken context does to every call. */
int fake_cuda_check_context(void)
{
    if (!has_context || !entered)
        return SY_CUDA_DeviceUninitialized;
    return fake_cuda.broken;
}

static int fake_mem_map(uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct range *range = find_range(reservations, address, bytes);
    struct memory *memory = find_memory(handle);
    NEED_CONTEXT();
    if (!range || range->mapped || !memory || bytes > memory->bytes)
        return SY_CUDA_InvalidValue;
    range->mapped = mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                         memory->fd, 0) != MAP_FAILED;
    return range->mapped ? 0 : SY_CUDA_MemoryAllocation;
}

static int fake_mem_access(uint64_t address, uint64_t bytes, int ordinal)
{
    struct range *range = find_range(reservations, address, bytes);
    NEED_CONTEXT();
    if (!range || !range->mapped)
        return SY_CUDA_InvalidValue;
    mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE);
    return check_ordinal(ordinal);
}

static int fake_mem_unmap(uint64_t address, uint64_t bytes)
{
    struct range *range = find_range(reservations, address, bytes);
    if (!range || !range->mapped)
        return SY_CUDA_InvalidValue;
    mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    range->mapped = false;
    return 0;
}

static int map_allocation(int fd, uint64_t bytes, uint64_t *out)
{
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct range *range =
        place == MAP_FAILED ? NULL : add_range(allocations, (uint64_t)(uintptr_t)place, bytes);
    if (!range)
        return SY_CUDA_MemoryAllocation;
    allocation_fds[range - allocations] = fd;
    *out = range->address;
    return 0;
}

static int fake_ipc_alloc(uint64_t bytes, uint64_t *out)
{
    NEED_CONTEXT();
    if (bytes > fake_cuda.memory_bytes)
        return SY_CUDA_MemoryAllocation;
    int fd = memfd_create("fake-cuda-ipc", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return SY_CUDA_OperatingSystem;
    return map_allocation(fd, bytes, out);
}

static int fake_ipc_free(uint64_t address)
{
    struct range *range = find_range(allocations, address, 0);
    if (!range)
        return SY_CUDA_InvalidValue;
    munmap((void *)(uintptr_t)address, range->bytes);
    close(allocation_fds[range - allocations]);
    range->bytes = 0;
    return 0;
}

static int fake_ipc_handle(uint64_t address, unsigned char *out)
{
    struct range *range = find_range(allocations, address, 0);
    NEED_CONTEXT();
    if (!range)
        return SY_CUDA_InvalidValue;
    snprintf((char *)out, SY_CUDA_IPC_BYTES, "/proc/%d/fd/%d", (int)getpid(),
             allocation_fds[range - allocations]);
    return 0;
}

static int fake_ipc_open(const unsigned char *handle, uint64_t *out)
{
    struct stat st;
    NEED_CONTEXT();
    int fd = open((const char *)handle, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return SY_CUDA_MapBufferObjectFailed;
    return map_allocation(fd, (uint64_t)st.st_size, out);
}

static int fake_ipc_close(uint64_t address)
{
    return fake_ipc_free(address);
}

/* These two are called by several threads. */
static int fake_host_register(void *base, uint64_t bytes, bool read_only)
{
    uint64_t at = (uint64_t)(uintptr_t)base;
    NEED_CONTEXT();
    pthread_mutex_lock(&lock);
    fake_cuda.registered_read_only = read_only;
    int error = find_range(pinned, at, 0)      ? SY_CUDA_HostMemoryAlreadyRegistered
                : add_range(pinned, at, bytes) ? 0
                                               : SY_CUDA_MemoryAllocation;
    pthread_mutex_unlock(&lock);
    return error;
}

static int fake_host_unregister(void *base)
{
    pthread_mutex_lock(&lock);
    struct range *range = find_range(pinned, (uint64_t)(uintptr_t)base, 0);
    if (range)
        range->bytes = 0;
    pthread_mutex_unlock(&lock);
    return range ? fake_cuda_check_context() : SY_CUDA_HostMemoryNotRegistered;
}

/* ---- the table --------------------------------------------------------------------------------------- */

#define X(name, parameters, arguments)     \
    static int call_##name parameters      \
    {                                      \
        int failure = note_call(#name);    \
        if (failure && !gives_back(#name)) \
            return failure;                \
        int error = fake_##name arguments; \
        return failure ? failure : error;  \
    }
SY_CUDA_CALLS(X)
#undef X

static const char *error_name(int error)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "fakeError%d", error);
    return text;
}

static const char *error_text(int error)
{
    return error == SY_CUDA_NoDevice ? "no CUDA-capable device is detected" : "a made failure";
}

static void error_clear(void)
{
}

int sy_cuda_api_load(struct sy_cuda_api *out)
{
    if (!fake_cuda.memory_bytes) /* in the plugin nobody else did */
        fake_cuda_reset();
    if (note_call("api_load"))
        return sy_error_set(SY_ENODEVICE, "there is no NVIDIA driver here");
    *out = (struct sy_cuda_api){
#define X(name, parameters, arguments) .name = call_##name,
        SY_CUDA_CALLS(X)
#undef X
            .error_name = error_name,
        .error_text = error_text,
        .error_clear = error_clear,
    };
    return SY_OK;
}
