package email

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"unicode"
)

// ErrTaxID is returned by ParseTaxID for anything that is neither a CPF nor a CNPJ.
var ErrTaxID = errors.New("is neither a valid CPF nor a valid CNPJ")

// ParseTaxID parses a CPF (11 digits) or a CNPJ (14 characters, the first twelve of them letters or
// digits since 2026), with or without punctuation, verifies its check digits and returns it without
// punctuation in upper case. Punctuation may be typographic: a dash of any length, a no-break
// space. An apostrophe before the number is ignored: spreadsheets and ERPs write it to keep leading zeros. These are never
// added: a number that lost them is rejected.
func ParseTaxID(text string) (string, error) {
	bare := strings.Map(func(r rune) rune {
		switch {
		case isTaxIDPunctuation(r):
			return -1
		case r >= 'a' && r <= 'z': // strings.ToUpper would also make an S of ſ and an I of ı
			return r - 'a' + 'A'
		}
		return r
	}, strings.TrimLeft(text, "'’"))
	if strings.Count(bare, bare[:min(1, len(bare))]) == len(bare) {
		return "", ErrTaxID // empty, or one repeated character: valid check digits, but never issued
	}
	switch {
	case len(bare) == 11 && isCPF(bare), len(bare) == 14 && isCNPJ(bare):
		return bare, nil
	}
	return "", ErrTaxID
}

func isTaxIDPunctuation(r rune) bool {
	if r < 0x80 {
		return r == '.' || r == '-' || r == '/' || r == ' '
	}
	switch r {
	case '\u00b7', '\u2024', '\u2044', '\u2212', '\u2215', '\uff0e', '\uff0f': // · ․ ⁄ − ∕ ． ／
		return true
	}
	return unicode.Is(unicode.Pd, r) || IsInvisible(r) && r != '\u0085' && r != '\u2028' && r != '\u2029'
}

// HashTaxID returns the only form in which a CPF or CNPJ leaves the api: the SHA-256 of the bare
// number, which equals a tenant's own hash. With a key it is HMAC-SHA-256(key, SHA-256), which
// cannot be reversed with a list of all CPFs.
func HashTaxID(bare string, key []byte) string {
	sum := sha256.Sum256([]byte(bare))
	return KeyTaxIDHash(hex.EncodeToString(sum[:]), key)
}

// KeyTaxIDHash converts a plain SHA-256 (64 hex digits, as sent by a tenant) to the stored form.
// Without a key it is returned unchanged.
func KeyTaxIDHash(hash string, key []byte) string {
	if len(key) == 0 {
		return hash
	}
	sum, err := hex.DecodeString(hash)
	if err != nil {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(sum)
	return hex.EncodeToString(mac.Sum(nil))
}

func isCPF(s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		return false
	}
	return s[9] == cpfDigit(s[:9]) && s[10] == cpfDigit(s[:10])
}

// cpfDigit weights the digits from len+1 down to 2; the digit is the remainder of ten times the sum
// by eleven, with ten as zero.
func cpfDigit(s string) byte {
	sum := 0
	for i := range len(s) {
		sum += int(s[i]-'0') * (len(s) + 1 - i)
	}
	return byte('0' + sum*10%11%10)
}

func isCNPJ(s string) bool {
	for i := range 12 {
		if !isLetterOrDigit(rune(s[i])) {
			return false
		}
	}
	return s[12] == cnpjDigit(s[:12]) && s[13] == cnpjDigit(s[:13])
}

// cnpjDigit weights each character, with the value of its ASCII code less 48 (so A is 17), from the
// right by 2 to 9 repeatedly (IN RFB 2.229/2024).
func cnpjDigit(s string) byte {
	sum, weight := 0, 2
	for i := len(s) - 1; i >= 0; i-- {
		sum += int(s[i]-'0') * weight
		if weight++; weight > 9 {
			weight = 2
		}
	}
	if r := sum % 11; r >= 2 {
		return byte('0' + 11 - r)
	}
	return '0'
}
