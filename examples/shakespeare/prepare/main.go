// Command prepare turns the text of examples/shakespeare into the token files that gtc trains on.
//
//	go run ./examples/shakespeare/prepare [-text FILE] [-out DIR]
//
// It writes train.bin (the first nine tenths) and val.bin (the last tenth), each one little-endian uint16 per
// character, and meta.json with the characters in token order. Tokens are numbered in code-point order, as nanoGPT's
// shakespeare_char preparation numbers them, so both read the same files.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// meta describes the vocabulary: token i stands for Chars[i].
type meta struct {
	VocabSize   int      `json:"vocab_size"`
	Chars       []string `json:"chars"`
	TrainTokens int      `json:"train_tokens"`
	ValTokens   int      `json:"val_tokens"`
}

func main() {
	text := flag.String("text", filepath.Join("examples", "shakespeare", "input.txt"), "the text to read, UTF-8")
	out := flag.String("out", "", "the folder to write to (default: the text's own)")
	flag.Parse()
	if *out == "" {
		*out = filepath.Dir(*text)
	}
	m, err := prepare(*text, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d characters in the vocabulary, %d train tokens, %d validation tokens\n",
		*out, m.VocabSize, m.TrainTokens, m.ValTokens)
}

// prepare reads the text and writes train.bin, val.bin and meta.json into the folder out.
func prepare(text, out string) (meta, error) {
	raw, err := os.ReadFile(text)
	if err != nil {
		return meta{}, err
	}
	tokens, chars, err := encode([]rune(string(raw)))
	if err != nil {
		return meta{}, fmt.Errorf("%s: %w", text, err)
	}
	split := len(tokens) * 9 / 10
	m := meta{VocabSize: len(chars), TrainTokens: split, ValTokens: len(tokens) - split}
	for _, c := range chars {
		m.Chars = append(m.Chars, string(c))
	}
	described, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return meta{}, err
	}
	for name, data := range map[string][]byte{
		"train.bin": littleEndian(tokens[:split]),
		"val.bin":   littleEndian(tokens[split:]),
		"meta.json": append(described, '\n'),
	} {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			return meta{}, err
		}
	}
	return m, nil
}

// encode numbers the characters of the text in code-point order.
func encode(text []rune) (tokens []uint16, chars []rune, err error) {
	if len(text) == 0 {
		return nil, nil, errors.New("the text is empty")
	}
	chars = slices.Clone(text)
	slices.Sort(chars)
	chars = slices.Compact(chars)
	if len(chars) > 1<<16 {
		return nil, nil, fmt.Errorf("%d different characters do not fit in uint16", len(chars))
	}
	number := make(map[rune]uint16, len(chars))
	for i, c := range chars {
		number[c] = uint16(i)
	}
	tokens = make([]uint16, len(text))
	for i, c := range text {
		tokens[i] = number[c]
	}
	return tokens, chars, nil
}

func littleEndian(tokens []uint16) []byte {
	out := make([]byte, 0, 2*len(tokens))
	for _, t := range tokens {
		out = binary.LittleEndian.AppendUint16(out, t)
	}
	return out
}
