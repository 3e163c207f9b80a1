package train

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
)

// reporter prints what happens, on rank 0 only. Progress goes to standard output: one line that is rewritten on a
// terminal, else a line every --log-every steps, or JSON lines. Notes go to standard error, so that the JSON stays
// clean. JSON lines have a field "event": start, step, eval, save or end; a number that is none is null.
type reporter struct {
	reporting
	on     bool
	line   bool          // rewrite one line
	beside device.Device // whose memory and use are told; nil for the processor itself

	perStep     float64 // samples, or tokens, of one step
	unit        string
	total       int64
	began       time.Time
	first       int64 // step at which this run began
	since       time.Time
	sinceN      int64         // steps counted since then
	ready       time.Time     // when the first step was over, which readies memory and libraries
	away        time.Duration // since then, in evaluations and saves
	drawn       time.Time
	width       int // of the line on the terminal, to erase it
	buf         []byte
	nanNoted    bool
	voidNoted   bool
	unseenNoted bool
	noiseNoted  bool
	usage       device.Usage
	asked       time.Time // for usage
}

// reporting is how a run reports.
type reporting struct {
	plan         *plan
	device       device.Device
	out, err     io.Writer
	json, bench  bool
	progress     string // auto, line or plain
	every        int64  // steps between progress lines
	bitsOfLosses bool   // the exact bits of the last loss are told
}

func newReporter(o *reporting) *reporter {
	r := &reporter{reporting: *o, on: o.plan.rank == 0, unit: "samples/s", perStep: float64(o.plan.Train.Batch), buf: make([]byte, 0, 512)}
	if o.plan.Train.Tokens > 1 {
		r.perStep *= float64(o.plan.Train.Tokens)
		r.unit = "tok/s"
	}
	if _, local := o.device.(device.Local); !local {
		r.beside = o.device
	}
	r.line = o.progress == "line" || o.progress == "auto" && terminal(printable.Under(r.out))
	r.line = r.line && !r.json && !r.bench
	return r
}

// results are those of the last step.
type results struct {
	loss       float64 // the mean over what counts
	rate, norm float64 // the learning rate, and the norm of the mean gradients before clipping; NaN when the program does not tell

	scales, skips, empties bool    // the program has a dynamic loss scale, skips steps of gradients that are not finite, may have steps in which nothing counts
	scale, skipped, empty  float64 // the scale, and how many steps were skipped and empty so far; NaN where it has none

	overflowed bool // the step was skipped
	void       bool // nothing counted in it
}

// nothingCounts is why a step is empty.
const nothingCounts = "nothing in this batch counts for the loss: every target is the ignored one, or every mask is zero"

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// note prints something worth knowing.
func (r *reporter) note(format string, args ...any) {
	if r.on && !r.bench {
		r.erase()
		fmt.Fprintf(r.err, format+"\n", args...)
	}
}

// erase removes the progress line.
func (r *reporter) erase() {
	if r.width > 0 {
		fmt.Fprintf(r.out, "\r%s\r", strings.Repeat(" ", r.width))
		r.width = 0
	}
}

// beginning is what a run tells when it begins to train.
type beginning struct {
	plan    *plan
	device  device.Info
	threads int      // of each rank
	samples int64    // of the data
	leftOut int64    // of each epoch
	notes   []string // on the data
	data    []string // which array is which input
	nothing string   // why there is nothing to train; "" when there is

	step, total int64 // the first step is step+1, the last total
}

// start begins the clock.
func (r *reporter) start(b *beginning) {
	r.began, r.since, r.sinceN = time.Now(), time.Now(), 0
	r.first, r.total = b.step, b.total
	if !r.on || r.bench {
		return
	}
	x := b.plan
	params := x.parameters()
	for _, text := range b.notes {
		r.note("%s", text)
	}
	if r.json {
		r.event("start", field{"model", x.Model}, field{"ranks", x.Ranks}, field{"batch", x.Train.Batch}, field{"microbatches", x.Train.Microbatches},
			field{"threads", b.threads}, field{"device", b.device.Name}, field{"parameters", params}, field{"arena_bytes", x.arenaBytes()}, field{"samples", b.samples},
			field{"left_out", b.leftOut}, field{"step", b.step}, field{"steps", b.total})
		return
	}
	for _, text := range b.data {
		r.note("data: %s", text)
	}
	if b.nothing != "" {
		r.note("%s", b.nothing)
		return
	}
	upTo := ""
	if x.stages > 1 {
		upTo = "at most "
	}
	on := fmt.Sprintf("%d x %d threads", x.Ranks, b.threads)
	if r.beside != nil {
		on = fmt.Sprintf("%d x %s", x.Ranks, b.device.Name)
	}
	r.note("%s: %d parameters, %d samples in batches of %d on %s, arena %s%.1f MiB, steps %d to %d", x.Model, params, b.samples,
		x.Train.Batch, on, upTo, float64(x.arenaBytes())/(1<<20), b.step, b.total)
}

// field is one of a JSON line.
type field struct {
	name  string
	value any
}

// event prints a JSON line. Floats that JSON cannot hold are null.
func (r *reporter) event(name string, fields ...field) {
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
	r.out.Write(r.buf)
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

// step reports a finished step that took so long.
func (r *reporter) step(step int64, t *results, took time.Duration) {
	if !r.on {
		return
	}
	if r.bench {
		b := strconv.AppendInt(append(r.buf[:0], `{"step":`...), step, 10)
		b = number9(append(b, `,"loss":`...), t.loss)
		b = strconv.AppendFloat(append(b, `,"seconds":`...), took.Seconds(), 'g', 6, 64)
		r.buf = append(b, "}\n"...)
		r.out.Write(r.buf)
		return
	}
	r.sinceN++
	if r.ready.IsZero() {
		r.ready, r.away = time.Now(), 0
	}
	if t.void && !r.voidNoted {
		r.voidNoted = true
		r.note("step %d: %s: it updates nothing, and has no loss; such steps are counted as empty (--on-empty fail stops)", step, nothingCounts)
	}
	if !r.nanNoted && !finite(t.loss) && !t.void {
		r.nanNoted = true
		text := ""
		if t.overflowed {
			text = ", which is skipped"
		}
		r.note("the loss is %v at step %d%s: GTC_NAN=1 finds the first operation that makes a NaN", t.loss, step, text)
	}
	due := step%r.every == 0 || step == r.total
	if r.line && (due || time.Since(r.drawn) > 200*time.Millisecond) && time.Since(r.drawn) > 50*time.Millisecond || !r.line && due {
		r.tell(step, t)
	}
}

// tell prints where the run is.
func (r *reporter) tell(step int64, t *results) {
	now := time.Now()
	r.drawn = now
	per := now.Sub(r.since).Seconds() / float64(max(r.sinceN, 1))
	resident, _ := mem.Resident()
	if r.json {
		fields := []field{{"step", step}, {"loss", t.loss}, {"loss_bits", bits(t.loss)}, {"lr", t.rate},
			{"grad_norm", t.norm}, {"seconds", per}, {strings.TrimSuffix(r.unit, "/s") + "_per_s", r.perStep / per}, {"resident_bytes", resident}}
		fields = append(fields, scaling(t)...)
		if r.beside != nil {
			u := r.used(r.beside)
			fields = append(fields, field{"device_bytes", u.Used}, field{"device_percent", u.Busy})
		}
		r.event("step", fields...)
	} else {
		text := fmt.Sprintf("step %d/%d  loss %s", step, r.total, lossText(t, "%.4f"))
		if !math.IsNaN(t.rate) {
			text += fmt.Sprintf("  lr %.1e", t.rate)
		}
		if !math.IsNaN(t.norm) {
			text += fmt.Sprintf("  grad %.3g", t.norm)
		}
		text += scalingText(t)
		left := time.Duration(float64(r.total-step) * per * 1e9)
		text += fmt.Sprintf("  %s %s  eta %s  mem %d MiB", short(r.perStep/per), r.unit, left.Round(time.Second), resident>>20)
		if r.beside != nil {
			text += deviceText(r.used(r.beside))
		}
		if r.line {
			fmt.Fprintf(r.out, "\r%-*s", r.width, text)
			r.width = len(text)
		} else {
			fmt.Fprintln(r.out, text)
		}
	}
	if now.Sub(r.since) > 5*time.Second || !r.line { // recent speed, but not of a single step
		r.since, r.sinceN = now, 0
	}
}

// scaling are the loss scale and the numbers of skipped and of empty steps, where the program has them.
func scaling(t *results) []field {
	var fields []field
	if t.scales {
		fields = append(fields, field{"loss_scale", t.scale})
	}
	if t.skips {
		fields = append(fields, field{"skipped", int64(t.skipped)})
	}
	if t.empties {
		fields = append(fields, field{"empty", int64(t.empty)})
	}
	return fields
}

// lossText is the loss of the last step for people, which is none when nothing counted in it.
func lossText(t *results, format string) string {
	if t.void {
		return "none (empty)"
	}
	return fmt.Sprintf(format, t.loss)
}

// scalingText is scaling for people, "  scale 32768, 2 skipped, 1 empty"; what never happened in a run in which it seldom does is
// left out.
func scalingText(t *results) string {
	var parts []string
	if t.scales {
		parts = append(parts, fmt.Sprintf("scale %g", t.scale))
	}
	if t.skips {
		parts = append(parts, fmt.Sprintf("%.0f skipped", t.skipped))
	}
	if t.empties && t.empty > 0 {
		parts = append(parts, fmt.Sprintf("%.0f empty", t.empty))
	}
	if parts == nil {
		return ""
	}
	return "  " + strings.Join(parts, ", ")
}

// used is what a device is doing, as it was within the last second: asking takes longer than a small step.
func (r *reporter) used(dev device.Device) device.Usage {
	if now := time.Now(); now.Sub(r.asked) > time.Second {
		r.usage, r.asked = dev.Usage(), now
	}
	return r.usage
}

// deviceText is what a device is doing, "  GPU 12.3 of 79.6 GiB, 97 %".
func deviceText(u device.Usage) string {
	text := ""
	if u.Total > 0 {
		text = fmt.Sprintf("  GPU %.1f of %.1f GiB", float64(u.Used)/(1<<30), float64(u.Total)/(1<<30))
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
func (r *reporter) pause(d time.Duration) {
	r.since = r.since.Add(d)
	r.away += d
}

// each is how long a step of this run took in the mean, seconds: without evaluations, saves, and the first one, if there are
// others.
func (r *reporter) each(steps int64) float64 {
	if steps > 1 && !r.ready.IsZero() {
		return (time.Since(r.ready) - r.away).Seconds() / float64(steps-1)
	}
	return (time.Since(r.began) - r.away).Seconds() / float64(max(steps, 1))
}

// eval reports an evaluation at a step.
func (r *reporter) eval(step int64, e *evaluation) {
	r.pause(e.took)
	if !r.on || r.bench {
		return
	}
	if e.unseen > 0 && !r.unseenNoted {
		r.unseenNoted = true
		r.note("%s", e.notSeen())
	}
	if e.noise != "" && !r.noiseNoted {
		r.noiseNoted = true
		r.note("%s", random("evaluations are", e.noise))
	}
	if r.json {
		fields := []field{{"step", step}, {"loss", e.loss}, {"loss_bits", bits(e.loss)}}
		if !math.IsNaN(e.accuracy) {
			fields = append(fields, field{"accuracy", e.accuracy})
		}
		if !math.IsNaN(e.perplexity) {
			fields = append(fields, field{"perplexity", e.perplexity})
		}
		if e.noise != "" {
			fields = append(fields, field{"noise", e.noise})
		}
		r.event("eval", append(fields, field{"samples", e.samples}, field{"unseen", e.unseen}, field{"seconds", e.took.Seconds()})...)
		return
	}
	r.erase()
	text := fmt.Sprintf("eval at step %d  loss %.4f", step, e.loss)
	if !math.IsNaN(e.accuracy) {
		text += fmt.Sprintf("  accuracy %.2f %%", 100*e.accuracy)
	}
	if !math.IsNaN(e.perplexity) {
		text += fmt.Sprintf("  perplexity %.4g", e.perplexity)
	}
	of := ""
	if e.unseen > 0 {
		of = fmt.Sprintf("of %d ", e.samples+e.unseen)
	}
	fmt.Fprintf(r.out, "%s  (%d %ssamples, %v)\n", text, e.samples, of, e.took.Round(time.Millisecond))
}

// save reports a checkpoint.
func (r *reporter) save(step int64, dir string, took time.Duration) {
	r.pause(took)
	if !r.on || r.bench {
		return
	}
	if r.json {
		r.event("save", field{"step", step}, field{"path", dir}, field{"seconds", took.Seconds()})
		return
	}
	r.note("saved step %d in %s (%v)", step, dir, took.Round(time.Millisecond))
}

// end sums up.
func (r *reporter) end(step int64, t *results, signal int) {
	if !r.on || r.bench {
		return
	}
	why := "done"
	if signal != 0 {
		why = fmt.Sprintf("stopped by signal %d", signal)
	}
	took, each := time.Since(r.began), r.each(step-r.first)
	resident, peak := mem.Resident()
	steps := step - r.first
	if r.json {
		r.event("end", append([]field{{"why", why}, {"step", step}, {"loss", t.loss}, {"loss_bits", bits(t.loss)}, {"seconds", took.Seconds()},
			{"step_seconds", each}, {"arena_bytes", r.plan.arenaBytes()}, {"resident_bytes", resident}, {"peak_bytes", peak}}, scaling(t)...)...)
		return
	}
	r.erase()
	text := fmt.Sprintf("%s at step %d", why, step)
	if steps > 0 {
		text += "  loss " + lossText(t, "%.6g")
		if r.bitsOfLosses {
			text += fmt.Sprintf(" (%.9g, bits %s)", t.loss, bits(t.loss))
		}
		text += scalingText(t)
		text += fmt.Sprintf("  %d steps in %v, %.3g ms each", steps, took.Round(10*time.Millisecond), each*1e3)
	}
	of := ""
	if r.plan.stages > 1 {
		of = "rank 0 "
	}
	fmt.Fprintf(r.out, "%s  arena %d bytes, %sresident %d MiB\n", text, r.plan.arenaBytes(), of, resident>>20)
	if steps > 0 && t.skips && int64(t.skipped) == step {
		r.note("warning: every step was skipped, and nothing was trained: with this loss scale no step's gradients were finite (gtc compile --loss-scale)")
	}
	if steps > 0 && t.empties && int64(t.empty) == step {
		r.note("warning: nothing counted in any step, and nothing was trained: look at the targets, or at gtc compile --ignore-index")
	}
}
