/* Initializes and finalizes CPython three times, as programs that embed it do: embedding [thread] [sub] [silent]
 *
 * thread, sub: with a thread or a subinterpreter in between; silent: without what was registered with atexit.
 * Prints what each end returned, and returns 3. Declares what it calls, to need no headers. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

void Py_Initialize(void);
int Py_FinalizeEx(void);
int PyRun_SimpleStringFlags(const char *code, void *flags);
int PyGILState_Ensure(void);
void PyGILState_Release(int state);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *state);
void *PyThreadState_Get(void);
void *PyThreadState_Swap(void *state);
void *Py_NewInterpreter(void);
void Py_EndInterpreter(void *state);

static const char *work = "import gc\n"
                          "class A: pass\n"
                          "def train_step(n):\n"
                          "    a = A(); a.a = a\n"
                          "for i in range(3000): train_step(i)\n"
                          "gc.collect()\n"
                          "gc.freeze()\n"
                          "gc.unfreeze()\n";

static void run(const char *code)
{
    if (PyRun_SimpleStringFlags(code, NULL) != 0)
        printf("failed\n");
}

static void *thread(void *unused)
{
    (void)unused;
    int state = PyGILState_Ensure();
    run(work);
    PyGILState_Release(state);
    return NULL;
}

int main(int count, char **words)
{
    for (int round = 0; round < 3; round++) {
        Py_Initialize();
        run(work);
        for (int i = 1; i < count; i++) {
            if (strcmp(words[i], "thread") == 0) {
                void *state = PyEval_SaveThread();
                pthread_t other;
                pthread_create(&other, NULL, thread, NULL);
                pthread_join(other, NULL);
                PyEval_RestoreThread(state);
            }
            if (strcmp(words[i], "sub") == 0) {
                void *state = PyThreadState_Get();
                Py_NewInterpreter();
                run(work);
                Py_EndInterpreter(PyThreadState_Get());
                PyThreadState_Swap(state);
            }
            if (strcmp(words[i], "silent") == 0)
                run("import atexit\natexit._clear()\n");
        }
        printf("finalize %d\n", Py_FinalizeEx());
        fflush(stdout);
    }
    return 3;
}
