package sesmail

// Input is the body of SendEmail, with the fields that the simulator reads.
type Input struct {
	FromEmailAddress string
	Destination      struct {
		ToAddresses  []string
		CcAddresses  []string
		BccAddresses []string
	}
	ReplyToAddresses     []string
	ConfigurationSetName string
	EmailTags            []Pair
	Content              struct {
		Simple   *simpleContent
		Raw      *struct{}
		Template *struct{}
	}
}

type simpleContent struct {
	Subject *content
	Body    struct {
		Text *content
		Html *content
	}
	Headers     []Pair
	Attachments []sentAttachment
}

type content struct {
	Data    *string
	Charset string
}

// Fill copies the request's fields into m, valid or not: the ledger shows refused mails too.
func (in *Input) Fill(m *Mail) {
	m.From = in.FromEmailAddress
	if m.To = in.Destination.ToAddresses; m.To == nil {
		m.To = []string{} // "to" is always a list in our JSON
	}
	m.CC = in.Destination.CcAddresses
	m.BCC = in.Destination.BccAddresses
	m.ReplyTo = in.ReplyToAddresses
	m.ConfigurationSet = in.ConfigurationSetName
	m.Tags = in.EmailTags
	for _, tag := range in.EmailTags {
		switch tag.Name {
		case "outbox_id":
			m.OutboxID = tag.Value
		case "attempt_id":
			m.AttemptID = tag.Value
		case "company_id":
			m.CompanyID = tag.Value
		}
	}
	if c := in.Content.Simple; c != nil {
		m.Subject = c.Subject.asSent()
		m.Text = c.Body.Text.asSent()
		m.HTML = c.Body.Html.asSent()
		m.Headers = c.Headers
		for i := range c.Attachments {
			m.Attachments = append(m.Attachments, c.Attachments[i].arrived())
		}
	}
}
