package cpu

import (
	"runtime"
	"testing"
)

func TestThreads(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		wanted, ranks int
		omp           string
		want          int
	}{
		{3, 2, "7", 3},
		{0, 2, "7", 7},
		{0, 2, " 4,2", 4},
		{0, 1, "", procs},
		{0, 1000, "", 1},
		{0, 0, "", procs},
	} {
		got, err := Threads(c.wanted, c.ranks, func(string) string { return c.omp })
		if err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	for _, bad := range []string{"0", "-1", "many"} {
		if _, err := Threads(0, 1, func(string) string { return bad }); err == nil {
			t.Errorf("OMP_NUM_THREADS=%s is taken", bad)
		}
	}
}

func TestModelIsNotEmpty(t *testing.T) {
	if Model() == "" {
		t.Error("no name")
	}
}
