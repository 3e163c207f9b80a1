// Package report tells what a run does: progress lines, JSON events and notes on rank 0, and the views that look at every call, such as
// GTC_NAN, GTC_PROFILE and --trace.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/mem"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// Reporter prints what happens, on rank 0 only. Progress goes to standard output: one line that is rewritten on a
// terminal, else a line every --log-every steps, or JSON lines. Notes go to standard error, so that the JSON stays
// clean. JSON lines have a field "event": start, step, eval, save or end; a number that is none is null.
type Reporter struct {
	Options
	on     bool          // rank 0
	line   bool          // progress is one line, rewritten
	beside device.Device // has its memory and use told; nil for the processor itself

	perStep float64 // samples or tokens of one step
	unit    string  // of speeds: samples/s or tok/s
	First   int64   // step at which this run began
	total   int64   // step at which it will end
	began   time.Time
	ready   time.Time     // when the first step was over, which readies memory and libraries
	away    time.Duration // spent in evaluations and saves since ready
	since   time.Time     // from when on speed is measured
	sinceN  int64         // steps since then

	drawn time.Time // when progress was printed last
	width int       // characters of the line on the terminal, to erase it
	buf   []byte    // of JSON lines
	usage device.Usage
	asked time.Time // when the device was asked for usage

	nanNoted, voidNoted, unseenNoted, noiseNoted bool // notes that are told once were told
}

// Options is how a run reports.
type Options struct {
	Plan         *program.Plan
	Device       device.Device
	Out, Err     io.Writer // for progress, and for notes
	JSON         bool      // progress is JSON lines
	Bench        bool      // nothing is printed but the loss and time of every step
	Progress     string    // auto, line or plain
	Every        int64     // steps between progress lines
	BitsOfLosses bool      // the summary has the exact bits of the last loss
}

// New makes the reporter of a rank.
func New(o *Options) *Reporter {
	r := &Reporter{Options: *o, on: o.Plan.Rank == 0, unit: "samples/s", perStep: float64(o.Plan.Train.Batch), buf: make([]byte, 0, 512)}
	if o.Plan.Train.Tokens > 1 {
		r.perStep *= float64(o.Plan.Train.Tokens)
		r.unit = "tok/s"
	}
	if _, local := o.Device.(device.Local); !local {
		r.beside = o.Device
	}
	r.line = o.Progress == "line" || o.Progress == "auto" && terminal(printable.Under(r.Out))
	r.line = r.line && !r.JSON && !r.Bench
	return r
}

// Results are those of the last step.
type Results struct {
	Loss float64 // mean over what counts
	Rate float64 // learning rate; NaN when the program does not tell
	Norm float64 // of the mean gradients, before clipping; NaN when the program does not tell

	Scales  bool    // the program has a dynamic loss scale
	Scale   float64 // that; NaN without
	Skips   bool    // the program skips steps with gradients that are not finite
	Skipped float64 // steps skipped so far; NaN when it does not skip
	Empties bool    // there may be steps in which nothing counts
	Empty   float64 // those so far; NaN when there are none

	Overflowed bool // the step was skipped
	Void       bool // nothing counted in the step
}

// NothingCounts is why a step is empty.
const NothingCounts = "nothing in this batch counts for the loss: every target is the ignored one, or every mask is zero"

// Finite reports whether v is neither NaN nor infinite.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Note prints something worth knowing.
func (r *Reporter) Note(format string, args ...any) {
	if r.on && !r.Bench {
		r.erase()
		fmt.Fprintf(r.Err, format+"\n", args...)
	}
}

// erase removes the progress line.
func (r *Reporter) erase() {
	if r.width > 0 {
		fmt.Fprintf(r.Out, "\r%s\r", strings.Repeat(" ", r.width))
		r.width = 0
	}
}

// Beginning is what a run tells when it begins to train.
type Beginning struct {
	Plan    *program.Plan
	Device  device.Info
	Threads int      // of each rank
	Samples int64    // in the data
	LeftOut int64    // samples of each epoch that are not trained on
	Notes   []string // lines about samples that are treated in another way than PyTorch would
	Data    []string // lines that say which array is which input
	Nothing string   // why there is nothing to train; "" when there is

	Step, Total int64 // steps done before, and to reach
}

// Start begins the clock.
func (r *Reporter) Start(b *Beginning) {
	r.began, r.since, r.sinceN = time.Now(), time.Now(), 0
	r.First, r.total = b.Step, b.Total
	if !r.on || r.Bench {
		return
	}
	x := b.Plan
	params := x.Parameters()
	for _, text := range b.Notes {
		r.Note("%s", text)
	}
	if r.JSON {
		r.event("start", field{"model", x.Model}, field{"ranks", x.Ranks}, field{"batch", x.Train.Batch}, field{"microbatches", x.Train.Microbatches},
			field{"threads", b.Threads}, field{"device", b.Device.Name}, field{"parameters", params}, field{"arena_bytes", x.LargestArena()}, field{"samples", b.Samples},
			field{"left_out", b.LeftOut}, field{"step", b.Step}, field{"steps", b.Total})
		return
	}
	for _, text := range b.Data {
		r.Note("data: %s", text)
	}
	if b.Nothing != "" {
		r.Note("%s", b.Nothing)
		return
	}
	upTo := ""
	if x.Stages > 1 {
		upTo = "at most "
	}
	on := fmt.Sprintf("%d x %s", x.Ranks, printable.Count(b.Threads, "thread"))
	if r.beside != nil {
		on = fmt.Sprintf("%d x %s", x.Ranks, b.Device.Name)
	}
	r.Note("%s: %s, %s in batches of %d on %s, arena %s%.1f MiB, steps %d to %d", x.Model, printable.Count(params, "parameter"), printable.Count(b.Samples, "sample"),
		x.Train.Batch, on, upTo, float64(x.LargestArena())/(1<<20), b.Step, b.Total)
}

// field is one of a JSON line.
type field struct {
	name  string
	value any
}

// event prints a JSON line. Floats that JSON cannot hold are null.
func (r *Reporter) event(name string, fields ...field) {
	b := append(r.buf[:0], `{"event":`...)
	b = strconv.AppendQuote(b, name)
	for _, f := range fields {
		b = append(b, `,"`...)
		b = append(b, f.name...)
		b = append(b, `":`...)
		switch v := f.value.(type) {
		case float64:
			b = number9(b, v)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		default:
			text, err := json.Marshal(v)
			if err != nil {
				text = []byte("null")
			}
			b = append(b, text...)
		}
	}
	r.buf = append(b, "}\n"...)
	r.Out.Write(r.buf)
}

// number9 prints v with the nine digits that tell any two float32 apart.
func number9(b []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, v, 'g', 9, 64)
}

// bits are the exact bits of a loss, to compare runs.
func bits(v float64) string { return fmt.Sprintf("%016x", math.Float64bits(v)) }

// Step reports a finished step that took so long.
func (r *Reporter) Step(step int64, t *Results, took time.Duration) {
	if !r.on {
		return
	}
	if r.Bench {
		b := strconv.AppendInt(append(r.buf[:0], `{"step":`...), step, 10)
		b = number9(append(b, `,"loss":`...), t.Loss)
		b = strconv.AppendFloat(append(b, `,"seconds":`...), took.Seconds(), 'g', 6, 64)
		r.buf = append(b, "}\n"...)
		r.Out.Write(r.buf)
		return
	}
	r.sinceN++
	if r.ready.IsZero() {
		r.ready, r.away = time.Now(), 0
	}
	if t.Void && !r.voidNoted {
		r.voidNoted = true
		r.Note("step %d: %s: it updates nothing, and has no loss; such steps are counted as empty (--on-empty fail stops)", step, NothingCounts)
	}
	if !r.nanNoted && !Finite(t.Loss) && !t.Void {
		r.nanNoted = true
		text := ""
		if t.Overflowed {
			text = ", which is skipped"
		}
		r.Note("the loss is %v at step %d%s: GTC_NAN=1 finds the first operation that makes a NaN", t.Loss, step, text)
	}
	due := step%r.Every == 0 || step == r.total
	if r.line && (due || time.Since(r.drawn) > 200*time.Millisecond) && time.Since(r.drawn) > 50*time.Millisecond || !r.line && due {
		r.tell(step, t)
	}
}

// tell prints where the run is.
func (r *Reporter) tell(step int64, t *Results) {
	now := time.Now()
	r.drawn = now
	per := now.Sub(r.since).Seconds() / float64(max(r.sinceN, 1))
	resident, _ := mem.Resident()
	if r.JSON {
		fields := []field{{"step", step}, {"loss", t.Loss}, {"loss_bits", bits(t.Loss)}, {"lr", t.Rate},
			{"grad_norm", t.Norm}, {"seconds", per}, {strings.TrimSuffix(r.unit, "/s") + "_per_s", r.perStep / per}, {"resident_bytes", resident}}
		fields = append(fields, scaling(t)...)
		if r.beside != nil {
			u := r.used(r.beside)
			fields = append(fields, field{"device_bytes", u.Used}, field{"device_percent", u.Busy})
		}
		r.event("step", fields...)
	} else {
		text := fmt.Sprintf("step %d/%d  loss %s", step, r.total, lossText(t, "%.4f"))
		if !math.IsNaN(t.Rate) {
			text += fmt.Sprintf("  lr %.1e", t.Rate)
		}
		if !math.IsNaN(t.Norm) {
			text += fmt.Sprintf("  grad %.3g", t.Norm)
		}
		text += scalingText(t)
		left := time.Duration(float64(r.total-step) * per * 1e9)
		text += fmt.Sprintf("  %s %s  eta %s  mem %d MiB", short(r.perStep/per), r.unit, left.Round(time.Second), resident>>20)
		if r.beside != nil {
			text += deviceText(r.beside.Info().Kind, r.used(r.beside))
		}
		if r.line {
			fmt.Fprintf(r.Out, "\r%-*s", r.width, text)
			r.width = len(text)
		} else {
			fmt.Fprintln(r.Out, text)
		}
	}
	if now.Sub(r.since) > 5*time.Second || !r.line { // recent speed, but not of a single step
		r.since, r.sinceN = now, 0
	}
}

// scaling are the loss scale and the numbers of skipped and of empty steps, where the program has them.
func scaling(t *Results) []field {
	var fields []field
	if t.Scales {
		fields = append(fields, field{"loss_scale", t.Scale})
	}
	if t.Skips {
		fields = append(fields, field{"skipped", int64(t.Skipped)})
	}
	if t.Empties {
		fields = append(fields, field{"empty", int64(t.Empty)})
	}
	return fields
}

// lossText is the loss of the last step for people, which is none when nothing counted in it.
func lossText(t *Results, format string) string {
	if t.Void {
		return "none (empty)"
	}
	return fmt.Sprintf(format, t.Loss)
}

// scalingText is scaling for people, "  scale 32768, 2 skipped, 1 empty"; what never happened in a run in which it seldom does is
// left out.
func scalingText(t *Results) string {
	var parts []string
	if t.Scales {
		parts = append(parts, fmt.Sprintf("scale %g", t.Scale))
	}
	if t.Skips {
		parts = append(parts, fmt.Sprintf("%.0f skipped", t.Skipped))
	}
	if t.Empties && t.Empty > 0 {
		parts = append(parts, fmt.Sprintf("%.0f empty", t.Empty))
	}
	if parts == nil {
		return ""
	}
	return "  " + strings.Join(parts, ", ")
}

// used is what a device is doing, as it was within the last second: asking takes longer than a small step.
func (r *Reporter) used(dev device.Device) device.Usage {
	if now := time.Now(); now.Sub(r.asked) > time.Second {
		r.usage, r.asked = dev.Usage(), now
	}
	return r.usage
}

// deviceText is what a device of a kind is doing, "  GPU 12.3 of 79.6 GiB, 97 %".
func deviceText(kind string, u device.Usage) string {
	text := ""
	if u.Total > 0 {
		text = fmt.Sprintf("  %s %.1f of %.1f GiB", kind, float64(u.Used)/(1<<30), float64(u.Total)/(1<<30))
	}
	if u.Busy >= 0 {
		text += fmt.Sprintf(", %d %%", u.Busy)
	}
	return text
}

// short is a number with three digits and a unit of thousands.
func short(v float64) string {
	unit := ""
	for _, u := range []string{"k", "M", "G"} {
		if v < 1000 {
			break
		}
		v /= 1000
		unit = u
	}
	if v < 100 {
		return strconv.FormatFloat(v, 'f', 1, 64) + unit
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + unit
}

// pause leaves time that no step took out of the speed.
func (r *Reporter) pause(d time.Duration) {
	r.since = r.since.Add(d)
	r.away += d
}

// each is how long a step of this run took in the mean, seconds: without evaluations, saves, and the first one, if there are
// others.
func (r *Reporter) each(steps int64) float64 {
	if steps > 1 && !r.ready.IsZero() {
		return (time.Since(r.ready) - r.away).Seconds() / float64(steps-1)
	}
	return (time.Since(r.began) - r.away).Seconds() / float64(max(steps, 1))
}

// Eval reports an evaluation at a step.
func (r *Reporter) Eval(step int64, e *Evaluation) {
	r.pause(e.Took)
	if !r.on || r.Bench {
		return
	}
	if e.Unseen > 0 && !r.unseenNoted {
		r.unseenNoted = true
		r.Note("%s", e.notSeen())
	}
	if e.Noise != "" && !r.noiseNoted {
		r.noiseNoted = true
		r.Note("%s", Random("evaluations are", e.Noise))
	}
	if r.JSON {
		fields := []field{{"step", step}, {"loss", e.Loss}, {"loss_bits", bits(e.Loss)}}
		if !math.IsNaN(e.Accuracy) {
			fields = append(fields, field{"accuracy", e.Accuracy})
		}
		if !math.IsNaN(e.Perplexity) {
			fields = append(fields, field{"perplexity", e.Perplexity})
		}
		if e.Noise != "" {
			fields = append(fields, field{"noise", e.Noise})
		}
		r.event("eval", append(fields, field{"samples", e.Samples}, field{"unseen", e.Unseen}, field{"seconds", e.Took.Seconds()})...)
		return
	}
	r.erase()
	text := fmt.Sprintf("eval at step %d  loss %.4f", step, e.Loss)
	if !math.IsNaN(e.Accuracy) {
		text += fmt.Sprintf("  accuracy %.2f %%", 100*e.Accuracy)
	}
	if !math.IsNaN(e.Perplexity) {
		text += fmt.Sprintf("  perplexity %.4g", e.Perplexity)
	}
	of := ""
	if e.Unseen > 0 {
		of = fmt.Sprintf("of %d ", e.Samples+e.Unseen)
	}
	fmt.Fprintf(r.Out, "%s  (%d %ssamples, %v)\n", text, e.Samples, of, e.Took.Round(time.Millisecond))
}

// Save reports a checkpoint.
func (r *Reporter) Save(step int64, dir string, took time.Duration) {
	r.pause(took)
	if !r.on || r.Bench {
		return
	}
	if r.JSON {
		r.event("save", field{"step", step}, field{"path", dir}, field{"seconds", took.Seconds()})
		return
	}
	r.Note("saved step %d in %s (%v)", step, dir, took.Round(time.Millisecond))
}

// End sums up.
func (r *Reporter) End(step int64, t *Results, signal int) {
	if !r.on || r.Bench {
		return
	}
	why := "done"
	if signal != 0 {
		why = fmt.Sprintf("stopped by signal %d", signal)
	}
	took, each := time.Since(r.began), r.each(step-r.First)
	resident, peak := mem.Resident()
	steps := step - r.First
	if r.JSON {
		r.event("end", append([]field{{"why", why}, {"step", step}, {"loss", t.Loss}, {"loss_bits", bits(t.Loss)}, {"seconds", took.Seconds()},
			{"step_seconds", each}, {"arena_bytes", r.Plan.LargestArena()}, {"resident_bytes", resident}, {"peak_bytes", peak}}, scaling(t)...)...)
		return
	}
	r.erase()
	text := fmt.Sprintf("%s at step %d", why, step)
	if steps > 0 {
		text += "  loss " + lossText(t, "%.6g")
		if r.BitsOfLosses {
			text += fmt.Sprintf(" (%.9g, bits %s)", t.Loss, bits(t.Loss))
		}
		text += scalingText(t)
		text += fmt.Sprintf("  %s in %v, %.3g ms each", printable.Count(steps, "step"), took.Round(10*time.Millisecond), each*1e3)
	}
	of := ""
	if r.Plan.Stages > 1 {
		of = "rank 0 "
	}
	fmt.Fprintf(r.Out, "%s  arena %d bytes, %sresident %d MiB\n", text, r.Plan.LargestArena(), of, resident>>20)
	if steps > 0 && t.Skips && int64(t.Skipped) == step {
		r.Note("warning: every step was skipped, and nothing was trained: with this loss scale no step's gradients were finite (gtc compile --loss-scale)")
	}
	if steps > 0 && t.Empties && int64(t.Empty) == step {
		r.Note("warning: nothing counted in any step, and nothing was trained: look at the targets, or at gtc compile --ignore-index")
	}
}
