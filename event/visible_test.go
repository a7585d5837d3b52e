package event

import "testing"

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"plain, ünïcode 日本 🙂\t.": "plain, ünïcode 日本 🙂\t.",
		"\x1b[31mred\x1b[0m":     `\x1b[31mred\x1b[0m`,
		"a\x00b\x07c\x08d\x7f":   `a\x00b\x07c\x08d\x7f`,
		"two\nlines":             "two\nlines",
		"gone\rover":             `gone\rover`,
		"\u009b2J \u0085":        `\u009b2J \u0085`,
		"\x9b2J":                 `\x9b2J`, // the same for a terminal of eight bits
		"file\u202egpj.exe\u2066x\u2069\u200f\u061c\u2028": `file\u202egpj.exe\u2066x\u2069\u200f\u061c\u2028`,
		"\uFFFD, and half a character \xe6\x97":            "\uFFFD, and half a character " + `\xe6\x97`,
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
	if got := OneLine("first\nhora: second\x1b"); got != `first\nhora: second\x1b` {
		t.Errorf("%q", got)
	}
}
