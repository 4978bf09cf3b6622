package cli

import (
	"strings"
	"testing"
)

// Common words of user-data do not keep the concealer from secrets beside the
// same words in other texts.
func TestConcealerHidesSecrets(t *testing.T) {
	var c concealer
	c.learn("#cloud-config\npassword: my own pet\nruncmd:\n - echo set the password, then the token, on https://\n - echo -----BEGIN RSA PRIVATE KEY-----\n - authenticate Bearer\n")
	for text, secret := range map[string]string{
		"password=abc1":                              "abc1",
		"token: abc2, then more":                     "abc2",
		"Authorization: Bearer abcdefgh3":            "abcdefgh3",
		"login: my own pet":                          "pet",
		"http://u:p@ss4@mirror.test/x":               "ss4",
		"https://m.test/x?sv=1&sig=abq5#sha256=0a":   "abq5",
		"AWS_SECRET_ACCESS_KEY=abc5 failed":          "abc5",
		"password: abc,d6;e":                         "d6",
		`{"token_id": "abc \"d7"}`:                   "d7",
		`secret: \"abc d8\" failed`:                  "d8",
		"passphrase: 'not ended d9":                  "d9",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIabc0\n": "MIIabc0",
	} {
		if got := c.text(text); strings.Contains(got, secret) || !strings.Contains(got, concealed) {
			t.Errorf("%q gives %q", text, got)
		}
	}
	for _, text := range []string{"see http://a.test/x, mail me@b.test", "is it http://a.test/x#sha256=0a?", "volume/data is attached to web: 3 files", "état: prêt"} {
		if got := c.text(text); got != text {
			t.Errorf("%q gives %q", text, got)
		}
	}
}
