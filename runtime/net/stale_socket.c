#include "runtime/net/stale_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/status.h"

int sy_net_clear_stale(const struct sockaddr_un *address)
{
    struct stat info;
    int fd, answered;

    if (lstat(address->sun_path, &info) != 0)
        return SY_OK;
    if (!S_ISSOCK(info.st_mode))
        return sy_error_set(SY_EARG, "%s exists and is not a socket", address->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    answered =
        connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN;
    close(fd);
    if (answered)
        return sy_error_set(SY_EBUSY, "a server answers on %s already; choose another --socket",
                            address->sun_path);
    unlink(address->sun_path);
    return SY_OK;
}
