package ranks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// Exit codes of a rank program. They are public: launchers and scripts rely on them.
const (
	ExitOK     = 0                 // everything asked for was done
	ExitFailed = 1                 // training failed: a kernel refused a value, a save failed, the loss is no number
	ExitUsage  = 2                 // wrong flags, data, weights or checkpoint: nothing was trained
	ExitPeer   = comm.ExitPeerLost // only because another rank died, hung, left or aborted
	ExitSignal = 128               // plus the signal's number: 130 after SIGINT, 143 after SIGTERM; the state was saved
)

// usageError is an error of the user's input. Every rank of a job finds the same, unless it is alone.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Usage marks an error as one of the user's input; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// Usagef is Usage of fmt.Errorf.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// aloneError is an error that other ranks may not find.
type aloneError struct{ error }

func (e *aloneError) Unwrap() error { return e.error }

// Alone marks an error as one that other ranks may not find.
func Alone(err error) error { return &aloneError{err} }

// elsewhere is the failure of another rank, which says more.
type elsewhere struct{ doing string }

func (e *elsewhere) Error() string { return e.doing + " failed on another rank" }

// divergence is the end of a run whose loss or parameters are no numbers. Every rank finds the same.
type divergence struct{ what string }

func (e *divergence) Error() string { return e.what }

// Diverged is the error of a run whose loss or parameters are no numbers.
func Diverged(what string) error { return &divergence{what} }

// Common reports whether every rank of a job finds err, so that it is enough when rank 0 tells.
func Common(err error) bool {
	var u *usageError
	var d *divergence
	var a *aloneError
	var e *elsewhere
	return (errors.As(err, &u) || errors.As(err, &d) || errors.As(err, &e)) && !errors.As(err, &a)
}

// forAll begins what a rank that gives up tells the others when it says nothing itself, for all should have found the same.
const forAll = "(for all ranks) "

// Cause is why a rank gives up, as it tells the others.
func Cause(err error) string {
	if Common(err) {
		return forAll + err.Error()
	}
	return err.Error()
}

// ToldElsewhere reports whether err is only that another rank gave up; itself, that this rank says why.
func ToldElsewhere(err error) (told, itself bool) {
	var c *comm.Error
	if !errors.As(err, &c) || c.Kind != comm.KindAborted || c.Rank == c.Self {
		return false, false
	}
	return true, c.Rank == 0 || !strings.HasPrefix(c.Detail, forAll)
}

// stopped is how a run ends early that was told to.
type stopped struct{ signal int }

// StoppedBy is the error of a run that a signal ended, when it has saved.
func StoppedBy(signal int) error { return &stopped{signal} }

func (e *stopped) Error() string { return fmt.Sprintf("stopped by signal %d", e.signal) }

// ExitCode is the exit code for how a run ended.
func ExitCode(err error) int {
	var u *usageError
	var s *stopped
	var c *comm.Error
	var other *elsewhere
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &s):
		return ExitSignal + s.signal
	case errors.As(err, &c) && lostPeer(c), errors.As(err, &other):
		return ExitPeer
	case errors.As(err, &u):
		return ExitUsage
	}
	return ExitFailed
}

// lostPeer reports whether e is another rank's fault.
func lostPeer(e *comm.Error) bool {
	switch e.Kind {
	case comm.KindDied, comm.KindHung, comm.KindLeft, comm.KindAborted:
		return e.Rank != e.Self
	}
	return false
}
