package job

import "strings"

// Nearest returns the one of names that word begins, or is a slip of; "" without one.
func Nearest(word string, names []string) string {
	best, begun := "", 0
	least := len(word)/3 + 1
	for _, name := range names {
		if len(word) > 2 && strings.HasPrefix(name, word) {
			best, begun = name, begun+1
		} else if d := Slips(word, name); begun == 0 && len(word) > 1 && d < least {
			best, least = name, d
		}
	}
	if begun > 1 {
		return ""
	}
	return best
}

// Slips returns how many letters must be put in, left out or changed to make b of a; two that change places are one
// slip.
func Slips(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		for j := range len(b) {
			d := rows[i][j]
			if a[i] != b[j] {
				d++
			}
			d = min(d, rows[i][j+1]+1, rows[i+1][j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}
