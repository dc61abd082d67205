/* Counts calls of the object domain's malloc: the true value of what `--alloc` estimates. Loaded by
 * ctypes. The types are those of Include/cpython/pymem.h, the same from CPython 3.5 to 3.15. */
#include <stddef.h>

typedef struct {
	void *context;
	void *(*malloc)(void *context, size_t size);
	void *(*calloc)(void *context, size_t count, size_t size);
	void *(*realloc)(void *context, void *memory, size_t size);
	void (*free)(void *context, void *memory);
} Allocator;

enum { OBJECT_DOMAIN = 2 };

extern void PyMem_GetAllocator(int domain, Allocator *allocator);
extern void PyMem_SetAllocator(int domain, Allocator *allocator);

static Allocator before;
unsigned long long allocations;

static void *counted(void *context, size_t size)
{
	__atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
	return before.malloc(context, size);
}

void install(void)
{
	Allocator counting;

	PyMem_GetAllocator(OBJECT_DOMAIN, &before);
	counting = before;
	counting.malloc = counted;
	PyMem_SetAllocator(OBJECT_DOMAIN, &counting);
}
