package main

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/mem"
)

// rankVariable makes this program a rank; its value is "BYTES WARM TIMES".
const rankVariable = "GTC_BENCH_COMM_RANK"

// processes is gtc's side: this program, once for each rank.
type processes struct{}

func (processes) title() string { return "gtc local" }

func (processes) run(ranks int, o options) ([]float64, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	socket, err := ln.(*net.TCPListener).File() // rank 0 inherits it: nobody can take the port in between
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmds := make([]*exec.Cmd, ranks)
	var out strings.Builder
	for r := range cmds {
		c := exec.Command(self)
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", rankVariable, o.bytes, o.warm, o.times), "MASTER_ADDR=127.0.0.1",
			fmt.Sprint("MASTER_PORT=", port), fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", ranks), fmt.Sprint("LOCAL_RANK=", r))
		c.Stderr = os.Stderr
		if r == 0 {
			c.Stdout = &out
			c.ExtraFiles, c.Env = []*os.File{socket}, append(c.Env, "GTC_LISTEN_FD=3")
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		cmds[r] = c
	}
	for _, c := range cmds {
		err = errors.Join(err, c.Wait())
	}
	if err != nil {
		return nil, err
	}
	return numbers(out.String(), o.times)
}

// numbers reads a line of seconds for each all_reduce.
func numbers(text string, want int) ([]float64, error) {
	var list []float64
	for _, field := range strings.Fields(text) {
		x, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	if len(list) != want {
		return nil, fmt.Errorf("%d times were printed, not %d", len(list), want)
	}
	return list, nil
}

// rankMain is one rank of gtc's side, and its exit status.
func rankMain() int {
	if err := rank(); err != nil {
		fmt.Fprintln(os.Stderr, "bench/comm:", err)
		return 1
	}
	return 0
}

func rank() error {
	var bytes, warm, times int
	if _, err := fmt.Sscan(os.Getenv(rankVariable), &bytes, &warm, &times); err != nil {
		return fmt.Errorf("%s: %w", rankVariable, err)
	}
	opt, err := comm.FromEnv()
	if err != nil {
		return err
	}
	arena, err := mem.New(bytes)
	if err != nil {
		return err
	}
	c, err := comm.Connect(opt)
	if err != nil {
		return err
	}
	// As the communication thread of a rank program is.
	runtime.LockOSThread()
	buf := arena.Bytes(0, bytes)
	floats := unsafe.Slice((*float32)(arena.Base()), bytes/4)
	site := &comm.Site{Tensor: "buffer"}
	for t := -warm; t < times; t++ {
		for i := range floats {
			floats[i] = float32(c.Rank() + 1)
		}
		if err := c.Barrier(site); err != nil {
			return err
		}
		start := time.Now()
		if err := c.AllReduce(site, buf, comm.F32, comm.Sum); err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		if c.Rank() == 0 && t >= 0 {
			fmt.Printf("%.9f\n", took)
		}
	}
	n := c.Size()
	for i, x := range floats {
		if want := float32(n*(n+1)) / 2; x != want {
			return fmt.Errorf("rank %d: element %d is %g, want %g", c.Rank(), i, x, want)
		}
	}
	return c.Close()
}

//go:embed mpi/allreduce.c
var mpiSource []byte

// mpi is Open MPI's side.
type mpi struct {
	dir     string
	version string
}

// startMPI compiles mpi/allreduce.c into a temporary folder.
func startMPI() (*mpi, error) {
	for _, tool := range []string{"mpicc", "mpirun"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("there is no MPI to compare with: %w (on Debian: apt-get install libopenmpi-dev openmpi-bin; or -only gtc)", err)
		}
	}
	dir, err := os.MkdirTemp("", "gtc-bench-")
	if err != nil {
		return nil, err
	}
	m := &mpi{dir: dir, version: "mpi"}
	source := filepath.Join(dir, "allreduce.c")
	if err := os.WriteFile(source, mpiSource, 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := exec.Command("mpicc", "-O3", "-o", filepath.Join(dir, "allreduce"), source)
	if out, err := c.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w\n%s", c, err, out), os.RemoveAll(dir))
	}
	return m, nil
}

func (m *mpi) title() string { return m.version }

func (m *mpi) run(ranks int, o options) ([]float64, error) {
	args := []string{"-n", strconv.Itoa(ranks)}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	if ranks > runtime.NumCPU() {
		args = append(args, "--oversubscribe")
	}
	args = append(args, filepath.Join(m.dir, "allreduce"), strconv.Itoa(o.bytes), strconv.Itoa(o.warm), strconv.Itoa(o.times))
	c := exec.Command("mpirun", args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(string(out), "\n")
	m.version = version
	return numbers(rest, o.times)
}
