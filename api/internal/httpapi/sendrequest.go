package httpapi

// sendRequest is the body of POST /v1/email/send. Pointers tell an empty value,
// which is refused, from none.
type sendRequest struct {
	To        string            `json:"to" validate:"required,address"`
	CC        []string          `json:"cc" validate:"max=5,dive,required,address"`
	BCC       []string          `json:"bcc" validate:"max=5,dive,required,address"`
	Subject   string            `json:"subject" validate:"required,line,max=150"`
	HTML      string            `json:"html" validate:"required,bytes=524288"`
	Text      string            `json:"text" validate:"bytes=524288"`
	ReplyTo   *string           `json:"replyTo" validate:"omitnil,address"`
	From      *string           `json:"from" validate:"omitnil,max=1000,mailbox"`
	Headers   map[string]string `json:"headers" validate:"max=10,dive,keys,headername,unreserved,endkeys,headervalue"`
	Tags      []string          `json:"tags" validate:"max=5,dive,required,max=64,printable"`
	Recipient *recipientRequest `json:"recipient" validate:"required"`
	Priority  *int              `json:"priority" validate:"omitnil,min=1,max=10"`
	SendAt    *string           `json:"sendAt" validate:"omitnil,timestamp"`
	Delivery  *string           `json:"delivery" validate:"omitnil,oneof=at_least_once at_most_once"`
}

// recipientRequest is the person behind the address. At least one of the first four
// names the person.
type recipientRequest struct {
	RecipientID *string `json:"recipientId" validate:"omitnil,id"`
	ExternalID  *string `json:"externalId" validate:"omitnil,min=1,max=200,line"`
	CPFCNPJ     *string `json:"cpfCnpj" validate:"omitnil,cpfcnpj"`
	CPFCNPJHash *string `json:"cpfCnpjHash" validate:"omitnil,taxidhash"`
	RazaoSocial string  `json:"razaoSocial" validate:"max=200,line"`
	Nome        string  `json:"nome" validate:"max=200,line"`
	Email       string  `json:"email" validate:"required,address"`
}

// identified says whether the person is named by anything but an address.
func (r *recipientRequest) identified() bool {
	return r.RecipientID != nil || r.ExternalID != nil || r.CPFCNPJ != nil || r.CPFCNPJHash != nil
}

// value is what p points to, or other.
func value[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}
