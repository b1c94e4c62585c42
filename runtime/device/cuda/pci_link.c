#include "runtime/device/cuda/pci_link.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double sy_pci_link_gbps(const char *speed, int lanes)
{
    char *end;
    double gt = strtod(speed, &end);
    if (end == speed || strncmp(end, " GT/s", 5) != 0 || !(gt > 0) || gt > 1000 || lanes < 1 ||
        lanes > 32)
        return 0;
    double payload = gt < 8 ? 8.0 / 10 : 128.0 / 130; /* PCIe 1 and 2 send 10 bits for 8 */
    return gt * payload * lanes / 8;
}

/* The file's first line; "" if it cannot be read. */
static void read_line(const char *root, const char *address, const char *name, char *out, int bytes)
{
    char path[512], lower[64];
    size_t n = strlen(address);
    out[0] = 0;
    if (n >= sizeof lower)
        return;
    for (size_t i = 0; i <= n; i++) /* CUDA may write capitals, sysfs does not */
        lower[i] = (char)tolower((unsigned char)address[i]);
    snprintf(path, sizeof path, "%s/%s/%s", root, lower, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(out, bytes, file))
        out[0] = 0;
    fclose(file);
}

void sy_pci_link_read(const char *root, const char *address, double *out_gbps, int *out_numa_node)
{
    char speed[64], width[64], node[64], *end;
    read_line(root, address, "max_link_speed", speed, sizeof speed);
    read_line(root, address, "max_link_width", width, sizeof width);
    read_line(root, address, "numa_node", node, sizeof node);
    *out_gbps = sy_pci_link_gbps(speed, (int)strtol(width, NULL, 10));
    long number = strtol(node, &end, 10);
    *out_numa_node = end == node || number < 0 || number > 4095 ? -1 : (int)number;
}
