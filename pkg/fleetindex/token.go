package fleetindex

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
)

// ErrToken is the error of a continue token that this store did not give for this request.
var ErrToken = errors.New("the continue token is not one of this request; ask again without it")

// maxToken bounds the length of a token: names of a cluster, a namespace and an object.
const maxToken = 4 << 10

// position is where a page ends. A user must not see it: the numbers of rows say how many there were.
type position struct {
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"n,omitempty"`
	// Version is that of the first page of a list, and Seen the number of its rows so far.
	Version string `json:"v,omitempty"`
	Seen    int64  `json:"s,omitempty"`
	// Row is the last one of a search.
	Row int64 `json:"r,omitempty"`
}

// tokens makes and reads tokens.
type tokens struct{ cipher.AEAD }

func newTokens(key []byte) (tokens, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return tokens{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return tokens{aead}, err
}

// seal returns a token for a position that is of use for the same request only.
func (t tokens) seal(p position, request string) string {
	plain, _ := json.Marshal(p) // it has nothing that JSON has not
	return base64.RawURLEncoding.EncodeToString(t.Seal(nil, nil, plain, []byte(request)))
}

// unseal returns the position of a token. The empty token is the beginning.
func (t tokens) unseal(token, request string) (p position, err error) {
	if token == "" {
		return p, nil
	}
	if len(token) > maxToken {
		return p, ErrToken
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return p, ErrToken
	}
	plain, err := t.Open(nil, nil, sealed, []byte(request))
	if err != nil || json.NewDecoder(bytes.NewReader(plain)).Decode(&p) != nil {
		return p, ErrToken
	}
	return p, nil
}
