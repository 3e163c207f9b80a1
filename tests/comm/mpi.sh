#!/usr/bin/env bash
# The mpi backend, under Open MPI: the conformance suite between 1 to 5 ranks, a rank that hangs, and one training (dp 2, pp 2, ZeRO 1) that must
# give the same losses, parameters and state as by gtc's own collectives, bit for bit.
#
#	tests/comm/mpi.sh          # GTC_LONG=1 adds buffers of 100 MB
#
# Where mpicc or mpirun is missing it installs libopenmpi-dev and openmpi-bin with apt-get, and otherwise says what is
# missing and exits with status 2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && apt-get install -y -qq libopenmpi-dev openmpi-bin
	else
		echo "there is no MPI here: install libopenmpi-dev and openmpi-bin" >&2
		exit 2
	fi
fi
mpirun=(mpirun)
if mpirun --version | grep -q "Open MPI"; then
	mpirun+=(--oversubscribe)
	[ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

echo "== conformance"
CC=mpicc go vet -tags mpi ./distributed/comm/mpi
CC=mpicc go test -tags mpi -c -o "$dir/mpi.test" ./distributed/comm/mpi
for n in 1 2 3 4 5; do
	timeout 300 "${mpirun[@]}" -n "$n" "$dir/mpi.test" -test.run TestConformance >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
	[ "$(grep -c '^PASS$' "$dir/log")" = "$n" ] || { cat "$dir/log"; echo "not all of $n ranks passed"; exit 1; }
	echo "$n ranks passed"
done

echo "== a rank that hangs"
if GTC_MPI_TEST_HUNG=1 timeout 60 "${mpirun[@]}" -n 3 "$dir/mpi.test" -test.run TestHung >"$dir/log" 2>&1; then
	cat "$dir/log"
	echo "the job with a rank that hangs ended well"
	exit 1
fi
grep -q "as it should be: rank [0-2] hung: all_reduce of \"d_w\"" "$dir/log" || { cat "$dir/log"; exit 1; }
echo "the others say so and end"

echo "== training"
go build -o "$dir/gtc" ./cmd/gtc
"$dir/gtc" compile examples/mnist/mlp.onnx --batch 32 --dp 2 --pp 2 --zero 1 --microbatches 4 --loss cross_entropy --optimizer adamw --lr 2e-3 --clip-norm 1 \
	--comm mpi -o "$dir/out" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
train() { # comm
	rm -rf "$dir/out/checkpoints"
	GTC_COMM=$1 GTC_DEBUG=1 GTC_HASH=1 timeout 120 "${mpirun[@]}" -n 4 "$dir/out/bin/ranks" --data examples/mnist/train.npz --steps 60 \
		>"$dir/$1.log" 2>&1 || { cat "$dir/$1.log"; exit 1; }
	grep -o 'hash rank [0-9]* step .*' "$dir/$1.log" | sort -V >"$dir/$1.hashes"
}
train mpi
train shm
grep -q "comm: rank 0 of 4: collectives by mpi" "$dir/mpi.log" || { cat "$dir/mpi.log"; echo "MPI was not used"; exit 1; }
grep -q "over shared memory" "$dir/shm.log" || { cat "$dir/shm.log"; echo "shared memory was not used"; exit 1; }
[ "$(wc -l <"$dir/mpi.hashes")" = 240 ] || { cat "$dir/mpi.log"; echo "not every step of every rank was printed"; exit 1; }
diff "$dir/mpi.hashes" "$dir/shm.hashes"
echo "equal on all ranks in 60 steps; the last: $(tail -n 1 "$dir/mpi.hashes")"
