// Package response has what the responses of several families of routes share.
package response

// TypeCSV is the media type of CSV.
const TypeCSV = "text/csv"
