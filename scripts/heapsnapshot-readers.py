#!/usr/bin/env python3
"""Opens an exported heap with the code of Chrome's own DevTools, in headless Chromium, or with memlab.

    scripts/heapsnapshot-readers.py FILE.heapsnapshot [FILE.gcheap] [--screenshot PNG] [--gctrace PROGRAM]
    scripts/heapsnapshot-readers.py FILE.heapsnapshot [FILE.gcheap] --memlab FOLDER [--gctrace PROGRAM]

Chromium serves the DevTools it ships with on its debugging port. This loads their heap snapshot
worker from there, gives it the file as the Memory panel does, and prints what it found. With the
heap that the file was made from, retained sizes are compared with those of
`gctrace heap dominators`. With --screenshot the panel itself opens the file.

Needs chromium (Debian: apt-get install chromium), or node and memlab in FOLDER (cd FOLDER; npm install
--ignore-scripts memlab: the browser that it would download is not needed). Standard library only.
Exit code: 1 if the reader cannot read the file or differs.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

# The functions of the worker, as front_end/panels/profiler/HeapSnapshotProxy.ts calls them.
LOAD = """(async () => {
  const base = location.origin + '/devtools/entrypoints/heap_snapshot_worker/heap_snapshot_worker';
  const worker = await import(base + '.js');
  const second = new Worker(base + '-entrypoint.js', {type: 'module'});
  await new Promise(resolve => second.addEventListener('message', resolve, {once: true}));
  const channel = new MessageChannel();
  second.postMessage({callId: 1, disposition: 'setupForSecondaryInit', objectId: 1}, [channel.port1]);
  const quiet = {sendEvent() {}};
  const loader = new worker.HeapSnapshotLoader.HeapSnapshotLoader(quiet);
  for (const part of globalThis.parts) loader.write(part);
  loader.close();
  const snapshot = await loader.buildSnapshot(channel.port2);
  const retained = {}, names = {};
  let unreachable = 0;
  for (let nodes = snapshot.allNodes(); nodes.hasNext(); nodes.next()) {
    const node = nodes.item();
    retained[node.id()] = node.retainedSize();
    if (node.distance() < 0) unreachable++;
    for (let edges = node.edges(); edges.hasNext(); edges.next()) {
      const edge = edges.edge ?? edges.item();
      names[edge.type()] = (names[edge.type()] ?? 0) + 1;
    }
  }
  const classes = Object.values(snapshot.getAggregatesByClassKey(false, 'all')).map(
    own => ({name: own.name, count: own.count, self: own.self, retained: own.maxRet}));
  classes.sort((a, b) => b.self - a.self);
  return {nodes: snapshot.nodeCount, edges: names, total: snapshot.totalSize, unreachable,
          classes: classes.slice(0, 12), retained};
})()"""

# The same of memlab, whose retained sizes are computed by its own code.
MEMLAB = """
const {getFullHeapFromFile} = require('@memlab/heap-analysis');
getFullHeapFromFile(process.argv[1]).then(heap => {
  const retained = {}, names = {}, classes = {};
  let nodes = 0, total = 0, unreachable = 0;
  heap.nodes.forEach(node => {
    nodes++;
    total += node.self_size;
    retained[node.id] = node.retainedSize;
    if (!node.pathEdge && !node.dominatorNode) unreachable++;
    const own = classes[node.name] ??= {name: node.name, count: 0, self: 0, retained: 0};
    own.count++;
    own.self += node.self_size;
    own.retained = Math.max(own.retained, node.retainedSize);
  });
  heap.edges.forEach(edge => { names[edge.type] = (names[edge.type] ?? 0) + 1; });
  const all = Object.values(classes).sort((a, b) => b.self - a.self);
  const found = {nodes, edges: names, total, unreachable, classes: all.slice(0, 12), retained};
  require('fs').writeFileSync(process.argv[2], JSON.stringify(found));
});
"""


class Page:
    """A tab, driven by the Chrome DevTools protocol over a WebSocket (RFC 6455)."""

    def __init__(self, url):
        host, _, path = url[len("ws://"):].partition("/")
        name, _, port = host.partition(":")
        self.socket = socket.create_connection((name, int(port)), timeout=300)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((
            "GET /%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (path, host, key)).encode())
        self.file = self.socket.makefile("rb")
        while self.file.readline().strip():
            pass
        self.last = 0

    def call(self, method, **params):
        self.last += 1
        message = json.dumps({"id": self.last, "method": method, "params": params}).encode()
        size = len(message)
        head = struct.pack("!BBQ", 0x81, 0x80 | 127, size) + bytes(4)
        self.socket.sendall(head + message)
        while True:
            answer = json.loads(self.message())
            if answer.get("id") == self.last:
                if "error" in answer:
                    sys.exit("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]

    def message(self):
        text = b""
        while True:
            first, second = self.file.read(2)
            size = second & 127
            if size >= 126:
                size, = struct.unpack("!H" if size == 126 else "!Q", self.file.read(2 if size == 126 else 8))
            text += self.file.read(size)
            if first & 0x80:
                return text

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            sys.exit("DevTools: %s" % details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")


def hand_over(page, file):
    """Gives the page the text of the file, in parts: DevTools' pages may fetch nothing else."""
    page.value("globalThis.parts = []; 0")
    with open(file, encoding="utf-8") as text:
        for part in iter(lambda: text.read(1 << 20), ""):
            page.value("globalThis.parts.push(%s)" % json.dumps(part))


def open_page(port, path):
    request = urllib.request.Request("http://127.0.0.1:%d/json/new?%s" % (port, path), method="PUT")
    return Page(json.load(urllib.request.urlopen(request))["webSocketDebuggerUrl"])


def started(folder):
    """Chromium, and the port it chose."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if not program:
        sys.exit("chromium is not installed: apt-get install chromium")
    process = subprocess.Popen(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
         "--remote-allow-origins=*", "--disable-web-security", "--window-size=1400,900",
         "--user-data-dir=%s" % folder, "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    chosen = pathlib.Path(folder) / "DevToolsActivePort"
    for _ in range(300):
        if chosen.exists() and chosen.read_text().count("\n") >= 1:
            return process, int(chosen.read_text().split()[0])
        time.sleep(0.1)
    process.kill()
    sys.exit("chromium did not start")


def compare(found, heap, gctrace):
    """Differences between the reader's retained sizes and gctrace's."""
    answer = json.loads(subprocess.run(
        [gctrace, "heap", "dominators", "-n", "1000000", "--json", heap],
        check=True, stdout=subprocess.PIPE).stdout)
    snapshot = json.loads(subprocess.run(
        [gctrace, "heap", "show", "-n", "1000000", "--json", heap],
        check=True, stdout=subprocess.PIPE).stdout)
    rows = answer["dominators"]["largest"] + answer["dominators"]["suspects"]
    wanted = sorted(row["retained"]["bytes"] for row in rows)
    known = sorted(found["retained"].values())
    # Retained sizes as multisets: each of gctrace's must be one of the reader's.
    missing, at = [], 0
    for size in wanted:
        while at < len(known) and known[at] < size:
            at += 1
        if at == len(known) or known[at] != size:
            missing.append(size)
    total = snapshot["heaps"][0]["bytes"]
    print("%d retained sizes of gctrace, %d not among the reader's; bytes %d and %d" % (
        len(wanted), len(missing), total, found["total"]))
    return bool(missing) or total != found["total"]


def panel(port, file, picture):
    """Opens the file in the Memory panel of DevTools, and takes its picture."""
    pages = json.load(urllib.request.urlopen("http://127.0.0.1:%d/json/list" % port))
    path = [page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"][0][len("ws://"):]
    page = open_page(port, "http://127.0.0.1:%d/devtools/devtools_app.html?ws=%s" % (port, path))
    time.sleep(8)
    hand_over(page, file)
    page.value("""(async () => {
      const {ViewManager} = await import('./ui/legacy/legacy.js');
      await ViewManager.ViewManager.instance().showView('heap-profiler');
      const {HeapProfilerPanel} = await import('./panels/profiler/profiler.js');
      const panel = HeapProfilerPanel.HeapProfilerPanel.instance();
      panel.loadFromFile(new File(globalThis.parts, 'heap.heapsnapshot'));
    })()""")
    time.sleep(8)
    # The first profile in the list on the left.
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=92, y=140, button="left", clickCount=1)
    time.sleep(4)
    shot = page.call("Page.captureScreenshot")["data"]
    pathlib.Path(picture).write_bytes(base64.b64decode(shot))


def read_by_memlab(folder, file):
    """What memlab finds in the file."""
    with tempfile.TemporaryDirectory() as results:
        answer = pathlib.Path(results) / "found.json"
        subprocess.run(["node", "-e", MEMLAB, os.path.abspath(file), answer],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return json.loads(answer.read_text())


def report(found, options):
    """Prints what a reader found; 1 if it differs from the heap."""
    print("nodes %(nodes)d, edges %(edges)s, bytes %(total)d, unreachable %(unreachable)d" % found)
    for own in found["classes"]:
        print("  %(count)8d  %(self)12d  %(retained)12d  %(name)s" % own)
    return int(compare(found, options.heap, options.gctrace) if options.heap else False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("heap", nargs="?")
    parser.add_argument("--screenshot")
    parser.add_argument("--gctrace", default="gctrace")
    parser.add_argument("--memlab", metavar="FOLDER", type=pathlib.Path)
    options = parser.parse_args()
    if options.memlab:
        return report(read_by_memlab(options.memlab, options.file), options)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process, port = started(folder)
        try:
            page = open_page(port, "http://127.0.0.1:%d/devtools/inspector.html" % port)
            time.sleep(2)
            hand_over(page, options.file)
            differs = report(page.value(LOAD), options)
            if options.screenshot:
                panel(port, options.file, options.screenshot)
        finally:
            process.kill()
            process.wait()
    return differs


if __name__ == "__main__":
    sys.exit(main())
