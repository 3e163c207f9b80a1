package tests

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// tellers are functions whose first string is a message that people read: errors, warnings, notes, and what passes say.
var tellers = strings.Fields("Errorf New Fail fail wrong refuse fault Usagef Warn Note Remark during")

// capitals are words with which a message may begin though they begin with a capital letter.
var capitals = strings.Fields("BUG Python PyTorch Go PowerSGD CudaError")

// jargon are words of gtc's own, and forms that are no plain English, with what is said instead.
var jargon = map[*regexp.Regexp]string{
	regexp.MustCompile(`\b(is|are) none of\b`):                                           "is not one of, must be",
	regexp.MustCompile(`\bwhich is none\b`):                                              "which is not one",
	regexp.MustCompile(`\bnobody\b`):                                                     "no rank, no node, …",
	regexp.MustCompile(`\bwants?\b`):                                                     "needs, must be",
	regexp.MustCompile(`\b(samples|ranks) meet\b|\bnone meet\b`):                         "depend on one another, connect",
	regexp.MustCompile(`\blies? alike\b`):                                                "has the same layout",
	regexp.MustCompile(`\btrained apart\b`):                                              "trained separately",
	regexp.MustCompile(`\bdoes not divide (by|over|among|into)\b|\bdo not divide\b`):     "is not divisible by",
	regexp.MustCompile(`\b(which|that) (the )?\w+ has not\b`):                            "does not have",
	regexp.MustCompile(`\b(landing|home|own|loose) of (the )?(value|group|call|axis)\b`): "the words of the IR's glossary",
}

// isNo is "is no tensor", which plain English says as "is not a tensor"; "there is no tensor" is plain.
var isNo = regexp.MustCompile(`(\w+\s)?\S*\s?\b(?:is|are) no (\w+)`)

// bracket is a bracket that needs no other.
var bracket = regexp.MustCompile(`\[[^][()]*\)|'[()]'`)

// mentioned is a flag that a message mentions.
var mentioned = regexp.MustCompile(`(?:^|[^\w-])--([a-z][a-z0-9-]*)`)

// foreign are flags of other programs that messages may mention.
var foreign = strings.Fields("version")

// TestMessages: messages are sentences that begin small and end without a full stop, name flags that exist, and do without
// words of gtc's own.
func TestMessages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, m := range mentioned.FindAllStringSubmatch(string(text), -1) {
		flags = append(flags, m[1])
	}
	count := 0
	for _, f := range handWritten(t) {
		if !spoken(f.path) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !slices.Contains(tellers, called(call)) {
				return true
			}
			message, ok := firstText(call)
			if !ok {
				return true
			}
			count++
			for _, fault := range append(spelling(message), wording(message, flags)...) {
				t.Errorf("%s: %s: %q", f.where(call.Pos()), fault, message)
			}
			return true
		})
	}
	if count < 1500 {
		t.Errorf("only %d messages were found: have the functions that tell them other names?", count)
	}
}

// spoken reports whether messages of a file are read by users of gtc: not those of tests, of benchmarks and of examples.
func spoken(file string) bool {
	folder := path.Dir(file)
	outside := slices.ContainsFunc([]string{"tests", "bench", "examples", "internal"}, func(top string) bool { return strings.HasPrefix(file, top+"/") })
	return !outside && !strings.HasSuffix(file, "_test.go") && !strings.HasSuffix(folder, "test") && !strings.Contains(folder, "test/")
}

// called is the name of the function or method that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && f.Sel.Name == "New" && x.Name != "errors" {
			return ""
		}
		return f.Sel.Name
	}
	return ""
}

// firstText is the first argument that is a constant string, if it is among the first two.
func firstText(call *ast.CallExpr) (string, bool) {
	for _, arg := range call.Args[:min(2, len(call.Args))] {
		if s, ok := constant(arg); ok {
			return s, true
		}
	}
	return "", false
}

// constant is a string literal, or a sum of them.
func constant(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		if x.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(x.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		a, first := constant(x.X)
		b, second := constant(x.Y)
		return a + b, first && second && x.Op == token.ADD
	}
	return "", false
}

// spelling lists faults in how a message is written.
func spelling(s string) (faults []string) {
	if s == "" {
		return []string{"an empty message"}
	}
	if last := s[len(s)-1]; last == '\n' || last == ' ' || last == '.' && !strings.HasSuffix(s, "...") {
		faults = append(faults, "it ends in a full stop, a space or a new line")
	}
	if strings.HasPrefix(s, " ") || strings.Contains(regexp.MustCompile(`\n\s*`).ReplaceAllString(s, "\n"), "  ") {
		faults = append(faults, "it has a space too many")
	}
	if strings.Count(s, `"`)%2 != 0 || strings.Count(s, "“") != strings.Count(s, "”") {
		faults = append(faults, "a quote does not end")
	}
	plain := bracket.ReplaceAllString(s, "") // [0,1) is an interval, ')' a character
	if strings.Count(plain, "(") != strings.Count(plain, ")") {
		faults = append(faults, "a bracket does not close")
	}
	word := s[:strings.IndexFunc(s+" ", func(r rune) bool { return !unicode.IsLetter(r) })]
	acronym := strings.IndexFunc(word[min(1, len(word)):], unicode.IsUpper) >= 0 // NCCL, ZeRO, GTC_NAN
	if word != "" && unicode.IsUpper(rune(word[0])) && len(word) > 1 && !acronym && !slices.Contains(capitals, word) {
		faults = append(faults, "it begins with a capital letter")
	}
	return faults
}

// wording lists faults in the words of a message.
func wording(s string, flags []string) (faults []string) {
	for word, instead := range jargon {
		if m := word.FindString(s); m != "" {
			faults = append(faults, fmt.Sprintf("%q is no word of users (%s)", m, instead))
		}
	}
	for _, m := range isNo.FindAllStringSubmatch(s, -1) {
		if !strings.HasPrefix(strings.TrimSpace(m[0]), "there") && !strings.Contains(m[0], " there ") && m[2] != "longer" && m[2] != "more" {
			faults = append(faults, fmt.Sprintf("%q is said as is not a", m[0]))
		}
	}
	for _, m := range mentioned.FindAllStringSubmatch(s, -1) {
		if !slices.Contains(flags, m[1]) && !slices.Contains(foreign, m[1]) {
			faults = append(faults, fmt.Sprintf("--%s is no flag of gtc or its programs", m[1]))
		}
	}
	return faults
}
