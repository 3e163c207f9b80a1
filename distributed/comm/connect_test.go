package comm_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
)

// refused runs two ranks that must not come together and checks both errors.
func refused(t *testing.T, optOf func(r int) Options, want ...[]string) {
	t.Helper()
	cs, errs := openAll(2, func(r int) Options {
		o := optOf(r)
		o.ConnectTimeout = 5 * time.Second
		if o.Token != "" || r == 0 && optOf(1).Token != "" {
			o.ConnectTimeout = time.Second // rank 0 waits for a better rank 1
		}
		return o
	}, meet(t, loopback))
	abandon(cs)
	for r, parts := range want {
		if errs[r] == nil {
			t.Fatalf("rank %d connected", r)
		}
		for _, p := range parts {
			if !strings.Contains(errs[r].Error(), p) {
				t.Errorf("rank %d: error does not have %q: %v", r, p, errs[r])
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	refused(t, func(r int) Options { return Options{Plan: []string{"aaaa", "bbbb"}[r]} },
		[]string{`rank 1 runs plan "bbbb", rank 0 runs plan "aaaa"`}, []string{`rank 1 runs plan "bbbb", rank 0 runs plan "aaaa"`})
	refused(t, func(r int) Options { return Options{World: 2 + r} },
		[]string{"rank 1 was started as one of 3 ranks, but rank 0 as one of 2"}, []string{"rank 1 was started as one of 3 ranks, but rank 0 as one of 2"})
	refused(t, func(r int) Options { return Options{Token: []string{"correct horse", "battery staple"}[r]} },
		[]string{"rank 1 did not join", "wrong token"}, []string{"wrong token", "GTC_TOKEN"})
	refused(t, func(r int) Options { return Options{Token: []string{"correct horse", ""}[r]} },
		[]string{"wrong token"}, []string{"GTC_TOKEN"})
	refused(t, func(r int) Options { return Options{Addr: "192.0.2.1"} },
		[]string{"not a loopback address", "GTC_TOKEN"}, []string{"not a loopback address", "GTC_TOKEN"})
	refused(t, func(r int) Options { return Options{Addr: "192.0.2.1", Token: "short"} },
		[]string{"shorter than 8"}, []string{"shorter than 8"})
}

func TestToken(t *testing.T) {
	for _, kind := range []string{"shm", "tcp"} {
		cs := open(t, kind, 3, Options{Token: "correct horse"})
		must(t, cs, func(c Communicator) error { return commtest.Reductions(c, 100, F32, Sum) })
		closeAll(t, cs)
	}
}

// TestNetworkAddress meets at an address that is not loopback.
func TestNetworkAddress(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		for _, kind := range []string{"auto", "tcp"} {
			cs := open(t, kind, 3, Options{Addr: ip.IP.String(), Token: "correct horse"})
			must(t, cs, func(c Communicator) error { return commtest.Reductions(c, 100, F32, Sum) })
			closeAll(t, cs)
		}
		return
	}
	t.Skip("this machine has no address but loopback")
}

// TestTokenIsSecret listens in on a handshake.
func TestTokenIsSecret(t *testing.T) {
	const token = "a very secret token"
	a, b := net.Pipe()
	tap := &tapped{Conn: a}
	if err := Handshake(tap, b, token); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(tap.seen.String(), token) || tap.seen.Len() == 0 {
		t.Error("the token went over the wire")
	}
}

type tapped struct {
	net.Conn
	seen strings.Builder
}

func (c *tapped) Write(b []byte) (int, error) { c.seen.Write(b); return c.Conn.Write(b) }
func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.seen.Write(b[:n])
	return n, err
}

// TestStranger sends rubbish to rank 0 while the ranks meet.
func TestStranger(t *testing.T) {
	m := meet(t, loopback)
	cs, errs := openAll(2, func(r int) Options {
		if r == 1 {
			for _, junk := range []string{"GET / HTTP/1.0\r\n\r\n", "\xff\xff\xff\xff", "\x02\x00\x00\x00{}", ""} {
				conn, err := DialFor(fmt.Sprint("127.0.0.1:", m.Port), time.Now().Add(5*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.Write([]byte(junk))
			}
		}
		return Options{}
	}, m)
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	closeAll(t, cs)
}

func TestMissingRank(t *testing.T) {
	m := meet(t, loopback)
	fd, err := m.FD()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Connect(Options{Rank: 0, World: 3, Addr: "127.0.0.1", Port: m.Port, ListenFD: fd, ConnectTimeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "ranks 1, 2 did not join") {
		t.Error(err)
	}
	_, err = Connect(Options{Rank: 1, World: 3, Addr: "127.0.0.1", Port: m.Port, ConnectTimeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "cannot reach rank 0") {
		t.Error(err)
	}
}

// TestNoSharedMemory falls back to TCP where no file can be made, unless shared
// memory was asked for, and leaves no file behind where it can.
func TestNoSharedMemory(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "missing")
	cs := open(t, "auto", 2, Options{ShmDir: nowhere})
	if got := BackendName(cs[0]); got != "*comm.tcp" {
		t.Errorf("backend is %s, want tcp", got)
	}
	must(t, cs, func(c Communicator) error { return commtest.Reductions(c, 100, F32, Sum) })
	closeAll(t, cs)
	refused(t, func(int) Options { return Options{ShmDir: nowhere, Transport: "shm"} },
		[]string{"shared memory"}, []string{"shared memory"})

	dir := t.TempDir()
	cs = open(t, "auto", 2, Options{ShmDir: dir})
	if got := BackendName(cs[0]); got != "*comm.shm" {
		t.Errorf("backend is %s, want shm", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
	closeAll(t, cs)
}

func TestFromEnv(t *testing.T) {
	type vars = map[string]string
	cases := []struct {
		name string
		env  vars
		want Options
		err  string
	}{
		{"alone", vars{}, Options{World: 1}, ""},
		{"torchrun", vars{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
			"TORCHELASTIC_USE_AGENT_STORE": "True"}, Options{Rank: 3, World: 8, LocalRank: 1, Addr: "127.0.0.1", Port: 29501}, ""},
		{"torchrun on one host", vars{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node7.example", "MASTER_PORT": "29500"},
			Options{Rank: 1, World: 2, LocalRank: 1, Addr: "127.0.0.1", Port: 29500}, ""},
		{"options", vars{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node7", "MASTER_PORT": "1", "GTC_PORT": "77",
			"GTC_TOKEN": "12345678", "GTC_TIMEOUT": "5s", "GTC_COMM": "tcp", "GTC_LISTEN_FD": "3"},
			Options{World: 2, Addr: "node7", Port: 77, Token: "12345678", Timeout: 5 * time.Second, Transport: "tcp", ListenFD: 3}, ""},
		{"openmpi", vars{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
			"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_PORT": "99"}, Options{Rank: 1, World: 4, LocalRank: 1, Addr: "127.0.0.1", Port: 99}, ""},
		{"slurm", vars{"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_NUM_NODES": "2",
			"SLURM_JOB_NODELIST": "gpu[003-004]", "MASTER_PORT": "99", "GTC_TOKEN": "12345678"},
			Options{Rank: 5, World: 8, LocalRank: 1, Addr: "gpu003", Port: 99, Token: "12345678"}, ""},
		{"no token", vars{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node7", "MASTER_PORT": "1"}, Options{}, "GTC_TOKEN"},
		{"no address", vars{"RANK": "0", "WORLD_SIZE": "2"}, Options{}, "MASTER_ADDR"},
		{"not a number", vars{"RANK": "one", "WORLD_SIZE": "2"}, Options{}, `RANK="one"`},
		{"outside", vars{"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, Options{}, "rank 2 is not in a world of 2"},
		{"time-out", vars{"GTC_TIMEOUT": "soon"}, Options{}, `GTC_TIMEOUT="soon"`},
	}
	for _, tc := range cases {
		got, err := Env(func(k string) string { return tc.env[k] })
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error is %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		Fill(&got)
		Fill(&tc.want)
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.name, got, err, tc.want)
		}
	}
	a := vars{"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "17"}
	o, err := Env(func(k string) string { return a[k] })
	if err != nil || o.Port < 20000 || o.Port >= 30000 {
		t.Errorf("port made from the job's number: %+v, %v", o, err)
	}
}

func TestUnknownTransport(t *testing.T) {
	for name, want := range map[string]string{
		"mpi":     "this program was built without MPI: compile with --comm mpi",
		"pigeons": `transport "pigeons" (GTC_COMM) is not one of auto, shm, tcp`,
	} {
		_, err := Connect(Options{World: 2, Port: 1, Transport: name})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := Connect(Options{World: 2, Port: 1, Algorithm: "luck"})
	if err == nil || !strings.Contains(err.Error(), `algorithm "luck" is not auto, direct, halving or ring (GTC_COMM_ALGORITHM)`) {
		t.Error(err)
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "gpu[003-006,9],x": "gpu003", "gpu[7]": "gpu7", "n[1,3]-ib": "n1-ib", "x,gpu[1-2]": "x", "g[": "g",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("first of %q is %q, want %q", list, got, want)
		}
	}
}
