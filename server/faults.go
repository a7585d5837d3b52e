package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/client"
)

func init() {
	huma.NewError = NewFault
	huma.NewErrorWithContext = func(c huma.Context, status int, text string, errs ...error) huma.StatusError {
		if c == nil {
			return NewFault(status, text, errs...)
		}
		return newFault(c.Operation(), status, text, errs)
	}
}

// problem is an error as it is answered.
type problem struct{ client.Fault }

func (p *problem) GetStatus() int { return p.Status }

func (p *problem) ContentType(string) string { return "application/problem+json" }

// NewFault makes an error's answer: one sentence with all that is wrong.
func NewFault(status int, text string, errs ...error) huma.StatusError {
	return newFault(nil, status, text, errs)
}

// newFault knows what the call takes, where op is not nil.
func newFault(op *huma.Operation, status int, text string, errs []error) huma.StatusError {
	text = wholly(text)
	p := &problem{client.Fault{Status: status, Title: http.StatusText(status), Detail: text}}
	meant := map[string]bool{} // what has been mistyped, and is not missing beside that
	var all []client.FaultDetail
	for _, err := range errs {
		if err == nil {
			continue
		}
		d := client.FaultDetail{Message: err.Error()}
		if detailed, ok := err.(huma.ErrorDetailer); ok {
			e := detailed.ErrorDetail()
			d = client.FaultDetail{Message: e.Message, Location: e.Location, Value: e.Value}
		}
		if d.Message == "unexpected property" {
			above := d.Location[:max(strings.LastIndexByte(d.Location, '.'), 0)]
			where := placeOf(op, above)
			near := ""
			if d.Message, near = unknown(where, placeOf(op, d.Location).name); near != "" {
				meant[strings.TrimPrefix(where.name+"."+near, ".")] = true
			}
		}
		all = append(all, d)
	}
	var said []string
	for _, d := range all {
		where := placeOf(op, d.Location)
		if _, is := d.Value.(null); is && where.name != "" {
			d.Message = where.name + " is null: leave it out, or give it a value"
		} else if name := missing(where, d.Message); name != "" {
			if meant[name] {
				continue
			}
			d.Message = name + " is missing: give it"
		} else if !strings.HasPrefix(d.Message, "there is no field ") {
			d.Message = where.sentence(d.Message, d.Value)
		}
		if slices.Contains(said, d.Message) { // what is in the path and in the body
			continue
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
