/* Loads a libpython, or a plugin that needs one, at run time: host LIBRARY MS [TIMES]. A libpython
 * is initialized and finalized TIMES times. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *program =
    "import gc\n"
    "kept = [[index] for index in range(50000)]\n"
    "gc.collect()\n"
    "print('worked', len(kept), flush=True)\n";

int main(int count, char **words) {
    if (count < 3) return 2;
    usleep(atoi(words[2]) * 1000);
    void *library = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    int (*plugin)(void) = (int (*)(void))dlsym(library, "plugin_main");
    if (plugin) return plugin();
    void (*initialize)(void) = (void (*)(void))dlsym(library, "Py_Initialize");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags");
    int (*end)(void) = (int (*)(void))dlsym(library, "Py_FinalizeEx");
    int ended = 0;
    for (int times = count > 3 ? atoi(words[3]) : 1; times > 0 && !ended; times--) {
        initialize();
        run(program, NULL);
        ended = end();
    }
    return ended ? 4 : 0;
}
