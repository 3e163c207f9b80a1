// Package launch starts the rank processes of a job on this machine and sees
// them to their end: `gtc run` is a thin layer over it.
package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// Options says what to start.
type Options struct {
	Bins []string // executable of each rank; its length is the number of ranks
	Args []string // arguments, equal for all ranks
	Env  []string // "K=V" beyond this process's environment
	Dir  string   // working folder; empty means this process's
	// Stdout gets rank 0's standard output as it is. Stderr gets rank 0's
	// standard error as it is, and each line of any other rank's output and
	// error with "[rank N] " before it. nil means os.Stdout and os.Stderr.
	Stdout, Stderr io.Writer
	// Grace is how long the other ranks may take to report and end by
	// themselves once one has failed or the job was cancelled, before they are
	// killed; default 5 s. It should exceed what a peer's death takes to be
	// noticed, not the collectives' time-out.
	Grace time.Duration
}

// PrefixVariable is set, to 1, for ranks whose lines get "[rank N] " from Local, so that they need not say it, and to 0 for rank 0,
// which need not repeat what they say.
const PrefixVariable = "GTC_PREFIXED"

// Exit codes of a launcher, see ExitCode.
const (
	ExitOK      = 0
	ExitFailed  = 1 // a rank failed without a code of its own
	ExitStart   = 2 // the job could not be started
	ExitPeer    = comm.ExitPeerLost
	exitSignals = 128
)

// Exit is how one rank's process ended.
type Exit struct {
	Rank   int
	Code   int            // exit code, or -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited by itself
	Killed bool           // by this launcher, after another rank had failed
	After  time.Duration  // since the start of the job
}

func (e Exit) failed() bool { return e.Code != 0 }

// String says how the rank ended, such as "exited with code 3".
func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// Error is the failure of a job; Rank is the one held responsible: the first
// that failed for a reason of its own, else the first that failed.
type Error struct {
	Rank int
	Exit Exit
	All  []Exit // every rank, by rank
	// Cause is set when the job was ended from outside: the context's error
	// or the signal that this process got.
	Cause error
}

// Error names the responsible rank, how it ended and how the others did.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Cause != nil {
		fmt.Fprintf(&b, "job ended: %v", e.Cause)
		return b.String()
	}
	fmt.Fprintf(&b, "rank %d %s", e.Rank, e.Exit)
	for _, x := range e.All {
		if x.Rank == e.Rank || !x.failed() {
			continue
		}
		if x.Killed {
			fmt.Fprintf(&b, "; rank %d was killed because it did not end", x.Rank)
		} else {
			fmt.Fprintf(&b, "; rank %d %s", x.Rank, x)
		}
	}
	return b.String()
}

// Unwrap gives the cause from outside, if any.
func (e *Error) Unwrap() error { return e.Cause }

// SignalError is the signal that ended a job through its launcher.
type SignalError struct{ Signal syscall.Signal }

// Error names the signal.
func (e SignalError) Error() string { return "got signal " + e.Signal.String() }

// ExitCode is the code with which a launcher should exit after Local returned
// err: 0 for success; the responsible rank's own code; 128 plus the number of
// the signal that ended it or that the launcher got; 2 when the job could not
// be started.
func ExitCode(err error) int {
	var job *Error
	var sig SignalError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &sig):
		return exitSignals + int(sig.Signal)
	case !errors.As(err, &job):
		return ExitStart
	case job.Exit.Signal != 0:
		return exitSignals + int(job.Exit.Signal)
	case job.Exit.Code > 0:
		return job.Exit.Code
	}
	return ExitFailed
}

// Local runs one process for each of o.Bins and returns when all have ended:
// nil when all exited with code 0, an *Error when one did not, another error
// when the job could not be started. The processes find each other through
// torchrun's variables on a loopback port, with a token of their own unless
// GTC_TOKEN is set. SIGINT and SIGTERM are passed on; a second one kills. When
// this process dies, so do they (Linux).
func Local(ctx context.Context, o Options) error {
	j, err := newJob(o)
	if err != nil {
		return err
	}
	defer j.listener.Close()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	started := make(chan error)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		// The kernel sends the parent-death signal when the thread that
		// started a process ends, so this one stays until the job is over.
		runtime.LockOSThread()
		started <- j.start()
		<-ended
	}()
	if err := <-started; err != nil {
		return err
	}
	return j.watch(ctx, signals)
}

// job is the state of Local. Only watch's goroutine uses it after start.
type job struct {
	o        Options
	listener *os.File
	port     int
	token    string
	begin    time.Time
	procs    []*exec.Cmd
	outputs  []*prefixWriter
	exits    chan Exit
}

func newJob(o Options) (*job, error) {
	if len(o.Bins) == 0 {
		return nil, errors.New("there are no rank programs to start")
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if o.Grace <= 0 {
		o.Grace = 5 * time.Second
	}
	// Rank 0 inherits the listening socket: no other process can take the
	// port between its choice and its use.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot open a loopback port for the ranks to connect to: %w", err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		return nil, fmt.Errorf("cannot hand the listening socket to rank 0: %w", err)
	}
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("cannot make a random token for the job: %w", err)
	}
	return &job{
		o: o, listener: f, port: ln.Addr().(*net.TCPAddr).Port, token: hex.EncodeToString(key),
		exits: make(chan Exit, len(o.Bins)),
	}, nil
}

// start starts all ranks, or none.
func (j *job) start() error {
	j.begin = time.Now()
	errLines := &lineLock{w: j.o.Stderr}
	for r := range j.o.Bins {
		cmd, err := j.command(r, errLines)
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			for _, c := range j.procs {
				c.Process.Kill()
				c.Wait()
			}
			return fmt.Errorf("cannot start rank %d: %w", r, err)
		}
		j.procs = append(j.procs, cmd)
	}
	for r, cmd := range j.procs {
		go func() {
			cmd.Wait()
			j.exits <- j.exit(r, cmd.ProcessState)
		}()
	}
	return nil
}

func (j *job) command(r int, errLines *lineLock) (*exec.Cmd, error) {
	// A relative path is the caller's, not relative to Dir.
	bin := j.o.Bins[r]
	if strings.ContainsRune(bin, filepath.Separator) {
		var err error
		if bin, err = filepath.Abs(bin); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(bin, j.o.Args...)
	cmd.Dir = j.o.Dir
	cmd.Env = append(os.Environ(), j.o.Env...)
	n := len(j.o.Bins)
	if os.Getenv("GTC_TOKEN") == "" {
		cmd.Env = append(cmd.Env, "GTC_TOKEN="+j.token)
	}
	cmd.Env = append(cmd.Env,
		fmt.Sprint("RANK=", r), fmt.Sprint("WORLD_SIZE=", n),
		fmt.Sprint("LOCAL_RANK=", r), fmt.Sprint("LOCAL_WORLD_SIZE=", n),
		"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", j.port),
		"GTC_PORT=", "TORCHELASTIC_USE_AGENT_STORE=", PrefixVariable+"=0")
	cmd.SysProcAttr = procAttr()
	// A process that a rank leaves behind may hold its output open.
	cmd.WaitDelay = time.Second
	if r == 0 {
		cmd.Stdout, cmd.Stderr = j.o.Stdout, errLines
		cmd.ExtraFiles = []*os.File{j.listener}
		cmd.Env = append(cmd.Env, "GTC_LISTEN_FD=3")
		return cmd, nil
	}
	cmd.Env = append(cmd.Env, "GTC_LISTEN_FD=", PrefixVariable+"=1")
	w := &prefixWriter{to: errLines, prefix: fmt.Sprintf("[rank %d] ", r)}
	cmd.Stdout, cmd.Stderr = w, w
	j.outputs = append(j.outputs, w)
	return cmd, nil
}

func (j *job) exit(r int, st *os.ProcessState) Exit {
	e := Exit{Rank: r, Code: -1, After: time.Since(j.begin)}
	if st == nil {
		return e
	}
	e.Code = st.ExitCode()
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
	}
	return e
}
