package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// contentAgain is content that can be sent again: each call answers all of it, whoever still reads an earlier answer.
type contentAgain func() io.Reader

// Put sends content. What can be read at any place, as a file can, is sent again where the server was lost meanwhile,
// as other calls are.
func (c *Client) Put(ctx context.Context, hash string, content io.Reader) error {
	where, ok := content.(interface {
		io.ReaderAt
		io.Seeker
	})
	if !ok {
		return c.call(ctx, "PUT", "/blobs/"+hash, nil, content, nil)
	}
	begin, err := where.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	end, err := where.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// The transport may read on for a moment after a call has failed, so each has a reader of its own.
	again := contentAgain(func() io.Reader { return io.NewSectionReader(where, begin, end-begin) })
	return c.call(ctx, "PUT", "/blobs/"+hash, nil, again, nil)
}

// Get opens content. Reading it ends with an error where what has come is not what has that hash.
func (c *Client) Get(ctx context.Context, hash string) (io.ReadCloser, error) {
	r, err := c.send(ctx, "GET", "/blobs/"+hash, nil, nil)
	if err != nil {
		return nil, err
	}
	return &checkedBody{r.Body, sha256.New(), hash}, nil
}

// checkedBody is content whose hash is looked at when its end comes.
type checkedBody struct {
	io.ReadCloser
	read hash.Hash
	want string
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if is := hex.EncodeToString(b.read.Sum(nil)); is != b.want {
			return n, fmt.Errorf("what came has the hash %s and not %s: fetch it again; where that does not help the server's copy is damaged, and horad check DIR says so", is, b.want)
		}
	}
	return n, err
}
