package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest/carry"
	"github.com/gtc-compiler/gtc/runtime/device"
)

const (
	windows = 7  // in which time is taken
	times   = 10 // launches of a window: what it takes to wait for them is small beside
)

// bench times the case of a file and prints a line.
func bench(g *carry.Group) error {
	d, status, err := open(g)
	if err != nil {
		return err
	}
	defer d.Close()
	for i := range g.Cases {
		us, err := timed(d, &g.Cases[i], status)
		if err != nil {
			return err
		}
		c := &g.Cases[i]
		line := fmt.Sprintf(`{"micro":%q,"by":"gtc","us":%.1f,"lowest":%.1f,"highest":%.1f`, c.Name, us[len(us)/2], us[0], us[len(us)-1])
		if c.Flops > 0 {
			line += fmt.Sprintf(`,"tflops":%.1f`, c.Flops/us[len(us)/2]/1e6)
		}
		if c.Bytes > 0 {
			line += fmt.Sprintf(`,"tb_per_s":%.3f`, c.Bytes/us[len(us)/2]/1e6)
		}
		fmt.Printf("%s,\"launches\":%d}\n", line, len(c.Launches))
	}
	return nil
}

// timed gives the microseconds of the case's launches by window, sorted.
func timed(d device.Device, c *carry.Case, status int) ([]float64, error) {
	for _, s := range c.Filled {
		if err := fill(d, s); err != nil {
			return nil, err
		}
	}
	w, err := d.Prepare(&device.Task{Launches: c.Launches, Status: status})
	if err != nil {
		return nil, err
	}
	var us []float64
	for i := range windows + 1 {
		start := time.Now()
		for range times {
			if err := d.Main().Run(w); err != nil {
				return nil, err
			}
		}
		if err := d.Main().Sync(); err != nil {
			return nil, err
		}
		if i > 0 { // the first one readies the device
			us = append(us, time.Since(start).Seconds()*1e6/times)
		}
	}
	slices.Sort(us)
	return us, nil
}

// fill puts numbers into memory, which as f32 and as bf16 lie between 1/2 and 2 or -2 and -1/2: kernels that look at data must
// find some, and a device that computes with zeros is cooler and faster.
func fill(d device.Device, s carry.Span) error {
	r := rand.New(rand.NewPCG(1, uint64(s.From)))
	chunk := make([]byte, min(s.To-s.From, 16<<20)&^3)
	for at := 0; at < len(chunk); at += 4 {
		binary.LittleEndian.PutUint32(chunk[at:], r.Uint32()&0x80ff80ff|0x3f003f00)
	}
	for at := s.From; at < s.To; at += len(chunk) {
		part := chunk[:min(len(chunk), s.To-at)]
		if err := d.Put(at, part); err != nil || len(part) == 0 {
			return err
		}
	}
	return nil
}
