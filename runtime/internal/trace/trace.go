// Package trace writes what ran when, in the Trace Event Format of Chrome (chrome://tracing, ui.perfetto.dev): a JSON
// array of complete events with times in microseconds.
//
// Source: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
package trace

import (
	"bufio"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// MaxEvents bounds a trace: viewers do not load much more. Later events are counted and left out.
const MaxEvents = 2_000_000

// Lanes of a rank, shown as threads.
const (
	LaneCalls = 1 // kernels, in order
	LaneComm  = 2 // collectives
	LaneLoop  = 3 // steps, data, evaluation, saving

	LaneActions = 4 // forward (F), backward (B) and weight gradient (W) passes of micro-batches
	LaneSends   = 5 // messages to other stages of a pipeline
	LaneRecvs   = 6 // messages from them, waiting included
)

// Writer is an open trace of one rank. Its methods may be called from several goroutines, and on a nil *Writer do
// nothing, so that a program without a trace pays one comparison.
type Writer struct {
	mu     sync.Mutex
	f      *os.File
	w      *bufio.Writer
	start  time.Time
	rank   int
	events int
	buf    []byte
	err    error
}

// Create makes the file at path for a rank, which becomes the trace's process number.
func Create(path string, rank int) (*Writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	t := &Writer{f: f, w: bufio.NewWriterSize(f, 1<<18), start: time.Now(), rank: rank, buf: make([]byte, 0, 1024)}
	t.w.WriteString("[\n")
	t.name("process_name", 0, "rank "+strconv.Itoa(rank))
	t.name("thread_name", LaneCalls, "calls")
	t.name("thread_name", LaneComm, "collectives")
	t.name("thread_name", LaneLoop, "loop")
	t.name("thread_name", LaneActions, "micro-batches")
	t.name("thread_name", LaneSends, "sends")
	t.name("thread_name", LaneRecvs, "receives")
	return t, nil
}

// name writes a metadata event.
func (t *Writer) name(kind string, lane int, name string) {
	b := append(t.buf[:0], `{"ph":"M","name":"`...)
	b = append(b, kind...)
	b = t.place(b, lane)
	b = append(b, `,"args":{"name":`...)
	b = quote(b, name)
	t.buf = append(b, "}},\n"...)
	t.put()
}

func (t *Writer) place(b []byte, lane int) []byte {
	b = append(b, `","pid":`...)
	b = strconv.AppendInt(b, int64(t.rank), 10)
	b = append(b, `,"tid":`...)
	return strconv.AppendInt(b, int64(lane), 10)
}

func (t *Writer) put() {
	if _, err := t.w.Write(t.buf); err != nil && t.err == nil {
		t.err = err
	}
}

// Add records that name, at a place in the model or "", ran from start for took. It allocates nothing.
func (t *Writer) Add(lane int, name, loc string, start time.Time, took time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events++; t.events > MaxEvents {
		return
	}
	b := append(t.buf[:0], `{"ph":"X`...)
	b = t.place(b, lane)
	b = append(b, `,"ts":`...)
	b = micros(b, start.Sub(t.start))
	b = append(b, `,"dur":`...)
	b = micros(b, took)
	b = append(b, `,"name":`...)
	b = quote(b, name)
	if loc != "" {
		b = append(b, `,"args":{"loc":`...)
		b = quote(b, loc)
		b = append(b, '}')
	}
	t.buf = append(b, "},\n"...)
	t.put()
}

// micros prints d in microseconds with three decimals.
func micros(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d)/1e3, 'f', 3, 64)
}

// quote appends s as a JSON string; strconv's Go quoting differs in its escapes.
func quote(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return append(b, '"')
}

// Close ends the file and returns the first error there was. It may be called on nil.
func (t *Writer) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := "the end"
	if lost := t.events - MaxEvents; lost > 0 {
		last = strconv.Itoa(lost) + " more events were left out"
	}
	b := append(t.buf[:0], `{"ph":"i","s":"p`...)
	b = t.place(b, LaneLoop)
	b = append(b, `,"ts":`...)
	b = micros(b, time.Since(t.start))
	b = append(b, `,"name":`...)
	t.buf = append(quote(b, last), "}\n]\n"...)
	t.put()
	if err := t.w.Flush(); t.err == nil {
		t.err = err
	}
	if err := t.f.Close(); t.err == nil {
		t.err = err
	}
	return t.err
}
