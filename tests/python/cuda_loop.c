/* Calls the fake CUDA of fake_cuda.c in loops and prints nanoseconds per call: cuLaunchKernel,
 * cudaLaunchKernel, cuMemcpyAsync. Argument: number of calls. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct dim3 {
	unsigned x, y, z;
};

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cudaLaunchKernel(void *, struct dim3, struct dim3, void **, size_t, void *);
int cuMemcpyAsync(void *, void *, size_t, void *);

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **words)
{
	long times = count > 1 ? atol(words[1]) : 1000;
	struct dim3 size = { 1, 2, 3 };
	double start[4];

	start[0] = now();
	for (long i = 0; i < times; i++)
		cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
	start[1] = now();
	for (long i = 0; i < times; i++)
		cudaLaunchKernel(0, size, size, 0, 0, 0);
	start[2] = now();
	for (long i = 0; i < times; i++)
		cuMemcpyAsync(0, 0, 5, 0);
	start[3] = now();
	for (int i = 0; i < 3; i++)
		printf("%.0f%c", (start[i + 1] - start[i]) / times, i < 2 ? ' ' : '\n');
	return 0;
}
