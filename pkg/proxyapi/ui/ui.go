package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// Path is where the page is served.
const Path = "/ui/"

// policy allows what the page needs, from its own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Sandbox is the Content-Security-Policy of documents of others at the page's origin. They
// may run scripts, but as another origin.
const Sandbox = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

//go:embed static
var static embed.FS

// contentTypes are by extension: those of the machine may be others.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

type file struct {
	content           []byte
	contentType, etag string
}

// Handler serves the page to anyone.
type Handler struct{ files map[string]file }

// New returns a Handler.
func New() *Handler {
	h := &Handler{files: map[string]file{}}
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err) // a mistake in this package
	}
	for _, entry := range entries {
		content, err := static.ReadFile("static/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		name := Path + entry.Name()
		if entry.Name() == "index.html" {
			name = Path
		}
		h.files[name] = file{content, contentTypes[path.Ext(entry.Name())], `"` + hex.EncodeToString(sum[:16]) + `"`}
	}
	return h
}

// Owns reports whether a path is the page's, or would be if there were such a file.
func Owns(path string) bool {
	return path == strings.TrimSuffix(Path, "/") || strings.HasPrefix(path, Path)
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY") // for what does not know frame-ancestors
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	// A copy may be kept, and is used only if it is still the file.
	header.Set("Cache-Control", "no-cache")
	found, ok := h.files[r.URL.Path]
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
	case r.URL.Path+"/" == Path:
		// Relative, because there may be a prefix in front of it.
		header.Set("Location", path.Base(Path)+"/")
		w.WriteHeader(http.StatusMovedPermanently)
	case !ok:
		http.Error(w, "the page has no such file", http.StatusNotFound)
	default:
		found.serve(w, r)
	}
}

func (f file) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", f.etag)
	if has(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(f.content)))
	if r.Method == http.MethodHead {
		return
	}
	// The client may be gone, and no one else reads the error.
	_, _ = w.Write(f.content)
}

// has reports whether an If-None-Match header has an ETag. A proxy that compresses may have
// made a weak one of it.
func has(header, etag string) bool {
	for value := range strings.SplitSeq(header, ",") {
		if value = strings.TrimPrefix(strings.TrimSpace(value), "W/"); value == etag || value == "*" {
			return true
		}
	}
	return false
}
