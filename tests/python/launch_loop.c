/* Like automatic differentiation on its own thread: launches kernels without needing the
 * interpreter, at the pace of replay_truth.py. */

#define _GNU_SOURCE
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

struct dim3 {
    unsigned x, y, z;
};

typedef int (*launch_function)(void *, struct dim3, struct dim3, void **, uint64_t, void *);

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Asleep, so that the collecting thread does not have to share a CPU with this one. */
static void wait_until(int64_t deadline_ns) {
    struct timespec time = {deadline_ns / INT64_C(1000000000), deadline_ns % INT64_C(1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, 0)) {
    }
}

/* Launches `kernel` `count` times, one every `every_ns`; returns the number of failures. */
int launch_loop(launch_function launch, void *kernel, void *stream, int count, int64_t every_ns) {
    struct dim3 grid = {64, 1, 1}, block = {256, 1, 1};
    int64_t until = now();
    int failed = 0;
    prctl(PR_SET_TIMERSLACK, 1);
    for (int at = 0; at < count; at++) {
        until += every_ns;
        wait_until(until);
        failed += launch(kernel, grid, block, 0, 0, stream) != 0;
    }
    return failed;
}
