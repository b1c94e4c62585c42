#include "runtime/doctor/doctor_file.h"

#include <fcntl.h>
#include <unistd.h>

bool sy_doctor_read_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = 1;
    while (fd >= 0 && got > 0 && used + 1 < size) {
        got = read(fd, out + used, size - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    out[used] = '\0';
    if (fd < 0)
        return false;
    close(fd);
    return got >= 0;
}
