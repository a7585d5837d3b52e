package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

	"hora/server/client"
	"hora/server/store"
	"hora/server/web"
)

// nobody is what records call who has no token that is known.
const nobody = "nobody"

// cookieName is that of the browser's session.
const cookieName = "hora"

// sessionTime is how long a browser is let in.
const sessionTime = 30 * 24 * time.Hour

// isOwner says whether a token is the server's own.
func (a *api) isOwner(token string) bool {
	want, got := sha256.Sum256([]byte(a.Token)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// guard lets nobody in without a token: as a bearer, or by a session in the cookie of the pages. A cookie changes
// nothing unless the request comes from our own pages. What is changed, and what is refused, is recorded.
func (a *api) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		cookie, err := r.Cookie(cookieName)
		if sends := !reads && !bearer; sends && (fromPage(r) || err == nil) && !sameOrigin(r) {
			a.foreign(w, r)
			return
		}
		if reads && web.Open(r.URL.Path) {
			mux.ServeHTTP(w, r)
			return
		}
		if err == nil && !bearer {
			text = cookie.Value
		}
		if r.URL.Path == enter { // whose form is read of anybody
			r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		}
		entering := r.URL.Path == "/" && r.Method == http.MethodGet && r.URL.Query().Get("token") != ""
		if entering {
			text = r.URL.Query().Get("token")
		} else if entering = r.URL.Path == enter && r.Method == http.MethodPost && !bearer; entering {
			text = strings.TrimSpace(r.PostFormValue("token"))
		}
		var is *who
		err = nil
		if text != "" {
			is, err = a.resolve(r.Context(), text)
		}
		switch {
		case is == nil || err != nil:
			a.stranger(w, r, is, err)
		case is.session && bearer:
			a.stranger(w, r, is, nil) // a browser's session is no token for programs
		case entering:
			a.recorded(w, r, is, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				deedOf(r.Context()).What = signIn
				a.enterBrowser(w, r, is, wanted(r))
			}))
		case r.URL.Path == signOut && r.Method == http.MethodPost && is.session:
			a.recorded(w, r, is, http.HandlerFunc(a.leaveBrowser))
		case reads:
			a.looked(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, is)), is, a.figures(a.strict(mux, mux)))
		default:
			ctx := context.WithValue(r.Context(), whoKey{}, is)
			if !endsWithCaller(r.URL.Path) {
				ctx = context.WithoutCancel(ctx)
			}
			a.recorded(w, r.WithContext(ctx), is, a.strict(mux, a.once(text, mux)))
		}
	})
}

// figures are for who has a role in all projects.
func (a *api) figures(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" && caller(r.Context()).all < viewer {
			problemAnswer(w, http.StatusForbidden, "the server's figures are for who has a role in all projects: an administrator gives it with hora user add NAME --all")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// endsWithCaller says whether a call that changes something ends with its caller. The others go on to their end: half
// of one is worse than all of it.
func endsWithCaller(path string) bool {
	// What is sent ends with who sends it; and who leaves hora down --now has the jobs that wait go on.
	return strings.HasPrefix(path, "/api/v1/blobs/") || path == "/api/v1/down"
}

// stranger answers who has no token that is known, or one that lets nobody in.
func (a *api) stranger(w http.ResponseWriter, r *http.Request, is *who, err error) {
	text := "the token is missing or wrong: HORA_TOKEN, HORA_TOKEN_FILE or hora login give it; a browser is let in by the address that hora up prints"
	status := http.StatusUnauthorized
	if err != nil {
		text, status = err.Error(), fault(err).(interface{ GetStatus() int }).GetStatus()
	}
	d := client.Deed{Who: nobody, Address: addressOf(r), What: r.Method, Target: clip(r.URL.Path), Status: status}
	if is != nil {
		d.Who = is.label()
	}
	a.refused.note(a.Server, d)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="hora"`)
	}
	if status == http.StatusUnauthorized && !forPrograms(r.URL.Path) {
		web.Enter(w, status, web.Entrance{Title: "Sign in", Text: toEnter(r, is, text), To: wanted(r)})
		return
	}
	refusedCall(w, r, status, text)
}

// toEnter is what a browser is told that is not let in: what is wrong with the token that was given, where one was.
func toEnter(r *http.Request, is *who, text string) string {
	_, err := r.Cookie(cookieName)
	switch {
	case is != nil: // somebody's, and why it lets nobody in any more is known
		return text
	case r.Method == http.MethodPost && r.URL.Path == enter, r.URL.Path == "/" && r.URL.Query().Get("token") != "":
		return "That is no token of this server's, or it was taken back: look whether all of it was copied."
	case err == nil:
		return "This browser is signed in no more: its token was taken back, or a month has passed."
	}
	return "This is a server for jobs of hora, and a token lets you in."
}

// wanted is where a browser goes once it is let in: the page that it asked for, a path of this server's alone.
func wanted(r *http.Request) string {
	to := r.URL.RequestURI()
	switch {
	case r.Method == http.MethodPost && r.URL.Path == enter:
		to = r.PostFormValue("to")
	case r.Method != http.MethodGet || r.URL.Query().Get("token") != "":
		return "/"
	}
	u, err := url.Parse(to)
	own := err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(to, "/") &&
		!strings.HasPrefix(to, "//") && !strings.ContainsAny(to, "\\\t\r\n")
	if !own || forPrograms(u.Path) || u.Path == enter || u.Path == signOut {
		return "/"
	}
	return u.RequestURI()
}

// forPrograms says whether a path is no page.
func forPrograms(path string) bool { return strings.HasPrefix(path, "/api/") || path == "/metrics" }

// foreign refuses what a browser sends from a page that is not ours, whoever is signed in there.
func (a *api) foreign(w http.ResponseWriter, r *http.Request) {
	from := "a page that does not say where it is from"
	if origin := r.Header.Get("Origin"); origin != "" && origin != "null" {
		from = fmt.Sprintf("a page of %.200s", origin)
	}
	a.refused.note(a.Server, client.Deed{
		Who: nobody, Address: addressOf(r), What: r.Method, Target: clip(r.URL.Path), Status: http.StatusForbidden,
	})
	refusedCall(w, r, http.StatusForbidden, from+" has sent this, and the server's own pages alone change something: open the page here, and press its button; a program sends a token, as Authorization: Bearer TOKEN")
}

// refusedCall tells a program, or shows a browser, why it is not let in.
func refusedCall(w http.ResponseWriter, r *http.Request, status int, text string) {
	if forPrograms(r.URL.Path) {
		problemAnswer(w, status, text)
		return
	}
	web.Refused(w, status, text)
}

// enterBrowser makes a session of a token in an address, which then leaves the address, or of one in a form.
func (a *api) enterBrowser(w http.ResponseWriter, r *http.Request, is *who, to string) {
	p := store.Pass{Pass: is.pass.Pass, Parent: is.hash}
	p.Expires = time.Now().Add(sessionTime)
	if is.session {
		p.Parent = is.pass.Parent
	}
	text, _, err := a.addPass(r.Context(), &p)
	if err != nil {
		refusedCall(w, r, http.StatusServiceUnavailable, "the server cannot let a browser in now: try again")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: text, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		MaxAge: int(sessionTime.Seconds()), Secure: r.TLS != nil,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	// A redirect would not bring the cookie along: the browser came from elsewhere.
	to = html.EscapeString(to)
	fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=%s"><title>hora</title><a href="%s">go on</a>`, to, to)
}

// signIn is what records call it that a browser is let in.
const signIn = "sign-in"

// enter is where the page of a browser that is not let in sends a token.
const enter = "/sign-in"

// signOut is where a page's button ends the browser's session.
const signOut = "/sign-out"

// leaveBrowser forgets the session of a browser: who has kept its cookie is not let in by it either.
func (a *api) leaveBrowser(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(cookieName)
	if err == nil {
		err = a.store.Do(r.Context(), func(tx *sql.Tx) error { return store.DropSession(tx, cookie.Value) })
	}
	if err != nil {
		refusedCall(w, r, http.StatusServiceUnavailable, "the server cannot sign the browser out now: try again")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1, Secure: r.TLS != nil,
	})
	web.Enter(w, http.StatusOK, web.Entrance{Title: "Signed out", Text: "A token lets this browser in again.", To: "/"})
}

// fromPage says whether a browser sends this from a page.
func fromPage(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// sameOrigin says whether a browser sends this from one of our own pages.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin := r.Header.Get("Origin")
	return origin == "http://"+r.Host || origin == "https://"+r.Host
}
