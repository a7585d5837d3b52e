package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hora/job"
	"hora/server/client"
)

// problem is an error as it is answered.
type problem struct{ client.Fault }

func (p *problem) GetStatus() int { return p.Status }

func (p *problem) ContentType(string) string { return "application/problem+json" }

// NewFault makes an error's answer: one sentence with all that is wrong. cmd/horad gives it to the HTTP library.
func NewFault(status int, text string, errs ...error) huma.StatusError {
	p := &problem{client.Fault{Status: status, Title: http.StatusText(status), Detail: text}}
	var said []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		d := client.FaultDetail{Message: err.Error()}
		if detailed, ok := err.(huma.ErrorDetailer); ok {
			e := detailed.ErrorDetail()
			d = client.FaultDetail{Message: e.Message, Location: e.Location, Value: e.Value}
		}
		where := strings.TrimPrefix(strings.TrimPrefix(d.Location, "body"), ".")
		if _, is := d.Value.(null); is && where != "" {
			d.Message = where + " is null: leave it out, or give it a value"
		} else if d.Message == "unexpected property" {
			d.Message = "there is no field " + where
			if near := job.Nearest(strings.ReplaceAll(where, "-", "_"), fieldNames); near != "" {
				d.Message += ": did you mean " + near + "?"
			}
		} else if where != "" {
			d.Message = where + ": " + d.Message
		}
		said = append(said, d.Message)
		p.Errors = append(p.Errors, d)
	}
	if len(said) > 0 {
		p.Detail = strings.Join(said, "; ")
		if status == http.StatusUnprocessableEntity && text != "validation failed" {
			p.Detail = fmt.Sprintf("%s: %s", text, p.Detail)
		}
	}
	return p
}
