/* Threads that make threads all the time, spilled and brought back over and over by another process, which sees whether one of them runs meanwhile.
 *
 *   spill_churn FOLDER ROUNDS       exit 0: none did; else what was seen is said */
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "torch_spill.hh"

constexpr int N_THREADS = 3, WAIT_MS = 5000;
constexpr size_t BLOCK_BYTES = 256u << 10;

static sy_script_page *page;

/* `busy` is the end's mark here. */
static void count(int n)
{
    for (int i = 0; i < n && !page->busy.load(); i++)
        page->step.fetch_add(1);
}

static void work()
{
    spill::node node;
    std::vector<char> memory(BLOCK_BYTES);
    spill::add(&node, memory.data(), BLOCK_BYTES);
    while (!page->busy.load()) {
        std::thread other(count, 2000);
        count(2000);
        other.join();
    }
    spill::remove(&node);
}

static bool becomes(uint32_t state)
{
    for (int i = 0; i < WAIT_MS && page->spill_state.load() != state; i++)
        usleep(1000);
    return page->spill_state.load() == state;
}

static int fail(const char *what, int round)
{
    fprintf(stderr, "spill_churn: round %d: %s; state %u, errno %u\n", round, what,
            page->spill_state.load(), page->spill_errno.load());
    return 1;
}

static int control(int rounds)
{
    if (!becomes(SY_SCRIPT_SPILL_IN))
        return fail("it does not start", 0);
    for (int i = 0; i < rounds; i++) {
        page->spill_want.store(1);
        spill::wake(&page->spill_want);
        if (!becomes(SY_SCRIPT_SPILL_OUT))
            return fail("it does not go", i);
        uint64_t step = page->step.load();
        usleep(2000);
        if (page->step.load() != step)
            return fail("a thread runs while the tensors are out", i);
        page->spill_want.store(0);
        spill::wake(&page->spill_want);
        if (!becomes(SY_SCRIPT_SPILL_IN))
            return fail("it does not come back", i);
    }
    return 0;
}

/* An entry that is begun, and not yet written, does not speak for the thread that had its place in the round before. */
static int check_entries()
{
    pid_t thread = static_cast<pid_t>(spill::all.parked[0].load());
    spill::all.n_parked.store(1);
    spill::all.generation.fetch_add(1);
    bool stood = spill::stands(thread);
    spill::let_go();
    return stood ? fail("a thread of the round before counts", -1) : 0;
}

int main(int argc, char **argv)
{
    std::vector<std::thread> threads;
    int status = 0;
    void *at = mmap(nullptr, SY_SCRIPT_PAGE_BYTES, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc != 3 || at == MAP_FAILED)
        return 2;
    page = static_cast<sy_script_page *>(at);
    snprintf(page->spill_folder, sizeof page->spill_folder, "%s", argv[1]);
    pid_t controller = fork();
    if (controller == 0)
        _exit(control(atoi(argv[2])));
    if (spill::start(page) != 0)
        return 2;
    for (int i = 0; i < N_THREADS; i++)
        threads.emplace_back(work);
    while (waitpid(controller, &status, 0) < 0 && errno == EINTR)
        continue;
    page->busy.store(1);
    for (std::thread &t : threads)
        t.join();
    return status != 0 || check_entries() != 0;
}
