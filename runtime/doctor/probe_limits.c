/* Descriptors, processes, and the ports that a server takes by default. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/doctor/probe.h"

#define FIRST_PORT 8000
#define LAST_PORT  8002

static double number(rlim_t value)
{
    return value == RLIM_INFINITY ? INFINITY : (double)value;
}

/* 0, or the errno of bind. */
static int try_port(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* as the server: past TIME_WAIT */
    bool free_here =
        bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    int why = free_here ? 0 : errno;
    close(fd);
    return why;
}

static void ports(struct sy_doctor_facts *facts)
{
    size_t used = 0;
    for (int port = FIRST_PORT; port <= LAST_PORT; port++) {
        int why = try_port(port);
        if (why)
            used += (size_t)snprintf(facts->ports_busy + used, sizeof facts->ports_busy - used,
                                     "%s%d (%s)", used ? ", " : "", port, strerror(why));
    }
}

void sy_probe_limits(struct sy_doctor_facts *facts)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        facts->files_limit = number(limit.rlim_cur);
        facts->files_most = number(limit.rlim_max);
    }
    if (getrlimit(RLIMIT_NPROC, &limit) == 0)
        facts->processes_limit = number(limit.rlim_cur);
    ports(facts);
}
