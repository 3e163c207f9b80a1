package cuda

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cacheVariable names the folder of the file of choices; "off" has none be read or written.
const cacheVariable = "GTC_TUNE_CACHE"

// choice is how a product is done best: by cuBLASLt with an algorithm, or by gtc's own kernel where there is none.
type choice struct {
	Algo  []string `json:"algo,omitempty"`  // eight words, hexadecimal
	Apart bool     `json:"apart,omitempty"` // the sums are made by a kernel of gtc's
	Micro float64  `json:"us"`              // microseconds that it took
}

// algo is the algorithm of a choice; nil stands for gtc's own kernel. A damaged one is told by ok.
func (c choice) algo() (a *blasAlgo, ok bool) {
	if len(c.Algo) == 0 {
		return nil, true
	}
	a = &blasAlgo{}
	if len(c.Algo) != len(a) {
		return nil, false
	}
	for i, text := range c.Algo {
		n, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return nil, false
		}
		a[i] = n
	}
	return a, true
}

func choiceOf(a *blasAlgo, micro float64) choice {
	c := choice{Micro: micro}
	if a != nil {
		for _, n := range a {
			c.Algo = append(c.Algo, strconv.FormatUint(n, 16))
		}
	}
	return c
}

// choices are kept in a file for each kind of device, driver and version of the library, so that only the first run of a program
// on a machine tries products out. A file that cannot be read or written is as good as none.
type choices struct {
	file string // "" for none
	list map[string]choice
}

// openChoices reads the file of choices of products for a device.
func openChoices(device, driver string, version int) *choices {
	return choicesIn(fmt.Sprintf("products %s cuda%s cublaslt%d", device, driver, version))
}

// choicesIn reads the file of choices of that name, less what names of files do not have.
func choicesIn(name string) *choices {
	c := &choices{list: map[string]choice{}}
	dir := os.Getenv(cacheVariable)
	if dir == "off" {
		return c
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return c
		}
		dir = filepath.Join(user, "gtc")
	}
	clean := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}
	c.file = filepath.Join(dir, strings.Map(clean, name)+".json")
	c.read()
	return c
}

// read adds what the file has.
func (c *choices) read() {
	if c.file == "" {
		return
	}
	text, err := os.ReadFile(c.file)
	list := map[string]choice{}
	if err != nil || json.Unmarshal(text, &list) != nil {
		return
	}
	for key, ch := range list {
		if _, ok := ch.algo(); ok {
			c.list[key] = ch
		}
	}
}

// alone runs f while no other process of this machine does, with what the others chose meanwhile: ranks that start together try
// products one after the other, undisturbed, and agree, so that what they compute redundantly stays equal bit for bit. Where
// that cannot be had f runs anyway.
func (c *choices) alone(f func()) {
	if c.file == "" || os.MkdirAll(filepath.Dir(c.file), 0o755) != nil {
		f()
		return
	}
	unlock := lock(c.file + ".lock")
	defer unlock()
	c.read()
	f()
}

// keep adds a choice, to the file too, which is replaced as a whole.
func (c *choices) keep(key string, ch choice) {
	c.list[key] = ch
	if c.file == "" {
		return
	}
	c.read()
	c.list[key] = ch
	text, err := json.MarshalIndent(c.list, "", " ")
	if err != nil || os.MkdirAll(filepath.Dir(c.file), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(c.file), "products*")
	if err != nil {
		return
	}
	_, err = f.Write(append(text, '\n'))
	if f.Close() != nil || err != nil || os.Chmod(f.Name(), 0o644) != nil || os.Rename(f.Name(), c.file) != nil {
		os.Remove(f.Name())
	}
}
