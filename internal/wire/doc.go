// Package wire owns the bytes that hora's processes send to each other: the
// first bytes of a connection, the header of a data frame, the messages of a
// control connection, and the small encoder and decoder that other packages
// build their messages from.
//
// It never touches a socket of its own accord, keeps no state and starts no
// goroutine. Every decoder takes bytes that anybody may have written: it checks
// each length before it touches or allocates memory, never panics, and refuses
// what is left over. All integers are little-endian.
package wire

// Version is the one version byte of hora's protocols. Two processes talk only
// when theirs are equal; it changes with any change of the bytes that this
// package or package secret describe.
const Version byte = 2

// Magic begins every connection, before the version byte.
const Magic = "HORA"

// NonceBytes is the length of the random number in a Hello.
const NonceBytes = 32

// HelloBytes is the length of what is sent before the secret is proved. It is
// the same in every version, so that two versions can name each other.
const HelloBytes = len(Magic) + 1 + NonceBytes
