package main

import (
	"os"
	"testing"
)

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) != "" {
		os.Exit(rankMain())
	}
	os.Exit(m.Run())
}

// TestProcesses has gtc's side reduce a little between three processes, which check the sum.
func TestProcesses(t *testing.T) {
	seconds, err := processes{}.run(3, options{bytes: 100_004, warm: 1, times: 4})
	if err != nil {
		t.Fatal(err)
	}
	if len(seconds) != 4 || median(seconds) <= 0 {
		t.Errorf("times are %v", seconds)
	}
}

func TestNumbers(t *testing.T) {
	if _, err := numbers("0.5\n", 2); err == nil {
		t.Error("a missing time is no error")
	}
	if _, err := numbers("0.5\nfast\n", 2); err == nil {
		t.Error("a time that is no number is no error")
	}
}
