package cudatest

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// TestFaults: each kernel has one fault, which the report must name, with the threads and the memory.
func TestFaults(t *testing.T) {
	const array = "GTC_SHARED(float, tile, [64]);\nint t = threadIdx.x;\n"
	cases := []struct {
		name, body string
		want       []string // in the report
	}{
		{"read_without_barrier", array + "tile[t] = t;\ny[t] = tile[t ^ 33];",
			[]string{"block (0,0,0): race on shared tile, byte 128 of 256: thread (1,0,0) reads (kernels.cu:", "thread (32,0,0) writes (kernels.cu:", "no barrier between"}},
		{"write_after_read", array + "tile[t] = t;\nsync();\ny[t] = tile[t ^ 32];\ntile[t] = 0;", []string{"race on shared tile", "writes"}},
		{"two_writers", array + "tile[t / 2] = t;", []string{"race on shared tile, byte 0 of 256: thread (0,0,0) writes", "thread (1,0,0) writes"}},
		{"within_a_warp", array + "tile[t] = t;\ny[t] = tile[t ^ 1];", []string{"race on shared tile"}},
		{"warp_barrier_only", array + "tile[t] = t;\nsync_warp();\ny[t] = tile[t ^ 32];", []string{"race on shared tile"}},
		{"halves", "GTC_SHARED(bf16, h, [64]);\nint t = threadIdx.x;\nh[t] = from_float<bf16>(1);\ny[t] = to_float(h[63 - t]);", []string{"race on shared h"}},
		{"atomic_and_plain", array + "if (t == 0) tile[0] = 0;\natomic_add(tile, 1.0f);", []string{"race on shared tile, byte 0"}},
		{"beyond_shared", array + "tile[t + 1] = t;", []string{"thread (63,0,0) writes 4 bytes outside of its shared arrays: shared tile, byte 256 of 256"}},
		{"beyond_dynamic", "GTC_DYNAMIC_SHARED(float, s);\ns[threadIdx.x + 128] = 1;", []string{"outside of its shared arrays"}},
		{"beyond_buffer", "y[blockIdx.x * 64 + threadIdx.x + 1] = 1;", []string{"block (1,0,0): thread (63,0,0) writes 4 bytes", "0 bytes after the end of pointer-0"}},
		{"before_buffer", "y[threadIdx.x] = y[-1];", []string{"thread (0,0,0) reads 4 bytes", "4 bytes before pointer-0"}},
		{"null", "float* p = nullptr;\np[threadIdx.x] = 1;", []string{"writes 4 bytes at", "outside of all memory"}},
		{"misaligned", "store(y + 1, load<4>(y));", []string{"accesses 16 bytes", "no multiple of that"}},
		{"barrier_in_branch", "if (threadIdx.x < 32) {\nsync();\n}\ny[threadIdx.x] = 1;", []string{"ends while others are at the barrier at kernels.cu:"}},
		{"two_barriers", "if (threadIdx.x < 32) {\nsync();\n} else {\nsync();\n}", []string{"is at the barrier at", "while others are at the one at"}},
		{"gone_before_barrier", "if (threadIdx.x == 40) {\nreturn;\n}\nsync();", []string{"ends while others are at the barrier"}},
		{"shuffle_in_branch", "if (threadIdx.x % 2) {\ny[threadIdx.x] = shfl_xor(1.0f, 2);\n}", []string{"waits for its warp in shfl_xor", "has ended"}},
		{"shuffle_and_barrier", "if (threadIdx.x % 2) {\ny[0] = warp_sum(1.0f);\n} else {\nsync();\n}", []string{"waits for its warp in shfl_xor", "is at a barrier"}},
		{"missing_wait", "GTC_SHARED(float, tile, [256]);\nint t = threadIdx.x;\ncp_async16(tile + 4 * t, y, true);\ncp_async_commit();\nsync();\ny[t] = tile[t];",
			[]string{"reads shared tile, byte ", "which an asynchronous copy of thread ", "still writes"}},
		{"wait_without_barrier", "GTC_SHARED(float, tile, [256]);\nint t = threadIdx.x;\ncp_async16(tile + 4 * t, y, true);\ncp_async_commit();\ncp_async_wait<0>();\ny[t] = tile[t];",
			[]string{"race on shared tile"}},
		{"copy_over_readers", "GTC_SHARED(float, tile, [256]);\nint t = threadIdx.x;\ntile[t] = 0;\nsync();\ny[t] = tile[63 - t];\nif (t >= 48) {\ncp_async16(tile + 4 * (t - 48), y, true);\n}\ncp_async_commit();\ncp_async_wait<0>();",
			[]string{"race on shared tile"}},
		{"blocks_write_one_word", "y[threadIdx.x] = blockIdx.x;",
			[]string{"race on pointer-0, byte 0 of 512: thread (0,0,0) of block (0,0,0) writes", "thread (0,0,0) writes", "nothing that orders them"}},
		{"blocks_add_without_atomic", "if (threadIdx.x == 0) {\ny[0] += 1;\n}", []string{"race on pointer-0, byte 0", "of block (0,0,0) writes"}},
		{"block_reads_what_another_writes", "y[blockIdx.x * 64 + threadIdx.x] = y[(1 - blockIdx.x) * 64 + threadIdx.x];", []string{"race on pointer-0", "of block (0,0,0) "}},
		{"warps_race_in_global_memory", "y[threadIdx.x ^ 32] = 1;\nif (blockIdx.x == 0) {\ny[threadIdx.x] += 1;\n}", []string{"race on pointer-0", "with nothing that orders"}},
		{"count_without_fence", "y[1 + blockIdx.x] = 1;\nsync();\nif (threadIdx.x == 0 && atomic_inc((u32*)y) == 1) {\ny[3] = y[1] + y[2];\n}", []string{"race on pointer-0"}},
		{"too_much_shared", "GTC_SHARED(float, big, [13000]);\nbig[threadIdx.x] = 0;", []string{"more than 49152 bytes"}},
	}
	var run []*Case
	for _, c := range cases {
		run = append(run, one(c.name, 2, 64, 512, "float* y", c.body, floats(128)))
	}
	RunAll(t, run)
	for i, c := range cases {
		if run[i].Err == nil {
			t.Errorf("%s: nothing was reported", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(run[i].Err.Error(), want) {
				t.Errorf("%s: the report %q lacks %q", c.name, run[i].Err, want)
			}
		}
	}
	if !t.Failed() {
		t.Log(run[0].Err)
	}
}

// TestEndless: a block that waits for what never comes is given up.
func TestEndless(t *testing.T) {
	t.Setenv("GTC_HOST_SECONDS", "0.2")
	c := one("spins", 1, 32, 0, "gtc::u32* y", "while (load_volatile(y) == 0) {\n}", floats(1))
	RunAll(t, []*Case{c})
	if c.Err == nil || !strings.Contains(c.Err.Error(), "thread (0,0,0) has not come to its end") {
		t.Errorf("the report is %v", c.Err)
	}
}

// TestNoFaults: what looks like those faults and is right.
func TestNoFaults(t *testing.T) {
	runAll(t,
		one("own_word", 1, 64, 0, "float* y", "GTC_SHARED(float, tile, [64]);\nint t = threadIdx.x;\ntile[t] = t;\ny[t] = tile[t];", floats(64)),
		one("last_block", 4, 64, 0, "float* y", "GTC_SHARED(bool, last, );\nif (threadIdx.x == 0) {\ny[4 + blockIdx.x] = 1;\nfence();\nlast = atomic_inc((u32*)y) == 3;\n}\nsync();\nif (last && threadIdx.x == 0) {\nfence();\ny[1] = y[4] + y[5] + y[6] + y[7];\n}", make([]byte, 256)),
		one("sums", 4, 64, 0, "float* y", "atomic_add(y, 1.0f);", floats(64)),
		one("in_warp", 1, 64, 0, "float* y", "GTC_SHARED(float, tile, [64]);\nint t = threadIdx.x;\ntile[t] = t;\nsync_warp();\nfloat v = tile[t ^ 1];\nsync_warp();\ntile[t] = v;", floats(64)),
		one("neighbours", 1, 64, 0, "gtc::bf16* y", "GTC_SHARED(bf16, h, [64]);\nint t = threadIdx.x;\nh[t] = from_float<bf16>(t);\nsync();\ny[t] = h[63 - t];", make([]byte, 128)),
		one("constant_table", 1, 64, 0, "float* y", "static const float table[4] = {1, 2, 3, 4};\ny[threadIdx.x] = table[threadIdx.x % 4];", floats(64)),
		one("local_array", 1, 64, 0, "float* y", "float a[8];\nfor (int i = 0; i < 8; i++) {\na[i] = y[i];\n}\nsync();\ny[threadIdx.x] = a[threadIdx.x % 8];", floats(64)),
		one("leaves_early", 3, 64, 0, "float* y", "if (blockIdx.x == 1) {\nreturn;\n}\nsync();\nif (blockIdx.x == 0) {\ny[threadIdx.x] = 1;\n}", floats(64)),
	)
}

// TestUninitialised: shared memory and workspaces begin with what is no number.
func TestUninitialised(t *testing.T) {
	c := one("sum", 1, 32, 128, "float* y", "GTC_SHARED(float, a, [32]);\nGTC_DYNAMIC_SHARED(bf16, b);\ny[threadIdx.x] = a[threadIdx.x];\ny[32 + threadIdx.x] = to_float(b[threadIdx.x]);", floats(64))
	runAll(t, c)
	for i, x := range Numbers(dtype.F32, c.Buffers[0]) {
		if x == x {
			t.Fatalf("element %d of uninitialised memory is %g", i, x)
		}
	}
}
