package daemon

import "strings"

// expect lists what is possible, the likely one by name.
func expect(got string, known []string) string {
	all := known[len(known)-1]
	if len(known) > 1 {
		all = strings.Join(known[:len(known)-1], ", ") + " or " + all
	}
	best, distance := "", 3 // more than two slips are another word
	for _, k := range known {
		if d := slips(got, k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	if best == "" {
		return all
	}
	return best + "? (" + all + ")"
}

// slips is the Levenshtein distance.
func slips(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j]+1, row[j+1]+1, diagonal+1)
			if a[i] == b[j] {
				next = diagonal
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
