#!/bin/bash
# slurmd.sh FOLDER NODE...: starts Slurm with these nodes, all on this machine, each with a host name
# of its own. They run until this script is killed.
set -eu
folder=$1
shift
programs=$SCHEDULERS/usr
export SLURM_CONF=$folder/slurm.conf
export LD_LIBRARY_PATH=$programs/lib/x86_64-linux-gnu/slurm-wlm:$programs/lib/x86_64-linux-gnu
mkdir -p "$folder/state"
cat >"$SLURM_CONF" <<END
ClusterName=docs
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort=16817
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
PluginDir=$programs/lib/x86_64-linux-gnu/slurm-wlm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
END
port=16820
for node; do
    port=$((port + 1))
    echo "NodeName=$node NodeHostname=$node NodeAddr=127.0.0.1 Port=$port CPUs=8" >>"$SLURM_CONF"
done
setpriv --pdeathsig KILL "$programs/sbin/slurmctld-wlm" -D &
for node; do
    unshare --uts sh -c "hostname $node && exec setpriv --pdeathsig KILL \"\$@\"" sh \
        "$programs/sbin/slurmd-wlm" -D -N "$node" -d "$programs/sbin/slurmstepd-wlm" &
done
wait
