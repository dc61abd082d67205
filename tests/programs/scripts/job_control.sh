# Foreground and background jobs with job control: job_control.sh PYTHON WORK
set -m
mkdir made
echo "mkdir $?"
"$1" "$2"
echo "python $?"
shuf -i 1-1
echo "shuf $?"
factor 12 | tac
echo "pipe ${PIPESTATUS[*]}"
numbers=$(seq 3 | tail -1)
echo "substitution $numbers $?"
(nl /dev/null; "$1" "$2") &
wait $!
echo "background $?"
(exit 3)
echo "subshell $?"
