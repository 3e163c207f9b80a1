#!/usr/bin/env bash
# What is tried on a machine with a GPU, from a folder that tests/gpu/prepare made: kernels against the processor's results,
# shared models against PyTorch's, and the benchmark table, with PyTorch's numbers beside where PyTorch is installed.
#
#	[OUT=FOLDER] run.sh [SECONDS]       # SECONDS is for everything, 340 by default
#
# Every result is in OUT/results.txt (default: this folder) as soon as it is there, the most important first, so that a run may
# be cut short. A part that the time left is too short for is left out, and says so. Ends with 1 when a kernel or a model differs.
#
# PARTS="kernels models gpt2 mlp8x512 micro resnet50 gpt1b3" selects parts. For a try without a GPU: STEPS, EVERY (steps in all,
# and between two looks at the clock), DEVICE=cpu (rival.py's), JOBS (processes that check at the same time), LIMIT (seconds
# of one check).
set -u
export LC_ALL=C
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$kit}
total=${1:-340}
parts=${PARTS:-card kernels models gpt2 mlp8x512 micro resnet50 gpt1b3}
jobs=${JOBS:-4}
begin=${EPOCHREALTIME%.*}
failed=0
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
results=$out/results.txt
tmp=$(mktemp -d)
torch_pid='' watch_pid=''
finish() {
	[ -z "$torch_pid" ] || kill "$torch_pid" 2>/dev/null
	[ -z "$watch_pid" ] || kill "$watch_pid" 2>/dev/null
	rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 1' INT TERM
trap '' PIPE # of a PyTorch that ended
cd "$kit" || exit 2

left() { echo $((total - (${EPOCHREALTIME%.*} - begin))); }
say() { printf '%s\n' "$*" | tee -a "$results"; }
title() { say ""; say "== $* ($((${EPOCHREALTIME%.*} - begin)) s)"; }

# room WHAT SECONDS reports whether so much time is left, and says so if not.
room() {
	[ "$(left)" -ge "$2" ] || { say "LEFT OUT: $1 needs $2 s, $(left) s are left"; return 1; }
}

# limited SECONDS COMMAND ... runs a command, at most so long and no longer than time is left.
limited() {
	local limit=$1 rest
	shift
	rest=$(left)
	[ "$rest" -gt 0 ] || return 124
	[ "$limit" -lt "$rest" ] || limit=$rest
	timeout -k 5 "$limit" "$@"
}

card() {
	title card
	say "$(date -u '+%F %H:%M UTC'), $(uname -sr), $(nproc) processors"
	limited 10 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv 2>&1 | tee -a "$results"
	LD_LIBRARY_PATH=bin limited 20 bin/gtc devices 2>&1 | tee -a "$results"
}

# Each file of kernels is a process of its own: a kernel that hangs or faults costs no others.
kernels() {
	title "kernels against the processor's results"
	room kernels 20 || return
	local file
	export -f limited left one_file
	export total begin tmp results
	find kernels -name '*.cases' | sort | xargs -r -P "$jobs" -I{} bash -c 'one_file {}'
	cat "$tmp"/kernels.* 2>/dev/null | awk '/ passed, / { p += $1; f += $3 } END { printf "kernels: %d cases passed, %d failed\n", p, f }' | tee -a "$results"
	for file in "$tmp"/kernels.*.bad; do
		[ ! -e "$file" ] || { failed=1; break; }
	done
}

one_file() {
	local name log rc
	name=$(basename "$1" .cases)
	log=$tmp/kernels.$name
	limited "${LIMIT:-45}" bin/kernels "$1" >"$log" 2>&1
	rc=$?
	if [ $rc -ne 0 ]; then
		: >"$log.bad"
		{ echo "FAIL $name (exit $rc)"; grep -v ' passed, ' "$log" | cut -c 1-300 | head -n 12; } >"$log.text"
		cat "$log.text" >>"$results"
		cat "$log.text"
	fi
}

# The tolerance of a check. fp32 is that of every target. Half precision is held to what the same programs keep on the CPU: its
# roundings, of 8 or 11 bits, and that is the size of the numbers. tf32 and fp16 round to 11 bits, too, but near zero that
# decides for one side of a ReLU here and there, so that gradients of mlp are off by 3e-2. Batch normalisation in bf16 amplifies
# roundings: its gradients are differences of large sums, off by 0.1 on the CPU, too.
tolerance() {
	case $1 in
	*-fp32-*) echo 1e-4 ;;
	*-tf32-* | *-fp16-*) echo 5e-2 ;;
	convnet_bn-* | *resnet-* | unet_tiny-*) echo 0.2 ;;
	*) echo 2e-2 ;;
	esac
}

models() {
	title "shared models against PyTorch's losses, outputs, gradients and curves"
	room models 20 || return
	export -f limited left tolerance one_check
	export total begin tmp results
	GTC_TUNE_CACHE=$tmp/tune-checks xargs -r -P "$jobs" -L 1 bash -c 'one_check "$@"' check <checks
	local bad
	bad=$(find "$tmp" -name 'check.*.bad' | wc -l)
	say "models: $(($(wc -l <checks) - bad)) of $(wc -l <checks) within their tolerance"
	[ "$bad" -eq 0 ] || failed=1
}

# one_check PROGRAM FILE PRECISION DP TP
one_check() {
	local log=$tmp/check.$1 rc flags=()
	[ "$4" -eq 1 ] || flags+=(--dp "$4")
	[ "$5" -eq 1 ] || flags+=(--tp "$5")
	[ "$3" = fp32 ] || flags+=(--precision "$3" --steps 3) # later steps train on what the roundings have made
	# Ranks that share a card talk by way of the host, which every version of NCCL leaves them.
	LD_LIBRARY_PATH=bin GTC_COMM=auto limited "${LIMIT:-45}" bin/gtc check "models/$2" --reference "models/${2%%.*}.npz" --built "programs/$1" \
		--target cuda "${flags[@]}" --tol "$(tolerance "$1")" >"$log" 2>&1
	rc=$?
	if [ $rc -eq 0 ]; then
		printf 'ok   %-28s %s\n' "$1" "$(tail -n 1 "$log")" >"$log.text"
	else
		: >"$log.bad"
		{ printf 'FAIL %-28s (exit %d)\n' "$1" $rc; cut -c 1-300 "$log" | tail -n 20; } >"$log.text"
	fi
	cat "$log.text" >>"$results"
	cat "$log.text"
}

# stamped COMMAND ... puts the microseconds since its start before each line of a command.
stamped() {
	local start=${EPOCHREALTIME/[.,]/} line
	"$@" 2>"$tmp/errors" | while IFS= read -r line; do
		echo "$((${EPOCHREALTIME/[.,]/} - start)) $line"
	done
	return "${PIPESTATUS[0]}"
}

# trained NAME FOLDER STEPS EVERY trains a program; the lines are in $tmp/NAME.
trained() {
	local how=(--random-weights --allow-nan --checkpoint-dir none --json --steps "$3" --log-every "$4" --data "$data")
	[ -z "$tokens" ] || how+=(--tokens "$tokens")
	stamped limited 90 "programs/$2/bin/ranks" "${how[@]}" >"$tmp/$1"
	local rc=$?
	if [ $rc -ne 0 ]; then
		say "FAIL $1 (exit $rc): $(tail -n 3 "$tmp/errors" | cut -c 1-400)"
		failed=1
	fi
	return $rc
}

# median [FACTOR] of the numbers of standard input, as "median (lowest-highest)".
median() {
	sort -g | awk -v f="${1:-1}" '{ v[NR] = $1 * f } END { if (NR) printf "%.6g %.6g %.6g", v[int((NR + 1) / 2)], v[1], v[NR]; else print "nan nan nan" }'
}

# windows NAME are the seconds of a step in the last two thirds of a run.
windows() {
	sed -n 's/.*"event":"step","step":[0-9]*,.*"seconds":\([0-9.e+-]*\).*/\1/p' "$tmp/$1" | awk '{ v[NR] = $1 } END { for (i = int(NR / 3) + 1; i <= NR; i++) print v[i] }'
}

number() { sed -n "s/.*\"$2\":\\([0-9.]*\\).*/\\1/p" "$tmp/$1" | tail -n 1; }
gib() { awk -v b="${1:-0}" 'BEGIN { printf "%.2f", b / 1073741824 }'; }

# gtc ROUND measures the program once.
gtc() {
	local log=gtc.$name.$1 m
	trained "$log" "$folder" "$steps" "$every" || return
	read -r m lo hi <<<"$(windows "$log" | median)"
	echo "$m" >>"$tmp/$name.gtc"
	say "$(awk -v n="$name" -v r="$1" -v m="$m" -v lo="$lo" -v hi="$hi" -v per="$per" -v unit="$unit" 'BEGIN {
		printf "%-9s gtc           round %d: %.1f us/step (%.1f to %.1f), %.0f %s", n, r, m * 1e6, lo * 1e6, hi * 1e6, per / m, unit }'), $(gib "$(number "$log" device_bytes)") GiB of the card in use, arena $(gib "$(number "$log" arena_bytes)") GiB"
}

# rival VARIANT ROUND has PyTorch measure once; its process stays for more rounds.
rival() {
	local line m
	[ -n "$torch_pid" ] && [ "$(left)" -gt 0 ] || return 1
	if [ "$1$2" = compile1 ] && ! room "$name: torch $1" "$([ "$name" = gpt1b3 ] && echo 75 || echo 35)"; then
		return 1
	fi
	echo "$1" >&"$to_torch" || return 1
	if ! IFS= read -r -t "$(($(left) < 100 ? $(left) : 100))" -u "$from_torch" line; then
		say "$name: PyTorch $1 gave nothing: $(tail -n 2 "$tmp/torch.err" | cut -c 1-300)"
		quit
		return 1
	fi
	echo "$line" >"$tmp/torch.$name.$1"
	m=$(number "torch.$name.$1" median)
	[ -n "$m" ] || { say "$name: PyTorch $1: ${line:0:300}"; return 1; }
	echo "$m" >>"$tmp/$name.$1"
	say "$(awk -v n="$name" -v v="$1" -v r="$2" -v m="$m" -v per="$per" -v unit="$unit" 'BEGIN {
		printf "%-9s torch %-7s round %d: %.1f us/step, %.0f %s", n, v, r, m * 1e6, per / m, unit }'), $(gib "$(number "torch.$name.$1" bytes)") GiB allocated, first step $(number "torch.$name.$1" first) s"
}

# start starts PyTorch's side of a model: rival.py reads variants from its standard input, a line each.
start() {
	[ -n "$python" ] && "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' || return 1
	coproc torch { exec "$python" rival.py "${shape[@]}" --device "${DEVICE:-cuda}" --steps "$steps" 2>"$tmp/torch.err"; }
	torch_pid=$torch_PID
	exec {to_torch}>&"${torch[1]}" {from_torch}<&"${torch[0]}"
}

quit() {
	[ -n "$torch_pid" ] || return
	exec {to_torch}>&- {from_torch}<&-
	kill "$torch_pid" 2>/dev/null
	wait "$torch_pid" 2>/dev/null
	torch_pid=
}

# ratio VARIANT compares the rounds so far: each of gtc's with each of PyTorch's.
ratio() {
	[ -s "$tmp/$name.gtc" ] && [ -s "$tmp/$name.$1" ] || return
	local r lo hi
	read -r r lo hi <<<"$(while read -r a; do awk -v a="$a" '{ print $1 / a }' "$tmp/$name.$1"; done <"$tmp/$name.gtc" | median)"
	say "$(printf '%-9s gtc is %.2f times as fast as torch %s (%.2f to %.2f)' "$name" "$r" "$1" "$lo" "$hi")"
}

# first measures the time from the start of the process to the end of its first step, without and with what autotuning keeps.
first() {
	local how
	[ "$name" != gpt1b3 ] || return 0 # whose weights take their time each time
	for how in uncached cached; do
		trained "first.$name.$how" "$folder" 1 1 || return
		say "$name first step $(awk '/"event":"step"/ { printf "%.2f", $1 / 1e6; exit }' "$tmp/first.$name.$how") s after the start of the process, autotune $how"
	done
}

# profile tells where the time of a step goes, with a wait after each call: its sum is more than a step takes.
profile() {
	[ "$(left)" -ge 20 ] || return
	GTC_PROFILE=1 trained "profile.$name" "$folder" "$((every * 2))" "$every" || return
	say "$name, where the time goes (call by call: $out/profile.$name):"
	cp "$tmp/errors" "$out/profile.$name"
	awk '/ by call / { exit } /^ / { print }' "$tmp/errors" | cut -c 1-110 | head -n 24 | tee -a "$results"
}

# watch samples what nvidia-smi says is in use while a round runs.
watch() {
	nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 500 >"$tmp/used" 2>/dev/null &
	watch_pid=$!
}
unwatch() {
	kill "$watch_pid" 2>/dev/null
	wait "$watch_pid" 2>/dev/null
	watch_pid=
	[ ! -s "$tmp/used" ] || say "$name nvidia-smi: $(sort -g "$tmp/used" | tail -n 1) MiB in use"
}

# compare NAME SECONDS VARIANT ... measures a model of the table: gtc, then PyTorch's variants, and again while time is left.
compare() {
	name=$1
	local need=$2 line round kind batch layers width heads vocab seq v
	shift 2
	line=$(grep "^$name " bench 2>/dev/null) || { say "$name is not in this kit"; return; }
	read -r name folder kind batch layers width heads vocab seq <<<"$line"
	title "$folder, batch $batch"
	room "$name" "$need" || return
	shape=("$kind" --batch "$batch" --layers "$layers" --width "$width" --heads "$heads" --vocab "$vocab" --seq "$seq")
	per=$batch unit=samples/s
	[ "$kind" != gpt ] || { per=$((batch * seq)) unit=tokens/s; }
	pace
	make_data "$kind" "$batch" "$width" "$vocab" "$seq" || { say "$name: no data (python3 makes them)"; return; }
	export GTC_TUNE_CACHE=$tmp/tune
	first || return
	watch
	gtc 1
	unwatch
	for round in 1 2; do
		[ $round -eq 1 ] || { [ "$name" != gpt1b3 ] && [ "$(left)" -ge 25 ]; } || break # gtc's and PyTorch's 1.3 B may not fit one card
		if [ $round -eq 1 ]; then start || say "$name: no PyTorch here"; else gtc 2; fi
		for v in "$@"; do
			[ $round -eq 1 ] || [ -s "$tmp/$name.$v" ] || continue
			rival "$v" $round && ratio "$v"
		done
		[ -n "$torch_pid" ] || break
	done
	quit
	profile
}

# pace chooses how many steps are trained, and how many between two looks at the clock: looking ends what is queued.
pace() {
	case $name in
	mlp8x512) steps=6000 every=500 ;;
	gpt1b3) steps=15 every=3 ;;
	*) steps=30 every=5 ;;
	esac
	steps=${STEPS:-$steps} every=${EVERY:-$every}
}

# make_data KIND BATCH WIDTH VOCAB SEQ sets data and tokens. Random tokens of the whole vocabulary take Python; else they are bytes.
make_data() {
	tokens=
	if [ "$1" = gpt ]; then
		data=$tmp/tokens.$4 tokens=u16
		[ -s "$data" ] || { [ -n "$python" ] && "$python" rival.py tokens --vocab "$4" --out "$data"; } && return
		data=$tmp/tokens tokens=u8
		[ "$4" -ge 256 ] && head -c 4000000 /dev/urandom >"$data"
		return
	fi
	data=$tmp/$name.npz
	[ -n "$python" ] && "$python" rival.py "$1-data" --batch "$2" --width "$3" --vocab "$4" --out "$data"
}

micro() {
	title "single kernels: gtc, then PyTorch"
	room micro 15 || return
	local file
	for file in kernels/*.bench; do
		[ ! -e "$file" ] || limited 40 bin/kernels -bench "$file" 2>&1 | tee -a "$results"
	done
	[ -z "$python" ] || limited 40 "$python" rival.py micro --device "${DEVICE:-cuda}" 2>&1 | tee -a "$results"
}

# bin/ranks is the program of the folder in whose bin it is called: hard links, for a program looks where it is itself.
for program in programs/*/; do
	mkdir -p "$program/bin" && { ln -f bin/ranks "$program/bin/ranks" 2>/dev/null || cp bin/ranks "$program/bin/ranks"; }
done
python=$(command -v "${PYTHON:-python3}" || command -v python || true)
for part in $parts; do
	case $part in
	card | kernels | models | micro) "$part" ;;
	gpt2) compare gpt2 30 eager compile ;;
	mlp8x512) compare mlp8x512 20 graph eager ;;
	resnet50) compare resnet50 30 compile eager ;;
	gpt1b3) compare gpt1b3 45 eager compile ;;
	*) say "no part $part" ;;
	esac
done
say ""
say "finished after $((${EPOCHREALTIME%.*} - begin)) s"
exit $failed
