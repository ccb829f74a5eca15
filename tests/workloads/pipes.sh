# Pipes, subshells, command substitution, here-documents, traps and background jobs.
# The argument says how often.
set -e -o pipefail
rounds=${1:-1}
trap 'echo "leaving with $?"' EXIT
trap 'caught=$((caught + 1))' USR1
caught=0
total=0
for ((round = 1; round <= rounds; round++)); do
    lines=$(for ((i = 0; i < 200; i++)); do echo "$((i * 7919 % 1009)) line"; done | sort -n | uniq | wc -l)
    (cd / && exec test -d tmp) && total=$((total + lines))
    words=$( (echo one; echo two) | tr a-z A-Z | while read -r word; do printf '%s.' "$word"; done)
    total=$((total + ${#words}))
    sum=$(awk '{ s += $1 } END { print s }' <<EOF
$(seq 1 100)
EOF
    )
    total=$((total + sum))
    sh -c 'exit 3' &
    status=0
    wait $! || status=$?
    total=$((total + status))
    kill -USR1 $$
done
echo "total $total, caught $caught"
exit 5
