/*
 * A fake of CUDA for tests: the signatures of cuda.h, cuda_runtime_api.h and nccl.h, without
 * implementation, and a log of every call that is not nested in another logged call. Compiled as
 * libcuda (-DDRIVER), libcudart (-DRUNTIME) and libnccl (-DNCCL); the latter two call the first, as
 * the real ones do. The log is written to $FAKE_CUDA_LOG.PID.LIBRARY at exit: function, thread,
 * start and end in ns of CLOCK_MONOTONIC, stream, bytes, grid.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 4000000
struct entry {
	const char *function;
	long thread;
	uint64_t start, end, stream, bytes;
	unsigned grid;
};
static struct entry *entries;
static long count;
static pid_t owner;

/* Nesting depth, shared by all three libraries. */
#ifdef DRIVER
__attribute__((visibility("default"))) __thread int fake_cuda_depth;
#else
extern __thread int fake_cuda_depth;
#endif

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Once in each process, by whichever thread comes first. */
static void begin_log(void)
{
	static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

	if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) == getpid())
		return;
	pthread_mutex_lock(&beginning);
	if (owner != getpid()) {
		entries = calloc(MOST, sizeof(*entries));
		count = 0;
		__atomic_store_n(&owner, getpid(), __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&beginning);
}

static struct entry *enter(const char *function, void *stream, uint64_t bytes, unsigned grid)
{
	struct entry *entry;

	if (fake_cuda_depth++ > 0)
		return 0;
	begin_log();
	entry = &entries[__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) % MOST];
	*entry = (struct entry){ function, syscall(SYS_gettid), now(), 0, (uint64_t)stream, bytes, grid };
	return entry;
}

static void leave(struct entry *entry)
{
	fake_cuda_depth--;
	if (entry)
		entry->end = now();
}

#define STRINGIFY(name) #name
#define STRING(name) STRINGIFY(name)
__attribute__((destructor)) static void write_log(void)
{
	const char *prefix = getenv("FAKE_CUDA_LOG");
	char path[4096];
	FILE *file;

	if (!prefix || owner != getpid())
		return;
	snprintf(path, sizeof(path), "%s.%d." STRING(LIBRARY), prefix, getpid());
	file = fopen(path, "w");
	for (long i = 0; file && i < count && i < MOST; i++)
		fprintf(file, "%s %ld %lu %lu %lu %lu %u\n", entries[i].function, entries[i].thread, entries[i].start,
			entries[i].end, entries[i].stream, entries[i].bytes, entries[i].grid);
	if (file)
		fclose(file);
}

#define EXPORT __attribute__((visibility("default"), noinline))
#define CALL(stream, bytes, grid, work) do { \
	struct entry *entry = enter(__func__, (void *)(stream), bytes, grid); \
	int result = 0; \
	work; \
	leave(entry); \
	return result; \
} while (0)

struct config {
	unsigned grid[3], block[3], shared;
	void *stream;
};
struct dim3 {
	unsigned x, y, z;
};

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchKernelEx(struct config *, void *, void **, void **);
int cuGraphLaunch(void *, void *);
int cuStreamSynchronize(void *);
int cuMemcpyAsync(void *, void *, size_t, void *);
int cuMemAlloc_v2(void **, size_t);
int cuMemFree_v2(void *);

#ifdef DRIVER
EXPORT int cuInit(unsigned flags)
{
	return flags;
}

EXPORT int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
			  unsigned shared, void *stream, void **parameters, void **extra)
{
	CALL(stream, 0, x, (void)0);
}

EXPORT int cuLaunchKernelEx(struct config *config, void *function, void **parameters, void **extra)
{
	CALL(config->stream, 0, config->grid[0], (void)0);
}

EXPORT int cuGraphLaunch(void *graph, void *stream)
{
	CALL(stream, 0, 0, (void)0);
}

EXPORT int cuStreamSynchronize(void *stream)
{
	struct timespec time = { 0, 200000 };

	CALL(stream, 0, 0, nanosleep(&time, 0));
}

EXPORT int cuMemcpyAsync(void *to, void *from, size_t bytes, void *stream)
{
	CALL(stream, bytes, 0, (void)0);
}

EXPORT int cuMemsetD32Async(void *to, unsigned value, size_t count, void *stream)
{
	CALL(stream, 4 * count, 0, (void)0);
}

EXPORT int cuMemAlloc_v2(void **pointer, size_t bytes)
{
	CALL(0, bytes, 0, (*pointer = (void *)bytes, result = bytes > 1ul << 40 ? 2 : 0));
}

EXPORT int cuMemFree_v2(void *pointer)
{
	CALL(0, 0, 0, (void)0);
}
#endif

#ifdef RUNTIME
EXPORT int cudaLaunchKernel(void *function, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
			    void *stream)
{
	CALL(stream, 0, grid.x, result = cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
						      shared, stream, arguments, 0));
}

EXPORT int cudaGraphLaunch(void *graph, void *stream)
{
	CALL(stream, 0, 0, result = cuGraphLaunch(graph, stream));
}

EXPORT int cudaStreamSynchronize(void *stream)
{
	CALL(stream, 0, 0, result = cuStreamSynchronize(stream));
}

EXPORT int cudaMemcpyAsync(void *to, void *from, size_t bytes, int kind, void *stream)
{
	CALL(stream, bytes, 0, result = cuMemcpyAsync(to, from, bytes, stream));
}

EXPORT int cudaMemcpy2DAsync(void *to, size_t to_pitch, void *from, size_t from_pitch, size_t width, size_t height,
			     int kind, void *stream)
{
	CALL(stream, width * height, 0, (void)0);
}

EXPORT int cudaMalloc(void **pointer, size_t bytes)
{
	CALL(0, bytes, 0, result = cuMemAlloc_v2(pointer, bytes));
}

EXPORT int cudaFree(void *pointer)
{
	CALL(0, 0, 0, result = cuMemFree_v2(pointer));
}
#endif

#ifdef NCCL
/* Half-precision floats, type 6 in nccl.h. */
EXPORT int ncclAllReduce(void *from, void *to, size_t count, int type, int operation, void *communicator, void *stream)
{
	CALL(stream, 2 * count, 0, result = cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0));
}
#endif
