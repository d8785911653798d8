package mailmerge

import "slices"

// Fields of every recipient of a mailing, whatever columns its file has.
const (
	FieldEmail          = "email"
	FieldToken          = "token"
	FieldNome           = "nome"
	FieldUnsubscribeURL = "unsubscribe_url"
)

// The order of the values for AppendTo: these four, then those of the mailing's own fields.
const (
	ValueEmail = iota
	ValueToken
	ValueNome
	ValueUnsubscribeURL
	OwnValues
)

// Place returns the index function for Bind, for the mailing's own fields with the names used in
// its templates.
func Place(fields []string) func(name string) (int, bool) {
	index := make(map[string]int, len(fields))
	for i, name := range slices.Backward(fields) { // of equal names the first counts
		index[name] = OwnValues + i
	}
	return func(name string) (int, bool) {
		switch name {
		case FieldEmail:
			return ValueEmail, true
		case FieldToken:
			return ValueToken, true
		case FieldNome:
			return ValueNome, true
		case FieldUnsubscribeURL:
			return ValueUnsubscribeURL, true
		}
		i, ok := index[name]
		return i, ok
	}
}

// Values returns a recipient's values in this order.
func Values(address, token, nome, unsubscribeURL string, own []string) []string {
	values := make([]string, OwnValues, OwnValues+len(own))
	values[ValueEmail], values[ValueToken], values[ValueNome], values[ValueUnsubscribeURL] = address, token, nome, unsubscribeURL
	return append(values, own...)
}
