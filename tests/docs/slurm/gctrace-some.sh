#!/bin/sh
case $SLURM_PROCID in
0 | 3) exec gctrace -o 'gc-%h-%r.json.gz' -- "$@" ;;
*) exec "$@" ;;
esac
