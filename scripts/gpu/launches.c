/* Launches an empty kernel as fast as the driver accepts it: more than 100,000 a second. Built into
 * the bundle as a library, for machines without a compiler. */

#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **, void **);

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Launches `count` times, at least `every_ns` apart; returns the time in nanoseconds, negative if a
 * launch failed. */
int64_t launch_many(launch_function launch, void *kernel, void *stream, int64_t count, int64_t every_ns) {
    int64_t start = now();
    for (int64_t at = 0; at < count; at++) {
        while (every_ns && now() < start + at * every_ns) {
        }
        if (launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL))
            return -1;
    }
    return now() - start;
}
