package kvm

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"

	libvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"hostler/containerbroker"
	"hostler/internal/fault"
)

// secretUUID returns the UUID of the libvirt secret that holds a namespace's
// key. Only users with full access to libvirt, who can do anything to the
// guests, can read the secret. Users with read-only access cannot.
func secretUUID(namespace string) string { return uuidOf("secret", namespace) }

// sealKey returns the key of a namespace. If the key is missing, it makes the
// key if create is set, and returns nil otherwise.
func (d *Driver) sealKey(ctx context.Context, c *conn, namespace string, create bool) ([]byte, error) {
	d.keyed.Lock()
	defer d.keyed.Unlock()
	d.mu.Lock()
	key := d.keys[namespace]
	d.mu.Unlock()
	if key != nil {
		return key, nil
	}
	key, err := readKey(c, namespace)
	if fault.Is(err, fault.NotFound) {
		if !create {
			return nil, nil
		}
		if err = makeKey(c, namespace); err == nil {
			key, err = readKey(c, namespace)
		}
	}
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	d.mu.Lock()
	d.keys[namespace] = key
	d.mu.Unlock()
	return key, nil
}

func readKey(c *conn, namespace string) ([]byte, error) {
	id, _ := parseUUID(secretUUID(namespace))
	secret, err := value(c, "find the key of the stamps", func(l *libvirt.Libvirt) (libvirt.Secret, error) { return l.SecretLookupByUUID(id) })
	if err != nil {
		return nil, err
	}
	key, err := value(c, "read the key of the stamps", func(l *libvirt.Libvirt) ([]byte, error) { return l.SecretGetValue(secret, 0) })
	if err == nil && len(key) != 32 {
		err = fault.New(fault.NotFound, "the key of the stamps is damaged")
	}
	return key, err
}

func makeKey(c *conn, namespace string) error {
	text, err := (&libvirtxml.Secret{
		Ephemeral: "no", Private: "no", UUID: secretUUID(namespace),
		Description: "key of the records of hostler's agent " + clean(namespace, 63),
	}).Marshal()
	if err != nil {
		return fault.New(fault.Invalid, "cannot write the key of the stamps: %v", err)
	}
	secret, err := value(c, "make the key of the stamps", func(l *libvirt.Libvirt) (libvirt.Secret, error) { return l.SecretDefineXML(text, 0) })
	if err != nil {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return c.Call("keep the key of the stamps", func(l *libvirt.Libvirt) error { return l.SecretSetValue(secret, key, 0) })
}

// seal compresses and encrypts a text.
func seal(key []byte, text string) (string, error) {
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	aead, err := cipherOf(key)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	return base64.StdEncoding.EncodeToString(aead.Seal(nonce, nonce, packed.Bytes(), nil)), nil
}

// unseal returns the text that seal() encrypted, or "" if it cannot read
// sealed.
func unseal(key []byte, sealed string) string {
	data, err := base64.StdEncoding.DecodeString(sealed)
	aead, cipherErr := cipherOf(key)
	if err != nil || cipherErr != nil || len(data) < aead.NonceSize() {
		return ""
	}
	packed, err := aead.Open(nil, data[:aead.NonceSize()], data[aead.NonceSize():], nil)
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), containerbroker.MaxRecord))
	if err != nil {
		return ""
	}
	return string(text)
}

func cipherOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// digest returns a keyed digest, which shows whether two texts differ without
// revealing them. It returns "" if the text is empty or key is nil.
func digest(key []byte, text string) string {
	if text == "" || key == nil {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, text)
	return hex.EncodeToString(mac.Sum(nil))
}

// parseUUID reads a UUID as libvirt writes it.
func parseUUID(text string) (libvirt.UUID, bool) {
	var id libvirt.UUID
	plain := make([]byte, 0, 32)
	for i := range len(text) {
		if text[i] != '-' {
			plain = append(plain, text[i])
		}
	}
	if len(plain) != 32 {
		return id, false
	}
	_, err := hex.Decode(id[:], plain)
	return id, err == nil
}
