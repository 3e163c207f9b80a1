// Command gtc compiles forward ONNX graphs into programs that train them. This package holds flags and printing;
// the work is done by package compiler and those below it.
package main

//go:generate go test -run TestDocs|TestOpsDoc|TestPublic . -update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/distributed/launch"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/spf13/cobra"
)

// Exit codes, as documented in the help of gtc.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitSignal = 128
)

func main() {
	// Compiling is short, and most of what it makes lives to its end: at Go's default, collecting garbage takes a third of
	// its processor time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program but for the process: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(stderr, "gtc: BUG: %v\n", r)
			report(stderr, fmt.Sprintf("gtc %q\n%v\n\n%s", args, r, debug.Stack()))
			code = exitFailed
		}
	}()
	ctx, stop, got := withSignals()
	defer stop()
	root := newRoot()
	stdout, stderr = printable.Writer{W: stdout}, printable.Writer{W: stderr} // names in models are data
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(loraWords(longFlags(root, args)))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if s := got(); s != 0 && errors.Is(ctx.Err(), context.Canceled) {
		return exitSignal + int(s)
	}
	var silent *silentError
	if !errors.As(err, &silent) {
		printError(stderr, cmd, err)
	}
	return exitCode(err)
}

// withSignals gives a context that SIGINT or SIGTERM ends, and a function that tells which.
func withSignals() (ctx context.Context, stop func(), got func() syscall.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	var first syscall.Signal
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			first, _ = s.(syscall.Signal)
			cancel()
		case <-done:
		}
	}()
	return ctx, func() { signal.Stop(ch); close(done); cancel() }, func() syscall.Signal {
		if ctx.Err() == nil {
			return 0
		}
		return first
	}
}

// report keeps what a fault of gtc left, instead of printing it.
func report(stderr io.Writer, text string) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("gtc-crash-%d.txt", os.Getpid()))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Fprintf(stderr, "  note: no crash file: %v\n", err)
		return
	}
	fmt.Fprintf(stderr, "  note: please report it with %s\n", path)
}

// ran marks an error of a command that was understood; all others are mistakes in the command line.
type ran struct{ err error }

func (e *ran) Error() string { return e.err.Error() }
func (e *ran) Unwrap() error { return e.err }

// silentError is an exit code whose reason is on the screen already.
type silentError struct{ code int }

func (e *silentError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// unsupported is a flag whose feature is not built yet.
func unsupported(flag string) error {
	return compiler.Input(fmt.Errorf("%s is not supported yet", flag))
}

// command makes a RunE of f.
func command(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd, args); err != nil {
			return &ran{err}
		}
		return nil
	}
}

func exitCode(err error) int {
	var silent *silentError
	var started *ran
	var input *compiler.InputError
	var job *launch.Error
	var told *ir.Error
	switch {
	case errors.As(err, &silent):
		return silent.code
	case ownFault(err):
		return exitFailed
	case !errors.As(err, &started), errors.As(err, &input), errors.As(err, &told):
		return exitUsage
	case errors.As(err, &job):
		return launch.ExitCode(err)
	}
	return exitFailed
}

// ownFault reports whether err is a bug of gtc, which its text then says, and no fault of what the user gave.
func ownFault(err error) bool { return strings.Contains(err.Error(), "BUG:") }

// printError writes err; faults in a model already name their file.
func printError(w io.Writer, cmd *cobra.Command, err error) {
	if ownFault(err) {
		defer fmt.Fprintln(w, "  note: this is a bug of gtc, not a mistake of yours: please report it, with the model and the command")
	}
	var told *ir.Error
	if errors.As(err, &told) && told.File != "" {
		fmt.Fprintln(w, err)
		return
	}
	var started *ran
	fmt.Fprintf(w, "%s: %v\n", cmd.CommandPath(), err)
	if !errors.As(err, &started) {
		if flags := meant(cmd.Flags(), err); flags != "" {
			fmt.Fprintf(w, "  note: gtc has %s for it\n", flags)
		}
		fmt.Fprintf(w, "  note: %s --help lists the flags\n", cmd.CommandPath())
	}
}

const about = `gtc reads a forward ONNX graph, usually exported from PyTorch, and compiles it into programs that train it: one
program per rank, C kernels, no Python at run time.

    gtc compile model.onnx --dp 2 --loss cross_entropy --optimizer adamw --lr 1e-3
    gtc run gtc-out --data train.npz --epochs 5
    gtc export gtc-out -o trained.onnx

Exit codes: 0 done; 1 failed, or gtc check found a difference; 2 wrong flags, model, data or checkpoint; 3 another rank
was lost; 130 and 143 ended by SIGINT and SIGTERM; 137 and the like: a signal ended a rank (128 and its number).`

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "gtc", Short: "gtc compiles forward ONNX graphs into programs that train them", Long: about,
		SilenceUsage: true, SilenceErrors: true, Version: version(),
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(compileCommand(), runCommand(), checkCommand(), inspectCommand(), exportCommand(), optCommand(), bisectCommand(), replayCommand(),
		opsCommand(), explainCommand(), scheduleCommand(), verifyCommand(), devicesCommand(), versionCommand(), debugTopic())
	return root
}

// longFlags lets gtc opt take its flags with one dash, -run as well as --run, the way tools of its kind do.
func longFlags(root *cobra.Command, args []string) []string {
	if len(args) == 0 || args[0] != "opt" {
		return args
	}
	cmd, _, err := root.Find(args)
	if err != nil {
		return args
	}
	out := append([]string{}, args...)
	for i, a := range out {
		if a == "--" {
			break
		}
		if len(a) > 2 && a[0] == '-' && a[1] != '-' && cmd.Flags().Lookup(flagName(a[1:])) != nil {
			out[i] = "-" + a
		}
	}
	return out
}

func flagName(s string) string {
	for i := range s {
		if s[i] == '=' {
			return s[:i]
		}
	}
	return s
}
