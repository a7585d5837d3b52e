package event

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Visible shows what would act on a terminal instead of being read there, as \x1b or \u202e: control characters but tab
// and line end, what turns the direction of writing, and bytes that are no UTF-8. What hora says passes through it,
// since parts of it are others' words: a worker's last line, ssh's, an exception's.
func Visible(s string) string { return visible(s, "\t\n") }

// OneLine is Visible for a text within a line: line ends are shown as \n.
func OneLine(s string) string { return visible(s, "\t") }

func visible(s, kept string) string {
	from := strings.IndexFunc(s, func(r rune) bool { return acts(r) && !strings.ContainsRune(kept, r) })
	if from < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:from])
	for i := from; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !acts(r) || r == utf8.RuneError || strings.ContainsRune(kept, r):
			b.WriteString(s[i : i+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// acts reports characters that do something: the controls of ASCII and of Latin 1, Unicode's line ends and marks of
// direction. RuneError stands for a byte that is no UTF-8, and for the sign itself, which is kept where it is one.
func acts(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f, r == utf8.RuneError:
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}
