// Package spelling guesses what a misspelt name was meant to be.
package spelling

import "strings"

// Nearest returns the name most similar to the word: one that begins with it, or differs in few letters. It returns
// "" if there is none.
func Nearest(word string, names []string) string {
	if word == "" {
		return ""
	}
	// One letter more than a third of them: "pdi" finds "pid", which is two letters away.
	best, least := "", 2+len(word)/3
	for _, n := range names {
		if strings.HasPrefix(n, word) || strings.HasSuffix(n, "-"+word) {
			return n
		}
		if d := distance(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance returns the Levenshtein distance in bytes: letters inserted, deleted or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
