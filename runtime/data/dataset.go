package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Options say how files become samples. The zero value suits arrays named like the inputs.
type Options struct {
	Map        map[string]string    // input name -> array name
	Transforms map[string]Transform // input name -> transform
	Tokens     string               // "u8", "u16" or "u32": the files are flat tokens of this type, whatever their names
}

// Dataset is an open data set, bound to the inputs of a program.
// Its methods may be called from several goroutines.
type Dataset struct {
	inputs  []Input
	columns []column
	files   *files
	samples int64 // rows, or windows that do not overlap
	starts  int64 // places where a random window may start; 0 for arrays
	notes   []string
}

// column is what one input is read from.
type column struct {
	key    string
	parts  []part
	row    int64 // bytes from one sample (tokens: one token) to the next
	bytes  int64 // bytes of a sample in the file
	out    int   // bytes of a sample in the program's type
	window int64 // tokens from a window to the next one that does not overlap; 1 for arrays
	shift  int64 // tokens before the first: 1 for "y"
	along  int   // the dim of the arrays that samples lie along, of the last file where they differ
	conv   *converter
}

// part is a column's share of one file.
type part struct {
	path       string
	data       []byte
	firstRow   int64 // number of its first sample
	firstStart int64 // number of its first random window
	pieces     int   // a sample is so many pieces, which lie apart by a row of all samples; 1 where samples follow one another
	rows       int   // samples of the file
}

// Open opens the files (patterns such as "train-*.npz" are resolved), finds the array of
// every input, and checks types, shapes and sizes. Only arrays that are used are read.
// Errors name file, array, and what there is and what was wanted.
func Open(paths []string, inputs []Input, opt Options) (*Dataset, error) {
	paths, err := expand(paths)
	if err != nil {
		return nil, err
	}
	f, err := openFiles(paths, opt.Tokens)
	if err != nil {
		return nil, err
	}
	d := &Dataset{inputs: inputs, files: f, samples: -1}
	if err := d.load(opt); err != nil {
		f.close()
		return nil, err
	}
	return d, nil
}

func (d *Dataset) load(opt Options) error {
	for _, name := range slices.Sorted(maps.Keys(opt.Transforms)) {
		if d.input(name) < 0 {
			return fmt.Errorf("--transform %s=…: the model has no such input", name)
		}
	}
	keys, err := bind(d.inputs, d.files.names(), d.shifted(opt.Map))
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(d.files.paths, ", "), err)
	}
	for i := range d.inputs {
		in := &d.inputs[i]
		for dim, n := range in.Shape {
			if n <= 0 {
				return fmt.Errorf("input %q: dim %d of a sample is %d, but sizes must be known", in.Name, dim, n)
			}
		}
		if kinds[in.DType].size == 0 {
			return fmt.Errorf("input %q: data cannot be read as %s", in.Name, in.DType)
		}
		var t *Transform
		if tr, ok := opt.Transforms[in.Name]; ok {
			t = &tr
		}
		c := column{key: keys[i], out: d.RowBytes(i)}
		if len(d.files.tokens) > 0 {
			err = d.tokenColumn(&c, in, t, slices.Contains(keys, "y"))
		} else {
			err = d.arrayColumn(&c, in, t)
		}
		if err != nil {
			return err
		}
		d.columns = append(d.columns, c)
	}
	if d.samples <= 0 {
		return fmt.Errorf("%s: there are no samples", strings.Join(d.files.paths, ", "))
	}
	return nil
}

// shifted adds to what the user maps, for tokens, the labels that the model shifts itself and what they go with: both are
// the window.
func (d *Dataset) shifted(mapped map[string]string) map[string]string {
	ahead := slices.ContainsFunc(d.inputs, func(in Input) bool { return in.Ahead > 0 })
	if len(d.files.tokens) == 0 || !ahead {
		return mapped
	}
	out := map[string]string{}
	for i := range d.inputs {
		if in := &d.inputs[i]; in.Ahead > 0 || len(d.inputs) == 2 {
			out[in.Name] = "x"
		}
	}
	maps.Copy(out, mapped)
	return out
}

func (d *Dataset) input(name string) int {
	for i := range d.inputs {
		if d.inputs[i].Name == name {
			return i
		}
	}
	return -1
}

// arrayColumn reads the array c.key of every file that has it.
func (d *Dataset) arrayColumn(c *column, in *Input, t *Transform) error {
	rows, dtype := int64(0), ""
	for k, src := range d.files.arrays {
		if !slices.Contains(src.Names(), c.key) {
			continue
		}
		path := d.files.paths[k]
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s: array %q: %s", path, c.key, fmt.Sprintf(format, args...))
		}
		got, shape, err := src.describe(c.key)
		if err != nil {
			return err
		}
		if len(shape) == 0 {
			return fail("it is a single number, but input %q needs one row for each sample", in.Name)
		}
		dim, err := in.batchDim(shape)
		switch {
		case err != nil:
			return fail("%v", err)
		case dtype != "" && dtype != got:
			return fail("it is %s, but in %s it is %s", got, c.parts[0].path, dtype)
		}
		dtype = got
		if c.conv, err = newConverter(got, in, t); err != nil {
			return fail("it is %s, but input %q needs %s: %v", got, in.Name, in.DType, err)
		}
		bytes, err := src.data(c.key)
		if err != nil {
			return err
		}
		if n := shape[dim]; n > 0 {
			p := part{path: path, data: bytes, firstRow: rows, pieces: 1, rows: n}
			for _, k := range shape[:dim] {
				p.pieces *= k
			}
			c.parts = append(c.parts, p)
		}
		c.along = max(c.along, dim)
		rows += int64(shape[dim])
	}
	c.bytes = int64(in.size() * kinds[dtype].size)
	c.row, c.window = c.bytes, 1
	if d.samples >= 0 && rows != d.samples {
		return fmt.Errorf("%s: array %q has %s, but %q has %d",
			strings.Join(d.files.paths, ", "), c.key, printable.Count(rows, "sample"), d.columns[0].key, d.samples)
	}
	d.samples = rows
	d.note(in, c, dtype)
	return nil
}

// tokenColumn makes c the windows "x" or "y" of the token files; next says that windows
// need one token more than they have, for "y".
func (d *Dataset) tokenColumn(c *column, in *Input, t *Transform, next bool) error {
	window := int64(in.size())
	if c.key == "y" {
		c.shift = 1
	}
	extra := int64(0)
	if next {
		extra = 1
	}
	samples, starts := int64(0), int64(0)
	for k, src := range d.files.tokens {
		path, n := d.files.paths[k], src.count()
		if src.dtype != d.files.tokens[0].dtype {
			return fmt.Errorf("%s: its tokens are %s, but those of %s are %s: say which they are with --tokens", path, src.dtype,
				d.files.paths[0], d.files.tokens[0].dtype)
		}
		if n < window+extra {
			return fmt.Errorf("%s: it has %s, fewer than one window of input %q needs (%d)", path, printable.Count(n, "token"), in.Name, window+extra)
		}
		c.parts = append(c.parts, part{path: path, data: src.Data, firstRow: samples, firstStart: starts, pieces: 1})
		samples += (n - extra) / window
		starts += n - window - extra + 1
	}
	dtype := d.files.tokens[0].dtype
	var err error
	if c.conv, err = newConverter(dtype, in, t); err != nil {
		return fmt.Errorf("%s: tokens are %s, but input %q needs %s: %v", d.files.paths[0], dtype, in.Name, in.DType, err)
	}
	c.row = int64(kinds[dtype].size)
	c.bytes, c.window = c.row*window, window
	if d.samples >= 0 && c.window != d.columns[0].window {
		return fmt.Errorf("%s: input %q needs windows of %s, but input %q windows of %d", d.files.paths[0],
			in.Name, printable.Count(window, "token"), d.inputs[0].Name, d.columns[0].window)
	}
	d.samples, d.starts = samples, starts
	d.note(in, c, dtype)
	return nil
}

func (d *Dataset) note(in *Input, c *column, dtype string) {
	s := fmt.Sprintf("%s %s%v <- %s %s", in.Name, in.DType, in.Shape, c.key, dtype)
	s = strings.ReplaceAll(s, "[]", "")
	if c.along > 0 {
		s += fmt.Sprintf(", samples along dim %d", c.along)
	}
	itself := fmt.Sprintf("the model shifts it by %d itself", in.Ahead)
	switch n := in.Ahead + int(c.shift); {
	case len(d.files.tokens) == 0 && in.Ahead > 0:
		s += ": " + itself + fmt.Sprintf(", its target at place t is element t+%d", n)
	case len(d.files.tokens) > 0 && in.Ahead > 0:
		s += fmt.Sprintf(": the target at token t is token t+%d, as ", n) + itself
	case len(d.files.tokens) > 0 && n > 0:
		s += fmt.Sprintf(": the target at token t is token t+%d", n)
	}
	d.notes = append(d.notes, s)
}

// Close gives the files back. Loaders must be closed before.
func (d *Dataset) Close() { d.files.close() }

// Inputs are the inputs that the data set was opened for.
func (d *Dataset) Inputs() []Input { return d.inputs }

// Len is the number of samples: rows of arrays, or windows of tokens that do not overlap.
func (d *Dataset) Len() int64 { return d.samples }

// Starts is the number of places where a random window may start; 0 for arrays.
func (d *Dataset) Starts() int64 { return d.starts }

// Bindings says for each input, for a log, which array it is read from and in what type.
func (d *Dataset) Bindings() []string { return d.notes }

// RowBytes is the size of one sample of an input, in the program's type.
func (d *Dataset) RowBytes(input int) int {
	return d.inputs[input].size() * kinds[d.inputs[input].DType].size
}

// Sampler deals the data set out in global batches, shuffled by seed. For tokens, random
// chooses windows that start anywhere (an epoch then has as many as would not overlap);
// it is ignored for arrays, where it has no meaning.
func (d *Dataset) Sampler(batch int, seed uint64, random bool) Sampler {
	s := Sampler{Samples: d.samples, Batch: batch, Seed: seed, Shuffle: true}
	if random && d.starts > 0 {
		s.Samples, s.PerEpoch, s.Random, s.Shuffle = d.starts, d.samples, true, false
	}
	return s
}

func (d *Dataset) newScratch() *scratch {
	n := 0
	for i := range d.inputs {
		n = max(n, d.inputs[i].size())
	}
	return &scratch{ints: make([]int64, n), floats: make([]float64, n), bytes: make([]byte, 0, 8*n)}
}

// read puts one sample of an input into dst. With random, sample counts the places where
// a random window may start.
func (d *Dataset) read(input int, sample int64, random bool, dst []byte, s *scratch) error {
	c := &d.columns[input]
	var p *part
	var at int64
	if random {
		p = find(c.parts, sample, func(p *part) int64 { return p.firstStart })
		at = sample - p.firstStart
	} else {
		p = find(c.parts, sample, func(p *part) int64 { return p.firstRow })
		at = (sample - p.firstRow) * c.window
	}
	off := (at + c.shift) * c.row
	var src []byte
	if p.pieces > 1 {
		src = p.gather(at, c.bytes, s)
	} else {
		src = p.data[off : off+c.bytes]
	}
	if err := c.conv.convert(dst, src, s); err != nil {
		where := fmt.Sprintf("array %q, sample %d", c.key, at)
		if c.row != c.bytes {
			where = fmt.Sprintf("the window from token %d", at+c.shift)
		}
		return fmt.Errorf("%s: %s, input %q: %w", p.path, where, d.inputs[input].Name, err)
	}
	return nil
}

// gather puts the pieces of sample at side by side, bytes in all.
func (p *part) gather(at, bytes int64, s *scratch) []byte {
	s.bytes = s.bytes[:0]
	piece := bytes / int64(p.pieces)
	for k := range int64(p.pieces) {
		from := (k*int64(p.rows) + at) * piece
		s.bytes = append(s.bytes, p.data[from:from+piece]...)
	}
	return s.bytes
}
