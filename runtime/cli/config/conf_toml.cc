#include "runtime/cli/config/conf_toml.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cpptoml.h>

extern "C" {
#include "runtime/base/status.h"
}

namespace
{

constexpr int PIPE_WAIT_MS = 1000;

struct bad_value {
    std::string why;
};

struct entry {
    std::string value;
    sy_conf_kind kind;
};

bool is_pipe(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISFIFO(found.st_mode);
}

struct descriptor {
    int fd;
    ~descriptor()
    {
        close(fd);
    }
};

/* A pipe, from a shell's <(...) say, is waited for a second at a time: a reload must not hold the server up. */
ssize_t read_part(int fd, char *part, size_t bytes)
{
    for (;;) {
        struct pollfd readable = {fd, POLLIN, 0};
        ssize_t n = read(fd, part, bytes);

        if (n >= 0)
            return n;
        if (errno == EAGAIN && poll(&readable, 1, PIPE_WAIT_MS) == 0)
            throw bad_value{"a pipe, and nothing was written to it for a second"};
        if (errno != EAGAIN && errno != EINTR)
            throw std::system_error(errno, std::generic_category());
    }
}

/* A folder opens as a file does, and fails when it is read. */
std::string read_file(const char *path)
{
    std::string text;
    char part[4096];
    ssize_t n;
    descriptor file = {open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};

    if (file.fd < 0)
        throw std::system_error(errno, std::generic_category());
    while (text.size() <= SY_CONF_MAX_BYTES && (n = read_part(file.fd, part, sizeof(part))) > 0)
        text.append(part, static_cast<size_t>(n));
    if (text.empty() && is_pipe(file.fd))
        throw bad_value{"a pipe, and nobody writes to it"};
    if (text.compare(0, 3, "\xef\xbb\xbf") == 0) /* a byte order mark, as some editors write it */
        text.erase(0, 3);
    return text;
}

entry entry_of(const std::string &key, const std::shared_ptr<cpptoml::base> &value)
{
    if (auto text = value->as<std::string>()) {
        if (text->get().find('\0') != std::string::npos)
            throw bad_value{key + " has a zero byte in its text"};
        return {text->get(), SY_CONF_TEXT};
    }
    if (auto truth = value->as<bool>())
        return {truth->get() ? "true" : "false", SY_CONF_SWITCH};
    if (auto number = value->as<int64_t>())
        return {std::to_string(number->get()), SY_CONF_NUMBER};
    if (auto number = value->as<double>()) {
        std::ostringstream text;

        text.precision(15);
        text << number->get();
        return {text.str(), SY_CONF_NUMBER};
    }
    throw bad_value{key + " is neither text, number, true, false nor a list of these"};
}

std::multimap<std::string, entry> entries_of(const std::string &text)
{
    std::multimap<std::string, entry> entries;
    std::istringstream stream(text);
    std::shared_ptr<cpptoml::table> table = cpptoml::parser(stream).parse();

    for (const auto &[key, value] : *table) {
        if (value->is_table() || value->is_table_array())
            throw bad_value{"[" + key + "] is a table; options stand at the top, as NAME = VALUE"};
        if (!value->is_array()) {
            entries.emplace(key, entry_of(key, value));
            continue;
        }
        for (const auto &element : value->as_array()->get())
            entries.emplace(key, entry_of(key, element));
    }
    return entries;
}

sy_conf *list_of(const std::multimap<std::string, entry> &entries)
{
    auto *conf = static_cast<sy_conf *>(calloc(1, sizeof(sy_conf)));

    if (!conf)
        throw std::bad_alloc();
    conf->entries = static_cast<sy_conf_entry *>(calloc(entries.size() + 1, sizeof(sy_conf_entry)));
    for (const auto &[key, value] : entries) {
        if (!conf->entries)
            break;
        sy_conf_entry *to = &conf->entries[conf->n++];

        *to = {strdup(key.c_str()), strdup(value.value.c_str()), value.kind};
        if (to->key && to->value)
            continue;
        sy_conf_destroy(conf);
        throw std::bad_alloc();
    }
    if (!conf->entries) {
        sy_conf_destroy(conf);
        throw std::bad_alloc();
    }
    return conf;
}

} // namespace

int sy_conf_toml_read(const char *path, sy_conf **out)
try {
    std::string text = read_file(path);

    if (text.size() > SY_CONF_MAX_BYTES)
        return sy_error_set(SY_EARG, "%s: more than %d bytes", path, SY_CONF_MAX_BYTES);
    if (std::count(text.begin(), text.end(), '[') > SY_CONF_MAX_ARRAYS)
        return sy_error_set(SY_EARG, "%s: more than %d '['", path, SY_CONF_MAX_ARRAYS);
    if (text.find('\0') != std::string::npos)
        return sy_error_set(SY_EARG, "%s: a zero byte is not text", path);
    *out = list_of(entries_of(text));
    return SY_OK;
} catch (const bad_value &bad) {
    return sy_error_set(SY_EARG, "%s: %s", path, bad.why.c_str());
} catch (const std::system_error &error) {
    return sy_error_set(SY_EIO, "cannot read %s: %s", path, error.code().message().c_str());
} catch (const std::bad_alloc &) {
    return sy_error_set(SY_ENOMEM_HOST, "no memory for %s", path);
} catch (const std::exception &error) {
    return sy_error_set(SY_EARG, "%s: %s", path, error.what());
}

void sy_conf_destroy(sy_conf *conf)
{
    if (!conf)
        return;
    for (size_t i = 0; conf->entries && i < conf->n; i++) {
        free(conf->entries[i].key);
        free(conf->entries[i].value);
    }
    free(conf->entries);
    free(conf);
}
