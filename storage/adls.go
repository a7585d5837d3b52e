package storage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// ADLS is Azure's data lake storage (its second generation). Names are
// abfss://filesystem@account.dfs.core.windows.net/path.
type ADLS struct {
	web      *Web
	endpoint string // scheme and host; "": the account's
}

const (
	azureVersion = "2021-08-06" // of the interface
	azurePart    = 64 << 20     // what one request appends
)

// NewADLS takes the token from HORA_ADLS_TOKEN, or asks for one as the service principal
// of AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET.
func NewADLS(lookup func(string) string) (*ADLS, error) {
	b, err := azureBearer(lookup)
	if err != nil {
		return nil, err
	}
	a := &ADLS{web: NewWeb(), endpoint: strings.TrimSuffix(lookup("HORA_ADLS_ENDPOINT"), "/")}
	if u, err := url.Parse(a.endpoint); a.endpoint != "" && (err != nil || u.Host == "") {
		return nil, fmt.Errorf("use the endpoint %q of Azure's storage: it is no address; set HORA_ADLS_ENDPOINT to one such as https://host:10000", a.endpoint)
	}
	a.web.url, a.web.token = a.address, b.get
	a.web.header = http.Header{"X-Ms-Version": {azureVersion}}
	return a, nil
}

// lake takes a name apart.
func lake(name string) (filesystem, host, below string, err error) {
	_, rest, _ := strings.Cut(name, "://")
	where, below, _ := strings.Cut(rest, "/")
	filesystem, host, found := strings.Cut(where, "@")
	if !found || filesystem == "" || host == "" {
		return "", "", "", errors.New("it names no filesystem and account: write abfss://filesystem@account.dfs.core.windows.net/path")
	}
	return filesystem, host, strings.TrimSuffix(below, "/"), nil
}

func (a *ADLS) address(name string) (string, error) {
	name, query, _ := strings.Cut(name, "\x00")
	filesystem, host, below, err := lake(name)
	if err != nil {
		return "", err
	}
	address := a.endpoint
	if address == "" {
		address = "https://" + host
	}
	address += "/" + escape(filesystem, true)
	if below != "" {
		address += "/" + escape(below, false)
	}
	if query != "" {
		address += "?" + query
	}
	return address, nil
}

// Stat looks at one file.
func (a *ADLS) Stat(ctx context.Context, name string) (Object, error) {
	o, folder, err := a.look(ctx, name)
	if err == nil && folder {
		err = &Error{"open", name, errors.New("it is a folder")}
	}
	return o, err
}

func (a *ADLS) look(ctx context.Context, name string) (o Object, folder bool, err error) {
	err = a.web.repeat(ctx, "open", name, func(ctx context.Context) error {
		answer, err := a.web.do(ctx, http.MethodHead, name, nil, nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		folder = answer.Header.Get("X-Ms-Resource-Type") == "directory"
		if answer.ContentLength < 0 && !folder {
			return final(errors.New("the server does not say how long the file is"))
		}
		o = Object{Name: name, Size: answer.ContentLength, Tag: quoted(answer.Header.Get("ETag"))}
		return nil
	})
	return o, folder, err
}

// quoted is a tag as answers to reads have it: lists leave the quotes out.
func quoted(tag string) string {
	if tag == "" || strings.HasPrefix(tag, `"`) {
		return tag
	}
	return strconv.Quote(tag)
}

// lakeList is a page of a list. Numbers and booleans come as texts.
type lakeList struct {
	Paths []struct {
		Name   string `json:"name"`
		Folder string `json:"isDirectory"`
		Size   string `json:"contentLength"`
		Tag    string `json:"etag"`
	} `json:"paths"`
}

// List answers the files below a folder, or the one of that name.
func (a *ADLS) List(ctx context.Context, name string) ([]Object, error) {
	filesystem, host, below, err := lake(name)
	if err != nil {
		return nil, &Error{"list", name, err}
	}
	if below != "" {
		o, folder, err := a.look(ctx, strings.TrimSuffix(name, "/"))
		if err != nil {
			return nil, err
		}
		if !folder {
			return []Object{o}, nil
		}
	}
	scheme, _, _ := strings.Cut(name, "://")
	root := scheme + "://" + filesystem + "@" + host + "/"
	var all []Object
	for next := ""; ; {
		query := "resource=filesystem&recursive=true"
		if below != "" {
			query += "&directory=" + escape(below, true)
		}
		if next != "" {
			query += "&continuation=" + escape(next, true)
		}
		var page lakeList
		last := next
		err := a.web.repeat(ctx, "list", name, func(ctx context.Context) error {
			answer, err := a.web.do(ctx, http.MethodGet, root+"\x00"+query, nil, nil)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			page, next = lakeList{}, answer.Header.Get("X-Ms-Continuation")
			return json.NewDecoder(io.LimitReader(answer.Body, 64<<20)).Decode(&page)
		})
		if err != nil {
			return nil, err
		}
		for _, p := range page.Paths {
			size, err := strconv.ParseInt(p.Size, 10, 64)
			inside := strings.TrimPrefix(strings.TrimPrefix(p.Name, below), "/")
			if p.Folder == "true" || err != nil || size < 0 || inside == "" || hidden(inside) {
				continue
			}
			all = append(all, Object{root + p.Name, size, quoted(p.Tag)})
		}
		if next == "" || next == last {
			break
		}
	}
	if len(all) == 0 {
		return nil, &Error{"list", name, ErrNotFound}
	}
	return all, nil
}

// ReadAt gets a range of a file that is still what it was.
func (a *ADLS) ReadAt(ctx context.Context, o Object, p []byte, offset int64) error {
	return a.web.ReadAt(ctx, o, p, offset)
}

// Put writes a file under a name of its own and renames it when all of it is there.
func (a *ADLS) Put(ctx context.Context, name string, content []byte) error {
	filesystem, _, below, err := lake(name)
	if err != nil {
		return &Error{"write", name, err}
	}
	hiddenName := path.Join(path.Dir(below), "."+path.Base(below)+"."+rand.Text())
	made := strings.TrimSuffix(name, below) + hiddenName
	ask := func(method, query string, header http.Header, body []byte) error {
		target := made
		if header != nil {
			target = name
		}
		return a.web.repeat(ctx, "write", name, func(ctx context.Context) error {
			answer, err := a.web.do(ctx, method, target+"\x00"+query, header, body)
			if err != nil {
				return err
			}
			return answer.Body.Close()
		})
	}
	if err := ask(http.MethodPut, "resource=file", nil, nil); err != nil {
		return err
	}
	at := 0
	for at < len(content) && err == nil {
		part := content[at:min(len(content), at+azurePart)]
		err = ask(http.MethodPatch, fmt.Sprintf("action=append&position=%d", at), nil, part)
		at += len(part)
	}
	if err == nil {
		err = ask(http.MethodPatch, fmt.Sprintf("action=flush&position=%d", at), nil, nil)
	}
	if err == nil {
		from := "/" + escape(filesystem, true) + "/" + escape(hiddenName, false)
		err = ask(http.MethodPut, "mode=legacy", http.Header{"X-Ms-Rename-Source": {from}}, nil)
	}
	if err != nil {
		_ = ask(http.MethodDelete, "", nil, nil) // what is left has a hidden name
	}
	return err
}
