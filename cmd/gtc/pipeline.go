package main

import (
	"fmt"
	"slices"
	"strings"

	pipeline "github.com/gtc-compiler/gtc/distributed/schedule"
)

// rates are the courses that a learning rate can take over the steps.
var rates = []string{"constant", "linear", "cosine", "step"}

// scheduleFlag is --schedule, which names two things by words that never meet: how the learning rate goes over the steps,
// and in what order the stages of a pipeline work. Without rate it takes the second only.
type scheduleFlag struct {
	rate, pipe *string
	rated      bool // rate was given, and is not its default
}

// Set takes either word, each once.
func (f *scheduleFlag) Set(word string) error {
	switch {
	case slices.Contains(pipeline.Names(), word):
		if *f.pipe != "" {
			return fmt.Errorf("the pipeline already has the schedule %s", *f.pipe)
		}
		*f.pipe = word
	case f.rate == nil:
		return fmt.Errorf("it must be one of %s", strings.Join(pipeline.Names(), ", "))
	case !slices.Contains(rates, word):
		return fmt.Errorf("it must be one of %s for the learning rate, or of %s for a pipeline", strings.Join(rates, ", "), strings.Join(pipeline.Names(), ", "))
	case f.rated:
		return fmt.Errorf("the learning rate already has the schedule %s", *f.rate)
	default:
		*f.rate, f.rated = word, true
	}
	return nil
}

// Type is what the help calls the value when the usage text does not.
func (f *scheduleFlag) Type() string { return "NAME" }

// String lists the words, that of the learning rate first.
func (f *scheduleFlag) String() string {
	if f.pipe == nil {
		return ""
	}
	if f.rate == nil {
		return *f.pipe
	}
	return strings.TrimSpace(*f.rate + " " + *f.pipe)
}
