/* A plugin that needs libpython, like uWSGI's and mod_wsgi's. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int plugin_main(void) {
    Py_Initialize();
    PyRun_SimpleString("import gc\n"
                       "kept = [[index] for index in range(50000)]\n"
                       "gc.collect()\n"
                       "print('worked', len(kept), flush=True)\n");
    return Py_FinalizeEx();
}
