// Package bisect finds what breaks a program: the pass behind which a check begins to fail, and within it the one rewrite.
//
// # Design
//
// Passes ask pass.Context.May for every rewrite that a right program does not need, and the pipeline can be told to do only
// the first so many of them (pass.Options.Rewrites). So a fault of such a rewrite shows from some number on and not below it,
// and that number is found by halving, as cranelift's bugpoint, LLVM's opt-bisect-limit and Go's bisect do. There are two checks.
// Interpret compares the module behind every pass with the one before it, in the interpreter, on random data; it needs nothing of the
// user. Command runs a command of the user's, which compiles with gtc and fails when the program is wrong; it sees faults of
// code generation and of the run-time, too, as long as a rewrite brings them out.
package bisect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Variable is the environment variable by which a command's gtc knows how many rewrites it may do.
const Variable = "GTC_REWRITES"

// Lower takes a model through the pipeline, with so many of the rewrites that passes ask for (nil: all), and calls watch behind
// each pass. It is called many times, and each time makes the module anew.
type Lower func(rewrites *int, watch func(c *pass.Context, p pass.Pass) error) (*pass.Context, error)

// Model lowers the model of o.
func Model(o *compiler.Options) Lower {
	return func(rewrites *int, watch func(c *pass.Context, p pass.Pass) error) (*pass.Context, error) {
		one := *o
		one.Pass.Rewrites, one.Watch = rewrites, watch
		res, err := compiler.Lower(&one)
		return res.Context, err
	}
}

// Found is a fault, as narrowly as it is known.
type Found struct {
	Pass    string        // behind which the check fails, or several, behind the last of them; "" where a command fails and no rewrite changes that
	Rewrite *pass.Rewrite // with which it begins to fail; nil: it fails without any that the pass may leave out
	Total   int           // rewrites that there are
	Fault   error         // what the check said
	Checks  int           // how often it was asked
}

// String tells it on a line or two.
func (f *Found) String() string {
	switch {
	case f.Rewrite != nil:
		return fmt.Sprintf("%s\n  with %d of the %d rewrites the check passes, with %d it does not: %v", f.Rewrite, f.Rewrite.Number-1, f.Total, f.Rewrite.Number, f.Fault)
	case f.Pass != "":
		return fmt.Sprintf("pass %s, whatever rewrites it leaves out: %v", f.Pass, f.Fault)
	}
	return fmt.Sprintf("no rewrite: the check fails with none of the %d done: %v", f.Total, f.Fault)
}

// errStop ends a pipeline behind the pass that was to be looked at.
var errStop = errors.New("looked at")

// Interpret interprets the module behind every pass and finds the first that changed what the one before it computes; nil
// where none did. Modules must be small, since the interpreter is slow.
func Interpret(ctx context.Context, lower Lower) (*Found, error) {
	found := &Found{}
	var low, high int
	c, err := lower(nil, judging(ctx, "", func(passes string, asked, before int, fault error) error {
		if fault != nil && found.Pass == "" {
			found.Pass, found.Fault, low, high = passes, fault, before, asked
		}
		found.Checks++
		return nil
	}))
	if err != nil || found.Pass == "" {
		return nil, err
	}
	found.Total = c.Asked.Total
	fails := func(n int) (*pass.Rewrite, error, error) {
		var fault error
		var last pass.Rewrite
		_, err := lower(&n, judging(ctx, found.Pass, func(_ string, _, _ int, f error) error {
			found.Checks++
			fault = f
			return errStop
		}, &last))
		if err != nil && !errors.Is(err, errStop) {
			return nil, nil, err
		}
		return &last, fault, nil
	}
	return found, found.halve(low, high, fails)
}

// Command runs args as a command, with Variable set to how many rewrites gtc may do, and finds the rewrite with which its exit
// status begins to be another than 0; nil where it is 0 with all of them.
func Command(ctx context.Context, lower Lower, args []string) (*Found, error) {
	found := &Found{}
	c, err := lower(nil, nil)
	if err != nil {
		return nil, err
	}
	found.Total = c.Asked.Total
	fails := func(n int) (*pass.Rewrite, error, error) {
		found.Checks++
		fault, err := runCommand(ctx, n, args)
		if fault == nil || err != nil {
			return nil, nil, err
		}
		c, err := lower(&n, nil)
		if err != nil {
			return nil, nil, err
		}
		return &c.Asked.Last, fault, nil
	}
	_, fault, err := fails(found.Total)
	if fault == nil || err != nil {
		return nil, err
	}
	found.Fault = fault
	if err := found.halve(0, found.Total, fails); err != nil {
		return nil, err
	}
	if found.Rewrite != nil {
		found.Pass = found.Rewrite.Pass
	}
	return found, nil
}

// runCommand is one run with n rewrites: fault is an exit status other than 0, err that the command did not run.
func runCommand(ctx context.Context, n int, args []string) (fault, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), Variable+"="+strconv.Itoa(n))
	// What it started ends with ctx, too. Of a child that it leaves running, and that holds its output open, nobody waits for more.
	together(cmd)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, exec.ErrWaitDelay): // the command itself ended well
		return nil, nil
	case errors.As(err, &exit):
		if tail := out[max(0, len(out)-400):]; len(tail) > 0 {
			return fmt.Errorf("%w: %s", err, tail), nil
		}
		return err, nil
	}
	return nil, compiler.Input(err)
}

// halve finds the least number above low, and not above high, with which fails gives a fault. It does with high.
func (f *Found) halve(low, high int, fails func(n int) (*pass.Rewrite, error, error)) error {
	if _, fault, err := fails(low); err != nil || fault != nil { // nothing that may be left out matters
		return err
	}
	for low+1 < high {
		mid := (low + high) / 2
		last, fault, err := fails(mid)
		if err != nil {
			return err
		}
		if fault == nil {
			low = mid
			continue
		}
		high, f.Rewrite, f.Fault = mid, last, fault
	}
	if f.Rewrite == nil || f.Rewrite.Number != high {
		last, fault, err := fails(high)
		if err != nil {
			return err
		}
		if fault == nil {
			return fmt.Errorf("with %d rewrites the check fails only now and then", high)
		}
		f.Rewrite, f.Fault = last, fault
	}
	return nil
}
