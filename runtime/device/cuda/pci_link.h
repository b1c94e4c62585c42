/* Facts on a PCI device from sysfs: its link's nominal rate and its NUMA node. */
#ifndef SY_DEVICE_CUDA_PCI_LINK_H
#define SY_DEVICE_CUDA_PCI_LINK_H

/* "32.0 GT/s PCIe" and 16 lanes: 63.0 (10^9 bytes per second, the encoding's share taken off, each direction); 0: text that is none. Pure. */
double sy_pci_link_gbps(const char *speed, int lanes);

/* Link rate and NUMA node of the device at `address` ("0000:3b:00.0") under `root` ("/sys/bus/pci/devices"): *out_gbps 0 and *out_numa_node -1 where it is not
 * known. */
void sy_pci_link_read(const char *root, const char *address, double *out_gbps, int *out_numa_node);

#endif
