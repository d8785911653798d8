package load

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	// taxIDPrefix is the prefix of every CPF of the run, by which leaked CPFs are found.
	taxIDPrefix = "529"
	// The CPFs of emails, of persons and of imported recipients do not overlap: each person has a
	// unique one, because an erasure deletes all data that a company holds under a CPF.
	personTaxIDs    = 500_000
	recipientTaxIDs = 800_000
	taxIDs          = 1_000_000
)

// TaxID returns the n-th CPF without punctuation: the prefix, six digits of n, and the check
// digits.
func TaxID(n int) string {
	digits := fmt.Sprintf("%s%06d", taxIDPrefix, n%taxIDs)
	digits += checkDigit(digits)
	return digits + checkDigit(digits)
}

// checkDigit returns the next digit: the last one has the weight 2, the one before it 3, and so on.
func checkDigit(digits string) string {
	sum := 0
	for i, digit := range digits {
		sum += int(digit-'0') * (len(digits) + 1 - i)
	}
	return fmt.Sprint(sum * 10 % 11 % 10)
}

// written returns the n-th CPF with or without punctuation.
func written(n int) string {
	id := TaxID(n)
	if n%2 == 0 {
		return id
	}
	return id[:3] + "." + id[3:6] + "." + id[6:9] + "-" + id[9:]
}

var taxIDForm = regexp.MustCompile(`\b` + taxIDPrefix + `(?:\d{8}|\.\d{3}\.\d{3}-\d{2})\b`)

// FindTaxID returns the start and end of a CPF in text; nil if there is none. Other numbers of
// eleven digits fail the check digits.
func FindTaxID(text []byte) []int {
	for _, at := range taxIDForm.FindAllIndex(text, -1) {
		digits := strings.NewReplacer(".", "", "-", "").Replace(string(text[at[0]:at[1]]))
		if digits[9:] == checkDigit(digits[:9])+checkDigit(digits[:10]) {
			return at
		}
	}
	return nil
}
