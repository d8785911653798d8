package mailmerge

import "slices"

// Fields that every recipient of a mailing has, whatever columns its file has.
const (
	FieldEmail          = "email"
	FieldToken          = "token"
	FieldNome           = "nome"
	FieldUnsubscribeURL = "unsubscribe_url"
)

// The order of the values that AppendTo is given: these four, then those of the
// mailing's own fields.
const (
	ValueEmail = iota
	ValueToken
	ValueNome
	ValueUnsubscribeURL
	OwnValues
)

// Place returns, for Bind, where the value of a field stands when the mailing's own
// fields are these, named as its templates write them.
func Place(fields []string) func(name string) (int, bool) {
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
		i := slices.Index(fields, name)
		return OwnValues + i, i >= 0
	}
}

// Values puts a recipient's values into their order.
func Values(address, token, nome, unsubscribeURL string, own []string) []string {
	values := make([]string, OwnValues, OwnValues+len(own))
	values[ValueEmail], values[ValueToken], values[ValueNome], values[ValueUnsubscribeURL] = address, token, nome, unsubscribeURL
	return append(values, own...)
}
