package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestPrepareSplitsAndNumbers(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "in.txt")
	if err := os.WriteFile(text, []byte("hello\nworld"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := prepare(text, dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.VocabSize != 8 || m.TrainTokens != 9 || m.ValTokens != 2 {
		t.Errorf("got %+v, want 8 characters, 9 and 2 tokens", m)
	}
	// "\n" d e h l o r w: "hello\nwor" and "ld".
	for name, want := range map[string]string{"train.bin": "\x03\x00\x02\x00\x04\x00\x04\x00\x05\x00\x00\x00\x07\x00\x05\x00\x06\x00", "val.bin": "\x04\x00\x01\x00"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q %v, want %q", name, got, err, want)
		}
	}
	var held meta
	raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil || json.Unmarshal(raw, &held) != nil || len(held.Chars) != 8 || held.Chars[3] != "h" {
		t.Errorf("meta.json: %s %v", raw, err)
	}
}

func TestPrepareRefusesWhatItCannotEncode(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.txt")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{empty, filepath.Join(dir, "absent.txt")} {
		if _, err := prepare(text, dir); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
