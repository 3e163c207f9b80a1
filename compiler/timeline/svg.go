package timeline

import (
	"fmt"
	"io"
	"math"

	"github.com/gtc-compiler/gtc/distributed/schedule"
)

// Measures of the SVG, in its units (pixels at 100 %).
const (
	svgLeft, svgTop, svgRow, svgBar = 70, 48, 30, 24
	svgLeast, svgMost               = 640, 6000 // width of the time
	svgShortest                     = 24        // width of the shortest action, if it fits
)

// Colours of actions: blue, green and orange that people with red-green blindness tell apart; the chunk makes them lighter.
var svgColour = map[schedule.Kind][3]int{schedule.F: {0x8f, 0xb8, 0xde}, schedule.B: {0x7c, 0xc5, 0x8f}, schedule.W: {0xf2, 0xb3, 0x6b}}

// SVG draws the timeline as a picture of its own: no scripts, no fonts to load. Each bar has a title with its times.
func (d *Drawing) SVG(w io.Writer) error {
	out := &svgWriter{w: w}
	shortest := math.Inf(1)
	for _, list := range d.Line.Ranks {
		for _, s := range list {
			if s.End > s.Start {
				shortest = min(shortest, s.End-s.Start)
			}
		}
	}
	wide := float64(svgLeast)
	if !math.IsInf(shortest, 1) {
		wide = max(svgLeast, min(svgMost, d.Line.End/shortest*svgShortest))
	}
	scale := 0.0
	if d.Line.End > 0 {
		scale = wide / d.Line.End
	}
	height := svgTop + svgRow*d.Table.Stages + 62
	out.f(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" font-family="sans-serif" font-size="12">`+"\n",
		svgLeft+wide+90, height, svgLeft+wide+90, height)
	out.f(`<rect width="100%%" height="100%%" fill="white"/>` + "\n")
	out.f(`<text x="8" y="22" font-size="15">%s</text>`+"\n", d.headline())
	for i, list := range d.Line.Ranks {
		y := svgTop + svgRow*i
		out.f(`<text x="8" y="%d">stage %d</text><rect x="%d" y="%d" width="%.2f" height="%d" fill="#eeeeee"/>`+"\n", y+17, i, svgLeft, y, wide, svgBar)
		for _, s := range list {
			d.bar(out, s, y, scale)
		}
		out.f(`<text x="%.0f" y="%d">%d slots</text>`+"\n", svgLeft+wide+8, y+17, d.Table.Slots(i))
	}
	d.axis(out, wide, scale)
	d.legend(out)
	out.f("</svg>\n")
	return out.err
}

// bar draws one action.
func (d *Drawing) bar(out *svgWriter, s schedule.Span, y int, scale float64) {
	x, wide := svgLeft+s.Start*scale, (s.End-s.Start)*scale
	c := svgColour[s.Kind]
	for i := range c { // the last chunk is nearest to white
		c[i] += (255 - c[i]) * s.Chunk / (d.Table.Chunks + 1)
	}
	out.f(`<g><title>%s of micro-batch %d, chunk %d, slot %d: %.4g to %.4g</title>`, kindName[s.Kind], s.Micro, s.Chunk, s.Slot, s.Start, s.End)
	out.f(`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="#%02x%02x%02x" stroke="#444444" stroke-width="0.6"/>`, x, y, wide, svgBar, c[0], c[1], c[2])
	if name := fmt.Sprint(s.Micro); wide > 7*float64(len(name))+2 {
		out.f(`<text x="%.2f" y="%d" text-anchor="middle">%s</text>`, x+wide/2, y+17, name)
	}
	out.f("</g>\n")
}

var kindName = map[schedule.Kind]string{schedule.F: "forward", schedule.B: "backward", schedule.W: "weight gradient"}

// axis draws the time below the stages.
func (d *Drawing) axis(out *svgWriter, wide, scale float64) {
	y := svgTop + svgRow*d.Table.Stages + 6
	out.f(`<line x1="%d" y1="%d" x2="%.2f" y2="%d" stroke="#444444"/>`+"\n", svgLeft, y, svgLeft+wide, y)
	if scale == 0 {
		return
	}
	step := math.Pow(10, math.Ceil(math.Log10(60/scale)))
	for _, part := range []float64{5, 2} { // 1, 2 or 5 times a power of ten, at least 60 apart
		if step/part*scale >= 60 {
			step /= part
			break
		}
	}
	for k := 0; float64(k)*step <= d.Line.End*(1+1e-9); k++ {
		x := svgLeft + float64(k)*step*scale
		out.f(`<line x1="%.2f" y1="%d" x2="%.2f" y2="%d" stroke="#444444"/><text x="%.2f" y="%d" text-anchor="middle">%.4g</text>`+"\n",
			x, y, x, y+5, x, y+18, float64(k)*step)
	}
	if d.Unit != "" {
		out.f(`<text x="%.2f" y="%d">%s</text>`+"\n", svgLeft+wide+8, y+18, d.Unit)
	}
}

// legend explains the colours.
func (d *Drawing) legend(out *svgWriter) {
	y, x := svgTop+svgRow*d.Table.Stages+34, svgLeft
	for _, k := range []schedule.Kind{schedule.F, schedule.B, schedule.W} {
		if k == schedule.W && !d.Table.Split {
			continue
		}
		c := svgColour[k]
		out.f(`<rect x="%d" y="%d" width="14" height="14" fill="#%02x%02x%02x" stroke="#444444" stroke-width="0.6"/><text x="%d" y="%d">%s</text>`+"\n",
			x, y, c[0], c[1], c[2], x+20, y+12, kindName[k])
		x += 130
	}
	out.f(`<rect x="%d" y="%d" width="14" height="14" fill="#eeeeee" stroke="#444444" stroke-width="0.6"/><text x="%d" y="%d">waiting</text>`+"\n", x, y, x+20, y+12)
	if d.Table.Chunks > 1 {
		out.f(`<text x="%d" y="%d">the lighter, the later the chunk</text>`+"\n", x+100, y+12)
	}
}

// svgWriter keeps the first error.
type svgWriter struct {
	w   io.Writer
	err error
}

func (s *svgWriter) f(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}
