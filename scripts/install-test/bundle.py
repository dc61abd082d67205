#!/usr/bin/env python3
"""A container of a Kubernetes manifest as a bundle for runc, to run what the manifest says.

    bundle.py unpack ARCHIVE FOLDER
    bundle.py container MANIFEST NAME FOLDER [--keep CAPABILITY,...] [--own-pids] [--out PATH] ARG...

`unpack` puts the image of an OCI archive into FOLDER/rootfs. `container` writes FOLDER/config.json:
user, capabilities, no_new_privs, read-only root, pid namespace and volumes are those of the
container NAME. ARG... replace its arguments; --keep leaves only some of its capabilities, --own-pids
takes a pid namespace away from the node, --out mounts a folder of the machine at /out.
"""

import argparse
import json
import pathlib
import tarfile

import yaml


def unpack(archive, folder):
    root = pathlib.Path(folder, "rootfs")
    root.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        def blob(descriptor):
            return tar.extractfile("./blobs/" + descriptor["digest"].replace(":", "/"))

        index = json.load(tar.extractfile("./index.json"))
        manifest = json.load(blob(index["manifests"][0]))
        pathlib.Path(folder, "image.json").write_bytes(blob(manifest["config"]).read())
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer)) as files:
                files.extractall(root)


def pod_of(document):
    return document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]


def container_of(manifest, name):
    for document in yaml.safe_load_all(pathlib.Path(manifest).read_text()):
        if document["kind"] in ("Pod", "DaemonSet"):
            pod = pod_of(document)
            for container in pod["containers"] + pod.get("initContainers", []):
                if container["name"] == name:
                    return pod, container
    raise SystemExit(f"{manifest} has no container {name}")


def mounts(pod, container, out):
    result = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
    ]
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        if "emptyDir" not in volumes[mount["name"]]:
            raise SystemExit(f"volume {mount['name']}: not an emptyDir")
        result.append({"destination": mount["mountPath"], "type": "tmpfs", "source": "tmpfs"})
    if out:
        result.append({"destination": "/out", "type": "none", "source": out, "options": ["rbind"]})
    return result


def config(pod, container, image, options):
    security = container["securityContext"]
    assert security["capabilities"]["drop"] == ["ALL"]
    kept = security["capabilities"].get("add", [])
    if options.keep is not None:
        kept = [name for name in kept if name in options.keep.split(",")]
    kept = [f"CAP_{name}" for name in kept]
    namespaces = ["mount", "ipc", "uts"]
    if options.own_pids or not pod.get("hostPID"):
        namespaces.append("pid")
    user = security.get("runAsUser", 0)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": image["config"]["Entrypoint"] + (options.arguments or container["args"]),
            "env": image["config"]["Env"] + ["KUBERNETES_SERVICE_HOST=10.0.0.1"],
            "cwd": image["config"]["WorkingDir"],
            "capabilities": {name: kept for name in ("bounding", "effective", "permitted")},
            "noNewPrivileges": not security["allowPrivilegeEscalation"],
        },
        "root": {"path": "rootfs", "readonly": security["readOnlyRootFilesystem"]},
        "mounts": mounts(pod, container, options.out),
        "linux": {"namespaces": [{"type": name} for name in namespaces]},
    }


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("archive")
    unpacking.add_argument("folder")
    running = commands.add_parser("container")
    running.add_argument("--keep")
    running.add_argument("--own-pids", action="store_true")
    running.add_argument("--out")
    running.add_argument("manifest")
    running.add_argument("name")
    running.add_argument("folder")
    running.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command == "unpack":
        unpack(options.archive, options.folder)
        return
    pod, container = container_of(options.manifest, options.name)
    folder = pathlib.Path(options.folder)
    image = json.loads((folder / "image.json").read_text())
    written = config(pod, container, image, options)
    (folder / "config.json").write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
