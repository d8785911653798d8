package email

import (
	"regexp"
	"strings"
)

// MaskAddress shortens an address for a log: user@example.com → u***@e***.com. Anything else
// becomes "***".
func MaskAddress(address string) string {
	local, domain, ok := strings.Cut(address, "@")
	if !ok || local == "" || domain == "" {
		return "***"
	}
	top := domain[strings.LastIndex(domain, ".")+1:]
	if top == domain {
		return firstRune(local) + "***@" + firstRune(domain) + "***"
	}
	return firstRune(local) + "***@" + firstRune(domain) + "***." + top
}

// MaskHash shortens a hash of a CPF or CNPJ for a log: the first eight characters.
func MaskHash(hash string) string {
	if len(hash) < 8 {
		return ""
	}
	return hash[:8] + "..."
}

// The pattern matches more than valid addresses on purpose: in a log, masking too much is better
// than leaking an address.
var addressInText = regexp.MustCompile(`[^\s<>"'(),:;\[\]\\]+@[^\s<>"'(),:;\[\]\\]+`)

// Candidates for a CPF or CNPJ, with any dash or slash; ParseTaxID validates them.
var taxIDInText = regexp.MustCompile(strings.ReplaceAll(
	`\b(?:[0-9A-Za-z]{2}P[0-9A-Za-z]{3}P[0-9A-Za-z]{3}P[0-9A-Za-z]{4}|[0-9]{3}P[0-9]{3}P[0-9]{3})P[0-9]{2}\b`,
	"P", `[.\-/\p{Pd}\x{ad}\x{b7}\x{200b}-\x{200d}\x{2024}\x{2044}\x{2060}\x{2212}\x{2215}\x{feff}\x{ff0e}\x{ff0f}]?`))

// MaskText masks every address and every valid CPF and CNPJ in a text, such as a provider's error
// message.
func MaskText(text string) string {
	text = taxIDInText.ReplaceAllStringFunc(text, func(found string) string {
		if _, err := ParseTaxID(found); err != nil {
			return found
		}
		return "***"
	})
	return addressInText.ReplaceAllStringFunc(text, func(found string) string {
		bare := strings.TrimRight(found, ".")
		return MaskAddress(bare) + found[len(bare):]
	})
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// MaskHashes masks the values named cpfCnpjHash in a decoded JSON value.
func MaskHashes(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			MaskHashes(element)
		}
	case map[string]any:
		for name, element := range v {
			if hash, ok := element.(string); ok && name == "cpfCnpjHash" {
				v[name] = MaskHash(hash)
				continue
			}
			MaskHashes(element)
		}
	}
}
