"""Programs that embed a Python: loaded at their start, later, and as a plugin's dependency."""

from program import Program

FLAGS = "$(python3-config --cflags --ldflags --embed)"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"
HOST = ["sh", "-c", "cc -o host {scripts}/host.c -ldl"]
PLUGIN = ["sh", "-c", f"cc -shared -fPIC -o plugin.so {{scripts}}/plugin.c {FLAGS}"]
LINKED = ["sh", "-c", f"cc -o linked {{scripts}}/linked.c {{scripts}}/plugin.c {FLAGS}"]

PROGRAMS = [
    Program("embed_linked", ["{built}/linked"], build=[LINKED], tools=["python3-config"]),
    Program("embed_dlopen", ["{built}/host", LIBRARY, "300", "3"], build=[HOST]),
    Program("embed_plugin", ["{built}/host", "{built}/plugin.so", "300"], build=[HOST, PLUGIN], tools=["python3-config"]),
]
