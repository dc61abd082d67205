/* A small stand-in for CPython 3.13: every part that the resolver reads, in a few KiB. Compiled by
 * seed.sh into the fuzzer's first inputs; no test relies on it. */
#include <stdint.h>
#ifdef HAVE_SDT
#include <sys/sdt.h>
#else
#define DTRACE_PROBE1(provider, name, argument)
#endif

int printf(const char *, ...);

typedef long (*function)(void *, long, long);
struct method { const char *name; function call; int flags; const char *doc; };

struct { char cookie[8]; uint64_t words[200]; } _PyRuntime = {
    "xdebugpy",
    { [0] = 0x030d00f0, [2] = 8000, [3] = 608, [4] = 632, [5] = 9000, [6] = 7272, [7] = 7264,
      [9] = 7400, [21] = 16, [70] = 240, [71] = 200 },
};
const unsigned Py_Version = 0x030d00f0;

static __attribute__((noinline)) long gc_collect_main(void *tstate, long generation, long reason)
{
    if (reason == 7)
        printf("gc: collecting generation %d...\n", (int)generation);
    DTRACE_PROBE1(python, gc__start, generation);
    long found = *(long *)tstate + generation;
    DTRACE_PROBE1(python, gc__done, found);
    return found;
}

static long gc_collect(void *module, long generation, long unused)
{
    return gc_collect_main(module, generation, unused) + unused;
}

long PyGC_Collect(void *tstate) { return gc_collect_main(tstate, 2, 2); }

struct method gc_methods[] = {
    { "collect", gc_collect, 128, "collect($module, /, generation=2)\n--\n\nRun the collector." },
};

int main(void) { return (int)PyGC_Collect(&gc_methods); }
