/* A script without PyTorch: threads that change large blocks all the time, outside of operators, so that no gate stops them, and the hook's spilling.
 *
 *   spill_script ROUNDS [deaf]      prints "hash HEX" of what the blocks hold after so many rounds a thread; deaf: one more thread, which blocks every signal
 *
 * A step is counted for each round of the first thread. */
#include <barrier>
#include <cinttypes>
#include <cstdint>
#include <thread>
#include <vector>

#include "torch_spill.hh"

constexpr int N_THREADS = 3, N_BLOCKS = 4;
constexpr size_t BLOCK_BYTES = (2u << 20) + 4096 + 24; /* begins and ends within a page */

struct block {
    char *whole, *data;
    spill::node node;
};

static sy_script_page *page;
static std::barrier all_rounds(N_THREADS); /* before it no block goes */

static bool find_page()
{
    int fd = open(getenv("SWITCHYARD_SCRIPT_PAGE"), O_RDWR | O_CLOEXEC);
    void *at = mmap(nullptr, SY_SCRIPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    page = static_cast<sy_script_page *>(at);
    if (fd < 0 || at == MAP_FAILED || page->magic != SY_SCRIPT_MAGIC)
        return false;
    page->owner.store(static_cast<uint32_t>(getpid()));
    page->hook.store(SY_SCRIPT_HOOK_OPERATORS);
    page->used_bytes.store(N_THREADS * N_BLOCKS * BLOCK_BYTES);
    return true;
}

static void round(uint64_t *words, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        words[i] = (words[i] ^ *state) * 0x9e3779b97f4a7c15u + (words[(i * 7 + 1) % n] >> 7);
    }
}

static void work(int thread, int rounds, uint64_t *hash)
{
    block blocks[N_BLOCKS];
    uint64_t state = static_cast<uint64_t>(thread) + 1;
    size_t n = BLOCK_BYTES / sizeof(uint64_t);
    for (block &b : blocks) {
        b.whole = static_cast<char *>(calloc(1, BLOCK_BYTES + 128));
        b.data = b.whole + 64;
        spill::add(&b.node, b.data, BLOCK_BYTES);
    }
    for (int i = 0; i < rounds; i++) {
        for (block &b : blocks)
            round(reinterpret_cast<uint64_t *>(b.data), n, &state);
        if (thread == 0)
            page->step.fetch_add(1);
    }
    all_rounds.arrive_and_wait();
    *hash = 14695981039346656037u;
    for (block &b : blocks) {
        const uint64_t *words = reinterpret_cast<const uint64_t *>(b.data);
        for (size_t i = 0; i < n; i++)
            *hash = (*hash ^ words[i]) * 1099511628211u;
        spill::remove(&b.node);
        free(b.whole);
    }
}

static void be_deaf()
{
    sigset_t every;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, nullptr);
    for (;;)
        sleep(1);
}

int main(int argc, char **argv)
{
    uint64_t hash[N_THREADS];
    std::vector<std::thread> threads;
    if (argc < 2 || !getenv("SWITCHYARD_SCRIPT_PAGE") || !find_page() ||
        (page->spill_folder[0] && spill::start(page) != 0))
        return 2;
    if (argc > 2)
        std::thread(be_deaf).detach();
    for (int i = 0; i < N_THREADS; i++)
        threads.emplace_back(work, i, atoi(argv[1]), &hash[i]);
    for (std::thread &t : threads)
        t.join();
    printf("hash %016" PRIx64 "%016" PRIx64 "%016" PRIx64 "\n", hash[0], hash[1], hash[2]);
    return 0;
}
