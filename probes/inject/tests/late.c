/* Loads a libpython late, as frozen programs and editors do: late LIBRARY direct|needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
	void *library;
	void (*initialize)(int);
	int (*run)(const char *, void *);
	int (*finalize)(void);

	if (count < 3)
		return 2;
	library = dlopen(arguments[1], RTLD_NOW | (strcmp(arguments[2], "local") ? RTLD_GLOBAL : RTLD_LOCAL));
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 3;
	}
	initialize = (void (*)(int))dlsym(library, "Py_InitializeEx");
	run = (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
	finalize = (int (*)(void))dlsym(library, "Py_FinalizeEx");
	for (int round = 0; round < 2; round++) {
		initialize(0);
		if (run("import gc\ngc.disable()\nfor _ in range(6): gc.collect(1)\n", 0))
			return 4;
		if (finalize())
			return 5;
	}
	return 0;
}
