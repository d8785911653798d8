package person

const (
	DeadLettersSQL = personDeadLettersSQL
	RecipientsSQL  = personRecipientsSQL
)
