#!/usr/bin/env bash
# Creates a virtual environment with packages of PyPI that tests need, at pinned versions:
#
#   metrics   the Prometheus project's package, whose parsers check the metrics page
#   package   pytest, IPython, a Jupyter kernel and mypy, in which tests/python/package_tools.py uses the package gctrace
#   ray       Ray, fsspec for S3, and moto, a server that answers as S3 does: tests/python/ray_summaries.py
#   tables    readers of Parquet, with which tests/python/tables_truth.py reads tables
#   tables-short
#             two of them
#   trainers  Hugging Face's Trainer, Lightning, trackers and OpenTelemetry, which tests/python/package_trainers.py
#             reads back; with the PyTorch of scripts/torch-venv.sh (GCTRACE_TORCH_PYTHON names another)
#   web       FastAPI on uvicorn and uvloop, and gunicorn, for scripts/first-screens.py
#
#   scripts/venv.sh NAME [FOLDER]            (default: .venv-NAME)
#
# Prints the path of its python. If that fails, prints the reason to stderr and exits with 1: tests
# print it as a named skip. Environments that need more than pip are scripts of their own, *-venv.sh.
set -euo pipefail

name=${1-}
base=python3
alone=()
# Modules that must import, packages that are installed alone, and the free disk space in MB: about twice the size
# once installed.
case $name in
metrics)
    packages=(prometheus-client==0.26.0)
    modules=prometheus_client.openmetrics.parser
    space=60
    ;;
package)
    packages=(pytest==9.2.0 pytest-xdist==3.8.0 ipython==9.18.1 mypy==2.4.1 ipykernel==7.4.0)
    modules='pytest, xdist, IPython, mypy, ipykernel, jupyter_client'
    space=250
    ;;
ray)
    # Also for ordinary users, who may not read an interpreter below a home.
    base=/usr/bin/python3
    packages=(ray==2.60.0 s3fs==2026.9.0 'moto[s3,server]==5.2.5')
    modules='ray, s3fs, moto.server'
    space=1200
    ;;
tables)
    packages=(duckdb==2.0.0 polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 datafusion==55.0.0)
    modules='datafusion, duckdb, pandas, polars, pyarrow'
    space=1500
    ;;
tables-short)
    packages=(duckdb==2.0.0 pyarrow==26.0.1)
    modules='duckdb, pyarrow'
    space=500
    ;;
trainers)
    packages=(transformers==5.24.0 tensorboard==2.21.0 wandb==0.31.0 mlflow-skinny==3.17.2 opentelemetry-sdk==1.45.2
        psutil==7.2.2 tqdm==4.70.1)
    # They ask for PyTorch's CUDA libraries, which its own environment has or does without.
    alone=(accelerate==1.15.0 lightning==2.6.6 lightning-utilities==0.15.3 pytorch-lightning==2.6.6 torchmetrics==1.9.0)
    modules='torch, transformers, accelerate, lightning.pytorch, tensorboard, wandb, mlflow, opentelemetry.sdk'
    space=1200
    ;;
web)
    packages=(fastapi==0.165.0 uvicorn==0.54.0 uvloop==0.23.0 gunicorn==27.0.1)
    modules='fastapi, uvicorn, uvloop, gunicorn'
    space=100
    ;;
*)
    echo "venv.sh: no environment '$name': metrics, package, ray, tables, tables-short, trainers, web" >&2
    exit 1
    ;;
esac

folder=${2:-$(dirname "$0")/../.venv-$name}
mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
log=$folder.log

give_up() {
    echo "venv.sh $name: $1" >&2
    exit 1
}

works() { "$folder/bin/python" -c "import $modules" >>"$log" 2>&1; }

exec 9>"$folder.lock"
flock 9
if [ -e "$folder/.complete" ] && works; then
    echo "$folder/bin/python"
    exit 0
fi

: >"$log"
if [ "$name" = trainers ]; then
    base=${GCTRACE_TORCH_PYTHON:-$("$(dirname "$0")/torch-venv.sh")} || give_up "there is no PyTorch"
fi
"$base" -c 'import ensurepip' 2>>"$log" || give_up "no Python with venv (Debian, Ubuntu: apt-get install python3-venv)"
free=$(df --output=avail -m "$(dirname "$folder")" | tail -1)
[ "$free" -gt "$space" ] || give_up "less than $space MB of disk space left"
echo "venv.sh $name: installing ${packages[*]} into $folder (from the package index)" >&2
rm -rf "$folder"
"$base" -m venv "$folder" >>"$log" 2>&1 || give_up "the environment could not be created (see $log)"
if [ "$name" = trainers ]; then
    "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(echo "$folder"/lib/python3*/site-packages)/torch.pth"
fi
install() {
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@" >>"$log" 2>&1 ||
        give_up "$* could not be installed (see $log)"
}
install "${packages[@]}"
if [ "${#alone[@]}" -gt 0 ]; then install --no-deps "${alone[@]}"; fi
works || give_up "${packages[*]} installed, but not importable (see $log)"
touch "$folder/.complete"
echo "$folder/bin/python"
