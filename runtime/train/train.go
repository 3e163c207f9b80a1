// Package train is the run-time as generated programs know it: what they declare, and the main functions of their ranks. Generated
// code imports this package alone, so that the packages below it may change shape without a program that was compiled before being
// printed in another way:
//
//	program  what a program declares, and the plan as one rank sees it
//	ranks    the other ranks: joining them, agreeing with them, whose failure it was
//	machine  runs the calls of functions on a device
//	report   progress, events, and the views that look at every call
//	loop     trains, evaluates, saves and resumes, as the flags say
//
// Each imports only those above it. None knows the compiler, or one processor from another.
package train

import (
	"flag"

	"github.com/gtc-compiler/gtc/runtime/train/internal/loop"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// What a generated program declares.
type (
	// Program is one compiled rank program.
	Program = program.Program
	// Device is the code of a program for a device, and how that is opened.
	Device = program.Device
	// Call is one step of a function: a kernel on this rank, or a collective among ranks.
	Call = program.Call
	// Comm is a collective on a stretch of the arena.
	Comm = program.Comm
	// Copy moves bytes from one arena offset to another.
	Copy = program.Copy
	// Span is a stretch of the arena that holds elements of one type.
	Span = program.Span
)

// Exit codes of a rank program. They are public: launchers and scripts rely on them.
const (
	ExitOK     = ranks.ExitOK
	ExitFailed = ranks.ExitFailed
	ExitUsage  = ranks.ExitUsage
	ExitPeer   = ranks.ExitPeer
	ExitSignal = ranks.ExitSignal
)

// Main is the main function of a rank: it trains, evaluates or checks p as the command line says and ends the process with one of
// the Exit codes.
func Main(p *Program, rank int) { loop.Main(p, rank) }

// Ranks is the main function of bin/ranks, which is any rank: the one that the launcher's variables say (see comm.FromEnv), else
// that of the name it was started by, such as bin/rank-3. programs are those of the plan. It ends the process with one of the Exit
// codes.
func Ranks(programs []*Program) { loop.Ranks(programs) }

// Flags are the flags of a rank program, for whoever lists them: gtc run's help and documentation.
func Flags() *flag.FlagSet { return loop.Flags() }
