/* A link between two network namespaces with a delay and a rate each way, for kernels without sch_netem.
 *
 *   slow_link NAMESPACE_A NAMESPACE_B DELAY_US MBIT
 *
 *   A: 10.77.0.1 ── tun "slow0" ──> queue: leaves when the link is free, arrives DELAY later ──> tun "slow0" ── B: 10.77.0.2
 *                                <── the same the other way
 *
 * Prints "ready" once both ends are up, and ends by a signal. A queue of 1000 packets drops what is more, as netem's does.
 *
 * The ends take what a network card with segmentation and checksum offload takes: up to 64 KiB of a stream at once, whose checksum is left open. Such a
 * packet occupies the link as its segments of MTU bytes would, and arrives with the last of them. Each is read and written once here: that work comes on
 * top of what a card would cost, on the same cores as what is measured. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"

#define MTU        9000
#define N_PACKETS  1000
#define MOST_BYTES (sizeof(struct virtio_net_hdr) + 65536 + 100)

struct packet {
    sy_ns due_ns;
    uint32_t bytes;
    union {
        struct virtio_net_hdr offload; /* precedes each packet */
        char data[MOST_BYTES];
    };
};

struct way {
    int from, to;
    sy_ns free_ns;     /* when the previous packet has left the link */
    unsigned first, n; /* waiting packets; the other slots are unused */
    struct packet *packets[N_PACKETS];
};

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "slow_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void enter(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        give_up(path);
    close(fd);
}

/* Opens the interface in that namespace; the descriptor works from any. */
static int open_end(const char *name, const char *address)
{
    char command[200];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    enter(name);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof request.ifr_name, "slow0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0 ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0)
        give_up("/dev/net/tun");
    snprintf(command, sizeof command,
             "ip addr add %s/24 dev slow0 && ip link set slow0 mtu %d txqueuelen %d up", address,
             MTU, N_PACKETS);
    if (system(command) != 0)
        give_up(command);
    return fd;
}

/* Including the headers of all segments. */
static double bytes_on_link(const struct packet *p)
{
    const struct virtio_net_hdr *o = &p->offload;
    double bytes = (double)p->bytes - (double)sizeof *o;
    if (o->gso_type == VIRTIO_NET_HDR_GSO_NONE || o->gso_size == 0 || bytes <= o->hdr_len)
        return bytes;
    return bytes + (ceil((bytes - o->hdr_len) / o->gso_size) - 1) * o->hdr_len;
}

static void take(struct way *w, sy_ns delay_ns, double ns_per_byte)
{
    static char spare[MOST_BYTES];
    for (int i = 0; i < 64; i++) {
        struct packet *p = w->packets[(w->first + w->n) % N_PACKETS];
        bool has_room = w->n < N_PACKETS;
        ssize_t got = read(w->from, has_room ? p->data : spare, sizeof spare);
        if (got <= (ssize_t)sizeof(struct virtio_net_hdr))
            return;
        if (!has_room)
            continue;
        sy_ns now = sy_clock_now();
        p->bytes = (uint32_t)got;
        w->free_ns = SY_MAX(w->free_ns, now) + (sy_ns)(bytes_on_link(p) * ns_per_byte);
        p->due_ns = w->free_ns + delay_ns;
        w->n++;
    }
}

/* Reuses the slot for the next packet, while it is in a cache. */
static void drop_first(struct way *w)
{
    unsigned next = (w->first + w->n) % N_PACKETS;
    struct packet *spare = w->packets[w->first];
    w->packets[w->first] = w->packets[next];
    w->packets[next] = spare;
    w->first = (w->first + 1) % N_PACKETS;
    w->n--;
}

/* When the next packet is due; UINT64_MAX: none waits. */
static sy_ns deliver(struct way *w)
{
    while (w->n > 0) {
        struct packet *p = w->packets[w->first];
        if (p->due_ns > sy_clock_now())
            return p->due_ns;
        (void)!write(w->to, p->data,
                     p->bytes); /* a full interface drops the packet, as a network card does */
        drop_first(w);
    }
    return UINT64_MAX;
}

static void run(struct way ways[2], sy_ns delay_ns, double ns_per_byte)
{
    struct pollfd fds[2] = {{.fd = ways[0].from, .events = POLLIN},
                            {.fd = ways[1].from, .events = POLLIN}};
    for (;;) {
        sy_ns due = SY_MIN(deliver(&ways[0]), deliver(&ways[1])), now = sy_clock_now();
        sy_ns wait = due == UINT64_MAX ? SY_NS_PER_S : due > now ? due - now : 0;
        struct timespec limit = {(time_t)(wait / SY_NS_PER_S), (long)(wait % SY_NS_PER_S)};
        if (ppoll(fds, 2, &limit, NULL) < 0 && errno != EINTR)
            give_up("poll");
        for (int i = 0; i < 2; i++)
            if (fds[i].revents)
                take(&ways[i], delay_ns, ns_per_byte);
    }
}

int main(int argc, char **argv)
{
    static struct way ways[2];
    double delay_us = argc == 5 ? strtod(argv[3], NULL) : 0,
           mbit = argc == 5 ? strtod(argv[4], NULL) : 0;
    if (argc != 5 || delay_us < 0 || delay_us > 1e6 || !(mbit > 0)) {
        fprintf(stderr, "usage: slow_link NAMESPACE_A NAMESPACE_B DELAY_US MBIT\n");
        return 2;
    }
    ways[0].from = ways[1].to = open_end(argv[1], "10.77.0.1");
    ways[1].from = ways[0].to = open_end(argv[2], "10.77.0.2");
    for (int i = 0; i < 2 * N_PACKETS; i++)
        if (!(ways[i / N_PACKETS].packets[i % N_PACKETS] = malloc(sizeof(struct packet))))
            give_up("memory");
    prctl(PR_SET_TIMERSLACK, 1000ul);
    printf("ready\n");
    fflush(stdout);
    run(ways, (sy_ns)(delay_us * 1000), 8000.0 / mbit);
    return 0;
}
