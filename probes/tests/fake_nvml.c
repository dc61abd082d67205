/* A libnvidia-ml with made-up figures, for tests. Built with:
 *   -DDEVICES=n           number of GPUs (default 2)
 *   -DINIT=code           result of nvmlInit_v2
 *   -DFAULTS="path"       a file that may come and go, read at each call; names faults:
 *                           lost:N   every call on GPU N returns NVML_ERROR_GPU_IS_LOST
 *                           gone     initialization and every call return NVML_ERROR_UNINITIALIZED
 *   -DOLD                 only functions that drivers before 510 have
 *   -DNEW_NAMES           throttle reasons under their newer name only
 *   -DMIG=n               GPU n is split: no utilization
 *   -DNO_POWER=n          no power figure of GPU n
 *   -DNO_PCIE             no function for PCIe throughput
 *   -DHANG                asking for power does not return
 * Figures of GPU n: utilization 40+n and 7+n %, memory 80 GiB, used (1+n) GiB, power 300,000+n mW,
 * clocks 1,980 and 2,619 MHz, PCIe 1,000+n received and 2,000+n sent, throttled by power.
 * Signatures as in nvml.h of driver 570. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef MIG
#define MIG -1
#endif
#ifndef NO_POWER
#define NO_POWER -1
#endif

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
#define GIB (1ull << 30)

static int places[DEVICES + 1];

static int fault(const void *device) {
#ifdef FAULTS
    char text[64] = "";
    FILE *file = fopen(FAULTS, "r");
    if (!file) return SUCCESS;
    char *line = fgets(text, sizeof text, file);
    fclose(file);
    if (!line) return SUCCESS;
    if (!strncmp(text, "gone", 4)) return UNINITIALIZED;
    if (device && !strncmp(text, "lost:", 5) && atoi(text + 5) == (int)((const int *)device - places)) return GPU_IS_LOST;
#endif
    (void)device;
    return SUCCESS;
}

static int number(const void *device) { return (int)((const int *)device - places); }

#define ASKED(device) \
    do { \
        int code = fault(device); \
        if (code) return code; \
    } while (0)

int nvmlInit_v2(void) {
    ASKED(NULL);
    return INIT;
}
int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "999.1");
    return SUCCESS;
}
int nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    snprintf(version, length, "13.999.1");
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    ASKED(NULL);
    *count = DEVICES;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    *device = &places[index];
    return fault(*device);
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    ASKED(device);
    snprintf(uuid, length, "GPU-fake-%d", number(device));
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    ASKED(device);
    snprintf(name, length, "Fake GPU");
    return SUCCESS;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ASKED(device);
    *current = *pending = number(device) == MIG;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
    ASKED(device);
    if (number(device) == MIG) return NOT_SUPPORTED;
    rates[0] = 40 + number(device);
    rates[1] = 7 + number(device);
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    ASKED(device);
    memory->total = 80 * GIB;
    memory->used = (1 + number(device)) * GIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
static int processes(void *device, unsigned *count, struct process *processes) {
    ASKED(device);
    unsigned room = *count;
    *count = 2;
    if (room < 2) return INSUFFICIENT_SIZE;
    processes[0] = (struct process){getpid(), (1 + number(device)) * GIB / 2, -1, -1};
    processes[1] = (struct process){1, -1ull, -1, -1};
    return SUCCESS;
}

#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, struct process *all) { return processes(device, count, all); }
#else
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    ASKED(device);
    if (memory->version != (sizeof *memory | 2u << 24)) return INVALID_ARGUMENT;
    memory->total = 80 * GIB;
    memory->reserved = GIB / 2;
    memory->used = (1 + number(device)) * GIB;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all) { return processes(device, count, all); }
#endif

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    ASKED(device);
#ifdef HANG
    for (;;) pause();
#endif
    if (number(device) == NO_POWER) return NOT_SUPPORTED;
    *milliwatts = 300000 + number(device);
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(void *device, unsigned clock, unsigned *megahertz) {
    ASKED(device);
    *megahertz = clock == 2 ? 2619 : 1980;
    return SUCCESS;
}
#ifndef NO_PCIE
int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *kilobytes) {
    ASKED(device);
    *kilobytes = (counter == 0 ? 2000 : 1000) + number(device);
    return SUCCESS;
}
#endif
#ifdef NEW_NAMES
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) {
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
#endif
    ASKED(device);
    *reasons = 0x4; /* nvmlClocksThrottleReasonSwPowerCap */
    return SUCCESS;
}
